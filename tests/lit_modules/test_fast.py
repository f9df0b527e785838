"""The fast pieces beside their clear forms."""

import json

import pytest
import torch
import torch.nn.functional as F

from datamodules.tokenizer import PAD
from lit_modules.components.fast import PART, ROWS, Dropout, dropout
from lit_modules.components.loss import output_loss, token_loss

VOCAB, WIDTH = 50, 12


def losses(x, weight, bias, target, smoothing, clear):
    """Both sums and the gradients."""
    leaves = [leaf.clone().requires_grad_() for leaf in (x, weight, bias) if leaf is not None]
    arguments = [*leaves, None][:3]
    if clear:
        found = token_loss(F.linear(*arguments), target, pad_id=PAD, smoothing=smoothing)
    else:
        found = output_loss(*arguments, target, pad_id=PAD, smoothing=smoothing)
    (found.smoothed * 0.37).backward()
    return [found.smoothed, found.nll, *(leaf.grad for leaf in leaves)], int(found.tokens)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("length", [1, PART + 1, 2 * ROWS + 3])
def test_the_loss_in_pieces_is_the_loss(smoothing, with_bias, length):
    x, weight = torch.randn(2, length, WIDTH, dtype=torch.float64), torch.randn(VOCAB, WIDTH, dtype=torch.float64)
    bias = torch.randn(VOCAB, dtype=torch.float64) if with_bias else None
    target = torch.randint(1, VOCAB, (2, length))
    target[0, : length // 3] = PAD
    fast, tokens = losses(x, weight, bias, target, smoothing, clear=False)
    real = target != PAD
    assert tokens == int(real.sum())
    leaves = [leaf.clone().requires_grad_() for leaf in (x, weight, bias) if leaf is not None]
    logits = F.linear(*[*leaves, None][:3])[real]
    smoothed = F.cross_entropy(logits, target[real], label_smoothing=smoothing, reduction="sum")
    (smoothed * 0.37).backward()
    expected = [smoothed, F.cross_entropy(logits, target[real], reduction="sum"), *(leaf.grad for leaf in leaves)]
    for ours, torchs in zip(fast, expected, strict=True):
        torch.testing.assert_close(ours, torchs, atol=1e-9, rtol=1e-9)


def test_extreme_logits_give_finite_losses_and_gradients():
    """A target whose probability is 0 in fp32 still has its nll."""
    x = torch.tensor([[[300.0], [-300.0]]])
    fast, _ = losses(x, torch.tensor([[0.0], [1.0], [2.0]]), None, torch.tensor([[1, 2]]), 0.1, clear=False)
    clear, _ = losses(x, torch.tensor([[0.0], [1.0], [2.0]]), None, torch.tensor([[1, 2]]), 0.1, clear=True)
    for ours, theirs in zip(fast, clear, strict=True):
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-6)


def test_nothing_but_padding_gives_zero_and_zero_gradients():
    x, weight = torch.randn(2, 3, WIDTH), torch.randn(VOCAB, WIDTH)
    found, tokens = losses(x, weight, torch.zeros(VOCAB), torch.full((2, 3), PAD), 0.1, clear=False)
    assert tokens == 0 and all((value == 0).all() for value in found)


def test_under_autocast_it_differs_from_the_clear_form_by_bf16s_rounding():
    x, weight, target = torch.randn(3, 200, WIDTH), torch.randn(VOCAB, WIDTH), torch.randint(1, VOCAB, (3, 200))
    with torch.autocast("cpu", torch.bfloat16):
        (fast, _), (clear, _) = (losses(x, weight, None, target, 0.1, clear=c) for c in (False, True))
    assert [value.dtype for value in fast] == [torch.float32] * 4
    for ours, theirs in zip(fast, clear, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2**-7 * float(theirs.abs().max()), rtol=0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(p):
    torch.manual_seed(1)
    x = torch.ones(1000, 1001).requires_grad_()  # no multiple of four
    y = dropout(x, p)
    dropped = float((y == 0).double().mean())
    assert abs(dropped - p) < 4 * (p * (1 - p) / x.numel()) ** 0.5 + 2**-17
    torch.testing.assert_close(y.max().item(), 1 / (1 - p), rtol=2e-4, atol=0)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach()), "the gradient passes where the number did, with its factor"


def test_neighbours_are_dropped_independently():
    """Four numbers share a draw of 64 bits, each its own 16 of them."""
    torch.manual_seed(2)
    kept = (dropout(torch.ones(4_000_000), 0.5) != 0).double()
    for apart in (1, 2, 3, 4, 8):
        together = float((kept[:-apart] * kept[apart:]).mean())
        assert abs(together - 0.25) < 4 * (0.1875 / len(kept)) ** 0.5


def test_dropout_is_torchs_elsewhere():
    x = torch.randn(5, 7)
    assert torch.equal(Dropout(0.3).eval()(x), x) and torch.equal(dropout(x, 0.0), x)
    assert torch.equal(Dropout(1.0)(x), torch.zeros(5, 7))
    torch.manual_seed(3)
    first = dropout(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5), first) and not torch.equal(dropout(x, 0.5), first)
    assert dropout(x.bfloat16(), 0.5).dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_whole_trainings_end_where_the_clear_form_ends(precision, tmp_path, monkeypatch, capsys):
    """Toy recipe with dropout, three seeds: the curve of the loss, and BLEU, differ by no more than seeds do."""
    from experiments.record.metrics_file import read_metrics
    from experiments.train import train
    from lit_modules import translation
    from lit_modules.components import attention, residual

    monkeypatch.setenv("WANDB_MODE", "disabled")

    def clear_loss(x, weight, bias, target, *, pad_id, smoothing=0.0):
        return token_loss(F.linear(x, weight, bias), target, pad_id=pad_id, smoothing=smoothing)

    found = {}
    for form in ("fast", "clear"):
        if form == "clear":
            monkeypatch.setattr(translation, "output_loss", clear_loss)
            monkeypatch.setattr(attention, "drop", lambda x, p: F.dropout(x, p, training=p > 0))
            monkeypatch.setattr(residual, "Dropout", torch.nn.Dropout)
            monkeypatch.setattr(translation, "Dropout", torch.nn.Dropout)
        for seed in range(3):
            monkeypatch.setenv("ABLATE_OUT", str(tmp_path / form))
            train(["fit", "--config", "experiments/recipes/translation/toy.yaml", f"--seed_everything={seed}",
                   "--model.arch.dropout=0.1", f"--trainer.precision={precision}"])  # fmt: skip
            (folder,) = (tmp_path / form).glob(f"alone/*/*/seed-{seed}-*")
            metrics, logged = json.loads((folder / "result.json").read_text())["metrics"], read_metrics(folder / "metrics.csv")
            curve = [logged["train/loss"][step] for step in (100, 200, 300, 400, 500)]
            found.setdefault(form, []).append([*curve, metrics["valid/nll"], metrics["test/bleu"]])
    names = ["loss 100", "200", "300", "400", "500", "valid/nll", "test/bleu"]
    with capsys.disabled():
        for form, runs in found.items():
            print(f"\n{precision} {form}:", {n: [round(v, 3) for v in some] for n, some in zip(names, zip(*runs, strict=True), strict=True)})
    for name, fast, clear in zip(names, zip(*found["fast"], strict=True), zip(*found["clear"], strict=True), strict=True):
        difference = abs(sum(fast) - sum(clear)) / 3
        spread = max(torch.tensor(fast).std().item(), torch.tensor(clear).std().item())
        assert difference < 3 * spread, (name, fast, clear)
