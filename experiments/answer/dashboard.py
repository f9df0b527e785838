"""One static page with every answer: opens from disk without a network, on a lecture screen, a telephone and paper."""

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from experiments.launch.ask import runs
from experiments.launch.progress import clock
from experiments.launch.question import BadInput, Question

from . import charts
from .claims import claim_of, published_line
from .history import history
from .render import columns, counted, header, sheet
from .reproduce import command_of
from .results import Group, as_asked, groups, narrowed
from .table import choices_of, in_order, insides, layers, other_metrics, rows_of
from .tuning import tuned
from .verdicts import Verdict, answers, verdicts

PAGE = Path(__file__).parent / "page"
MARKS = {"confirmed": "✓", "refuted": "✗", "equal": "≈", "not": "?", "no": "…"}
LIVE = 120  # seconds without a sign of life after which a run counts as stopped


@dataclass
class Table:
    title: str
    heads: list[str]
    body: list[list[str]]


@dataclass
class Picture:
    title: str
    svg: Markup


@dataclass
class Section:
    """Results of one recipe and variant."""

    title: str
    table: Table
    more: list[Table]
    pictures: list[Picture]
    insides: list[Picture]
    samples: list[dict[str, Any]]
    runs: list[dict[str, str]]
    verdicts: list[Verdict]
    counted: str


@dataclass
class Entry:
    """A question on the page."""

    question: Question
    claim: dict[str, Any]
    sections: list[Section]
    verdicts: list[Verdict]
    done: int
    wanted: int
    running: int
    published: list[str] = field(default_factory=list)


def write(questions: list[Question], out: Path, target: Path, code: str) -> int:
    """The page, written whole or not at all; it loads itself again while something is running.

    Returns:
        How many runs are going on.
    """
    entries = [entry(question, out, target.parent, code) for question in questions]
    running = sum(one.running for one in entries)
    shelf = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    shelf.filters |= {"mark": lambda verdict: MARKS[verdict.split()[0]], "kind": lambda verdict: verdict.split()[0]}
    page = shelf.get_template("dashboard.html").render(
        entries=entries,
        style=Markup((PAGE / "dashboard.css").read_text()),
        script=Markup((PAGE / "dashboard.js").read_text()),
        made=time.strftime("%F %H:%M"),
        live=running,
        kinds=["confirmed", "refuted", "equal", "not detectable here", "no answer yet"],
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(".part")
    draft.write_text(page)
    draft.replace(target)
    return running


def photograph(page: Path, target: Path) -> Path:
    """A PNG of the page's beginning as Chromium shows it.

    Raises:
        BadInput: no Chromium here, or it says nothing.
    """
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise BadInput("--picture needs Chromium on the PATH: apt-get install chromium")
    if target.suffix != ".png" or not target.parent.is_dir():
        raise BadInput(f"--picture {target}: write a name that ends with .png, in a folder that exists")
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    size = ["--window-size=1200,1500", "--virtual-time-budget=3000", f"--screenshot={target}"]
    with tempfile.TemporaryDirectory() as profile:
        target.unlink(missing_ok=True)
        command = [browser, *words, f"--user-data-dir={profile}", *size, page.as_uri()]
        subprocess.run(command, capture_output=True, timeout=120)
    if not target.exists():
        raise BadInput(f"{browser} drew no picture of {page}")
    return target


def entry(question: Question, out: Path, home: Path, code: str) -> Entry:
    """The results of the question as it stands come first, then other recipes and settings.

    Args:
        home: the page's own folder.
    """
    found, wanted = groups(question, out), runs(question, out)
    own, judged = as_asked(found, question)[-1:], answers(question, found)
    found.sort(key=lambda group: group not in own)
    sections = [section(group if group in own else narrowed(group), home, code) for group in found]
    return Entry(
        question=question,
        claim=claim_of(question),
        sections=sections,
        verdicts=judged,
        done=sum(result["status"] != "failed" for group in own for result in group.every),
        wanted=len(wanted),
        running=sum(is_running(run.folder) for _, _, run in wanted),
        published=[published_line(table) for table in claim_of(question).get("published", [])],
    )


def section(group: Group, home: Path, code: str) -> Section:
    raw, group = group, tuned(group)
    rows = rows_of(group)
    choices = list(rows[0].choices)
    more = [
        Table(title, *sheet(table, choices))
        for title, table in (
            ("Also measured: mean ± sd over the finished seeds", other_metrics(group)),
            ("Inside: mean over attention modules and seeds, at the start and at the end of training", insides(group)),
            ("Gradient norm by layer", layers(group)),
        )
        if table and set(table[0]) > set(choices)
    ]
    return Section(
        title=header(group, code),
        table=Table("", *columns(group, rows)),
        more=more + [Table(f"Learning curve: {metric}", *curve_sheet(group, metric)) for metric in followed(group)],
        pictures=[Picture(title, Markup(charts.svg(chart, title))) for title, chart in drawn(group, rows) if chart],
        insides=[Picture(title, Markup(charts.svg(chart, title))) for title, chart in charts.insides_of(group)],
        samples=side_by_side(group),
        runs=list_of_runs(raw, home),
        verdicts=verdicts(group),
        counted=counted(group),
    )


def drawn(group: Group, rows: list) -> list[tuple[str, Any]]:
    return [
        ("Seeds and means", charts.dots(group, rows)),
        *((f"Learning curves: {metric}", charts.curves(group, metric)) for metric in followed(group)),
        ("Quality against cost", charts.cost(group, rows)),
        ("Why: inside the attention", charts.why(group)),
    ]


def followed(group: Group) -> list[str]:
    """The curves that are worth a look: the metric of the table on validation, the loss there, and in training."""
    of_validation = "valid/" + group.question.metric.split("/")[-1]
    known = {name for folder in group.folders.values() for name in history(folder)[0]}
    return [name for name in dict.fromkeys([of_validation, "valid/nll", "train/loss"]) if name in known]


def curve_sheet(group: Group, metric: str) -> tuple[list[str], list[list[str]]]:
    """An arm a row, at most eight steps: the chart's means as text."""
    table, every = [], {}
    for arm in in_order(group.question, group.results):
        means = {step: fmean(seeds.values()) for step, seeds in charts.course(group, arm, metric).items()}
        table.append((choices_of(group.question, arm), means))
        every |= dict.fromkeys(means)
    steps = sorted(every)[:: -(-len(every) // 8) or 1]
    heads = [*(table[0][0] if table else []), *(f"step {step}" for step in steps)]
    return heads, [
        [*map(str, choices.values()), *(f"{means[s]:.4g}" if s in means else "–" for s in steps)]
        for choices, means in table
    ]


def side_by_side(group: Group, most: int = 3) -> list[dict[str, Any]]:
    """The samples of each arm's first seed: what all arms share once, then what each of them says."""
    said = {}
    for arm in in_order(group.question, group.results):
        if rows := history(group.first_folder(arm))[1]:
            said[charts.label(choices_of(group.question, arm))] = rows
    if not said:
        return []
    found = []
    for samples in list(zip(*said.values(), strict=False))[:most]:
        shared = {
            c: text for c, text in samples[0].items() if len(samples) > 1 and all(s.get(c) == text for s in samples)
        }
        own = {a: {c: t for c, t in s.items() if c not in shared} for a, s in zip(said, samples, strict=True)}
        found.append({"shared": shared, "arms": {a: " · ".join(texts.values()) for a, texts in own.items()}})
    return found


def list_of_runs(group: Group, home: Path) -> list[dict[str, str]]:
    """Every run that the question wants in these settings: state, figure, what sets it apart, how to repeat it."""
    listed, metric = [], group.question.metric
    for arm in in_order(group.question):
        named = dict(zip(group.question.varied, arm, strict=True))
        base = group.results.get(group.baseline_of(arm), {})
        for seed in sorted({*group.question.seeds, *group.results.get(arm, {})}):
            result = group.results.get(arm, {}).get(seed)
            listed.append({
                "arm": charts.label(choices_of(group.question, arm)),
                "seed": str(seed),
                "status": result["status"] if result else "missing",
                "value": f"{result['metrics'][metric]:.4g}" if result and metric in result["metrics"] else "–",
                "time": clock(result["seconds"]) if result else "–",
                "differs": differences(result, base.get(seed)),
                "log": log_of(group, result, home),
                "command": again(group, named, seed),
            })  # fmt: skip
    return listed


def differences(result: dict[str, Any] | None, baseline: dict[str, Any] | None) -> str:
    """The resolved configuration's own words where it is not the baseline's of the same seed."""
    if not result or not baseline or result is baseline:
        return ""
    one, other = result["config"], baseline["config"]
    keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    return "; ".join(f"{key} {other.get(key)} → {one.get(key)}" for key in keys)


def again(group: Group, arm: dict[str, Any], seed: int) -> str:
    """The command of a run, or why there is none."""
    try:
        return command_of(group, arm, seed)
    except BadInput as error:
        return f"# {error}"


def log_of(group: Group, result: dict[str, Any] | None, home: Path) -> str:
    """From the page's folder; empty where there is none."""
    path = None if not result or group.committed else group.folders[result["key"]] / "log.txt"
    return quote(os.path.relpath(path, home)) if path and path.exists() else ""


def is_running(folder: Path) -> bool:
    """By its last word, which is newer than a result that it may have, of an attempt that failed."""
    path, result = folder / "progress.json", folder / "result.json"
    if not path.exists() or time.time() - path.stat().st_mtime > LIVE:
        return False
    return not result.exists() or path.stat().st_mtime > result.stat().st_mtime
