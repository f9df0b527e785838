"""What `ablate list` prints."""

from datetime import datetime
from pathlib import Path

from experiments.launch.ask import runs
from experiments.launch.progress import clock
from experiments.launch.question import Question, short
from experiments.record.result import finished, read_result

from .claims import claims
from .render import as_terminal


def overview(questions: list[Question], out: Path) -> str:
    """A line a question."""
    heads = ["question", "claim", "choices", "arms × seeds", "recipe", "done", "expected"]
    return as_terminal(heads, [line(question, out) for question in questions])


def line(question: Question, out: Path) -> list[str]:
    wanted = [run for _, _, run in runs(question, out)]
    done = [run for run in wanted if finished(run.folder)]
    seconds = [wall_seconds(read_result(run.folder / "result.json")) for run in done]
    left = (len(wanted) - len(done)) * sum(seconds) / len(seconds) if seconds else None
    return [
        question.name,
        claims().get(question.name, {}).get("english", ""),
        "; ".join(f"{short(key)}: {' | '.join(map(str, values))}" for key, values in question.varied.items()),
        f"{len(question.arms())} × {len(question.seeds)}",
        question.recipe,
        f"{len(done)} of {len(wanted)}",
        "unknown" if left is None else f"{clock(left)} of one process" if left else "nothing to do",
    ]


def wall_seconds(result: dict) -> float:
    """From start to end, imports and tests included."""
    started, ended = (datetime.fromisoformat(result[key]) for key in ("started", "ended"))
    return (ended - started).total_seconds()
