"""The benchmark's own arithmetic; its sides take turns in real processes."""

import json
import subprocess
import sys

import pytest
import torch

from experiments.bench import scaling, tables, training
from experiments.bench.tables import spread
from experiments.bench.training import FAMILIES, holds, kept_parts, measure
from experiments.bench.turns import ALLOCATORS
from experiments.launch.allocator import KEEPS, NAME, hint
from experiments.launch.pool import environment
from experiments.launch.question import ROOT, BadInput


@pytest.mark.parametrize("name", FAMILIES)
def test_every_peer_has_our_parameters_and_a_loss_like_ours(name, monkeypatch):
    """The same model on the same batch: within 1 % as many weights that learn, and losses of untrained models alike
    (ViT's begin with heads of other sizes)."""
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    family = FAMILIES[name]()
    torch.manual_seed(0)
    batches, vocab_size = family.prepare(1)
    sizes, losses = {}, {}
    for side, make in family.sides.items():
        torch.manual_seed(0)
        model, loss = make(vocab_size)
        sizes[side] = sum(p.numel() for p in model.parameters() if p.requires_grad)
        with torch.no_grad():
            losses[side] = float(loss(batches[0]))
    for side in family.sides:
        assert abs(sizes[side] / sizes["ours"] - 1) < 0.01, sizes
        assert abs(losses[side] / losses["ours"] - 1) < 0.35, losses
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
    heads, lines = tables.training({"parts": [part]})
    assert [len(line) for line in lines] == [len(heads)] * 2


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
        sides = [{"side": name, "allocator": "tuned", "ratio": spread([r])} for name, r in (("ours", 1.0), ("peer", ratio))]
        return {"family": "bert", "precision": "fp32", "sides": sides}

    monkeypatch.setattr(training, "RESULTS", tmp_path)
    with pytest.raises(BadInput, match="nothing to hold bert fp32 against: `ablate bench bert` measures it"):
        training.main(["bert"], 5, True)
    (tmp_path / "quick.json").write_text(json.dumps({"parts": [part(1.5)]}))
    before = kept_parts("quick")
    assert holds([part(1.01)], before) and not holds([part(0.99)], before)
    assert "bert fp32, peer: 0.99, kept 1.50: LOST" in capsys.readouterr().out
    alone = part(1.5)
    alone["sides"] = alone["sides"][:1]
    assert not holds([alone], before) and "no peer is installed" in capsys.readouterr().out


def test_what_is_not_measured_again_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "RESULTS", tmp_path)
    monkeypatch.setenv("ABLATE_DATA", "of the full form alone")
    made = {"sides": [], "rounds": 1}
    monkeypatch.setattr(training, "measure", lambda name, precision, *_: {"family": name, "precision": precision, **made})
    assert training.main(["vit"], 1, False) and training.main(["bert"], 1, False)
    for name in ("training", "quick"):
        assert list(kept_parts(name)) == [("bert", "fp32"), ("bert", "bf16"), ("vit", "fp32"), ("vit", "bf16")]
        assert all(part["commit"] and part["date"] for part in kept_parts(name).values())


def test_kept_results_were_measured_in_full_on_a_commit():
    """No stand-in, no working tree that nobody can check out, no single round."""
    kept = [json.loads((tables.RESULTS / f"{name}.json").read_text()) for name in ("decoding", "launching", "scaling")]
    for found in [*kept_parts("training").values(), *kept]:
        assert found["commit"] and not found["commit"].endswith("+"), found["commit"]
        assert found.get("rounds", found.get("runs")) >= 3
    assert len(kept_parts("training")) == len(kept_parts("quick")) == 6


def test_more_rounds_than_there_is_data(tmp_path, monkeypatch):
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    with pytest.raises(BadInput, match="--rounds 900: translation has .* batches, 6 for each stretch"):
        measure("translation", "fp32", 900, False, tmp_path, print)


def test_memory_is_what_the_work_took():
    """In a process of its own, as a side has: one that has freed as much before would grow by nothing."""
    work = """
import time, torch
from experiments.bench.turns import peak_during
def work():
    held = torch.ones(64 * 2**18)
    time.sleep(0.2)  # long enough to be seen
    return held.sum().item()
print(*peak_during(work))
"""
    said = subprocess.run([sys.executable, "-c", work], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found, memory = float(said[0]), int(said[1])
    assert found == 64 * 2**18 and 50 * 2**20 < memory < 120 * 2**20


def test_exponents_are_slopes_of_the_costliest_sizes():
    assert tables.exponent([1, 2, 4, 8], [100, 4, 16, 64]) == pytest.approx(2)
    assert tables.exponent([16, 8, 4, 2], [1, 3, 12, 48]) == pytest.approx(-2)


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


def test_the_lstm_has_the_encoders_products():
    """Theory says so, and the parameters that multiply: 12 d² a layer in both."""
    sizes = scaling.BASE
    d, inner = sizes["width"], round(sizes["width"] * 1.5**0.5)
    assert 8 * inner * inner == pytest.approx(12 * d * d, rel=0.02)
    without_attention = scaling.theory("fused attention", sizes) - 2 * sizes["batch"] * sizes["depth"] * 2 * sizes["length"] ** 2 * d
    assert scaling.theory("LSTM", sizes) == without_attention


def test_a_benchmark_that_is_not_known_is_named():
    from experiments.commands.models import bench

    with pytest.raises(BadInput, match="no benchmark 'cooking'; known: translation, bert, vit"):
        bench(["cooking"])
    with pytest.raises(BadInput, match="--quick is for translation, bert, vit"):
        bench(["gpu"], quick=True)


def test_the_launcher_sets_the_allocator_that_was_measured_unless_somebody_has(monkeypatch):
    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    assert environment("out", 1)[NAME] == ALLOCATORS["tuned"][NAME] == KEEPS and KEEPS in hint()
    monkeypatch.setenv(NAME, "glibc.malloc.check=1")
    assert environment("out", 1)[NAME] == "glibc.malloc.check=1" and hint() == ""
    monkeypatch.delenv(NAME)
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert NAME not in environment("out", 1) and hint() == ""


def test_glibc_understands_it():
    """It says nothing of a tunable that it knows, and starts the program."""
    said = subprocess.run(["ls", "/"], env={NAME: KEEPS, "PATH": "/bin:/usr/bin"}, capture_output=True, text=True)
    assert said.returncode == 0 and said.stderr == ""
