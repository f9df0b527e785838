"""The same figures as Markdown, CSV, LaTeX, JSON or on the terminal."""

import csv
import dataclasses
import io
import json
import os
import shutil
import sys
from typing import Any

from .claims import claim_lines, claim_of
from .results import Group
from .sentences import sentence_tests
from .table import Row, insides, layers, other_metrics, rows_of
from .tuning import tuned
from .verdicts import verdicts

FORMATS = ("terminal", "markdown", "csv", "latex", "json")
NOTHING = "–"
PROSE = ("note", "claim", "choices")  # the columns that may run over several lines


def columns(group: Group, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells, as text; every format but JSON prints just these."""
    choices = list(rows[0].choices)
    unit = next((result.get("unit", "tokens") for result in group.every), "tokens")
    heads = [*choices, group.question.metric, "n", "difference", "95 % interval", "p (Holm)", "noise", "detectable",
             "parameters", "FLOPs", f"{unit}/s", "memory", "note"]  # fmt: skip
    digits = 2 if any(abs(row.mean) >= 10 for row in rows if row.mean is not None) else 4
    return heads, [[*(str(row.choices[c]) for c in choices), *cells(row, digits)] for row in rows]


def cells(row: Row, digits: int) -> list[str]:
    def number(value: float, sign: str = "") -> str:
        return f"{value:{sign}.{digits}f}"

    difference = row.difference
    interval = difference is not None and difference.low is not None
    return [
        NOTHING if row.mean is None else number(row.mean) + ("" if row.sd is None else f" ± {number(row.sd)}"),
        str(row.n),
        "baseline" if row.is_baseline else NOTHING if difference is None else number(difference.mean, "+"),
        f"[{number(difference.low, '+')}, {number(difference.high, '+')}]" if interval else NOTHING,
        NOTHING if row.p is None else p_value(row.p),
        NOTHING if row.noise is None else number(row.noise),
        NOTHING if row.detectable is None else number(row.detectable),
        NOTHING if row.parameters is None else f"{row.parameters:,}",
        NOTHING if row.flops is None else f"{row.flops:.2e}",
        NOTHING if row.tokens_per_second is None else f"{row.tokens_per_second:,.0f}",
        NOTHING if row.peak_memory_bytes is None else f"{row.peak_memory_bytes / 2**20:,.0f} MiB",
        row.note,
    ]


def sheet(table: list[dict[str, Any]], choices: list[str]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of a list of mappings; a choice's value is printed as it was asked."""
    heads = list(dict.fromkeys(name for one in table for name in one))
    return heads, [[str(one[name]) if name in choices else figure(one.get(name)) for name in heads] for one in table]


def figure(value: Any) -> str:
    """Three digits of a number, mean ± sd of a pair; an arm that diverged has no end."""
    if value is None:
        return NOTHING
    if isinstance(value, tuple):
        mean, sd = value
        digits = 2 if abs(mean) >= 10 else 3
        return f"{mean:.{digits}f}" + ("" if sd is None else f" ± {sd:.{digits}f}")
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def p_value(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}"


def header(group: Group, code: str | None = None) -> str:
    """Which results these are: question, recipe, variant, where they were run, on which commit."""
    everything = group.every
    hardware = sorted({machine(result["hardware"]) for result in everything})
    commits = sorted({result.get("commit", "") for result in everything} - {""})
    parts = [
        group.question.name,
        group.recipe,
        f"{len(everything)} {'committed' if group.committed else 'own'} results, variant {group.variant}",
        "; ".join(hardware),
        f"commit {', '.join(commits) or 'unknown'}",
    ]
    if code and (old := sum(result["code_fingerprint"] != code for result in everything)):
        parts.append(f"{old} of {len(everything)} results were made by earlier code")
    return " · ".join(parts)


def machine(hardware: dict[str, Any]) -> str:
    return ", ".join(hardware["gpus"]) or f"{hardware['cpu']}, {hardware['cores']} cores"


def render(group: Group, format: str, code: str | None = None, sentences: bool = False) -> str:
    """One table with its heading, its insides, and what the claim and the papers say.

    Args:
        sentences: with the tests over sentences, a second or more for each pair of runs.
    """
    group = tuned(group)
    rows = rows_of(group)
    heads, body = columns(group, rows)
    if format == "json":
        return as_json(group, rows)
    if format == "csv":
        return as_csv(heads, body)
    if format == "latex":
        return as_latex(heads, body)
    layout = as_terminal if format == "terminal" else as_markdown
    parts = [header(group, code), layout(heads, body)]
    of_sentences = sentence_tests(group) if sentences else []
    for title, table in (
        ("Also measured, mean ± sd over the finished seeds:", other_metrics(group)),
        ("Inside, mean over attention modules and seeds:", insides(group)),
        ("Gradient norm by layer, mean over seeds:", layers(group)),
        ("Sentence by sentence: sacreBLEU's paired bootstrap against the baseline, seed by seed:", of_sentences),
    ):
        if table and set(table[0]) > set(rows[0].choices):
            parts += [title, layout(*sheet(table, list(rows[0].choices)))]
    if how := counted(group):
        parts.append(f"Counted by sacreBLEU, {how}")
    painted = format == "terminal" and sys.stdout.isatty()
    parts += [f"{verdict.says}: {paint(verdict.words) if painted else verdict.words}" for verdict in verdicts(group)]
    chinese = format != "terminal" or os.environ.get("LANG", "").startswith("zh")
    return "\n\n".join([*parts, *claim_lines(group.question, chinese)])


def counted(group: Group) -> str:
    """sacreBLEU's signature for each kind of BLEU that the tables show; empty where there is none."""
    shown = {group.question.metric, *claim_of(group.question).get("also", ())}
    found = {result.get("bleu_signature") for result in group.every} - {None}
    said = []
    for signature in sorted(found):
        small = signature.replace("tok:13a", "tok:none").replace("smooth:exp", "smooth:none").replace("mixed", "lc")
        kinds = {"bleu": signature, "bleu_moses": small.replace("case:lc", "case:mixed"), "bleu_moses_lc": small}
        said += [
            f"{name}: {kind}" for name, kind in kinds.items() if any(metric.endswith(f"/{name}") for metric in shown)
        ]
    return "; ".join(said)


def paint(words: str) -> str:
    """A verdict in its colour, by the terminal's own codes: green, red, blue, none."""
    code = {"confirmed": 32, "refuted": 31, "equal": 34}.get(words.split()[0])
    verdict, bracket, rest = words.partition(" (")
    return words if code is None else f"\033[1;{code}m{verdict}\033[0m{bracket}{rest}"


def as_markdown(heads: list[str], body: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def as_csv(heads: list[str], body: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *body])
    return text.getvalue().rstrip("\n")


def as_latex(heads: list[str], body: list[list[str]]) -> str:
    """A booktabs tabular."""
    lines = [" & ".join(map(latex_text, line)) + r" \\" for line in (heads, *body)]
    return "\n".join([
        rf"\begin{{tabular}}{{{'l' * len(heads)}}}", r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule",
        r"\end{tabular}",
    ])  # fmt: skip


def latex_text(text: str) -> str:
    for special, written in {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "±": r"$\pm$",
                             "×": r"$\times$", "–": "--", "<": r"$<$"}.items():  # fmt: skip
        text = text.replace(special, written)
    return text


def as_json(group: Group, rows: list[Row]) -> str:
    """Unrounded."""
    about = {
        "question": group.question.name,
        "recipe": group.recipe,
        "variant": group.variant,
        "committed": group.committed,
        "settings": group.settings,
        "metric": group.question.metric,
    }
    rows = [dataclasses.asdict(row) for row in rows]
    more = {"also": other_metrics(group), "insides": insides(group), "layers": layers(group), "counted": counted(group)}
    judged = [dataclasses.asdict(verdict) for verdict in verdicts(group)]
    return json.dumps(about | {"rows": rows, **more, "verdicts": judged}, indent=1)


def as_terminal(heads: list[str], body: list[list[str]]) -> str:
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, head in enumerate(heads):
        widest = max(len(line[i]) for line in (heads, *body))
        table.add_column(head, min_width=min(widest, 30) if head in PROSE else widest)
    for line in body:
        table.add_row(*line, style="bold" if "baseline" in line else None)
    text = io.StringIO()
    console = Console(file=text, width=1000, force_terminal=sys.stdout.isatty())
    least = Measurement.get(console, console.options, table).minimum  # a figure is never cut in two
    console.width = max(least, shutil.get_terminal_size((190, 24)).columns)
    console.print(table)
    return text.getvalue().strip("\n")
