"""How many seeds a question needs to see an effect, and how long they take: from measured seconds and seed noise."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from experiments.launch.progress import clock
from experiments.launch.question import BadInput

from .charts import course, label
from .overview import wall_seconds
from .render import as_terminal, machine
from .results import Arm, Group
from .statistics import detectable, paired, seeds_needed
from .table import choices_of, finished, in_order
from .tuning import tuned

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
    group = tuned(group)
    question, found = group.question, []
    for arm in in_order(question, group.results):
        base = group.results.get(group.baseline_of(arm), {})
        pair = paired(finished(group.results[arm], question.metric), finished(base, question.metric))
        if arm != group.baseline_of(arm) and pair is not None and pair.n > 1:
            name, seconds = label(choices_of(question, arm)), seconds_of(group, arm)
            found.append(Comparison(name, pair.mean, pair.sd or 0.0, pair.n, seconds))
    if not found:
        raise BadInput(f"no two seeds of {question.name} to plan from: `ablate run … --seeds 2` is a pilot")
    return found


def seconds_of(group: Group, arm: Arm) -> float | None:
    """Wall seconds of a run that did not crash; None without one."""
    whole = [wall_seconds(result) for result in group.results[arm].values() if result["status"] != "failed"]
    return fmean(whole) if whole else None


def seconds_of_a_seed(group: Group) -> float:
    """Of all arms, one process, every rate that is tried; an arm that the pilot lacks counts as a mean one."""
    known = [seconds for arm in group.results if (seconds := seconds_of(group, arm)) is not None]
    return fmean(known) * len(group.question.arms())


def comparisons_of(group: Group) -> int:
    """How many the table will correct for."""
    question = tuned(group).question
    return len(question.arms()) - len(question.arms()) // len(question.varied[question.contrast])


def plan(group: Group, *, effect: float | None, budget: float | None, jobs: int, words: str) -> tuple[Plan | None, str]:
    """The plan and what is to be read of it; no plan where nothing that could be run would find the effect.

    Args:
        group: as it was run, with every rate that was tried.
        effect: the difference that shall be found, in the metric's unit; each comparison's own of the pilot if None.
        budget: seconds of wall time; None for as long as it takes.
        jobs: runs at a time.
        words: what `ablate run` takes to ask this question in these settings.
    """
    compared, many = pilot(group), comparisons_of(group)
    wanted = {c.name: seeds_needed(abs(effect or c.difference), c.sd, many, most=MOST) if c.sd else 2 for c in compared}
    a_seed = seconds_of_a_seed(group)
    reachable = [n for n in wanted.values() if n]
    seeds = min(max(reachable, default=0), MOST if budget is None else int(budget * jobs / a_seed))
    within_reach = {c.name: detectable(c.sd, seeds, many) for c in compared} if seeds > 1 else {}
    target = "it" if effect is None else f"{effect:g}"
    heads = ["arm", "difference in the pilot", "noise (sd of differences)", "pilot's seeds", f"seeds to find {target}",
             *([f"smallest difference that {seeds} seeds find"] if within_reach else []), "a run"]  # fmt: skip
    body = [
        [c.name, f"{c.difference:+.3g}", f"{c.sd:.3g}", str(c.n), str(wanted[c.name] or f"more than {MOST}"),
         *([f"{within_reach[c.name]:.3g}"] if within_reach else []), clock(c.seconds)]
        for c in compared
    ]  # fmt: skip
    strict = f"(80 % power) at p < .05 / {many}, Holm's strictest step"
    where = "; ".join(sorted({machine(result["hardware"]) for result in group.every}))
    said = [as_terminal(heads, body), f"Found: in four of five repetitions {strict}. Measured on {where}."]
    if out_of_reach := [name for name, n in wanted.items() if n is None]:
        larger = "`--effect` names a larger difference"
        said.append(f"Out of reach, more than {MOST} seeds: {'; '.join(out_of_reach)}. {larger}.")
    if seeds > 1:
        runs = len(group.question.arms()) * seeds
        said.append(f"{runs} runs take about {clock(a_seed * seeds / jobs)}, {jobs} at a time: "
                    f"ablate run {words} --seeds {seeds} --jobs {jobs}")  # fmt: skip
    elif budget is not None and reachable:
        said.append(too_little(group, budget, jobs))
    said += shorter(group, a_seed / jobs, {name: n for name, n in wanted.items() if n})
    promise = Plan(group.question.name, group.variant, seeds, a_seed * seeds, within_reach, time.strftime("%F %T"))
    return promise if seeds > 1 else None, "\n\n".join(said)


def too_little(group: Group, budget: float, jobs: int) -> str:
    """What to drop where two seeds of all arms do not fit."""
    costs = {arm: seconds for arm in group.results if (seconds := seconds_of(group, arm)) is not None}
    dear = sorted(costs, key=costs.__getitem__, reverse=True)[:3]
    names = "; ".join(f"{label(choices_of(group.question, arm))} ({clock(costs[arm])})" for arm in dear)
    fit = int(budget * jobs / fmean(costs.values()))
    wanted = 2 * len(group.question.arms())
    return (
        f"Two seeds of all arms are {wanted} runs, and about {fit} fit into the budget. Drop arms or strata by --only "
        f"(the most expensive runs: {names}), or shorten the recipe."
    )


def shorter(group: Group, a_seed: float, needed_at_the_end: dict[str, int]) -> list[str]:
    """Whether the differences show with fewer seconds earlier in training, by the pilot's own validation curves."""
    group = tuned(group)
    metric, lines = "valid/" + group.question.metric.split("/")[-1], []
    many = comparisons_of(group)
    curves = {arm: course(group, arm, metric) for arm in group.results}
    steps = sorted(set.intersection(*(set(curve) for curve in curves.values()))) if curves else []
    for step in steps[:-1]:
        needed: list[int | None] = []
        for arm, curve in curves.items():
            base = group.baseline_of(arm)
            found = paired(curve[step], curves[base][step]) if base in curves else None
            if arm != base and label(choices_of(group.question, arm)) in needed_at_the_end:
                seen = found is not None and found.sd and found.mean
                needed.append(seeds_needed(abs(found.mean), found.sd, many, most=MOST) if seen else None)
        if needed and all(needed):
            share = step / steps[-1]
            if share * max(needed) < max(needed_at_the_end.values()):
                spent = clock(a_seed * share * max(needed))
                lines.append(f"  step {step} ({share:.0%} of the training): {max(needed)} seeds, about {spent}")
    title = f"On {metric} the same differences would be found sooner (a shorter recipe's schedule is another one):"
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
    if len(seeds := set.intersection(*(set(found) for found in group.results.values()))) < promise["seeds"]:
        return None
    first = sorted(seeds)[: promise["seeds"]]
    took = sum(wall_seconds(r) for found in group.results.values() for seed, r in found.items() if seed in first)
    planned, many = promise["detectable"], comparisons_of(group)
    body = [
        [c.name, f"{planned[c.name]:.3g}", f"{detectable(c.sd, promise['seeds'], many):.3g}"]
        for c in pilot(group)
        if c.name in planned
    ]
    told = f"Planned {promise['made']}: {clock(promise['seconds'])} of one process; the runs took {clock(took)}."
    return told + "\n" + as_terminal(["arm", "detectable, planned", "detectable, from these seeds"], body)
