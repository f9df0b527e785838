"""Statistics by hand, by scipy and by statsmodels."""

import math

import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from experiments.answer.statistics import fisher, holm, mean_sd, paired


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
