"""Sinusoids by the formula and by their property; learned positions."""

import math

import torch

from lit_modules.components.positions import POSITION, sinusoids


def test_the_papers_formula():
    table = sinusoids(50, 6)
    for pos in (0, 1, 7, 49):
        for i in range(3):
            angle = pos / 10000 ** (2 * i / 6)
            assert abs(table[pos, 2 * i] - math.sin(angle)) < 1e-6
            assert abs(table[pos, 2 * i + 1] - math.cos(angle)) < 1e-6


def test_a_shift_is_a_rotation_that_does_not_depend_on_the_position():
    """PE(pos + k) = R(k) PE(pos), with a 2 × 2 rotation by k ω for each frequency ω."""
    d_model, k = 8, 5
    table = sinusoids(60, d_model).double()
    for i in range(d_model // 2):
        angle = k / 10000 ** (2 * i / d_model)
        rotation = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64
        )
        pair = table[:, 2 * i : 2 * i + 2]
        torch.testing.assert_close(pair[:-k] @ rotation.T, pair[k:], atol=1e-5, rtol=0)


def test_each_kind_starts_where_it_is_told_and_grows_where_it_can():
    x = torch.zeros(1, 12, 6)
    for kind in ("sinusoidal", "learned"):
        position = POSITION[kind](6, 16)
        assert torch.equal(position(x[:, :4], start=3), position(x)[:, 3:7])
    assert torch.equal(POSITION["none"](6, 16)(x), x)
    assert torch.equal(POSITION["sinusoidal"](6, 4)(x)[0], sinusoids(12, 6))
