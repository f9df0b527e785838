"""How a sequence knows its order (Vaswani et al. 2017, section 3.5). Each adds itself to the embeddings."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

Embedded = Float[Tensor, "batch position d_model"]


class SinusoidalPosition(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)).

    PE(pos + k) is a rotation of PE(pos), the same for every pos. Any length: the table grows when asked.

    Args:
        size: what the sines are multiplied by; 1 beside embeddings with the factor √d_model, 1/√d_model without it.

    Raises:
        ValueError: if d_model is odd.
    """

    longest: int | None = None  # no limit

    def __init__(self, d_model: int, max_length: int, size: float = 1.0) -> None:
        super().__init__()
        self.size = size
        if d_model % 2:
            raise ValueError(f"sinusoidal positions come in pairs of sine and cosine: d_model {d_model} is odd")
        self.register_buffer("table", size * sinusoids(max_length, d_model), persistent=False)

    def forward(self, x: Embedded, start: int = 0) -> Embedded:
        end = start + x.shape[1]
        if end > len(self.table):
            self.table = (self.size * sinusoids(2 * end, x.shape[2])).to(self.table)
        return x + self.table[start:end]


class LearnedPosition(nn.Module):
    """One trained vector for each position 0 … max_length - 1 (Gehring et al. 2017; BERT, ViT).

    Raises:
        ValueError: at a sequence longer than max_length, naming both lengths.
    """

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.longest = max_length
        self.table = nn.Parameter(torch.empty(max_length, d_model))
        nn.init.normal_(self.table, std=d_model**-0.5)

    def forward(self, x: Embedded, start: int = 0) -> Embedded:
        end = start + x.shape[1]
        if end > self.longest:
            raise ValueError(f"a sequence of {end} tokens is longer than the {self.longest} learned positions")
        return x + self.table[start:end]


class NoPosition(nn.Module):
    """Nothing is added: the encoder then treats a sentence as a bag of words (permutation equivariance)."""

    longest: int | None = None

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()

    def forward(self, x: Embedded, start: int = 0) -> Embedded:
        return x


def sinusoids(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """The table PE, sine and cosine of one frequency side by side; angles in double precision."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    angle = position / 10000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1).float()


POSITION = {"sinusoidal": SinusoidalPosition, "learned": LearnedPosition, "none": NoPosition}
