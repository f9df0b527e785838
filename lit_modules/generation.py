"""How a trained model writes: the page of decoding, and the one place that reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from .components.decoding import Step, beam, drawn, likeliest, one_by_one


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How translations of the test splits are searched for; validation is always greedy.

    Args:
        method: greedy: the likeliest token at every step; beam: beam search; sample: tokens drawn at random.
        beam_width: hypotheses of a beam (4 in section 6.1).
        length_penalty: α of Wu et al. 2016, equation 14: log p is divided by ((5 + n) / 6)^α (0.6 in section 6.1).
        temperature: what logits are divided by before a token is drawn.
        top_k: only the k likeliest tokens are drawn; 0 keeps all.
        top_p: only the smallest set of likeliest tokens that reaches this probability is drawn; 1 keeps all.

    Raises:
        ValueError: at a value without meaning.
    """

    method: Literal["greedy", "beam", "sample"] = "greedy"
    beam_width: int = 4
    length_penalty: float = 0.6
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        for name, fits, bounds in (
            ("beam_width", self.beam_width >= 1, "at least 1"),
            ("length_penalty", self.length_penalty >= 0, "0 or more"),
            ("temperature", self.temperature > 0, "above 0"),
            ("top_k", self.top_k >= 0, "0 (all) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
        ):
            if not fits:
                raise ValueError(f"{name} {getattr(self, name)} must be {bounds}")

    @property
    def rows(self) -> int:
        """Hypotheses of a sentence that are searched side by side."""
        return self.beam_width if self.method == "beam" else 1


def search(decoding: Decoding) -> Callable[..., Tensor]:
    """What takes a `Step` of `decoding.rows` rows a sentence, bos_id, eos_id, pad_id and limits, and gives tokens."""
    return SEARCH[decoding.method](decoding)


def sampling(decoding: Decoding) -> Callable[..., Tensor]:
    """Draws with a generator of its own, seeded by the run's seed: training's random numbers stay what they are."""

    def run(step: Step, *, limits: Tensor, **ends: int) -> Tensor:
        generator = torch.Generator(limits.device).manual_seed(torch.initial_seed() % 2**63)
        choose = partial(
            drawn, temperature=decoding.temperature, top_k=decoding.top_k, top_p=decoding.top_p, generator=generator
        )
        return one_by_one(step, choose, limits=limits, **ends)

    return run


SEARCH = {
    "greedy": lambda decoding: partial(one_by_one, choose=likeliest),
    "beam": lambda decoding: partial(beam, width=decoding.beam_width, length_penalty=decoding.length_penalty),
    "sample": sampling,
}
