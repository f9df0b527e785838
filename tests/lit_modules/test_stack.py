"""Encoder and decoder stacks against torch's own layers with copied weights, forward and gradients."""

import pytest
import torch
from torch import nn

from lit_modules.choices import Arch
from lit_modules.components import masks
from lit_modules.components.residual import PostNorm, PreNorm
from lit_modules.components.stack import Decoder, Encoder

D_MODEL, HEADS, D_FF, LAYERS, BATCH, SOURCE, TARGET = 12, 3, 20, 2, 2, 7, 5


def arch(**choices) -> Arch:
    return Arch(**{"d_model": D_MODEL, "n_heads": HEADS, "d_ff": D_FF, "n_layers": LAYERS, "dropout": 0.0, **choices})


def torch_stack(kind, norm, activation):
    layer, stack = (
        (nn.TransformerEncoderLayer, nn.TransformerEncoder) if kind == "encoder"
        else (nn.TransformerDecoderLayer, nn.TransformerDecoder)
    )  # fmt: skip
    one = layer(D_MODEL, HEADS, D_FF, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre")
    extra = {"enable_nested_tensor": False} if kind == "encoder" else {}
    return stack(one, LAYERS, norm=nn.LayerNorm(D_MODEL) if norm == "pre" else None, **extra)


def randomise(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)


def pairs(ours, theirs):
    """(our parameter, torch's rows of a parameter) for every weight of a stack."""
    yield from zip(ours.final_norm.parameters(), theirs.norm.parameters() if theirs.norm else [], strict=True)
    for mine, torchs in zip(ours.layers, theirs.layers, strict=True):
        norms = [torchs.norm1, torchs.norm2, *([torchs.norm3] if hasattr(torchs, "norm3") else [])]
        for residual, norm in zip(mine.residuals, norms, strict=True):
            yield from zip(residual.norm.parameters(), norm.parameters(), strict=True)
        for name in ("weight", "bias"):
            yield getattr(mine.self_attention.query_key_value, name), getattr(torchs.self_attn, f"in_proj_{name}")
            yield getattr(mine.self_attention.output, name), getattr(torchs.self_attn.out_proj, name)
            yield getattr(mine.feed_forward.inner, name), getattr(torchs.linear1, name)
            yield getattr(mine.feed_forward.outer, name), getattr(torchs.linear2, name)
            if hasattr(mine, "cross_attention"):
                theirs_in = getattr(torchs.multihead_attn, f"in_proj_{name}")
                yield getattr(mine.cross_attention.query, name), (theirs_in, slice(0, D_MODEL))
                yield getattr(mine.cross_attention.key_value, name), (theirs_in, slice(D_MODEL, None))
                yield getattr(mine.cross_attention.output, name), getattr(torchs.multihead_attn.out_proj, name)


def rows(reference):
    return reference if isinstance(reference, nn.Parameter) else None


def copy_and_compare(ours, theirs, call_ours, call_theirs, tolerance):
    randomise(theirs)
    for mine, reference in pairs(ours, theirs):
        source = reference if rows(reference) is not None else reference[0][reference[1]]
        mine.data.copy_(source.data)
    expected, got = call_theirs(), call_ours()
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=tolerance)
    upstream = torch.randn_like(expected)
    expected.backward(upstream)
    got.backward(upstream.to(got.dtype))
    count = 0
    for mine, reference in pairs(ours, theirs):
        gradient = reference.grad if rows(reference) is not None else reference[0].grad[reference[1]]
        torch.testing.assert_close(mine.grad, gradient, atol=tolerance * 10, rtol=tolerance * 10)
        count += 1
    assert count == len(list(ours.parameters())), "every parameter was compared"


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_equals_torchs(norm, activation):
    ours, theirs = Encoder(arch(norm=norm, activation=activation)), torch_stack("encoder", norm, activation)
    x = torch.randn(BATCH, SOURCE, D_MODEL)
    pad = torch.tensor([[False] * SOURCE, [False] * 4 + [True] * 3])
    real = ~pad[..., None]
    copy_and_compare(
        ours, theirs,
        lambda: ours(x, masks.Mask(allowed=~pad[:, None, None, :])) * real,
        lambda: theirs(x, src_key_padding_mask=pad) * real,
        2e-5,
    )  # fmt: skip


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_equals_torchs(norm):
    ours, theirs = Decoder(arch(norm=norm)), torch_stack("decoder", norm, "relu")
    x, memory = torch.randn(BATCH, TARGET, D_MODEL), torch.randn(BATCH, SOURCE, D_MODEL)
    pad = torch.tensor([[False] * SOURCE, [False] * 4 + [True] * 3])
    future = nn.Transformer.generate_square_subsequent_mask(TARGET)
    copy_and_compare(
        ours, theirs,
        lambda: ours(x, memory, masks.causal(), masks.Mask(allowed=~pad[:, None, None, :])),
        lambda: theirs(x, memory, tgt_mask=future, tgt_is_causal=True, memory_key_padding_mask=pad),
        2e-5,
    )  # fmt: skip


def test_encoder_in_bf16_stays_near_fp32():
    """bf16 has 8 bits of mantissa: two layers of post-norm stay within 0.1 of values of size 1."""
    ours = Encoder(arch())
    x = torch.randn(BATCH, SOURCE, D_MODEL)
    expected = ours(x, masks.everything())
    with torch.autocast("cpu", torch.bfloat16):
        got = ours(x, masks.everything())
    torch.testing.assert_close(got.float(), expected, atol=0.1, rtol=0)


def test_layers_are_independent():
    """Neither shared nor initialised alike."""
    first, second = Encoder(arch()).layers
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert a is not b
        if a.dim() == 2:
            assert not torch.equal(a, b), name


def test_norm_formulas_by_hand():
    x = torch.tensor([[[1.0, 3.0]]])
    post, pre = PostNorm(2, 0.0), PreNorm(2, 0.0)
    double = lambda y: 2 * y  # noqa: E731
    torch.testing.assert_close(post(x, double), torch.tensor([[[-1.0, 1.0]]]), atol=1e-4, rtol=0)  # norm of (3, 9)
    torch.testing.assert_close(pre(x, double), torch.tensor([[[-1.0, 5.0]]]), atol=1e-4, rtol=0)  # x + 2 (-1, 1)
    assert isinstance(PostNorm.final_norm(2), nn.Identity) and isinstance(PreNorm.final_norm(2), nn.LayerNorm)


def test_layer_norm_is_per_token():
    """A token's normalised value does not move when its neighbours or batch-mates do."""
    norm, x = PostNorm(8, 0.0), torch.randn(3, 4, 8)
    out = norm(x, torch.zeros_like)
    x2 = x.clone()
    x2[0, 1:], x2[1:] = 7.0, -5.0
    assert torch.equal(norm(x2, torch.zeros_like)[0, 0], out[0, 0])
    torch.testing.assert_close(out.mean(-1), torch.zeros(3, 4), atol=1e-6, rtol=0)


def test_encoder_without_positions_is_permutation_equivariant():
    encoder, x, order = Encoder(arch()), torch.randn(BATCH, SOURCE, D_MODEL), torch.randperm(SOURCE)
    out = encoder(x, masks.everything())
    torch.testing.assert_close(encoder(x[:, order], masks.everything()), out[:, order], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sizes, heads", [
    ({"d_model": 128, "n_heads": 8}, (8, 16)),
    ({"d_model": 128, "n_heads": "split", "d_k": 64}, (2, 64)),
    ({"d_model": 128, "n_heads": 3, "d_k": 5}, (3, 5)),
])  # fmt: skip
def test_head_sizes(sizes, heads):
    assert Arch(**sizes).heads == heads


@pytest.mark.parametrize("sizes, message", [
    ({"d_model": 128, "n_heads": 3}, "3 does not divide d_model 128"),
    ({"n_heads": "split", "d_k": "split"}, "one of n_heads and d_k must be a number"),
    ({"n_heads": 0}, "at least 1"),
])  # fmt: skip
def test_impossible_head_sizes_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        Arch(**sizes)
