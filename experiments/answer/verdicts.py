"""From a claim's checks to words: what the seeds that are there can carry, and no more."""

from dataclasses import dataclass
from typing import Any

from experiments.launch.question import BadInput, Question, read, short

from .claims import claim_of
from .results import EMBEDDED, Arm, Group, as_asked, narrowed
from .statistics import Difference, equivalent, fisher, holm, mean_sd, paired
from .table import diverged, finished
from .tuning import tuned

LEVEL = 0.05


@dataclass(frozen=True)
class Verdict:
    """One check of a claim.

    Attributes:
        says: what the claim says of one arm, in a few words.
        metric: what it is held against.
        ours: our figures over the seeds that both have: baseline → arm, and the difference's interval.
        verdict: confirmed | refuted | equal within ±margin | not detectable here | no answer yet. An equality is
            refuted where the difference's uncorrected 95 % interval lies beyond the margin.
        p: Holm's correction over the claim's checks; of the difference, or of the equivalence for `equal`.
        data: what the runs were trained on, see `Group.data`.
        runs: how many results its group has.
    """

    says: str
    metric: str
    ours: str
    verdict: str
    p: float | None
    data: str
    runs: int

    @property
    def words(self) -> str:
        return f"{self.verdict} ({self.ours}" + ("" if self.p is None else f", p (Holm) {self.p:.3g}") + ")"


@dataclass(frozen=True)
class Finding:
    """What a group's results hold for one check, before any correction.

    Attributes:
        lost: where seeds diverged, the counts that stand in place of a difference.
    """

    group: Group
    check: dict[str, Any]
    difference: Difference | None
    values: "Values"
    lost: str

    @property
    def p(self) -> float | None:
        return p_of(self.check, self.difference, self.values)


def verdicts(group: Group) -> list[Verdict]:
    """A verdict for each check whose arms the question still has; the group must be `tuned`."""
    return corrected(findings(group))


def answers(question: Question, found: list[Group]) -> list[Verdict]:
    """A verdict for each check: from real data where there is some that can say, else from the embedded data.

    A sweep file that asks for real data itself speaks for itself alone. For another, real data counts where the project
    ships results of the same settings, so that nobody's trial takes the place of an answer; of several the group with
    most finished runs has the word.

    Args:
        found: all groups of the question, as `groups` sorts them.
    """
    asked = as_asked(found, question)[-1:]
    real = [group for group in found if group.data != EMBEDDED and group.shipped and group not in asked]
    real.sort(key=lambda group: sum(result["status"] == "finished" for result in group.every))
    real = list(map(narrowed, real))
    said: dict[str, Finding] = {}
    for group in asked if asked and asked[0].data != EMBEDDED else [*asked, *real]:
        for finding in findings(tuned(group)):
            name = finding.check["says"]
            if name not in said or finding.p is not None or finding.lost:
                said[name] = finding
    checks = claim_of(question).get("checks", [])
    return corrected([said[check["says"]] for check in checks if check["says"] in said])


def findings(group: Group) -> list[Finding]:
    """One for each check of the claim whose arms the question still has."""
    checks = claim_of(group.question).get("checks", [])
    whole = read(str(group.question.path)).varied  # also where the question was narrowed
    firsts = {short(key): whole.get(key, values)[0] for key, values in group.question.varied.items()}
    pairs = [(check, *arms_of(group.question.name, firsts, check)) for check in checks]
    asked = [tuple(arm.values()) for arm in group.question.arms()]
    return [
        Finding(group, check, *compared(group, check, arm, against))
        for check, arm, against in pairs
        if arm in asked and (against in asked or "than" in check) and beside(group, check, arm) in asked
    ]


def corrected(found: list[Finding]) -> list[Verdict]:
    """In words, with Holm's correction over all of them, whichever data each was found on."""
    p_values = [finding.p for finding in found]
    known = [i for i, p in enumerate(p_values) if p is not None]
    for i, p in zip(known, holm([p_values[i] for i in known]), strict=True):
        p_values[i] = p
    return [
        Verdict(
            one.check["says"],
            one.check.get("metric", one.group.question.metric),
            one.lost or figures(one.difference, one.values),
            word(one.check, one.difference, p),
            p,
            one.group.data,
            len(one.group.every),
        )
        for one, p in zip(found, p_values, strict=True)
    ]


Values = tuple[dict[int, float], dict[int, float]]  # of the arm and of its baseline, by seed


def arms_of(question: str, firsts: dict[str, Any], check: dict[str, Any]) -> tuple[Arm, Arm]:
    """The check's arm, and the baseline of its stratum or the arm that the check names.

    Args:
        firsts: each choice's first value in the sweep file, the contrast's first: what a check leaves out.

    Raises:
        BadInput: claims.yaml names a choice that the sweep file does not vary.
    """
    for wanted in (check["arm"], check.get("against", {})):
        if unknown := set(wanted) - set(firsts):
            raise BadInput(f"claims.yaml, {question}: {unknown.pop()} is none of {', '.join(firsts)}")
    arm = firsts | check["arm"]
    against = firsts | check["against"] if "against" in check else arm | dict([next(iter(firsts.items()))])
    return tuple(arm.values()), tuple(against.values())


def compared(group: Group, check: dict[str, Any], arm: Arm, against: Arm) -> tuple[Difference | None, Values, str]:
    """Difference, values by seed, and, where seeds diverged, the counts that stand in their place."""
    metric = check.get("metric", group.question.metric)
    seeds, base_seeds = group.results.get(arm, {}), group.results.get(against, {})
    values = finished(seeds, metric)
    if "beside" in check:  # an interaction: the difference in one stratum against that in another
        return interaction(group, check, arm, against)
    if "than" in check:  # a figure of theory instead of an arm
        return paired(values, dict.fromkeys(values, check["than"])), (values, dict.fromkeys(values, check["than"])), ""
    both = sorted(set(values) & set(base := finished(base_seeds, metric)))
    pair = {s: values[s] for s in both}, {s: base[s] for s in both}
    gone = [(len(diverged(s)), sum(r["status"] != "failed" for r in s.values())) for s in (base_seeds, seeds)]
    if any(count for count, _ in gone):
        (base_lost, base_n), (lost, n) = gone
        p = fisher(lost, n, base_lost, base_n)
        return None, pair, f"diverged {base_lost} of {base_n} → {lost} of {n}, Fisher p {p:.3g}, uncorrected"
    return paired(*pair), pair, ""


def interaction(group: Group, check: dict[str, Any], arm: Arm, against: Arm) -> tuple[Difference | None, Values, str]:
    """(arm - baseline) here and, seed by seed, (arm - baseline) in the stratum that the check puts beside it."""
    metric = check.get("metric", group.question.metric)
    four = (arm, against, beside(group, check, arm), beside(group, check, against))
    seeds = [group.results.get(place, {}) for place in four]
    if any(map(diverged, seeds)):
        return None, ({}, {}), "a seed of one of the four diverged"
    one, base, other, other_base = (finished(s, metric) for s in seeds)
    both = sorted(set(one) & set(base) & set(other) & set(other_base))
    here, there = {s: one[s] - base[s] for s in both}, {s: other[s] - other_base[s] for s in both}
    return paired(here, there), (here, there), ""


def beside(group: Group, check: dict[str, Any], arm: Arm) -> Arm:
    """The arm moved to the stratum that the check puts beside its own; itself without one."""
    moved = check.get("beside", {})
    return tuple(moved.get(short(key), value) for key, value in zip(group.question.varied, arm, strict=True))


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
        if difference.low is None:  # no spread at all
            return "refuted"
        outside = difference.low > check["margin"] or difference.high < -check["margin"]
        return "refuted" if outside else "not detectable here"
    if p >= LEVEL:
        return "not detectable here"
    return "confirmed" if (difference.mean > 0) == (check["direction"] == "higher") else "refuted"


def figures(difference: Difference | None, values: Values) -> str:
    if not values[0]:
        return "no results"
    arm, baseline = (mean_sd(list(v.values())) for v in values)
    digits = 2 if max(abs(arm[0]), abs(baseline[0])) >= 10 else 3

    def shown(mean: float, sd: float | None) -> str:
        return f"{mean:.{digits}f}" + ("" if sd is None else f" ± {sd:.{digits}f}")

    text = f"{shown(*baseline)} → {shown(*arm)}, n {len(values[0])}"
    if difference is not None and difference.low is not None:
        text += f", 95 % [{difference.low:+.{digits}f}, {difference.high:+.{digits}f}]"
    return text
