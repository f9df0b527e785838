"""Who may attend to whom. Every mask of every model is made here and nowhere else."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Mask(NamedTuple):
    """Which keys a query may attend to: those that `allowed` permits and, if `causal`, that are not in its future.

    Causality is a word, not a tensor, for as long as possible: alone it lets the flash kernel run.

    Attributes:
        allowed: true where attention may go, broadcastable to (batch, heads, query, key); None permits all.
        causal: query i sees keys 0 … i only (section 3.2.3).
    """

    allowed: Bool[Tensor, "#batch #heads #query key"] | None = None
    causal: bool = False

    def dense(self, n_query: int, n_key: int, device: torch.device) -> Bool[Tensor, "#batch #heads #query key"] | None:
        """The same mask as one boolean tensor, or None if everything is permitted."""
        if not self.causal:
            return self.allowed
        past = torch.ones(n_query, n_key, dtype=torch.bool, device=device).tril()[None, None]
        return past if self.allowed is None else past & self.allowed


    def rows(self, pick: Callable[[Tensor], Tensor]) -> "Mask":
        """The mask of the sequences that `pick` takes from the batch."""
        return self if self.allowed is None else Mask(pick(self.allowed), self.causal)


def everything() -> Mask:
    """No restriction: one cached query over its own past, or an image's patches."""
    return Mask()


def causal() -> Mask:
    """A position sees itself and its past.

    Padding at the end of a sequence lies in the future of every real position: it needs no mask of its own here.
    """
    return Mask(causal=True)


def padding(ids: Int[Tensor, "batch key"], pad_id: int) -> Mask:
    """Every position sees every real token and no padding. Where there is none nothing is masked; a GPU is not asked,
    since it would have to wait for the answer."""
    real = ids != pad_id
    if ids.device.type == "cpu" and bool(real.all()):
        return everything()
    return Mask(allowed=real[:, None, None, :])
