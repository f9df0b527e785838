"""What a ViT looks at, as one page: the image, attention layer by layer and head by head, positions, filters."""

import base64
import io

import altair as alt
import numpy as np
from PIL import Image
from torch import Tensor

from experiments.pictures import SHADES

SIDE = 96  # pixels of a small map
SIMILAR = alt.Scale(scheme="viridis", domain=[-1, 1])
MAPS = 8  # rows and columns of positions whose similarity is drawn


def page(
    pixels: np.ndarray, maps: dict[str, Tensor], rollout: Tensor, places: Tensor | None, filters: Tensor
) -> alt.TopLevelMixin:
    """
    Args:
        pixels: (channels, size, size), uint8.
        maps: layer → (head, row, column), what the summary attends to.
        rollout: (row, column), the same through all layers.
        places: (patch, row, column), cosine similarity of the positions; None without any.
        filters: (component, channels, P, P).
    """
    heads = next(iter(maps.values())).shape[0]
    cells = [
        cell
        for layer, heads_ in maps.items()
        for h, one in enumerate(heads_)
        for cell in map_cells(one, layer=layer, head=h)
    ]
    parts = [
        alt.hconcat(picture(pixels), heat_map(map_cells(rollout), 2 * SIDE, "Attention rollout through all layers")),
        heat_map(cells, SIDE, "").facet(
            row=alt.Row("layer:N", title=None, sort=list(maps)),
            column=alt.Column(
                "head:O", title=f"What the summary attends to, {heads} heads; each map by its own largest weight"
            ),
        ),
    ]
    if places is not None:
        parts.append(position_maps(places))
    parts.append(filter_maps(filters))
    return alt.vconcat(*parts, spacing=30).resolve_scale(color="independent")


def map_cells(one: Tensor, **more: object) -> list[dict]:
    largest = float(one.max()) or 1.0
    return [
        {"row": i, "column": j, "weight": round(float(w), 5), "shade": round(float(w) / largest, 4), **more}
        for i, row in enumerate(one)
        for j, w in enumerate(row)
    ]


def heat_map(cells: list[dict], side: int, title: str, shade: str = "shade", scale: alt.Scale = SHADES) -> alt.Chart:
    return (
        alt.Chart(alt.Data(values=cells), title=title)
        .mark_rect()
        .encode(
            x=alt.X("column:O", axis=None),
            y=alt.Y("row:O", axis=None),
            color=alt.Color(f"{shade}:Q", scale=scale, legend=None),
            tooltip=["row:O", "column:O", alt.Tooltip("weight:Q")],
        )
        .properties(width=side, height=side)
    )


def picture(pixels: np.ndarray) -> alt.Chart:
    """The image as the model reads it."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    file = io.BytesIO()
    image.resize((2 * SIDE, 2 * SIDE), Image.Resampling.NEAREST).save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return (
        alt.Chart(alt.Data(values=[{"url": url}]), title=f"The image, {image.width} × {image.height}")
        .mark_image(width=2 * SIDE, height=2 * SIDE)
        .encode(url="url:N", x=alt.value(SIDE), y=alt.value(SIDE))
        .properties(width=2 * SIDE, height=2 * SIDE)
    )


def position_maps(places: Tensor) -> alt.TopLevelMixin:
    """One map a position: how similar all others are to it (Dosovitskiy et al. 2021, figure 7, centre)."""
    side = places.shape[1]
    step = -(-side // MAPS)
    cells = [
        {"row": i, "column": j, "of_row": r, "of_column": c, "weight": round(float(places[r * side + c, i, j]), 4)}
        for r in range(0, side, step)
        for c in range(0, side, step)
        for i in range(side)
        for j in range(side)
    ]
    return heat_map(cells, SIDE // 2, "", "weight", SIMILAR).facet(
        row=alt.Row("of_row:O", title="row of the patch"),
        column=alt.Column("of_column:O", title="Similarity of the positions: column of the patch"),
        spacing=4,
    )


def filter_maps(filters: Tensor) -> alt.TopLevelMixin:
    """Principal components of the patch embedding's filters (figure 7, left); grey is zero."""
    cells = []
    for number, one in enumerate(filters):
        levels = (one / one.abs().max().clamp_min(1e-12) * 127 + 128).round().int()
        colours = (levels if len(levels) == 3 else levels[:1].expand(3, -1, -1)).permute(1, 2, 0).tolist()
        for i, row in enumerate(colours):
            for j, colour in enumerate(row):
                cells.append(
                    {
                        "row": i,
                        "column": j,
                        "component": number + 1,
                        "colour": "#" + "".join(f"{c:02x}" for c in colour),
                    }
                )
    return (
        alt.Chart(alt.Data(values=cells))
        .mark_rect()
        .encode(x=alt.X("column:O", axis=None), y=alt.Y("row:O", axis=None), color=alt.Color("colour:N", scale=None))
        .properties(width=SIDE // 2, height=SIDE // 2)
        .facet("component:O", columns=14, spacing=4, title="Principal components of the filters")
    )
