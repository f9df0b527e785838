"""The position-wise feed-forward network (Vaswani et al. 2017, section 3.3)."""

from jaxtyping import Float
from torch import Tensor, nn

from .attention import projection

ACTIVATION = {"relu": nn.ReLU, "gelu": nn.GELU}


class FeedForward(nn.Module):
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2, the same at every position; f is ReLU in equation 2."""

    def __init__(self, *, d_model: int, d_ff: int, activation: str) -> None:
        super().__init__()
        self.inner, self.outer = projection(d_model, d_ff), projection(d_ff, d_model)
        self.activation = ACTIVATION[activation]()

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Float[Tensor, "batch position d_model"]:
        return self.outer(self.activation(self.inner(x)))
