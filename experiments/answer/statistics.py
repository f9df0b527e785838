"""The statistics of a table, by scipy.stats."""

from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Difference:
    """Arm minus baseline over the seeds that both have.

    Attributes:
        mean: of the differences seed by seed.
        low, high: its 95 % confidence interval (Student's t, n - 1 degrees of freedom).
        p: two-sided, paired t-test; None where the differences do not vary or there is one only.
        n: seeds that both have.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int


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
    return Difference(mean, float(interval.low), float(interval.high), float(test.pvalue), len(seeds))


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
