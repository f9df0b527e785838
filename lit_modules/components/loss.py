"""Cross-entropy with label smoothing (Vaswani et al. 2017, section 5.4; Szegedy et al. 2016)."""

from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from .fast import LinearTokenLoss


class TokenLoss(NamedTuple):
    """Sums over the real target tokens, in nats; divide by `tokens` for a mean."""

    smoothed: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    tokens: Int[Tensor, ""]


def token_loss(
    logits: Float[Tensor, "batch position vocabulary"],
    target: Int[Tensor, "batch position"],
    *,
    pad_id: int,
    smoothing: float = 0.0,
) -> TokenLoss:
    """Σ over real tokens of (1 - ε) (-log p(target)) + ε · mean over the vocabulary of (-log p), and the unsmoothed Σ.

    Padding contributes nothing to either, so an all-padding batch gives zero and zero gradients.
    """
    log_p = F.log_softmax(logits.float().flatten(0, 1), dim=-1)
    target = target.flatten()
    nll = F.nll_loss(log_p, target, ignore_index=pad_id, reduction="sum")
    tokens = (target != pad_id).sum()
    if not smoothing:
        return TokenLoss(nll, nll.detach(), tokens)
    uniform = -(log_p.sum(dim=-1) * (target != pad_id)).sum() / log_p.shape[-1]
    return TokenLoss((1 - smoothing) * nll + smoothing * uniform, nll.detach(), tokens)


def output_loss(
    x: Float[Tensor, "batch position width"],
    weight: Float[Tensor, "vocabulary width"],
    bias: Float[Tensor, " vocabulary"] | None,
    target: Int[Tensor, "batch position"],
    *,
    pad_id: int,
    smoothing: float = 0.0,
) -> TokenLoss:
    """`token_loss` of the logits x Eᵀ + b, the faster way: on a CPU they are made and used up piece by piece."""
    if x.device.type != "cpu":
        return token_loss(F.linear(x, weight, bias), target, pad_id=pad_id, smoothing=smoothing)
    real = target != pad_id
    return TokenLoss(*LinearTokenLoss.apply(x[real], weight, bias, target[real], smoothing), real.sum())
