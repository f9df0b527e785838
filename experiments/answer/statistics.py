"""The statistics of a table, by scipy.stats."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, stats


@dataclass(frozen=True)
class Difference:
    """Arm minus baseline: seed by seed over the shared seeds; between two independent samples where none is shared.

    Attributes:
        mean: of the differences.
        low, high: its 95 % confidence interval (Student's t, n - 1 degrees of freedom; Welch's where unpaired).
        p: two-sided t-test, paired or Welch's; None where nothing varies or there is one only.
        n: seeds that both have; of an unpaired one the fewer of the two.
        sd: of the differences seed by seed; None where unpaired or alone.
        is_paired: False for Welch's test.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int
    sd: float | None = None
    is_paired: bool = True


def mean_sd(values: list[float]) -> tuple[float, float | None]:
    """Mean, and sample standard deviation (ddof 1); None for one value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def paired(arm: dict[int, float], baseline: dict[int, float]) -> Difference | None:
    """The paired difference by seed; None without a common seed."""
    seeds = sorted(set(arm) & set(baseline))
    if not seeds:
        return None
    a, b = np.array([arm[s] for s in seeds]), np.array([baseline[s] for s in seeds])
    mean = float(np.mean(a - b))
    if len(seeds) < 2 or np.ptp(a - b) == 0:
        return Difference(mean, None, None, None, len(seeds))
    test = stats.ttest_rel(a, b)
    interval = test.confidence_interval(0.95)
    sd = float(np.std(a - b, ddof=1))
    return Difference(mean, float(interval.low), float(interval.high), float(test.pvalue), len(seeds), sd)


def welch(arm: dict[int, float], baseline: dict[int, float]) -> Difference | None:
    """The difference of two independent samples of unequal variance (Welch 1947); None without a value on each side."""
    a, b = list(arm.values()), list(baseline.values())
    if not a or not b:
        return None
    mean, n = float(np.mean(a) - np.mean(b)), min(len(a), len(b))
    if n < 2 or np.ptp(a) + np.ptp(b) == 0:
        return Difference(mean, None, None, None, n, is_paired=False)
    test = stats.ttest_ind(a, b, equal_var=False)
    interval = test.confidence_interval(0.95)
    return Difference(mean, float(interval.low), float(interval.high), float(test.pvalue), n, is_paired=False)


def compared(arm: dict[int, float], baseline: dict[int, float]) -> Difference | None:
    """Paired where the two share seeds; where they share none, Welch's."""
    return paired(arm, baseline) if set(arm) & set(baseline) else welch(arm, baseline)


def power(effect: float, sd: float, n: int, level: float = 0.05) -> float:
    """The chance that a two-sided paired t-test over n seeds finds a true difference, by the noncentral t-distribution.

    Args:
        effect: the true mean difference.
        sd: of the differences seed by seed.
    """
    bound, shift = stats.t.ppf(1 - level / 2, n - 1), abs(effect) / sd * n**0.5
    wrong_side = stats.nct.cdf(-bound, n - 1, shift) if shift < 4 else 0.0  # below 5e-7 there; scipy gives NaN at times
    return float(stats.nct.sf(bound, n - 1, shift) + wrong_side)


@lru_cache
def detectable_in_sd(n: int, comparisons: int, wanted: float) -> float:
    high, level = 1.0, 0.05 / comparisons
    while power(high, 1.0, n, level) < wanted:
        high *= 2
    return float(optimize.brentq(lambda effect: power(effect, 1.0, n, level) - wanted, 0.0, high, xtol=1e-9))


def detectable(sd: float, n: int, comparisons: int = 1, wanted: float = 0.8) -> float:
    """The smallest true difference that is found with that power.

    Args:
        comparisons: of the table: Holm's strictest step tests at .05 / comparisons, which any of them may have to pass.
    """
    return sd * detectable_in_sd(n, comparisons, wanted)


def seeds_needed(effect: float, sd: float, comparisons: int = 1, wanted: float = 0.8, most: int = 1000) -> int | None:
    """The fewest seeds with which a paired test finds the effect; None beyond `most`."""
    level = 0.05 / comparisons
    return next((n for n in range(2, most + 1) if power(effect, sd, n, level) >= wanted), None)


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down correction: the k-th smallest of m is multiplied by m - k + 1, kept monotone, at most 1."""
    order, corrected, highest = np.argsort(p_values), [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = highest
    return corrected


def fisher(failed: int, n: int, baseline_failed: int, baseline_n: int) -> float:
    """Two-sided p that both arms fail equally often (Fisher's exact test)."""
    counts = [[failed, n - failed], [baseline_failed, baseline_n - baseline_failed]]
    return float(stats.fisher_exact(counts).pvalue)


def equivalent(arm: dict[int, float], baseline: dict[int, float], margin: float) -> float | None:
    """p that the paired difference lies outside ±margin: two one-sided t-tests (Schuirmann 1987), the larger p."""
    seeds = sorted(set(arm) & set(baseline))
    difference = np.array([arm[s] - baseline[s] for s in seeds])
    if len(seeds) < 2:
        return None
    if np.ptp(difference) == 0:  # known exactly
        return 0.0 if abs(difference[0]) < margin else 1.0
    above = stats.ttest_1samp(difference, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(difference, margin, alternative="less").pvalue
    return float(max(above, below))
