"""Attention against the lecture's worked examples, torch's own, and itself in another form."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lit_modules.components import masks
from lit_modules.components.attention import (
    CrossAttention,
    KVCache,
    SelfAttention,
    attend,
    attend_explicit,
    attend_fused,
    attention_softmax,
    attention_weights,
)

BATCH, HEADS, QUERY, KEY, D_K = 2, 3, 5, 7, 4


def heads(length, dtype=torch.float32):
    return torch.randn(BATCH, HEADS, length, D_K, dtype=dtype).requires_grad_()


def masks_of(query, key):
    some = torch.rand(BATCH, 1, query, key) < 0.6
    nowhere = some.clone()
    nowhere[0, :, 1], nowhere[1] = False, False
    yield "everything", masks.everything()
    yield "some", masks.Mask(allowed=some)
    yield "rows that may attend nowhere", masks.Mask(allowed=nowhere)
    if query == key:
        yield "causal", masks.causal()
        yield "causal and some", masks.Mask(allowed=some, causal=True)
        yield "causal and nowhere", masks.Mask(allowed=nowhere, causal=True)


@pytest.mark.parametrize("scale", [1.0, D_K**-0.5, 0.1])
@pytest.mark.parametrize("key_length", [QUERY, KEY])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_fused_equals_explicit_forward_and_backward(scale, key_length, dtype, tolerance):
    for name, mask in masks_of(QUERY, key_length):
        inputs = [heads(QUERY, dtype), heads(key_length, dtype), heads(key_length, dtype)]
        upstream = torch.randn(BATCH, HEADS, QUERY, D_K, dtype=dtype)
        results = []
        for form in (attend_fused, attend_explicit, attend):
            out = form(*inputs, mask=mask, scale=scale)
            results.append([out, *torch.autograd.grad(out, inputs, upstream)])
        for other in results[1:]:
            for expected, got in zip(results[0], other, strict=True):
                assert torch.isfinite(got).all(), name
                torch.testing.assert_close(
                    got, expected, atol=tolerance, rtol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
                )


@pytest.mark.parametrize("form", [attend_fused, attend_explicit])
def test_a_query_without_keys_gets_zeros(form):
    mask = masks.Mask(allowed=torch.zeros(BATCH, 1, QUERY, KEY, dtype=torch.bool))
    q, k, v = heads(QUERY), heads(KEY), heads(KEY)
    out = form(q, k, v, mask=mask, scale=1.0)
    assert (out == 0).all()
    for gradient in torch.autograd.grad(out.sum(), (q, k, v)):
        assert (gradient == 0).all()


def test_the_lectures_worked_example():
    """Scores (2, 0) give the weights (0.881, 0.119); with v = (1, 0), (0, 2), z₁ = (0.881, 0.238)."""
    weights = attention_softmax(torch.tensor([[[[2.0, 0.0]]]]), None)
    torch.testing.assert_close(weights.flatten(), torch.tensor([0.881, 0.119]), atol=5e-4, rtol=0)
    z = weights @ torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    torch.testing.assert_close(z.flatten(), torch.tensor([0.881, 0.238]), atol=5e-4, rtol=0)


def test_the_divisor_opens_a_saturated_softmax():
    scores = torch.tensor([20.0, -15.0, 10.0, -8.0, 5.0])
    torch.testing.assert_close(scores.softmax(0), torch.tensor([1.0, 0, 0, 0, 0]), atol=5e-5, rtol=0)
    divided = (scores / math.sqrt(512)).softmax(0)
    torch.testing.assert_close(divided, torch.tensor([0.376, 0.080, 0.242, 0.109, 0.194]), atol=6e-4, rtol=0)


def test_the_softmaxs_jacobian_vanishes_as_the_scores_grow():
    """∂a₁/∂s₁ = a₁(1 - a₁): 0.105 at scores (2, 0), 0.0025 at (6, 0), below 1e-8 at (20, 0)."""
    for score, expected in ((2.0, 0.10499), (6.0, 0.0024665), (20.0, 2.061e-9)):
        scores = torch.tensor([score, 0.0], dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(0), scores)
        a = scores.softmax(0)[0]
        torch.testing.assert_close(jacobian[0, 0], a * (1 - a), atol=1e-15, rtol=1e-12)
        assert jacobian[0, 0].item() == pytest.approx(expected, rel=1e-3)


def test_fused_projection_thirds_are_initialised_apart():
    """Var(q · k) / d_k is 1 for inputs of variance 1; as one 3d × d matrix it would be 0.26."""
    torch.manual_seed(1)
    d_model, n_heads, d_k = 256, 4, 64
    attention = SelfAttention(d_model=d_model, n_heads=n_heads, d_k=d_k, scale=1.0, dropout=0.0)
    x = torch.randn(8, 64, d_model)
    q, k, _ = attention.heads(attention.query_key_value(x), parts=3)
    scores = q @ k.transpose(-2, -1)
    assert scores.var().item() / d_k == pytest.approx(1.0, abs=0.08)


def copy_self_attention(ours: SelfAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.data.copy_(ours.query_key_value.weight)
    theirs.in_proj_bias.data.copy_(torch.randn_like(theirs.in_proj_bias))
    ours.query_key_value.bias.data.copy_(theirs.in_proj_bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def test_multi_head_attention_equals_torchs():
    ours = SelfAttention(d_model=12, n_heads=3, d_k=4, scale=4**-0.5, dropout=0.0)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    copy_self_attention(ours, theirs)
    x, pad = torch.randn(2, 5, 12), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    mask = masks.Mask(allowed=~pad[:, None, None, :])
    expected, weights = theirs(x, x, x, key_padding_mask=pad, average_attn_weights=False)
    torch.testing.assert_close(ours(x, mask), expected, atol=1e-6, rtol=1e-5)
    with attention_weights(ours) as seen:
        torch.testing.assert_close(ours(x, mask), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(seen[""].weights, weights, atol=1e-6, rtol=1e-5)
    assert ours.attend is attend, "restored"


def test_cross_attention_equals_torchs():
    ours = CrossAttention(d_model=12, n_heads=3, d_k=4, scale=4**-0.5, dropout=0.0)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.in_proj_weight.data.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
    theirs.in_proj_bias.data.zero_()
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    expected, _ = theirs(x, memory, memory)
    torch.testing.assert_close(ours(x, memory, masks.everything()), expected, atol=1e-6, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(length=st.integers(1, 9), batch=st.integers(1, 4), d_k=st.integers(1, 6), n_heads=st.integers(1, 5))
def test_cached_steps_equal_one_causal_pass(length, batch, d_k, n_heads):
    d_model = 8
    attention = SelfAttention(d_model=d_model, n_heads=n_heads, d_k=d_k, scale=d_k**-0.5, dropout=0.0)
    x, cache = torch.randn(batch, length, d_model), KVCache()
    steps = [attention(x[:, t : t + 1], masks.everything(), cache) for t in range(length)]
    torch.testing.assert_close(torch.cat(steps, dim=1), attention(x, masks.causal()), atol=1e-5, rtol=1e-5)


def test_memory_is_projected_once():
    attention = CrossAttention(d_model=8, n_heads=2, d_k=4, scale=0.5, dropout=0.0)
    calls = []
    attention.key_value.register_forward_hook(lambda *_: calls.append(1))
    cache, memory = KVCache(), torch.randn(2, 6, 8)
    for _ in range(3):
        attention(torch.randn(2, 1, 8), memory, masks.everything(), cache)
    assert len(calls) == 1


def test_dropout_falls_on_the_weights():
    """With probability ½ a weight is either gone or doubled."""
    q, k, v = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1000, 4), torch.eye(1000)[None, None]
    for form in (attend_fused, attend_explicit):
        weights = form(q, k, v, mask=masks.everything(), scale=1.0, dropout=0.5).flatten() * 1000
        assert set(weights.round(decimals=3).tolist()) == {0.0, 2.0}
        assert 400 < (weights == 0).sum() < 600
