"""Tokens to vectors and back (Vaswani et al. 2017, section 3.4)."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """√d_model · E[id], E drawn from N(0, 1/d_model), so that an entry starts with variance 1 as its position has."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.factor = d_model**0.5
        self.weight = nn.Parameter(nn.init.normal_(nn.Embedding(vocab_size, d_model).weight, std=d_model**-0.5))

    def forward(self, ids: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position d_model"]:
        return F.embedding(ids, self.weight) * self.factor


class OutputProjection(nn.Module):
    """logits = x Eᵀ: the linear map before the softmax over the vocabulary, without a bias (section 3.4)."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = TokenEmbedding(vocab_size, d_model).weight

    def forward(self, x: Float[Tensor, "*position d_model"]) -> Float[Tensor, "*position vocabulary"]:
        return F.linear(x, self.weight)


def tie(kind: str, source: TokenEmbedding, target: TokenEmbedding, output: OutputProjection) -> None:
    """Shares weights (Press and Wolf 2017): `none`; `output`: target embedding and output map; `all`: all three."""
    for module in TIED[kind](source, target, output):
        module.weight = target.weight


TIED = {
    "none": lambda source, target, output: (),
    "output": lambda source, target, output: (output,),
    "all": lambda source, target, output: (source, output),
}
