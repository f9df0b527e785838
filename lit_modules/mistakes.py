"""The mistakes that a lecture warns of, made runnable: each one changes a correct translation model in a few lines.

    ablate run mistakes

The table that comes out is a fingerprint of each: what the training loss, the validation loss, the leak and BLEU look
like when a program has the mistake and runs without complaint. Nothing here is used by a correct model.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from .components import masks
from .components.attention import Explicit, attention_modules
from .components.fast import Dropout
from .components.residual import Stream
from .translation import Translation


class MistakenTranslation(Translation):
    """A translation model with one mistake.

    Args:
        mistake:
            none: the correct model.
            divided_twice: scores divided by √d_k where they are made and again before the softmax, by d_k in all
                (beside `score_divisor: sqrt_d_k`).
            softmax_over_queries: the weights of a key sum to 1 over the queries, not those of a query over the keys.
            mask_off_by_one: position i sees i + 1 as well, the very token that it is to predict.
            targets_not_shifted: the decoder reads the token that it is to predict, and copies it.
            loss_on_padding: padding counts as a target, in the loss and in the number of tokens.
            norm_inside: x + LayerNorm(Sublayer(x)) in place of post-norm's LayerNorm(x + Sublayer(x)) (beside
                `norm: post`).
            no_embedding_factor: embeddings without the factor √d_model beside positions of size 1.
        translation: everything that `Translation` takes.

    Validation and test are made with the same mistake, as they would be in a program that has it.

    Raises:
        ValueError: where a mistake is made of a choice that the model has not.
    """

    def __init__(
        self,
        mistake: Literal[
            "none", "divided_twice", "softmax_over_queries", "mask_off_by_one", "targets_not_shifted",
            "loss_on_padding", "norm_inside", "no_embedding_factor",
        ] = "none",
        **translation: Any,
    ) -> None:  # fmt: skip
        super().__init__(**translation)
        self.save_hyperparameters({**self.hparams, "mistake": mistake}, logger=False)
        MISTAKES[mistake](self)


def none(model: Translation) -> None:
    """Correct as it is."""


def divided_twice(model: Translation) -> None:
    needs(model, "score_divisor", "sqrt_d_k")
    for attention in attention_modules(model).values():
        attention.scale = attention.scale**2


def softmax_over_queries(model: Translation) -> None:
    for attention in attention_modules(model).values():
        attention.attend = Explicit(over_queries)


def over_queries(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """The softmax along the wrong axis."""
    barred = torch.zeros_like(scores, dtype=torch.bool) if allowed is None else ~allowed
    weights = scores.masked_fill(barred, torch.finfo(scores.dtype).min).softmax(dim=-2)
    return weights.masked_fill(barred, 0.0)


def mask_off_by_one(model: Translation) -> None:
    def sees_the_next(target: Tensor) -> masks.Mask:
        length = target.shape[1]
        ones = torch.ones(length, length, dtype=torch.bool, device=target.device)
        return masks.Mask(allowed=ones.tril(diagonal=1)[None, None])  # diagonal=0 would be right

    model.network.target_mask = sees_the_next


def targets_not_shifted(model: Translation) -> None:
    model.shift = lambda target: (target[:, 1:], target[:, 1:])


def loss_on_padding(model: Translation) -> None:
    model.ignored = -1  # no token has this id


def norm_inside(model: Translation) -> None:
    needs(model, "norm", "post")
    arch = model.hparams["arch"]
    for stack in (model.network.encoder, model.network.decoder):
        for layer in stack.layers:
            layer.residuals = nn.ModuleList(NormInside(arch["d_model"], r.dropout.p) for r in layer.residuals)


class NormInside(nn.Module):
    """x + LayerNorm(Dropout(Sublayer(x))): the stream is never normalised, at the end of the stack neither."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(d_model), Dropout(dropout)

    def forward(self, x: Stream, sublayer) -> Stream:
        return x + self.norm(self.dropout(sublayer(x)))


def no_embedding_factor(model: Translation) -> None:
    model.network.source_embedding.factor = model.network.target_embedding.factor = 1.0


def needs(model: Translation, choice: str, word: str) -> None:
    if (there := model.hparams["arch"][choice]) != word:
        raise ValueError(f"this mistake is made of arch.{choice} {word}, not of {there}")


MISTAKES = {
    "none": none,
    "divided_twice": divided_twice,
    "softmax_over_queries": softmax_over_queries,
    "mask_off_by_one": mask_off_by_one,
    "targets_not_shifted": targets_not_shifted,
    "loss_on_padding": loss_on_padding,
    "norm_inside": norm_inside,
    "no_embedding_factor": no_embedding_factor,
}
