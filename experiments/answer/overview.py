"""What `ablate list` prints."""

from datetime import datetime
from pathlib import Path

from experiments.launch.ask import runs
from experiments.launch.progress import clock
from experiments.launch.question import Question, short
from experiments.record.result import finished, read_result

from .claims import claim_of
from .render import as_markdown, as_terminal
from .results import as_asked, groups
from .verdicts import answers


def overview(questions: list[Question], out: Path) -> str:
    """A line a question."""
    heads = ["question", "claim", "choices", "arms × seeds", "recipe", "done", "answer", "expected"]
    return as_terminal(heads, [line(question, out) for question in questions])


def line(question: Question, out: Path) -> list[str]:
    wanted = [run for _, _, run in runs(question, out)]
    done = [run for run in wanted if finished(run.folder)]
    known = [result for group in as_asked(groups(question, None), question) for result in group.every]
    seconds = [wall_seconds(r) for r in ([read_result(run.folder / "result.json") for run in done] or known)]
    left = (len(wanted) - len(done)) * sum(seconds) / len(seconds) if seconds else None
    return [
        question.name,
        claim_of(question).get("english", ""),
        "; ".join(f"{short(key)}: {' | '.join(map(str, values))}" for key, values in question.varied.items()),
        f"{len(question.arms())} × {len(question.seeds)}",
        question.recipe,
        f"{'█' * round(8 * len(done) / len(wanted)):░<8} {len(done)} of {len(wanted)}",
        f"{len(known)} shipped" if known else "none",
        "unknown" if left is None else f"{clock(left)} of one process" if left else "nothing to do",
    ]


def table_of_claims(questions: list[Question], out: Path | None) -> str:
    """A row for each check of each claim, as `answers` chooses the data (`out`: see `groups`)."""
    heads = ["question", "the claim", "data", "metric", "ours: baseline → arm", "published", "verdict"]
    body = []
    for question in questions:
        published = "; ".join(map(short_source, claim_of(question).get("published", []))) or "none known"
        for i, verdict in enumerate(answers(question, groups(question, out))):
            name, figures = (f"`{question.name}`", published) if i == 0 else ("", "")
            judged = f"**{verdict.verdict}**"
            body.append([name, verdict.says, verdict.data, verdict.metric, verdict.ours, figures, judged])
    return as_markdown(heads, body)


def short_source(table: dict) -> str:
    rows = ", ".join(f"{row['arm']} {row['value']}" for row in table["rows"])
    return f"{table['source'].split(',')[0]}, {table['where']}: {rows}"


def wall_seconds(result: dict) -> float:
    """From start to end, imports and tests included."""
    started, ended = (datetime.fromisoformat(result[key]) for key in ("started", "ended"))
    return (ended - started).total_seconds()
