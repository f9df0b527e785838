"""Why an arm does what it does: what its attention looks like inside."""

import torch
from jaxtyping import Bool
from torch import Tensor

from .attention import Attended


def attention_statistics(attended: Attended, real_query: Bool[Tensor, "batch query"]) -> dict[str, float]:
    """Four numbers of one attention module, over its real queries and allowed keys, means over batch, heads, queries.

    Returns:
        score_sd: standard deviation of the scores that enter the softmax.
        entropy: of the attention weights, in nats; 0 is a choice of one key, ln(keys) is indifference.
        largest_weight: the weight of the favourite key.
        jacobian: Frobenius norm of the softmax's Jacobian diag(a) - a aᵀ, through which every gradient to queries
            and keys must pass: √(Σa² - 2Σa³ + (Σa²)²); 0 for a one-hot row, ½ for (½, ½).
    """
    a = attended.weights.float()
    allowed = torch.ones_like(a, dtype=torch.bool) if attended.allowed is None else attended.allowed.expand_as(a)
    real = real_query[:, None, :].expand(a.shape[:3])
    squares, cubes = a.square().sum(-1), a.pow(3).sum(-1)
    jacobian = (squares - 2 * cubes + squares.square()).clamp_min(0).sqrt()
    return {
        "score_sd": attended.scores.float()[allowed & real[..., None]].std().item(),
        "entropy": torch.special.entr(a).sum(-1)[real].mean().item(),
        "largest_weight": a.amax(-1)[real].mean().item(),
        "jacobian": jacobian[real].mean().item(),
    }
