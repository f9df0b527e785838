"""A swept rate is not a choice: for each arm the value that is best on validation stands in the table."""

from collections import defaultdict
from dataclasses import replace
from statistics import fmean
from typing import Any

from experiments.launch.question import short

from .claims import claim_of
from .results import Arm, Group


def tuned(group: Group) -> Group:
    """The group without the key that its claim tunes, each arm with its best value's results; else as it is."""
    key = claim_of(group.question).get("tune")
    if key not in group.question.varied:
        return group
    at = list(group.question.varied).index(key)
    values = group.question.varied[key]
    candidates: dict[Arm, dict[Any, dict[int, dict[str, Any]]]] = defaultdict(dict)
    for arm, seeds in group.results.items():
        candidates[arm[:at] + arm[at + 1 :]][arm[at]] = seeds
    wanted = len(group.question.seeds)
    best = {
        arm: min(tried, key=lambda value, tried=tried: badness(tried[value], wanted))
        for arm, tried in candidates.items()
    }
    metrics = {result["selection"]["metric"] for result in group.every}
    return replace(
        group,
        question=replace(group.question, varied={k: v for k, v in group.question.varied.items() if k != key}),
        results={arm: candidates[arm][value] for arm, value in best.items()},
        tuned={
            arm: f"{short(key)} {value:g}, best of {len(candidates[arm])} by {' and '.join(metrics)}"
            + ("" if len(candidates[arm]) == len(values) else f" ({len(values)} wanted)")
            for arm, value in best.items()
        },
    )


def badness(seeds: dict[int, dict[str, Any]], wanted: int) -> tuple[int, float]:
    """Fewest seeds lost, diverged or missing, first; then the mean of the validation metric that chose checkpoints."""
    done = [r for r in seeds.values() if r["status"] == "finished" and "best" in r["selection"]]
    scores = [r["selection"]["best"] * (1 if r["selection"]["mode"] == "min" else -1) for r in done]
    return wanted - len(done), fmean(scores) if scores else float("inf")
