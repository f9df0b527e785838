"""Why an arm does what it does: what its attention looks like inside, and whether the future reaches the past."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

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


def attention_rollout(weights: list[Float[Tensor, "heads token token"]]) -> Float[Tensor, "token token"]:
    """How much of each input token is in each last state, if attention were all that moves it: the product over layers
    of (mean over heads + identity) / 2 (Abnar and Zuidema 2020, section 3). Each row sums to 1."""
    rollout = torch.eye(weights[0].shape[-1])
    for layer in weights:
        rollout = (layer.mean(0) + torch.eye(len(rollout))) / 2 @ rollout
    return rollout


def position_similarity(
    position: nn.Module, zeros: Float[Tensor, "position d_model"]
) -> Float[Tensor, "position position"] | None:
    """Cosine of the vectors that are added for each two places; None where nothing is added.

    Args:
        zeros: as many as there are places.
    """
    table = position(zeros[None])[0]
    if not table.any():
        return None
    unit = table / table.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return unit @ unit.T


def leak(
    logits_of: Callable[[Int[Tensor, "batch position"]], Float[Tensor, "batch position vocabulary"]],
    ids: Int[Tensor, "batch position"],
    *,
    vocab_size: int,
    pad_id: int,
) -> float:
    """The largest change of an earlier position's logit when every later token is exchanged; an honest model gives 0.

    The second half of each row is exchanged, padding left alone; the first half's outputs are compared.
    """
    half = ids.shape[1] // 2
    if half == 0:  # nothing comes before anything
        return 0.0
    other = ids.clone()
    other[:, half:] = torch.where(ids == pad_id, ids, ids % (vocab_size - 1) + 1)[:, half:]  # never padding (0)
    change = (logits_of(other) - logits_of(ids))[:, :half]
    return change[ids[:, :half] != pad_id].abs().max().item()
