"""An image as a sequence of words (Dosovitskiy et al. 2021, section 3.1): cut, placed, and read off again."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .attention import projection
from .positions import LearnedPosition, NoPosition, sinusoids

Images = Float[Tensor, "batch channel height width"]
Patches = Float[Tensor, "batch patch d_model"]
States = Float[Tensor, "batch position d_model"]


class PatchEmbedding(nn.Module):
    """x_p E + b: each patch of P × P pixels, flattened and projected (equation 1).

    The same as a convolution with kernel and stride P. Patches stand row by row; a patch is flattened channel by
    channel, row by row.

    Raises:
        ValueError: if the patch does not divide the image, naming both.
    """

    def __init__(self, *, image_size: int, channels: int, patch_size: int, d_model: int) -> None:
        super().__init__()
        if patch_size < 1 or image_size % patch_size:
            raise ValueError(f"patch_size {patch_size} does not divide an image of {image_size} × {image_size} pixels")
        self.patch_size, self.grid = patch_size, image_size // patch_size
        self.project = projection(channels * patch_size**2, d_model)

    def forward(self, images: Images) -> Patches:
        return self.project(flattened(images, self.patch_size))


def flattened(images: Images, patch_size: int) -> Float[Tensor, "batch patch pixels"]:
    """(batch, N, C · P²) with N = H W / P²."""
    batch, channels, height, width = images.shape
    rows, columns = height // patch_size, width // patch_size
    cut = images.view(batch, channels, rows, patch_size, columns, patch_size)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, channels * patch_size**2)


class LearnedPosition2d(nn.Module):
    """A trained vector for each row and one for each column, side by side, half as wide each (appendix D.4).

    Raises:
        ValueError: if d_model is odd.
    """

    def __init__(self, d_model: int, grid: int) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(
                f"learned 2-D positions share the width between rows and columns: d_model {d_model} is odd"
            )
        self.row, self.column = (nn.Parameter(torch.empty(grid, d_model // 2)) for _ in range(2))
        for table in (self.row, self.column):
            nn.init.normal_(table, std=d_model**-0.5)

    def forward(self, patches: Patches) -> Patches:
        return patches + by_row_and_column(self.row, self.column)


class SinusoidalPosition2d(nn.Module):
    """Sinusoids of the row and of the column, side by side, half as wide each (Beyer et al. 2022).

    Raises:
        ValueError: if d_model is no multiple of 4.
    """

    def __init__(self, d_model: int, grid: int) -> None:
        super().__init__()
        if d_model % 4:
            raise ValueError(f"sinusoidal 2-D positions need a d_model that 4 divides, not {d_model}")
        table = sinusoids(grid, d_model // 2)
        self.register_buffer("table", by_row_and_column(table, table), persistent=False)

    def forward(self, patches: Patches) -> Patches:
        return patches + self.table


def by_row_and_column(
    row: Float[Tensor, "grid half"], column: Float[Tensor, "grid half"]
) -> Float[Tensor, "patch d_model"]:
    grid = len(row)
    return torch.cat([row.repeat_interleave(grid, 0), column.repeat(grid, 1)], dim=1)


IMAGE_POSITION = {
    "learned_1d": lambda d_model, grid: LearnedPosition(d_model, grid**2),
    "learned_2d": LearnedPosition2d,
    "sinusoidal_2d": SinusoidalPosition2d,
    "none": lambda d_model, grid: NoPosition(d_model, grid**2),
}


class ClassToken(nn.Module):
    """One more token before the patches; its last state stands for the image (equations 1 and 4).

    It has no position of its own: the paper's x_class + E_pos[0] are two trained vectors that are always added, and so
    are one here.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.empty(d_model))
        nn.init.normal_(self.vector, std=d_model**-0.5)

    def forward(self, patches: Patches) -> States:
        return torch.cat([self.vector.expand(len(patches), 1, -1), patches], dim=1)

    @staticmethod
    def length(patches: int) -> int:
        return patches + 1

    def summary(self, states: States) -> Float[Tensor, "batch d_model"]:
        return states[:, 0]

    @staticmethod
    def attends(weights: Float[Tensor, "*head token token"]) -> Float[Tensor, "*head token"]:
        return weights[..., 0, :]


class MeanOfPatches(nn.Module):
    """Nothing is added; the mean of the last states stands for the image (appendix D.3)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, patches: Patches) -> States:
        return patches

    @staticmethod
    def length(patches: int) -> int:
        return patches

    def summary(self, states: States) -> Float[Tensor, "batch d_model"]:
        return states.mean(dim=1)

    @staticmethod
    def attends(weights: Float[Tensor, "*head token token"]) -> Float[Tensor, "*head token"]:
        return weights.mean(-2)


POOLING = {"cls": ClassToken, "mean": MeanOfPatches}
