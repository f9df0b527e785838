"""Add & Norm: how a sub-layer joins the residual stream. Each class owns its formula and its final norm."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from .fast import Dropout

Stream = Float[Tensor, "batch position d_model"]


class PostNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))) (Vaswani et al. 2017, section 3.1). The stack needs no norm at its end."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(d_model), Dropout(dropout)

    def forward(self, x: Stream, sublayer: Callable[[Tensor], Tensor]) -> Stream:
        return self.norm(x + self.dropout(sublayer(x)))

    @staticmethod
    def final_norm(d_model: int) -> nn.Module:
        return nn.Identity()


class PreNorm(nn.Module):
    """x + Dropout(Sublayer(LayerNorm(x))) (Xiong et al. 2020, section 3): the stream itself is never normalised,
    so the stack ends with a norm of its own."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(d_model), Dropout(dropout)

    def forward(self, x: Stream, sublayer: Callable[[Tensor], Tensor]) -> Stream:
        return x + self.dropout(sublayer(self.norm(x)))

    @staticmethod
    def final_norm(d_model: int) -> nn.Module:
        return nn.LayerNorm(d_model)


NORM = {"post": PostNorm, "pre": PreNorm}
