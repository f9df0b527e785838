"""From a group of results to the rows of a table: numbers only, no layout."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from experiments.launch.question import Question, short

from .claims import claim_of
from .results import Arm, Group
from .statistics import Difference, compared, detectable, fisher, holm, mean_sd

NOT_INSIDE = ("recorded_at_step", "layer_gradient")
SCORES = ("accuracy", "exact", "f1")  # of a task, as its test reports them


@dataclass
class Row:
    """One arm.

    Attributes:
        choices: the values of its choices, strata first, the contrast last.
        mean, sd, n: of the metric over the finished seeds; None without any.
        noise: the baseline's sd over its seeds: what a difference is to be seen beside.
        difference: to the baseline of its stratum; None for a baseline, and where a seed of either diverged.
        p: Holm's correction of the difference's p over all comparisons of the table.
        detectable: the true difference that as many seeds with this spread find at Holm's strictest level, .05 over the
            number of comparisons, in four of five repetitions.
        note: failures, missing seeds, what is not comparable.
    """

    choices: dict[str, Any]
    is_baseline: bool
    mean: float | None
    sd: float | None
    n: int
    lowest: float | None
    highest: float | None
    noise: float | None
    difference: Difference | None
    p: float | None
    detectable: float | None
    parameters: int | None
    flops: float | None
    tokens_per_second: float | None
    peak_memory_bytes: float | None
    seconds: float | None
    note: str


def rows_of(group: Group) -> list[Row]:
    """A row for every arm of the question, in its order, missing ones too."""
    question, rows = group.question, []
    for arm in in_order(question):
        rows.append(row(group, arm, group.baseline_of(arm), choices_of(question, arm)))
    tested = [r for r in rows if r.difference and r.difference.p is not None]
    for r, p in zip(tested, holm([r.difference.p for r in tested]), strict=True):
        r.p = p
        if r.difference.sd is not None:
            r.detectable = detectable(r.difference.sd, r.difference.n, len(tested))
    return rows


def in_order(question: Question, arms: Iterable[Arm] | None = None) -> list[Arm]:
    """Stratum by stratum, the baseline first in each; every arm of the question unless told."""

    def place(arm: Arm) -> list[int]:
        places = [values.index(value) for values, value in zip(question.varied.values(), arm, strict=True)]
        return places[1:] + places[:1]

    return sorted([tuple(arm.values()) for arm in question.arms()] if arms is None else arms, key=place)


def choices_of(question: Question, arm: Arm) -> dict[str, Any]:
    """The arm under its choices' last words: strata first, the contrast last."""
    contrast, *strata = zip(question.varied, arm, strict=True)
    return {short(key): value for key, value in (*strata, contrast)}


def row(group: Group, arm: Arm, baseline_arm: Arm, choices: dict[str, Any]) -> Row:
    metric = group.question.metric
    seeds, base_seeds = group.results.get(arm, {}), group.results.get(baseline_arm, {})
    values, base_values = finished(seeds, metric), finished(base_seeds, metric)
    done = [r for r in seeds.values() if r["status"] == "finished"]
    mean, sd = mean_sd(list(values.values())) if values else (None, None)
    is_baseline = arm == baseline_arm
    compare = not is_baseline and not diverged(seeds) and not diverged(base_seeds)

    def average(key: str) -> float | None:
        return fmean(r[key] for r in done) if done else None

    difference = compared(values, base_values) if compare else None
    unpaired = ["no seed in common: Welch's test"] if difference is not None and not difference.is_paired else []
    said = [group.tuned.get(arm), *unpaired, *notes(group, seeds, base_seeds, is_baseline)]
    return Row(
        choices=choices,
        is_baseline=is_baseline,
        mean=mean,
        sd=sd,
        n=len(values),
        lowest=min(values.values(), default=None),
        highest=max(values.values(), default=None),
        noise=mean_sd(list(base_values.values()))[1] if base_values and not is_baseline else None,
        difference=difference,
        p=None,
        detectable=None,
        parameters=done[0]["parameters"] if done else None,
        flops=average("flops"),
        tokens_per_second=average("tokens_per_second"),
        peak_memory_bytes=average("peak_memory_bytes"),
        seconds=average("seconds"),
        note="; ".join(filter(None, said)),
    )


def finished(seeds: dict[int, dict[str, Any]], metric: str) -> dict[int, float]:
    return {s: r["metrics"][metric] for s, r in seeds.items() if r["status"] == "finished" and metric in r["metrics"]}


def diverged(seeds: dict[int, dict[str, Any]]) -> list[int]:
    return sorted(s for s, r in seeds.items() if r["status"] == "diverged")


def notes(group: Group, seeds, base_seeds, is_baseline: bool) -> list[str]:
    """Everything that a reader must know before believing the row."""
    said, metric = [], group.question.metric
    if not seeds:
        return ["missing"]
    if missing := [s for s in group.question.seeds if s not in seeds]:
        said.append(f"missing seed {', '.join(map(str, missing))}")
    if crashed := sorted(s for s, r in seeds.items() if r["status"] == "failed"):
        said.append(f"failed {len(crashed)} of {len(seeds)} (seed {', '.join(map(str, crashed))}), to be run again")
    if gone := diverged(seeds):
        said.append(f"diverged {len(gone)} of {len(seeds)} (seed {', '.join(map(str, gone))})")
    if without := [s for s, r in seeds.items() if r["status"] == "finished" and metric not in r["metrics"]]:
        said.append(f"no {metric} in seed {', '.join(map(str, sorted(without)))}")
    said += did_not_learn(group.question, seeds)
    if len({r["code_fingerprint"] for s in group.results.values() for r in s.values()}) > 1:
        said.append(f"code {', '.join(sorted({r['code_fingerprint'] for r in seeds.values()}))}")
    if len(worlds := {r.get("world_size", 1) for r in (*seeds.values(), *base_seeds.values())}) > 1:
        said.append(f"{' and '.join(map(str, sorted(worlds)))} devices a run")
    if not is_baseline and base_seeds:
        said += against_baseline(seeds, base_seeds)
    return said


def did_not_learn(question: Question, seeds: dict[int, dict[str, Any]]) -> list[str]:
    """How many finished seeds lie beyond the bound that the claim calls failed."""
    bound = claim_of(question).get("failed")
    if bound is None:
        return []
    values = finished(seeds, bound["metric"]).values()
    lost = sum(value < bound["below"] for value in values)
    return [f"did not learn: {lost} of {len(values)} ({bound['metric']} below {bound['below']})"] if lost else []


def against_baseline(seeds, base_seeds) -> list[str]:
    """What sets the arm apart besides the choice; and whether it diverges more often."""
    said = []
    if diverged(seeds) or diverged(base_seeds):
        counts = [(len(diverged(s)), sum(r["status"] != "failed" for r in s.values())) for s in (seeds, base_seeds)]
        p = fisher(*counts[0], *counts[1])
        said.append(f"the baseline diverged {counts[1][0]} of {counts[1][1]}: Fisher p {p:.3g}, uncorrected")
    both = sorted(set(seeds) & set(base_seeds))
    one, other = (part[both[0]] if both else next(iter(part.values())) for part in (seeds, base_seeds))
    if one["parameters"] != other["parameters"]:
        said.append(f"parameters ×{one['parameters'] / other['parameters']:.2f}")
    if one["data_fingerprint"] != other["data_fingerprint"]:
        said.append("other data than the baseline")
    tokens = [[r["tokens"] for r in s.values() if r["status"] == "finished"] for s in (seeds, base_seeds)]
    if all(tokens) and abs(fmean(tokens[0]) / fmean(tokens[1]) - 1) > 0.01:
        said.append(f"tokens ×{fmean(tokens[0]) / fmean(tokens[1]):.2f}")
    return said


def other_metrics(group: Group) -> list[dict[str, Any]]:
    """Mean and sd, an arm a row, of the further metrics that the claim names and of the scores of every task that was
    fine-tuned afterwards; without what no arm has measured."""
    measured = {name for result in group.every for name in result["metrics"]}
    tasks = dict.fromkeys(task for result in group.every for task in result.get("downstream") or {})
    scores = [f"{task}/{score}" for task in tasks for score in SCORES]
    names = [name for name in (*claim_of(group.question).get("also", ()), *scores) if name in measured]
    table = []
    for arm in in_order(group.question, group.results):
        row: dict[str, Any] = choices_of(group.question, arm)
        for metric in names:
            values = list(finished(group.results[arm], metric).values())
            row[metric] = mean_sd(values) if values else None
        table.append(row)
    return table


def layers(group: Group) -> list[dict[str, Any]]:
    """Gradient norm of each layer at the first and at the last step, mean over seeds, where the claim asks for it."""
    table = []
    for arm in in_order(group.question, group.results) if claim_of(group.question).get("layers") else ():
        for when in ("start", "end"):
            values: dict[str, list[float]] = {}
            for result in group.results[arm].values():
                for name, value in result["metrics"].items():
                    at, _, rest = name.partition("/")
                    if at == when and rest.endswith("/layer_gradient"):
                        values.setdefault(rest.removesuffix("/layer_gradient"), []).append(value)
            means = {layer: fmean(norms) for layer, norms in values.items()}
            table.append((choices_of(group.question, arm) | {"step": "first" if when == "start" else "last"}, means))
    names = sorted({layer for _, means in table for layer in means}, reverse=True, key=layer_place)
    return [row | {layer: means.get(layer) for layer in names} for row, means in table]


def layer_place(layer: str) -> tuple[str, int]:
    """encoder.0, encoder.1, …, decoder.0, … when sorted in reverse."""
    stack, number = layer.split(".")
    return stack, -int(number)


def insides(group: Group) -> list[dict[str, Any]]:
    """Why: each diagnostic at the start and the end, mean over attention modules and seeds, an arm a row."""
    table = []
    for arm in in_order(group.question, group.results):
        values: dict[str, list[float]] = {}
        for result in group.results[arm].values():
            for name, value in result["metrics"].items():
                when, _, rest = name.partition("/")
                if when in ("start", "end") and rest.rsplit("/", 1)[-1] not in NOT_INSIDE:
                    values.setdefault(f"{rest.rsplit('/', 1)[-1]} {when}", []).append(value)
        if values:
            names = sorted(values, key=lambda name: (name.split()[0], name.endswith("end")))
            table.append(choices_of(group.question, arm) | {name: fmean(values[name]) for name in names})
    return table
