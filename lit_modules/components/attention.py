"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2), the heart of the project.

    Attention(Q, K, V) = softmax(scale · Q Kᵀ) V        (equation 1, scale = 1/√d_k)

`attend_fused` and `attend_explicit` compute it with one signature and agree to rounding; `attend` picks the faster.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from .fast import dropout as drop
from .masks import Mask

Queries = Float[Tensor, "batch heads query d_k"]
Keys = Float[Tensor, "batch heads key d_k"]  # or values, which are as wide

SCORE_DIVISOR: dict[str, Callable[[int], float]] = {"sqrt_d_k": lambda d_k: d_k**0.5, "one": lambda d_k: 1.0}

ROOM = 64  # positions that a cache grows by
SHORT = 512  # keys; below it the explicit form is faster on CPUs in bf16 (2-8 times) and with dropout (1.0-1.5 times)


def attend_fused(
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_v"],
    *,
    mask: Mask,
    scale: float,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads query d_v"]:
    """Equation 1 by torch's fused kernels; the weights are never held in memory. A query without keys gives zeros."""
    allowed, is_causal = mask
    if allowed is not None and is_causal:  # torch refuses a mask beside is_causal
        allowed, is_causal = mask.dense(query.shape[-2], key.shape[-2], query.device), False
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, is_causal=is_causal, scale=scale, dropout_p=dropout
    )


@dataclass(frozen=True)
class Explicit:
    """Equation 1 as it is written: scores, mask, weights, sum. A query without keys gives zeros.

    An attention that is not equation 1 names its own `weigh`; the fused kernels know only the softmax over the keys.

    Args:
        weigh: from scores and the mask (None permits all) to weights.
    """

    weigh: Callable[[Tensor, Tensor | None], Tensor]

    def __call__(
        self,
        query: Float[Tensor, "batch heads query d_k"],
        key: Float[Tensor, "batch heads key d_k"],
        value: Float[Tensor, "batch heads key d_v"],
        *,
        mask: Mask,
        scale: float,
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch heads query d_v"]:
        allowed = mask.dense(query.shape[-2], key.shape[-2], query.device)
        with torch.autocast(query.device.type, enabled=False):  # which would copy bf16 scores to fp32 and back
            weights = self.weigh(attention_scores(query, key, scale), allowed)
            return drop(weights, dropout) @ value


def attention_scores(
    query: Float[Tensor, "batch heads query d_k"], key: Float[Tensor, "batch heads key d_k"], scale: float
) -> Float[Tensor, "batch heads query key"]:
    """scale · Q Kᵀ, the scale applied to the smaller factor."""
    return (query * scale) @ key.transpose(-2, -1)


def attention_softmax(
    scores: Float[Tensor, "batch heads query key"], allowed: Tensor | None
) -> Float[Tensor, "batch heads query key"]:
    """The softmax over the allowed keys; exactly zero elsewhere, also in rows that allow nothing."""
    if allowed is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(dim=-1)
    empty = ~allowed.any(dim=-1, keepdim=True)  # such a row would be uniform
    if weights.device.type == "cpu" and not empty.any():  # a GPU would have to wait for the answer
        return weights
    return weights.masked_fill(empty, 0.0)


attend_explicit = Explicit(attention_softmax)


def attend(query: Tensor, key: Tensor, value: Tensor, *, mask: Mask, scale: float, dropout: float = 0.0) -> Tensor:
    """The faster of the two forms, by what was measured (README, "Speed"); results differ by rounding only."""
    short = query.device.type == "cpu" and key.shape[-2] < SHORT
    explicit = short and (query.dtype == torch.bfloat16 or dropout > 0)
    form = attend_explicit if explicit else attend_fused
    return form(query, key, value, mask=mask, scale=scale, dropout=dropout)


class KVCache:
    """Keys and values that one decoder layer has computed already (incremental decoding).

    Self-attention's grow by one position a step, into room that is made for ROOM steps at a time, so that a step does
    not copy the whole past; the memory's are projected once a sequence. A new cache is empty, so a pass over a whole
    sequence and a step of decoding are the same code.
    """

    def __init__(self) -> None:
        self.past: tuple[Tensor, Tensor] | None = None  # `length` positions are filled
        self.length = 0
        self.memory: tuple[Tensor, Tensor] | None = None

    def append(self, key: Keys, value: Keys) -> tuple[Tensor, Tensor]:
        """Adds the newest positions and returns all of them."""
        start, self.length = self.length, self.length + key.shape[2]
        if self.past is None:
            self.past = key, value
            return key, value
        if self.length > self.past[0].shape[2]:
            self.past = tuple(F.pad(past, (0, 0, 0, self.length + ROOM - past.shape[2])) for past in self.past)
        for past, newest in zip(self.past, (key, value), strict=True):
            past[:, :, start : self.length] = newest
        return self.past[0][:, :, : self.length], self.past[1][:, :, : self.length]

    def remember(self, project: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The memory's keys and values, projected at the first call only."""
        if self.memory is None:
            self.memory = project()
        return self.memory

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Goes on with these sequences alone, in this order: the others have ended."""
        self.reorder(rows)
        if self.memory is not None:
            self.memory = self.memory[0].index_select(0, rows), self.memory[1].index_select(0, rows)

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        """Exchanges the pasts alone, what of them is filled: beams of one sentence share its memory."""
        if self.past is not None:
            self.past = tuple(self.exchanged(past, rows) for past in self.past)

    def exchanged(self, past: Tensor, rows: Int[Tensor, " kept"]) -> Tensor:
        if past.shape[2] == self.length:  # no room has been made: it may be a view of the projections
            return past.index_select(0, rows)
        past[: len(rows), :, : self.length] = past[rows, :, : self.length]  # in place, without new memory
        return past[: len(rows)]


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1 … head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (section 3.2.2).

    The base of self- and cross-attention: they differ in where keys and values come from.

    Args:
        d_model: width of what comes in and goes out.
        n_heads, d_k: number and width of the heads; values are as wide as keys.
        scale: factor on the scores, 1/√d_k in the paper.
        dropout: probability on the attention weights, in training.
    """

    def __init__(self, *, d_model: int, n_heads: int, d_k: int, scale: float, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.scale, self.dropout = n_heads, d_k, scale, dropout
        self.attend = attend
        self.output = projection(n_heads * d_k, d_model)

    def heads(self, x: Float[Tensor, "batch position width"], parts: int) -> tuple[Tensor, ...]:
        """Cuts the width into `parts` equal tensors of heads."""
        batch, position, _ = x.shape
        return x.view(batch, position, parts, self.n_heads, self.d_k).permute(2, 0, 3, 1, 4).unbind(0)

    def mix(self, query: Queries, key: Keys, value: Keys, mask: Mask) -> Float[Tensor, "batch query d_model"]:
        dropout = self.dropout if self.training else 0.0
        heads = self.attend(query, key, value, mask=mask, scale=self.scale, dropout=dropout)
        return self.output(heads.transpose(1, 2).flatten(2))


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values from one sequence, by one fused projection whose thirds are initialised apart.

    Initialised as one 3d × d matrix the thirds would be too small: Var(q · k)/d_k 0.26 instead of 1.
    """

    def __init__(self, *, d_model: int, n_heads: int, d_k: int, scale: float, dropout: float) -> None:
        super().__init__(d_model=d_model, n_heads=n_heads, d_k=d_k, scale=scale, dropout=dropout)
        self.query_key_value = projection(d_model, n_heads * d_k, parts=3)

    def forward(
        self, x: Float[Tensor, "batch position d_model"], mask: Mask, cache: KVCache | None = None
    ) -> Float[Tensor, "batch position d_model"]:
        query, key, value = self.heads(self.query_key_value(x), parts=3)
        return self.mix(query, *(cache or KVCache()).append(key, value), mask)


class CrossAttention(MultiHeadAttention):
    """Queries from the decoder, keys and values from the encoder's output, the memory (section 3.2.3)."""

    def __init__(self, *, d_model: int, n_heads: int, d_k: int, scale: float, dropout: float) -> None:
        super().__init__(d_model=d_model, n_heads=n_heads, d_k=d_k, scale=scale, dropout=dropout)
        self.query = projection(d_model, n_heads * d_k)
        self.key_value = projection(d_model, n_heads * d_k, parts=2)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        memory: Float[Tensor, "batch key d_model"],
        mask: Mask,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        (query,) = self.heads(self.query(x), parts=1)
        key, value = (cache or KVCache()).remember(lambda: self.heads(self.key_value(memory), parts=2))
        return self.mix(query, key, value, mask)


def projection(width: int, part: int, *, parts: int = 1) -> nn.Linear:
    """A linear map to `parts` outputs of width `part`, each Xavier-uniform as a matrix of its own; biases zero."""
    linear = nn.Linear(width, parts * part)
    for matrix in linear.weight.data.chunk(parts):
        nn.init.xavier_uniform_(matrix)
    nn.init.zeros_(linear.bias)
    return linear


def attention_modules(model: nn.Module) -> dict[str, MultiHeadAttention]:
    """Every attention of a model under its name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}


@dataclass
class Attended:
    """What one attention module saw: scores before the mask, weights, and the mask (None permits all)."""

    scores: Float[Tensor, "batch heads query key"]
    weights: Float[Tensor, "batch heads query key"]
    allowed: Tensor | None


@contextmanager
def attention_weights(model: nn.Module) -> Iterator[dict[str, Attended]]:
    """Within it every attention of `model` runs in the explicit form and leaves its last weights under its name.

    with attention_weights(model) as seen:
        model(source, target)
    seen["decoder.layers.0.cross_attention"].weights
    """
    seen: dict[str, Attended] = {}
    modules = attention_modules(model)
    before = {name: module.attend for name, module in modules.items()}

    def recorder(name: str) -> Callable:
        weigh = before[name].weigh if isinstance(before[name], Explicit) else attention_softmax

        def weigh_and_keep(scores: Tensor, allowed: Tensor | None) -> Tensor:
            weights = weigh(scores, allowed)
            seen[name] = Attended(scores.detach(), weights.detach(), allowed)
            return weights

        return Explicit(weigh_and_keep)

    try:
        for name, module in modules.items():
            module.attend = recorder(name)
        yield seen
    finally:
        for name, module in modules.items():
            module.attend = before[name]
