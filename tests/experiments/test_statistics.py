"""Statistics by hand, by scipy and by statsmodels."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from experiments.answer.statistics import (
    compared,
    detectable,
    equivalent,
    fisher,
    holm,
    mean_sd,
    paired,
    power,
    seeds_needed,
    welch,
)


def test_mean_and_sample_sd_by_hand():
    assert mean_sd([2.0, 4.0, 9.0]) == (5.0, pytest.approx(math.sqrt((9 + 1 + 16) / 2)))
    assert mean_sd([3.0]) == (3.0, None)


def test_paired_difference_by_hand():
    """Differences 1, 2, 3: mean 2, sd 1, t = 2√3 with 2 degrees of freedom, half-width 4.3027/√3."""
    found = paired({0: 11.0, 1: 22.0, 2: 33.0}, {0: 10.0, 1: 20.0, 2: 30.0, 7: 99.0})
    assert found.mean == 2 and found.n == 3
    assert found.high - found.mean == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.mean - found.low == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.p == pytest.approx(2 * stats.t.sf(2 * math.sqrt(3), 2), rel=1e-9)


def test_pairing_is_by_seed_not_by_order():
    assert paired({1: 5.0, 0: 1.0}, {0: 1.0, 1: 2.0}).mean == 1.5


def test_no_test_where_there_is_none():
    assert paired({0: 1.0}, {1: 1.0}) is None
    assert paired({0: 3.0}, {0: 1.0}).p is None
    same = paired({0: 3.0, 1: 4.0}, {0: 1.0, 1: 2.0})
    assert same.mean == 2 and same.p is None, "no spread, no test"


@pytest.mark.parametrize("p_values", [[0.01, 0.04, 0.03, 0.005], [0.5], [0.9, 0.9], [0.02, 0.02, 0.02], []])
def test_holm_equals_statsmodels(p_values):
    expected = multipletests(p_values, method="holm")[1].tolist() if p_values else []
    assert holm(p_values) == pytest.approx(expected, rel=1e-12)


def test_fishers_test_by_hand():
    """5 of 5 against 0 of 5: 2 / C(10, 5)."""
    assert fisher(5, 5, 0, 5) == pytest.approx(2 / 252, rel=1e-9)


def test_welch_by_hand_and_by_scipy():
    """(1, 3) and (10, 14): variances 2 and 8, t = 10 / √(2/2 + 8/2), 25 / (1/1 + 16/1) degrees of freedom."""
    found = welch({0: 10.0, 1: 14.0}, {2: 1.0, 3: 3.0})
    df = 25 / 17
    assert (found.mean, found.n, found.is_paired, found.sd) == (10, 2, False, None)
    assert found.p == pytest.approx(2 * stats.t.sf(10 / math.sqrt(5), df), rel=1e-9)
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, df) * math.sqrt(5), rel=1e-9)
    assert welch({0: 1.0}, {1: 2.0, 2: 3.0}).p is None and welch({}, {1: 2.0}) is None
    assert compared({0: 1.0, 1: 2.0}, {5: 1.0, 6: 3.0}).is_paired is False
    assert compared({0: 1.0, 1: 2.0}, {1: 1.0, 6: 3.0}).is_paired is True, "one seed is shared: a pair, and no test"


@pytest.mark.parametrize("n", [2, 3, 5, 30])
@pytest.mark.parametrize("effect", [0.0, 0.3, 1.0, 1.5])
def test_power_equals_statsmodels(n, effect):
    from statsmodels.stats.power import TTestPower

    expected = TTestPower().power(effect, n, 0.05)
    assert power(3 * effect, 3.0, n) == pytest.approx(expected, abs=1e-6)


def test_the_smallest_detectable_effect_is_found_in_four_of_five():
    for n in (2, 3, 5, 10):
        assert power(detectable(2.0, n), 2.0, n) == pytest.approx(0.8, abs=1e-6)
    assert detectable(2.0, 5) == pytest.approx(2 * detectable(1.0, 5), rel=1e-6)
    assert seeds_needed(detectable(2.0, 5) * 1.001, 2.0) == 5 and seeds_needed(detectable(2.0, 5) * 0.99, 2.0) == 6
    assert seeds_needed(0.001, 1.0) is None
    assert power(detectable(2.0, 5, comparisons=3), 2.0, 5, 0.05 / 3) == pytest.approx(0.8, abs=1e-6), "after Holm"
    assert detectable(2.0, 5, comparisons=3) > detectable(2.0, 5) and seeds_needed(3.4, 2.0, comparisons=3) > 5


def simulated(effect, n, repetitions, rng):
    """Arms and baselines that share a seed's own luck, as paired runs do."""
    luck = rng.normal(0, 2, (repetitions, n))
    arm, base = luck + rng.normal(effect, 1, (repetitions, n)), luck + rng.normal(0, 1, (repetitions, n))
    for a, b in zip(arm, base, strict=True):
        yield dict(enumerate(a)), dict(enumerate(b))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_on_simulated_seeds_errors_coverage_and_power_are_as_stated(n):
    """2,000 repetitions: each share lies within four standard errors of its nominal value."""
    rng, times = np.random.default_rng(n), 2000

    def near(share, nominal):
        return abs(share - nominal) < 4 * math.sqrt(nominal * (1 - nominal) / times)

    none = [paired(a, b) for a, b in simulated(0, n, times, rng)]
    assert near(np.mean([d.p < 0.05 for d in none]), 0.05), "false positives"
    effect = detectable(math.sqrt(2), n)
    some = [paired(a, b) for a, b in simulated(effect, n, times, rng)]
    assert near(np.mean([d.low <= effect <= d.high for d in some]), 0.95), "coverage"
    assert near(np.mean([d.p < 0.05 for d in some]), 0.8), "power"
    apart = [welch(a, b).p < 0.05 for a, b in simulated(0, n, times, rng)]
    assert np.mean(apart) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / times), "Welch's test keeps its level"
    outside = [equivalent(a, b, effect) < 0.05 for a, b in simulated(effect, n, times, rng)]
    assert np.mean(outside) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / times), "a difference of the margin is seldom called equal"


def test_holm_keeps_the_familys_error_rate():
    """Four comparisons without an effect: at least one p below .05 in about one family of twenty, not five."""
    rng, lost = np.random.default_rng(0), 0
    for _ in range(1000):
        pairs = list(simulated(0, 5, 4, rng))
        lost += min(holm([paired(a, b).p for a, b in pairs])) < 0.05
    assert lost / 1000 < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 1000)
