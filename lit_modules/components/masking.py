"""What a masked language model has to predict, and what it reads in its place (Devlin et al. 2019, section 3.1)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from datamodules.tokenizer import BERT_SPECIALS, CLS, MASK, PAD, SEP

Ids = Int[Tensor, "batch position"]
Noise = Float[Tensor, "batch position 2"]  # uniform in [0, 1): for the order of choice, and for random tokens

# shares of the chosen tokens that become [MASK] and a random token; the rest stays (appendix C.2)
MASKING = {
    "paper": (0.8, 0.1),
    "all_masked": (1.0, 0.0),
    "masked_or_kept": (0.8, 0.0),
    "masked_or_random": (0.8, 0.2),
    "kept_or_random": (0.0, 0.8),
    "all_random": (0.0, 1.0),
}


class Masked(NamedTuple):
    """What is read, and which of the original tokens are to be predicted."""

    ids: Int[Tensor, "batch position"]
    chosen: Bool[Tensor, "batch position"]


def maskable(ids: Ids) -> Bool[Tensor, "batch position"]:
    """Real tokens: neither padding nor [CLS] nor [SEP]."""
    return (ids != PAD) & (ids != CLS) & (ids != SEP)


def mask_tokens(
    ids: Ids, continues: Bool[Tensor, "batch position"], noise: Noise, *, rate: float, masking: str, unit: str,
    vocab_size: int,
) -> Masked:  # fmt: skip
    """Chooses round(rate · real tokens) of each row, at least one, and replaces them.

    Which of the chosen become [MASK], random or stay is drawn systematically: with n of them their numbers are those of
    the shares times n, rounded up or down at random, in random order. A random token is any but a special one.

    Args:
        continues: true for a piece that goes on with a word.
        noise: of a row's first position, which is [CLS], it decides the rounding.
        rate: share of the real tokens.
        masking: a word of `MASKING`.
        unit: token, or word: words are chosen whole, as many as stay within the number of tokens, one at least.
    """
    real = maskable(ids)
    place = UNIT[unit](noise[..., 0].masked_fill(~real, 2.0), continues).argsort(dim=1, stable=True).argsort(dim=1)
    wanted = (rate * real.sum(1)).round().clamp_min(1)
    chosen = FITS[unit](place, wanted, continues, real)
    masked, random = MASKING[masking]
    share = (place + noise[:, :1, 0]) / chosen.sum(1, keepdim=True).clamp_min(1)
    specials = len(BERT_SPECIALS)
    drawn = specials + (noise[..., 1] * (vocab_size - specials)).long().clamp_max(vocab_size - specials - 1)
    replaced = torch.where(share < masked, MASK, torch.where(share < masked + random, drawn, ids))
    return Masked(torch.where(chosen, replaced, ids), chosen)


def first_piece(continues: Bool[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
    """Where each piece's word begins."""
    position = torch.arange(continues.shape[1], device=continues.device).expand_as(continues)
    return position.masked_fill(continues, 0).cummax(1).values


def of_its_word(order: Float[Tensor, "batch position"], continues: Tensor) -> Float[Tensor, "batch position"]:
    """Every piece takes the number of its word's first piece."""
    return order.gather(1, first_piece(continues))


def whole(place: Tensor, wanted: Tensor, continues: Tensor, real: Tensor) -> Bool[Tensor, "batch position"]:
    """Words in their order while all of their pieces are within the number wanted; the first in any case."""
    first = first_piece(continues)
    last_place = torch.zeros_like(place).scatter_reduce(1, first, place, "amax").gather(1, first)
    first_place = place.gather(1, first)
    return real & ((last_place < wanted[:, None]) | (first_place == 0))


UNIT = {"token": lambda order, continues: order, "word": of_its_word}
FITS = {
    "token": lambda place, wanted, continues, real: real & (place < wanted[:, None]),
    "word": whole,
}


def fixed_noise(index: Int[Tensor, " batch"], length: int) -> Noise:
    """The same for a row of this index in every run and in any batch, whatever it is padded to."""
    noise = torch.zeros(len(index), length, 2, dtype=torch.float32)
    for row, number in zip(noise, index.tolist(), strict=True):
        row[:] = torch.rand(length, 2, dtype=torch.float32, generator=torch.Generator().manual_seed(number))
    return noise.to(index.device)
