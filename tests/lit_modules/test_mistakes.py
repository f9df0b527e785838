"""Each mistake is the one that it says, and nothing else; the correct model is not touched by any."""

import pytest
import torch
import torch.nn.functional as F

from datamodules.tokenizer import BOS, EOS, PAD
from lit_modules.choices import Arch
from lit_modules.components.attention import attention_scores, attention_weights
from lit_modules.components.diagnostics import leak
from lit_modules.mistakes import MISTAKES, MistakenTranslation
from lit_modules.optimization import Optim
from lit_modules.translation import Translation

VOCAB, D_MODEL, HEADS = 23, 12, 3
WORDS = sorted(MISTAKES)


def built(mistake, kind=MistakenTranslation, **more):
    torch.manual_seed(0)
    arch = Arch(d_model=D_MODEL, n_heads=HEADS, d_ff=20, n_layers=2, dropout=0.0)
    named = {"mistake": mistake} if kind is MistakenTranslation else {}
    return kind(arch=arch, optim=Optim(lr=1e-2, warmup_steps=2), vocab_size=VOCAB, **named, **more).eval()


def batch():
    torch.manual_seed(1)
    source, target = torch.randint(4, VOCAB, (3, 7)), torch.randint(4, VOCAB, (3, 6))
    target[:, 0] = BOS
    source[1, 4:], target[1, 4:], target[1, 3], target[0, -1], target[2, -1] = PAD, PAD, EOS, EOS, EOS
    return {"source": source, "target": target, "index": torch.arange(3)}


def loss(model):
    sums = model.loss(batch(), 0.0)
    return float(sums.nll / sums.tokens)


def test_none_is_the_correct_model():
    assert loss(built("none")) == loss(built("", Translation))


@pytest.mark.parametrize("mistake", [w for w in WORDS if w != "none"])
def test_every_mistake_changes_the_loss_and_leaves_the_weights_as_they_are(mistake):
    model, correct = built(mistake), built("none")
    assert loss(model) != loss(correct)
    assert [p.shape for p in model.parameters()] == [p.shape for p in correct.parameters()]
    assert model.hparams.mistake == mistake


def test_all_losses_differ_from_one_another():
    assert len({loss(built(mistake)) for mistake in WORDS}) == len(WORDS)


@pytest.mark.parametrize("mistake, leaks", [
    ("none", False), ("divided_twice", False), ("targets_not_shifted", False), ("norm_inside", False),
    ("mask_off_by_one", True), ("softmax_over_queries", True),
])  # fmt: skip
def test_the_leak_is_seen_where_the_future_reaches_the_past(mistake, leaks):
    network, data = built(mistake).network, batch()
    found = leak(lambda target: network(data["source"], target), data["target"][:, :-1], vocab_size=VOCAB, pad_id=PAD)
    assert (found > 1e-3) == leaks and (leaks or found == 0)


def test_an_open_mask_leaks_and_padding_is_left_alone():
    network, data = built("", Translation, look_ahead="open").network, batch()
    seen = []

    def logits_of(target):
        seen.append(target)
        return network(data["source"], target)

    assert leak(logits_of, data["target"][:, :-1], vocab_size=VOCAB, pad_id=PAD) > 1e-3
    changed, original = seen
    half = original.shape[1] // 2
    assert torch.equal(changed[:, :half], original[:, :half]) and torch.equal(changed == PAD, original == PAD)
    later = (original != PAD)[:, half:]
    assert (changed != original)[:, half:][later].all()


def test_divided_twice_is_divided_by_d_k():
    for attention in (m for m in built("divided_twice").network.modules() if hasattr(m, "attend")):
        assert attention.scale == pytest.approx(HEADS / D_MODEL)


def test_the_softmax_over_queries_sums_to_one_over_queries():
    model, data = built("softmax_over_queries"), batch()
    with attention_weights(model.network) as seen:
        recorded = model.network(data["source"], data["target"][:, :-1])
    torch.testing.assert_close(recorded, model.network(data["source"], data["target"][:, :-1]), atol=1e-6, rtol=1e-5)
    weights = seen["encoder.layers.0.self_attention"].weights
    real_keys = (data["source"] != PAD)[:, None, None, :].expand_as(weights[:, :, :1])[:, :, 0]
    torch.testing.assert_close(weights.sum(-2), real_keys.float(), atol=1e-5, rtol=0)


def test_off_by_one_sees_one_more_token_and_no_further():
    network, data = built("mask_off_by_one").network, batch()
    target = data["target"][:1, :-1]
    before = network(data["source"][:1], target)
    changed = target.clone()
    changed[0, 3] = changed[0, 3] % (VOCAB - 5) + 4
    moved = (network(data["source"][:1], changed) - before).abs().amax(dim=(0, 2))
    assert moved[0] == 0 and (moved[1:] > 1e-4).all(), "two layers: one token further in each"


def test_not_shifted_reads_what_it_is_to_write():
    inputs, labels = built("targets_not_shifted").shift(batch()["target"])
    assert torch.equal(inputs, labels) and (labels[:, 0] != BOS).all()


def test_loss_on_padding_counts_it():
    model, data = built("loss_on_padding"), batch()
    logits, labels = model.network(data["source"], data["target"][:, :-1]), data["target"][:, 1:]
    sums = model.loss(data, 0.1)
    torch.testing.assert_close(sums.smoothed, F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1, reduction="sum"))
    assert sums.tokens == labels.numel()


def test_norm_inside_by_hand():
    residual = built("norm_inside").network.decoder.layers[1].residuals[2]
    x, y = torch.randn(2, 5, D_MODEL), torch.randn(2, 5, D_MODEL)
    torch.testing.assert_close(residual(x, lambda _: y), x + F.layer_norm(y, (D_MODEL,)))


def test_a_mistake_of_a_choice_that_is_not_there_is_refused():
    arch = Arch(d_model=D_MODEL, n_heads=HEADS, d_ff=20, n_layers=1, norm="pre")
    with pytest.raises(ValueError, match="made of arch.norm post, not of pre"):
        MistakenTranslation(arch=arch, optim=Optim(lr=1e-2, warmup_steps=2), vocab_size=VOCAB, mistake="norm_inside")


def test_no_factor_leaves_embeddings_small():
    network, ids = built("no_embedding_factor").network, torch.arange(4, VOCAB)[None]
    torch.testing.assert_close(network.source_embedding(ids), network.source_embedding.weight[ids])
    assert network.target_embedding.factor == 1.0


def test_scores_are_what_the_weights_are_made_of():
    q, k = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 3, 4)
    torch.testing.assert_close(attention_scores(q, k, 0.5)[0, 0], 0.5 * q[0, 0] @ k[0, 0].T)
