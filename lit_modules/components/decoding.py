"""From a trained decoder to a sequence."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor


def greedy(
    step: Callable[[Int[Tensor, "batch 1"], int], Float[Tensor, "batch vocabulary"]],
    *,
    batch: int,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_length: int,
    device: torch.device | str = "cpu",
) -> Int[Tensor, "batch length"]:
    """The likeliest token at every step, until each sentence has ended or `max_length` tokens stand.

    Args:
        step: given the newest token of each sentence and its position, the logits of the next one.

    Returns:
        The tokens after BOS: EOS included where it came, PAD after it.
    """
    token = torch.full((batch, 1), bos_id, device=device)
    finished = torch.zeros(batch, dtype=torch.bool, device=device)
    tokens = []
    for position in range(max_length):
        token = step(token, position).argmax(dim=-1).masked_fill(finished, pad_id)[:, None]
        tokens.append(token)
        finished |= token[:, 0] == eos_id
        if finished.all():
            break
    return torch.cat(tokens, dim=1)
