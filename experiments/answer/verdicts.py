"""From a claim's checks to words: what the seeds that are there can carry, and no more."""

from dataclasses import dataclass
from typing import Any

from experiments.launch.question import short

from .claims import claim_of
from .results import Arm, Group
from .statistics import Difference, equivalent, holm, mean_sd, paired
from .table import diverged, finished

LEVEL = 0.05


@dataclass(frozen=True)
class Verdict:
    """One check of a claim.

    Attributes:
        says: what the claim says of one arm, in a few words.
        ours: our figures: baseline → arm, difference and interval.
        verdict: confirmed | refuted | equal within ±margin | not detectable here | no answer yet.
        p: Holm's correction over the claim's checks; of the difference, or of the equivalence for `equal`.
    """

    says: str
    ours: str
    verdict: str
    p: float | None

    @property
    def words(self) -> str:
        return f"{self.verdict} ({self.ours}" + ("" if self.p is None else f", p (Holm) {self.p:.3g}") + ")"


def verdicts(group: Group) -> list[Verdict]:
    """A verdict for each check of the question's claim; the group must be `tuned`."""
    checks = claim_of(group.question).get("checks", [])
    found = [(check, *compared(group, check)) for check in checks]
    p_values = [p_of(check, difference, values) for check, difference, values in found]
    known = [i for i, p in enumerate(p_values) if p is not None]
    for i, p in zip(known, holm([p_values[i] for i in known]), strict=True):
        p_values[i] = p
    return [
        Verdict(check["says"], figures(difference, values), word(check, difference, p), p)
        for (check, difference, values), p in zip(found, p_values, strict=True)
    ]


Values = tuple[dict[int, float], dict[int, float]]  # of the arm and of its baseline, by seed


def compared(group: Group, check: dict[str, Any]) -> tuple[Difference | None, Values]:
    """The arm against the baseline of its stratum, or against the arm that the check names."""
    metric = check.get("metric", group.question.metric)
    arm = arm_of(group, check["arm"])
    against = arm_of(group, check["against"]) if "against" in check else baseline_of(group, arm)
    seeds = group.results.get(arm, {}), group.results.get(against, {})
    values = finished(seeds[0], metric), finished(seeds[1], metric)
    whole = not any(map(diverged, seeds))
    return paired(*values) if whole else None, values


def arm_of(group: Group, wanted: dict[str, Any]) -> Arm:
    """The arm with these values, the others being the first of their choice."""
    known = {short(key): values for key, values in group.question.varied.items()}
    assert set(wanted) <= set(known), f"{wanted} in claims.yaml: the choices are {', '.join(known)}"
    return tuple(wanted.get(name, values[0]) for name, values in known.items())


def baseline_of(group: Group, arm: Arm) -> Arm:
    return (group.question.varied[group.question.contrast][0], *arm[1:])


def p_of(check: dict[str, Any], difference: Difference | None, values: Values) -> float | None:
    if difference is None:
        return None
    return equivalent(*values, check["margin"]) if check["direction"] == "equal" else difference.p


def word(check: dict[str, Any], difference: Difference | None, p: float | None) -> str:
    if difference is None or p is None:
        return "no answer yet"
    if check["direction"] == "equal":
        if p < LEVEL:
            return f"equal within ±{check['margin']:g}"
        outside = difference.low > check["margin"] or difference.high < -check["margin"]
        return "refuted" if outside else "not detectable here"
    if p >= LEVEL:
        return "not detectable here"
    return "confirmed" if (difference.mean > 0) == (check["direction"] == "higher") else "refuted"


def figures(difference: Difference | None, values: Values) -> str:
    arm, baseline = (mean_sd(list(v.values())) if v else None for v in values)
    if arm is None or baseline is None:
        return "no results"
    digits = 2 if max(abs(arm[0]), abs(baseline[0])) >= 10 else 3

    def shown(mean: float, sd: float | None) -> str:
        return f"{mean:.{digits}f}" + ("" if sd is None else f" ± {sd:.{digits}f}")

    text = f"{shown(*baseline)} → {shown(*arm)}, n {len(values[0])}"
    if difference is not None and difference.low is not None:
        text += f", 95 % [{difference.low:+.{digits}f}, {difference.high:+.{digits}f}]"
    return text
