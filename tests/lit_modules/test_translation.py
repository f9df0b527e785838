"""The translation model as a whole: who sees what, padding, the loss, the optimiser step."""

import math

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.tokenizer import BOS, EOS, PAD
from datamodules.translation import ToyTranslation
from lit_modules.choices import Arch
from lit_modules.components.loss import token_loss
from lit_modules.generation import Decoding
from lit_modules.optimization import Optim
from lit_modules.translation import Translation

VOCAB = 23
ARCH = {"d_model": 12, "n_heads": 3, "d_ff": 20, "n_layers": 2, "dropout": 0.0}


def model(arch=None, **choices) -> Translation:
    torch.manual_seed(0)
    built = Translation(
        arch=Arch(**{**ARCH, **(arch or {})}), optim=Optim(lr=1e-2, warmup_steps=2), vocab_size=VOCAB, **choices
    )
    return built.eval()


def tokens(*shape):
    return torch.randint(4, VOCAB, shape)


# ---- who sees what


@pytest.mark.parametrize("look_ahead", ["masked", "open"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_future_token_moves_the_past_only_if_the_mask_is_open(look_ahead, norm):
    network = model({"norm": norm}, look_ahead=look_ahead).network
    source, target = tokens(2, 7), tokens(2, 6)
    changed = target.clone()
    changed[:, 4] = (changed[:, 4] - 4 + 1) % (VOCAB - 4) + 4
    before, after = network(source, target), network(source, changed)
    moved = (after - before).abs().amax(dim=(0, 2))
    assert (moved[:4] > 1e-4).all() if look_ahead == "open" else (moved[:4] == 0).all()
    assert (moved[4:] > 1e-4).all()


@settings(max_examples=15, deadline=None)
@given(batch=st.integers(2, 4), source=st.integers(2, 8), target=st.integers(2, 9), extra=st.integers(1, 5))
def test_padding_and_batch_mates_never_move_anything(batch, source, target, extra):
    network = model().network
    one_source, one_target = tokens(1, source), tokens(1, target)
    alone = network(one_source, one_target)
    sources, targets = tokens(batch, source + extra), tokens(batch, target + extra)
    sources[0], targets[0] = PAD, PAD
    sources[0, :source], targets[0, :target] = one_source, one_target
    together = network(sources, targets)
    torch.testing.assert_close(together[:1, :target], alone, atol=1e-5, rtol=1e-5)
    order = torch.randperm(batch)
    torch.testing.assert_close(network(sources[order], targets[order]), together[order], atol=1e-5, rtol=1e-5)


def test_training_without_dropout_equals_evaluation():
    built = model()
    source, target = tokens(3, 7), tokens(3, 6)
    expected = built.network(source, target)
    assert torch.equal(built.train().network(source, target), expected)


def test_greedy_equals_a_search_without_cache():
    built = model()
    source = tokens(4, 5)
    ours_all = built.translate(source, Decoding())
    target = torch.full((4, 1), BOS)
    for _ in range(ours_all.shape[1]):
        target = torch.cat([target, built.network(source, target)[:, -1:].argmax(-1)], dim=1)
    for row, ours in zip(target[:, 1:].tolist(), ours_all.tolist(), strict=True):
        end = row.index(EOS) + 1 if EOS in row else len(row)
        assert ours[:end] == row[:end] and set(ours[end:]) <= {PAD}


def test_greedy_stops_at_the_length_limit():
    built = model(extra_length=3)
    assert built.translate(tokens(2, 5), Decoding()).shape[1] <= 8
    assert model(position="learned", max_length=6).translate(tokens(2, 5), Decoding()).shape[1] <= 6


def test_learned_positions_refuse_longer_sentences():
    built = model(position="learned", max_length=10)
    data = ToyTranslation(train_pairs=50, eval_pairs=5)
    with pytest.raises(ValueError, match=rf"longest sequence has {data.longest} tokens.*only 10 learned positions"):
        built.check_data(data)
    with pytest.raises(ValueError, match="11 tokens is longer than the 10 learned positions"):
        built.network(tokens(1, 11), tokens(1, 3))
    model(position="sinusoidal", max_length=10).check_data(data)


# ---- embeddings


def test_weight_tying():
    count = {}
    for kind in ("none", "output", "all"):
        network = model(weight_tying=kind).network
        source, target, output = network.source_embedding.weight, network.target_embedding.weight, network.output.weight
        assert (target is output) == (kind != "none") and (source is target) == (kind == "all")
        count[kind] = sum(p.numel() for p in network.parameters())
    assert count["none"] - count["output"] == count["output"] - count["all"] == VOCAB * ARCH["d_model"]


def test_embedding_has_the_papers_factor():
    embedding = model().network.source_embedding
    ids = tokens(2, 3)
    torch.testing.assert_close(embedding(ids), F.embedding(ids, embedding.weight) * math.sqrt(12))


def test_dropout_stands_in_three_places():
    """Attention weights, each sub-layer's output, embedding sums; nowhere else."""
    network = model({"dropout": 0.3}).network
    dropouts = [name for name, module in network.named_modules() if isinstance(module, torch.nn.Dropout)]
    residuals = [n for n in dropouts if "residuals" in n]
    assert set(dropouts) - set(residuals) == {"dropout"} and len(residuals) == 2 * 2 + 2 * 3
    assert all(m.dropout == 0.3 for m in network.modules() if hasattr(m, "attend"))


# ---- loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_equals_torchs_on_the_stripped_tokens(smoothing):
    logits, target = torch.randn(3, 5, VOCAB, dtype=torch.float32), tokens(3, 5)
    target[0, 2:], target[2] = PAD, PAD
    loss = token_loss(logits, target, pad_id=PAD, smoothing=smoothing)
    real = target != PAD
    expected = F.cross_entropy(logits[real], target[real], label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss.smoothed, expected, atol=1e-4, rtol=1e-6)
    torch.testing.assert_close(
        loss.nll, F.cross_entropy(logits[real], target[real], reduction="sum"), atol=1e-4, rtol=1e-6
    )
    assert loss.tokens == real.sum() == 7


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_an_all_padding_batch_gives_zero_and_zero_gradients(smoothing):
    logits = torch.randn(2, 3, VOCAB).requires_grad_()
    loss = token_loss(logits, torch.full((2, 3), PAD), pad_id=PAD, smoothing=smoothing)
    loss.smoothed.backward()
    assert loss.smoothed == 0 and (logits.grad == 0).all()


def test_targets_are_shifted_right():
    """The model never gets the token that it is to predict as its newest input."""
    built, seen = model(), {}
    built.network.target_embedding.register_forward_pre_hook(lambda _, inputs: seen.update(target=inputs[0]))
    batch = {"source": tokens(1, 4), "target": torch.tensor([[BOS, 5, 6, EOS]]), "index": torch.tensor([0])}
    loss = built.loss(batch, 0.0)
    assert seen["target"].tolist() == [[BOS, 5, 6]] and loss.tokens == 3


# ---- the optimiser step


class Batches(L.LightningDataModule):
    longest, test_splits = 9, ["test"]

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.batches, batch_size=None)


def sentences(count):
    torch.manual_seed(5)
    lengths = torch.randint(2, 8, (count,)).tolist()
    target = torch.full((count, 9), PAD)
    for row, length in zip(target, lengths, strict=True):
        row[: length + 2] = torch.tensor([BOS, *tokens(length).tolist(), EOS])
    return {"source": tokens(count, 6), "target": target, "index": torch.arange(count)}


def pieces(batch, size):
    return [{k: v[i : i + size] for k, v in batch.items()} for i in range(0, len(batch["index"]), size)]


def gradients_of_a_step(batches, tmp_path, **trainer):
    built = model().train()
    grads = {}
    step = built.on_before_optimizer_step

    def keep(optimizer):
        step(optimizer)
        grads.update({n: p.grad.clone() for n, p in built.named_parameters()})

    built.on_before_optimizer_step = keep
    L.Trainer(
        max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, **trainer,
    ).fit(built, datamodule=Batches(batches))  # fmt: skip
    return grads


def test_gradients_do_not_depend_on_the_split_into_micro_batches(tmp_path):
    """1 × 8 and 4 × 2 sentences of unequal length, and by hand: Σ loss / Σ tokens."""
    batch = sentences(8)
    built = model().train()
    loss = built.training_loss(batch)
    (loss.smoothed / loss.tokens).backward()
    whole = gradients_of_a_step([batch], tmp_path)
    split = gradients_of_a_step(pieces(batch, 2), tmp_path, accumulate_grad_batches=4)
    for name, parameter in built.named_parameters():
        torch.testing.assert_close(whole[name], parameter.grad, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(split[name], parameter.grad, atol=1e-6, rtol=1e-5)


# ---- diagnostics


def test_attention_statistics_by_hand():
    from lit_modules.components.attention import Attended
    from lit_modules.components.diagnostics import attention_statistics

    weights = torch.tensor([[[[0.5, 0.5], [1.0, 0.0], [0.9, 0.1]]]])
    scores = torch.tensor([[[[1.0, 1.0], [3.0, -9.0], [50.0, 60.0]]]])
    allowed = torch.tensor([[[[True, True], [True, False], [True, True]]]])
    found = attention_statistics(Attended(scores, weights, allowed), torch.tensor([[True, True, False]]))
    assert found["entropy"] == pytest.approx(math.log(2) / 2)
    assert found["largest_weight"] == pytest.approx(0.75)
    assert found["jacobian"] == pytest.approx(0.25)  # ½ and 0
    assert found["score_sd"] == pytest.approx(torch.tensor([1.0, 1.0, 3.0]).std().item())


def test_jacobian_size_is_the_frobenius_norm():
    from lit_modules.components.attention import Attended
    from lit_modules.components.diagnostics import attention_statistics

    scores = torch.randn(6)
    jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(0), scores)
    attended = Attended(scores.view(1, 1, 1, 6), scores.softmax(0).view(1, 1, 1, 6), None)
    found = attention_statistics(attended, torch.tensor([[True]]))
    assert found["jacobian"] == pytest.approx(jacobian.norm().item(), rel=1e-5)


def test_diagnosis_names_every_attention_module_and_leaves_the_model_alone():
    built = model()
    state = {k: v.clone() for k, v in built.state_dict().items()}
    found = built.diagnose(sentences(3))
    assert found.pop("leak") == 0
    modules = {name.split("/")[0] for name in found}
    assert modules == {f"encoder.{i}.self_attention" for i in (0, 1)} | {
        f"decoder.{i}.{kind}_attention" for i in (0, 1) for kind in ("self", "cross")
    }
    assert all(torch.equal(state[k], v) for k, v in built.state_dict().items())
