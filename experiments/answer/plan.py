"""How many seeds a question needs to see an effect, and how long they take: from measured seconds and seed noise."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from experiments.launch.progress import clock
from experiments.launch.question import BadInput

from .charts import course, label
from .overview import wall_seconds
from .render import as_terminal, machine
from .results import Arm, Group
from .statistics import detectable, mean_sd, paired, seeds_needed
from .table import choices_of, finished, in_order

MOST = 30  # seeds


@dataclass(frozen=True)
class Comparison:
    """An arm and the baseline of its stratum in the pilot.

    Attributes:
        difference: arm minus baseline in the pilot.
        sd: of the differences seed by seed: the noise.
        n: seeds of the pilot that both have.
        seconds: of one run of the arm, imports and tests included.
    """

    name: str
    difference: float
    sd: float
    n: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What is promised: kept in the question's folder, and held against what then happens.

    Attributes:
        seconds: of one process, all runs one after the other.
        detectable: arm → the smallest difference that these seeds find in four of five repetitions.
    """

    question: str
    variant: str
    seeds: int
    seconds: float
    detectable: dict[str, float]
    made: str


def pilot(group: Group) -> list[Comparison]:
    """Every comparison of the table that two or more seeds have measured.

    Raises:
        BadInput: where there is none.
    """
    question, found = group.question, []
    first = question.varied[question.contrast][0]
    for arm in in_order(question, group.results):
        base = group.results.get((first, *arm[1:]), {})
        values, base_values = finished(group.results[arm], question.metric), finished(base, question.metric)
        both = sorted(set(values) & set(base_values))
        if arm[0] == first or len(both) < 2:
            continue
        mean, sd = mean_sd([values[s] - base_values[s] for s in both])
        found.append(Comparison(label(choices_of(question, arm)), mean, sd, len(both), seconds_of(group, arm)))
    if not found:
        raise BadInput(f"no two seeds of {question.name} to plan from; a pilot: `ablate run {question.name} --seeds 2`")
    return found


def seconds_of(group: Group, arm: Arm) -> float:
    return fmean(wall_seconds(result) for result in group.results[arm].values())


def total_seconds(group: Group, seeds: int, jobs: int) -> float:
    """Of all arms of the question; an arm that the pilot lacks counts as a mean one."""
    known = [seconds_of(group, arm) for arm in group.results]
    return seeds * fmean(known) * len(group.question.arms()) / jobs


def plan(group: Group, *, effect: float | None, budget: float | None, jobs: int) -> tuple[Plan, str]:
    """The plan and what is to be read of it.

    Args:
        effect: the difference that shall be found, in the metric's unit; each comparison's own of the pilot if None.
        budget: seconds of wall time; None for as long as it takes.
        jobs: runs at a time.
    """
    comparisons = pilot(group)
    wanted = {c.name: seeds_needed(abs(effect or c.difference), c.sd, most=MOST) if c.sd else 2 for c in comparisons}
    an_seed, arms = total_seconds(group, 1, jobs), len(group.question.arms())
    seeds = max((n for n in wanted.values() if n), default=2) if budget is None else min(int(budget / an_seed), MOST)
    within_reach = {c.name: detectable(c.sd, seeds) for c in comparisons} if seeds > 1 else {}
    body = [
        [c.name, f"{c.difference:+.3g}", f"{c.sd:.3g}", str(c.n), str(wanted[c.name] or f"more than {MOST}"),
         f"{within_reach[c.name]:.3g}" if within_reach else "–", clock(c.seconds)]
        for c in comparisons
    ]  # fmt: skip
    target = "it" if effect is None else f"{effect:g}"
    heads = ["arm", "difference in the pilot", "noise (sd of differences)", "pilot's seeds",
             f"seeds to find {target}", f"found with {seeds} seeds", "a run"]  # fmt: skip
    hardware = sorted({machine(r["hardware"]) for of_arm in group.results.values() for r in of_arm.values()})
    said = [as_terminal(heads, body), f"measured on {'; '.join(hardware)}; found: in four of five repetitions, p < .05"]
    if seeds > 1:
        command = f"ablate run {group.question.name} --seeds {seeds} --jobs {jobs}"
        said.append(f"{seeds} seeds of {arms} arms take about {clock(an_seed * seeds)}, {jobs} at a time: {command}")
    else:
        said.append(advice(group, comparisons, budget, jobs))
    promise = Plan(
        group.question.name, group.variant, seeds, an_seed * seeds * jobs, within_reach, time.strftime("%F %T")
    )
    return promise, "\n\n".join([*said, *shorter(group, an_seed)])


def advice(group: Group, comparisons: list[Comparison], budget: float, jobs: int) -> str:
    """Where two seeds of all arms do not fit: how many arms would, dearest dropped first."""
    question, mean = group.question, total_seconds(group, 1, jobs) / len(group.question.arms())
    arms = int(budget / (2 * mean))
    if arms < 2:
        return f"two seeds of two arms alone take {clock(4 * mean)}: the budget is too small, or the recipe too long"
    kept = sorted(comparisons, key=lambda c: c.seconds)[: arms - 1]
    names = ", ".join(c.name for c in comparisons if c not in kept)
    return f"two seeds of all {len(question.arms())} arms do not fit; drop {names} (--only), and the baseline and " \
           f"{', '.join(c.name for c in kept)} do"  # fmt: skip


def shorter(group: Group, an_seed: float) -> list[str]:
    """Whether the effect shows earlier in training: the pilot's own validation curves, at each of their steps."""
    metric, lines = "valid/" + group.question.metric.split("/")[-1], []
    first = group.question.varied[group.question.contrast][0]
    curves = {arm: course(group, arm, metric) for arm in group.results}
    steps = sorted(set.intersection(*(set(curve) for curve in curves.values()))) if curves else []
    for step in steps[:-1]:
        needed = []
        for arm, curve in curves.items():
            base = curves.get((first, *arm[1:]), {}).get(step, [])
            if arm[0] != first and len(base) == len(curve[step]) > 1:
                found = paired(dict(enumerate(curve[step])), dict(enumerate(base)))
                sd = float(np.std(np.array(curve[step]) - np.array(base), ddof=1))
                needed.append(seeds_needed(abs(found.mean), sd, most=MOST) if sd and found.mean else 2)
        if needed and all(needed):
            share = step / steps[-1]
            time_needed = clock(an_seed * share * max(needed))
            lines.append(f"  step {step} ({share:.0%} of the training): {max(needed)} seeds, about {time_needed}")
    title = f"On {metric} the pilot's differences would be found earlier (a shorter recipe's schedule is another one):"
    return ["\n".join([title, *lines])] if lines else []


def keep(promise: Plan, out: Path) -> Path:
    path = out / promise.question / "plan.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(promise), indent=1) + "\n")
    return path


def held_against(group: Group, out: Path) -> str | None:
    """What was promised beside what happened; None without a plan of these settings, or before its seeds are there."""
    path = out / group.question.name / "plan.json"
    if not path.exists() or (promise := json.loads(path.read_text()))["variant"] != group.variant:
        return None
    seeds = {seed for found in group.results.values() for seed in found}
    if len(seeds) < promise["seeds"]:
        return None
    first = sorted(seeds)[: promise["seeds"]]
    took = sum(wall_seconds(r) for found in group.results.values() for seed, r in found.items() if seed in first)
    planned = promise["detectable"]
    body = [
        [c.name, f"{planned[c.name]:.3g}", f"{detectable(c.sd, promise['seeds']):.3g}"]
        for c in pilot(group)
        if c.name in planned
    ]
    told = f"Planned {promise['made']}: {clock(promise['seconds'])} of one process; the runs took {clock(took)}."
    return told + "\n" + as_terminal(["arm", "detectable, planned", "detectable, from these seeds"], body)
