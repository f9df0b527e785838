"""`ablate check`: arms that are none, choices that change nothing, arms that cannot be compared."""

from dataclasses import replace

import pytest

from experiments.launch.check import Bound, check, hold_against
from experiments.launch.question import ROOT, BadInput, read


def own_sweep(tmp_path, parameters):
    """The digits asked by a sweep file of one's own."""
    text = (
        (ROOT / "sweeps/patch_size.yaml")
        .read_text()
        .replace("patch_size\n", "mine\n", 1)
        .replace("- patch_size", "- mine")
    )
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("  model.patch_size: {values: [2, 1, 4, 8]}", parameters))
    return read(str(path))


def test_two_arms_of_one_configuration_are_refused(tmp_path, capsys):
    one = Bound("norm=pre", (), {"model.arch.norm": "pre", "data.batch_size": 10}, (1.0, 2.0), "abc", 10)
    with pytest.raises(BadInput, match="the arms norm=pre and norm=before resolve to the same configuration"):
        hold_against([one], replace(one, name="norm=before"))
    question = own_sweep(tmp_path, "  model.arch.n_heads: {values: [4, split]}\n  model.arch.d_k: {values: [16]}")
    assert check(question) == 2
    assert "n_heads=4 and d_k=16,n_heads=split begin alike: model.arch.n_heads changes" in capsys.readouterr().err


def test_a_choice_that_changes_nothing_is_said(tmp_path, capsys):
    parameters = "  model.arch.dropout_at: {values: [all, weights]}\n  model.arch.dropout: {value: 0.0}"
    assert check(own_sweep(tmp_path, parameters)) == 2
    said = capsys.readouterr().err
    assert "dropout_at=all and dropout_at=weights begin alike: model.arch.dropout_at changes neither first loss" in said
    assert check(own_sweep(tmp_path, "  model.arch.dropout_at: {values: [all, weights]}")) == 2
    assert "begin alike" not in capsys.readouterr().err


def test_arms_that_read_other_data_are_said(tmp_path, capsys):
    assert check(own_sweep(tmp_path, "  data.train_share: {values: [1.0, 0.5]}")) == 2
    assert "train_share=0.5 reads other data than train_share=1.0" in capsys.readouterr().err


def test_arms_of_other_token_budgets_are_said(tmp_path, capsys):
    assert check(own_sweep(tmp_path, "  trainer.max_steps: {values: [1000, 500]}")) == 2
    assert "max_steps=500 trains on 50,000 tokens, max_steps=1000 on 100,000" in capsys.readouterr().err
    strata = "  model.arch.norm: {values: [pre, post]}\n  trainer.max_steps: {values: [1000, 500]}"
    assert check(own_sweep(tmp_path, strata)) == 4  # compared within their strata, which have one budget each
    assert "trains on" not in capsys.readouterr().err
