"""Pictures, drawn by altair: one file that opens without a network."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import altair as alt

from experiments.launch.question import BadInput

if TYPE_CHECKING:
    from torch import Tensor

SHADES = alt.Scale(range=["white", "#08519c"], domain=[0, 1], interpolate="rgb")


def attention_chart(source: list[str], target: list[str], weights: "dict[str, Tensor]") -> alt.TopLevelMixin:
    """A heat map a layer: row i is where the decoder looked when it wrote token i.

    Args:
        source, target: the tokens.
        weights: layer → (target, source), each row summing to 1.
    """
    cells = [
        {"layer": layer, "source": j, "target": i, "weight": round(float(w), 4), "from": target[i], "to": source[j]}
        for layer, matrix in weights.items()
        for i, row in enumerate(matrix)
        for j, w in enumerate(row)
    ]
    size = 22
    return (
        alt.Chart(alt.Data(values=cells))
        .mark_rect()
        .encode(
            x=alt.X("source:O", title="source", axis=named(source, labelAngle=-60)),
            y=alt.Y("target:O", title="translation", axis=named(target)),
            color=alt.Color("weight:Q", title="weight", scale=SHADES),
            tooltip=["from:N", "to:N", "weight:Q"],
        )
        .properties(width=size * len(source), height=size * len(target))
        .facet(column=alt.Column("layer:N", title="Cross-attention, mean over heads"))
    )


def named(tokens: list[str], **more) -> alt.Axis:
    """Positions as their tokens, of which several may be the same."""
    return alt.Axis(labelExpr=f"{json.dumps(tokens, ensure_ascii=False)}[datum.value]", **more)


def save(chart: alt.TopLevelMixin, path: Path) -> None:
    """As .html with everything inside, .svg or .png.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        chart.save(str(path), **({"inline": True} if path.suffix == ".html" else {"scale_factor": 2}))
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error
