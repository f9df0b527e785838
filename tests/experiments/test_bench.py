"""The benchmark's own arithmetic; its sides take turns in real processes."""

import json

import pytest
import torch

from datamodules.tokenizer import PAD
from experiments.bench import scaling, training
from experiments.bench.training import FAMILIES, holds, measure, spread
from experiments.bench.turns import ALLOCATORS, peak_during
from experiments.launch.question import BadInput


@pytest.mark.parametrize("name", FAMILIES)
def test_every_peer_has_our_parameters_and_a_loss_like_ours(name, monkeypatch):
    """The same model on the same batch: within 3 % as many parameters, and losses of untrained models a fifth apart."""
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    family = FAMILIES[name]()
    torch.manual_seed(0)
    batches, vocab_size = family.prepare(1)
    sizes, losses = {}, {}
    for side, make in family.sides.items():
        torch.manual_seed(0)
        model, loss = make(vocab_size)
        sizes[side] = sum(p.numel() for p in model.parameters())
        with torch.no_grad():
            losses[side] = float(loss(batches[0]))
    for side in family.sides:
        assert abs(sizes[side] / sizes["ours"] - 1) < 0.03, sizes
        assert abs(losses[side] / losses["ours"] - 1) < 0.2, losses
    assert family.count(batches[0]) > 0 and set(family.tuned) < set(family.sides)


def test_batches_are_the_same_at_every_call(monkeypatch):
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    for family in (make() for make in FAMILIES.values()):
        both = []
        for _ in range(2):
            torch.manual_seed(0)
            both.append(family.prepare(2)[0])
        for one, other in zip(*both, strict=True):
            assert all(torch.equal(one[key], other[key]) for key in one)


def test_two_sides_take_turns_and_the_ratio_is_of_the_same_stretch(tmp_path, monkeypatch):
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    told = []
    part = measure("translation", "fp32", 1, True, tmp_path, told.append)
    ours, peer = part["sides"]
    assert (ours["side"], peer["side"]) == ("ours", "Hugging Face, eager") and len(told) == 4
    assert told[:2] == ["translation fp32: ours", "translation fp32: Hugging Face, eager"] and told[2] == told[1]
    assert peer["ratio"]["median"] == pytest.approx(ours["per_second"]["median"] / peer["per_second"]["median"])
    assert ours["ratio"]["median"] == 1 and ours["memory"] > 0 and 0 < ours["of_ceiling"] < 110
    assert len(training.rows([part])) == 2


def test_the_count_of_flops_is_that_of_the_linear_maps_and_the_attention(monkeypatch):
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    family = FAMILIES["vit"]()
    torch.manual_seed(0)
    flops, images = training.cost(family, *family.prepare(1))
    n, d, ff, layers = 65, 192, 768, 6
    forward = layers * (2 * n * (4 * d * d + 2 * d * ff) + 4 * n * n * d) + 2 * 64 * 48 * d + 2 * d * 10
    assert flops / images == pytest.approx(3 * forward, rel=0.01)


def test_the_quick_form_fails_where_a_ratio_has_fallen_by_a_third(tmp_path, monkeypatch, capsys):
    def part(ratio):
        sides = [{"side": name, "allocator": "default", "ratio": spread([r])} for name, r in (("ours", 1.0), ("peer", ratio))]
        return {"family": "bert", "precision": "fp32", "sides": sides}

    monkeypatch.setattr(training, "RESULTS", tmp_path)
    (tmp_path / "training.json").write_text(json.dumps({"parts": [part(1.5)]}))
    assert holds([part(1.01)]) and not holds([part(0.99)])
    assert "bert fp32, peer: 0.99, kept 1.50: LOST" in capsys.readouterr().out


def test_memory_is_what_the_work_took():
    found, memory = peak_during(lambda: torch.ones(64 * 2**18).sum().item())
    assert found == 64 * 2**18 and 50 * 2**20 < memory < 120 * 2**20


def test_exponents_are_slopes_of_the_costliest_sizes():
    assert scaling.exponent([1, 2, 4, 8], [100, 4, 16, 64]) == pytest.approx(2)
    assert scaling.exponent([16, 8, 4, 2], [1, 3, 12, 48]) == pytest.approx(-2)


def test_the_theory_of_cost_is_torchs_count_of_products():
    from torch.utils.flop_counter import FlopCounterMode

    for form in ("explicit attention", "dot product alone", "additive alone"):
        sizes = {"length": 64, "width": 64, "depth": 2, "batch": 2}
        x = torch.randn(2, 64, 64)
        model = scaling.FORMS[form](sizes)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(x)
        counted, ours = counter.get_total_flops(), scaling.theory(form, sizes)
        assert ours == pytest.approx(counted, rel=0.35 if form == "additive alone" else 0.01), form  # tanh is not counted


def test_the_lstm_has_as_many_parameters_as_the_encoder():
    sizes = scaling.BASE
    with_parameters = []
    torch.manual_seed(0)
    for form in ("fused attention", "LSTM"):
        x = torch.randn(1, 8, sizes["width"])
        before = scaling.kept_bytes(scaling.FORMS[form](sizes), x)
        with_parameters.append(before)
    assert all(value > 0 for value in with_parameters)


def test_a_benchmark_that_is_not_known_is_named():
    from experiments.commands.models import bench

    with pytest.raises(BadInput, match="no benchmark 'cooking'; known: translation, bert, vit"):
        bench(["cooking"])
    with pytest.raises(BadInput, match="--quick is for translation, bert, vit"):
        bench(["gpu"], quick=True)


def test_allocators_are_environments_alone():
    assert ALLOCATORS["default"] == {} and set(ALLOCATORS["tuned"]) == {"GLIBC_TUNABLES"}
    assert PAD == 0
