"""From a trained decoder to a sequence."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor


def greedy(
    step: Callable[[Int[Tensor, "batch 1"], int], Float[Tensor, "batch vocabulary"]],
    *,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    limits: Int[Tensor, " batch"],
) -> Int[Tensor, "batch length"]:
    """The likeliest token at every step, until each sentence has ended or has its limit of tokens.

    Args:
        step: given the newest token of each sentence and its position, the logits of the next one.
        limits: the most tokens of each sentence, EOS included.

    Returns:
        The tokens after BOS: EOS included where it came, PAD after it.
    """
    token = torch.full((len(limits), 1), bos_id, device=limits.device)
    finished = limits <= 0
    tokens = []
    for position in range(int(limits.max())):
        token = step(token, position).argmax(dim=-1).masked_fill(finished, pad_id)[:, None]
        tokens.append(token)
        finished = finished | (token[:, 0] == eos_id) | (limits <= position + 1)
        if finished.all():
            break
    return torch.cat(tokens, dim=1)
