"""The whole model beside torch.nn.Transformer and Hugging Face's Marian, with copied weights: logits, loss, gradients, beams."""

import math

import pytest
import torch
import torch.nn.functional as F
from test_stack import pairs
from torch import nn
from transformers import MarianConfig, MarianMTModel

from datamodules.tokenizer import BOS, EOS, PAD
from lit_modules.choices import Arch
from lit_modules.components import masks
from lit_modules.components.attention import SelfAttention
from lit_modules.components.positions import sinusoids
from lit_modules.generation import Decoding
from lit_modules.optimization import Optim
from lit_modules.translation import Translation

VOCAB, D_MODEL, HEADS, D_FF, LAYERS = 29, 12, 3, 20, 2


def model(**choices) -> Translation:
    torch.manual_seed(0)
    arch = Arch(**{"d_model": D_MODEL, "n_heads": HEADS, "d_ff": D_FF, "n_layers": LAYERS, "dropout": 0.0, **choices.pop("arch", {})})
    optim = Optim(lr=1e-2, warmup_steps=2)
    return Translation(arch=arch, optim=optim, vocab_size=VOCAB, label_smoothing=0.1, max_length=40, **choices).eval()


def batch():
    source, target = torch.randint(4, VOCAB, (3, 7)), torch.randint(4, VOCAB, (3, 6))
    target[:, 0] = BOS
    source[1, 4:], target[1, 3:], target[1, 2], target[0, -1], target[2, -1] = PAD, PAD, EOS, EOS, EOS
    return {"source": source, "target": target, "index": torch.arange(3)}


def randomise(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)


# ---- torch.nn.Transformer


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_whole_model_equals_torchs(norm):
    """Our embeddings and output around torch.nn.Transformer; its two extra final norms are taken out for post-norm."""
    ours = model(arch={"norm": norm})
    theirs = nn.Transformer(D_MODEL, HEADS, LAYERS, LAYERS, D_FF, 0.0, batch_first=True, norm_first=norm == "pre")
    if norm == "post":
        theirs.encoder.norm = theirs.decoder.norm = None
    randomise(theirs)
    both = [
        (mine, reference if isinstance(reference, nn.Parameter) else reference[0][reference[1]])
        for stack in ("encoder", "decoder")
        for mine, reference in pairs(getattr(ours.network, stack), getattr(theirs, stack))
    ]
    for mine, reference in both:
        mine.data.copy_(reference.data)
    data, network = batch(), ours.network
    source, target = data["source"], data["target"][:, :-1]
    x = theirs(
        network.source_position(network.source_embedding(source)), network.target_position(network.target_embedding(target)),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf(),
        src_key_padding_mask=source == PAD, tgt_key_padding_mask=target == PAD, memory_key_padding_mask=source == PAD,
    )  # fmt: skip
    expected = network.output(x)
    real = target != PAD
    torch.testing.assert_close(network(source, target)[real], expected[real], atol=1e-5, rtol=1e-5)


# ---- Hugging Face


def marian(ours: Translation) -> MarianMTModel:
    """The same model in Marian's form: post-norm, ReLU, scaled and shared embeddings. Its sinusoids have all sines
    before all cosines, where the paper's stand side by side: ours are copied over them."""
    config = MarianConfig(
        vocab_size=VOCAB, d_model=D_MODEL, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=D_FF, decoder_ffn_dim=D_FF, activation_function="relu", dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0, scale_embedding=True, pad_token_id=PAD, bos_token_id=BOS,
        eos_token_id=EOS, decoder_start_token_id=BOS, max_position_embeddings=40, forced_eos_token_id=None,
        share_encoder_decoder_embeddings=True, tie_word_embeddings=True, attn_implementation="eager",
    )  # fmt: skip
    theirs = MarianMTModel(config).eval()
    theirs.final_logits_bias.zero_()
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weight.data.copy_(sinusoids(40, D_MODEL))
    return theirs


def same(ours: Translation, theirs: MarianMTModel):
    """(our parameter, our rows, theirs)."""
    yield ours.network.target_embedding.weight, slice(None), theirs.model.shared.weight
    thirds = [slice(i * D_MODEL, (i + 1) * D_MODEL) for i in range(3)]
    for stack in ("encoder", "decoder"):
        for mine, other in zip(getattr(ours.network, stack).layers, getattr(theirs.model, stack).layers, strict=True):
            norms = [other.self_attn_layer_norm, other.final_layer_norm]
            if stack == "decoder":
                norms.insert(1, other.encoder_attn_layer_norm)
            for name in ("weight", "bias"):
                for residual, norm in zip(mine.residuals, norms, strict=True):
                    yield getattr(residual.norm, name), slice(None), getattr(norm, name)
                for third, projection in zip(thirds, ("q_proj", "k_proj", "v_proj"), strict=True):
                    yield getattr(mine.self_attention.query_key_value, name), third, getattr(getattr(other.self_attn, projection), name)
                yield getattr(mine.self_attention.output, name), slice(None), getattr(other.self_attn.out_proj, name)
                yield getattr(mine.feed_forward.inner, name), slice(None), getattr(other.fc1, name)
                yield getattr(mine.feed_forward.outer, name), slice(None), getattr(other.fc2, name)
                if stack == "decoder":
                    yield getattr(mine.cross_attention.query, name), slice(None), getattr(other.encoder_attn.q_proj, name)
                    yield getattr(mine.cross_attention.key_value, name), thirds[0], getattr(other.encoder_attn.k_proj, name)
                    yield getattr(mine.cross_attention.key_value, name), thirds[1], getattr(other.encoder_attn.v_proj, name)
                    yield getattr(mine.cross_attention.output, name), slice(None), getattr(other.encoder_attn.out_proj, name)


def twins():
    ours = model()
    theirs = marian(ours)
    torch.manual_seed(1)
    randomise(theirs)
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weight.data.copy_(sinusoids(40, D_MODEL))
    for mine, rows, other in same(ours, theirs):
        mine.data[rows] = other.data
    return ours, theirs


def test_marian_has_the_same_logits_loss_and_gradients():
    ours, theirs = twins()
    data = batch()
    source, inputs, labels = data["source"], data["target"][:, :-1], data["target"][:, 1:]
    logits = ours.network(source, inputs)
    expected = theirs(input_ids=source, attention_mask=source != PAD, decoder_input_ids=inputs).logits
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    loss = ours.training_loss(data)
    reference = F.cross_entropy(expected.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=0.1)
    torch.testing.assert_close(loss.smoothed / loss.tokens, reference, atol=1e-6, rtol=1e-5)
    (loss.smoothed / loss.tokens).backward()
    reference.backward()
    for mine, rows, other in same(ours, theirs):
        torch.testing.assert_close(mine.grad[rows], other.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_marian_writes_the_same_translations(width):
    """Without a length penalty both rank by log p; both stop a sentence when `width` hypotheses have ended."""
    ours, theirs = twins()
    ours.extra_length = 3  # 10 tokens for all, as many as theirs may write
    lengths = []
    for trial in range(8):  # another EOS each time: some sentences end early, some at the limit
        generator = torch.Generator().manual_seed(trial)
        source, eos = torch.randint(4, VOCAB, (6, 7), generator=generator), torch.randn(D_MODEL, generator=generator)
        ours.network.output.weight.data[EOS] = theirs.model.shared.weight.data[EOS] = eos
        mine = ours.translate(source, Decoding(method="beam", beam_width=width, length_penalty=0.0))
        generated = theirs.generate(
            input_ids=source, attention_mask=torch.ones_like(source), num_beams=width, do_sample=False, max_new_tokens=10,
            early_stopping=True, length_penalty=0.0, forced_eos_token_id=None,
        )[:, 1:]  # fmt: skip
        for a, b in zip(mine.tolist(), generated.tolist(), strict=True):
            assert [t for t in a if t != PAD] == [t for t in b if t != PAD]
            lengths.append(sum(t != PAD for t in a))
    assert min(lengths) < max(lengths) == 10


# ---- what the lecture's second source gets wrong, in its correct form


def test_self_attention_without_positions_is_equivariant_not_invariant():
    """Permuted words give permuted outputs, not the same ones."""
    network = model(position="none").network
    source, order = torch.randint(4, VOCAB, (2, 7)), torch.randperm(7)
    memory, _ = network.encode(source)
    permuted, _ = network.encode(source[:, order])
    torch.testing.assert_close(permuted, memory[:, order], atol=1e-5, rtol=1e-5)
    assert (permuted - memory).abs().max() > 0.1
    with_positions = model(position="sinusoidal").network
    torch.testing.assert_close(*(with_positions.encode(s)[0] for s in (source, source)))
    assert (with_positions.encode(source[:, order])[0] - with_positions.encode(source)[0][:, order]).abs().max() > 0.1


def test_layer_norm_is_per_token():
    """Mean 0 and variance 1 over the features of every single token; another token changes nothing."""
    residual = model().network.encoder.layers[0].residuals[0]
    x = torch.randn(2, 5, D_MODEL) * 7 + 3
    out = residual(x, lambda y: y)
    torch.testing.assert_close(out.mean(-1), torch.zeros(2, 5), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.var(-1, unbiased=False), torch.ones(2, 5), atol=1e-3, rtol=0)
    changed = x.clone()
    changed[:, 1:] += 5
    assert torch.equal(residual(changed, lambda y: y)[:, 0], out[:, 0])


@pytest.mark.parametrize("divisor, exponent", [("sqrt_d_k", 0.5), ("one", 0.0)])
def test_scores_are_divided_once(divisor, exponent):
    built = model(arch={"score_divisor": divisor})
    for attention in (m for m in built.network.modules() if hasattr(m, "attend")):
        assert attention.scale == pytest.approx((D_MODEL / HEADS) ** -exponent)


@pytest.mark.parametrize("d_k", [16, 64, 128])
def test_the_variance_of_q_times_k_at_initialisation_is_d_k(d_k):
    """Inputs of variance 1, as the embeddings with their factor have it."""
    torch.manual_seed(0)
    attention = SelfAttention(d_model=256, n_heads=256 // d_k, d_k=d_k, scale=1.0, dropout=0.0)
    x = torch.randn(16, 64, 256)
    q, k, _ = attention.heads(attention.query_key_value(x), parts=3)
    assert (q @ k.transpose(-2, -1)).var().item() == pytest.approx(d_k, rel=0.1)


def test_embeddings_start_with_variance_1_and_so_do_their_scores():
    torch.manual_seed(0)
    network = Translation(
        arch=Arch(d_model=256, n_heads=4, n_layers=1, d_ff=8), optim=Optim(lr=1.0, warmup_steps=1), vocab_size=2000
    ).network
    embedded = network.source_embedding(torch.arange(2000)[None])
    assert embedded.var().item() == pytest.approx(1.0, rel=0.03)
    assert math.isclose(sinusoids(50, 256).square().mean().item(), 0.5, rel_tol=1e-4), "sin² + cos² = 1 in each pair"


def test_decoding_with_a_causal_mask_is_what_training_saw():
    """Teacher forcing on a greedy translation gives back that translation: training and decoding are one function."""
    built = model()
    source = torch.randint(4, VOCAB, (4, 7))
    written = built.translate(source, Decoding())
    inputs = torch.cat([torch.full((4, 1), BOS), written[:, :-1]], dim=1)
    predicted = built.network(source, inputs).argmax(-1)
    real = written != PAD
    assert torch.equal(predicted[real], written[real])
    assert masks.causal().causal
