"""How cost grows: time and memory of a training step against length, width, depth, batch and patch size.

Beside the encoder with fused and with explicit attention stand an LSTM of as many parameters, and attention alone: dot
products against the additive kind (Bahdanau et al. 2015). Theory counts the products of a layer, n² · d of attention
and n · d² of the linear maps, and is drawn through the largest size.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import torch
from rich.progress import track
from torch import Tensor, nn

from experiments.answer.render import as_terminal
from lit_modules.choices import Arch
from lit_modules.components import masks
from lit_modules.components.attention import attend_explicit, attend_fused, attention_modules
from lit_modules.components.stack import Encoder

from . import tables
from .decoding import clocked
from .decoding import measure as by_place
from .tables import RESULTS
from .training import keep

BASE = {"length": 128, "width": 128, "depth": 2, "batch": 8}
AXES = {
    "length": (32, 64, 128, 256, 512, 1024),
    "width": (32, 64, 128, 256, 512, 1024),
    "depth": (1, 2, 4, 8, 16),
    "batch": (1, 2, 4, 8, 16, 32, 64),
    "patch size": (16, 8, 4, 2),
}
IMAGE = 32  # pixels of a side, for the patches
HEAD = 32  # width of a head


@dataclass
class Line:
    """One form along one axis: sizes, milliseconds, megabytes that are kept for the backward pass, and theory."""

    axis: str
    form: str
    size: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    mb: list[float] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)


class AdditiveAttention(nn.Module):
    """softmax_k(v · tanh(W q + U k)) V: its scores hold n² · d numbers, where dot products hold n²."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.query, self.key, self.score = nn.Linear(d, d), nn.Linear(d, d, bias=False), nn.Linear(d, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.score(torch.tanh(self.query(x)[:, :, None] + self.key(x)[:, None]))[..., 0]
        return scores.softmax(dim=-1) @ x


class DotAttention(nn.Module):
    """The same with q · k / √d."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(d, d), nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[2] ** 0.5
        return scores.softmax(dim=-1) @ x


def transformer(sizes: dict[str, int], attend: Callable) -> Callable[[Tensor], Tensor]:
    width = sizes["width"]
    arch = Arch(d_model=width, n_heads=max(1, width // HEAD), d_ff=4 * width, n_layers=sizes["depth"], dropout=0.0)
    encoder = Encoder(arch)
    for attention in attention_modules(encoder).values():
        attention.attend = attend
    return lambda x: encoder(x, masks.everything())


def lstm(sizes: dict[str, int]) -> Callable[[Tensor], Tensor]:
    """As many parameters as the encoder's: 12 d² a layer there, 8 d² here."""
    width = sizes["width"]
    inner = round(width * (12 / 8) ** 0.5)
    model = nn.LSTM(inner, inner, num_layers=sizes["depth"], batch_first=True)
    widen = nn.Linear(width, inner)
    return lambda x: model(widen(x))[0]


FORMS: dict[str, Callable[[dict[str, int]], Callable[[Tensor], Tensor]]] = {
    "fused attention": lambda sizes: transformer(sizes, attend_fused),
    "explicit attention": lambda sizes: transformer(sizes, attend_explicit),
    "LSTM": lstm,
    "dot product alone": lambda sizes: DotAttention(sizes["width"]),
    "additive alone": lambda sizes: AdditiveAttention(sizes["width"]),
}
FORMS_OF = {
    "length": list(FORMS), "width": ["fused attention", "LSTM"], "depth": ["fused attention", "LSTM"],
    "batch": ["fused attention", "LSTM"], "patch size": ["fused attention", "explicit attention"],
}  # fmt: skip
LONGEST = {"additive alone": 512}  # more would not fit a laptop


def sizes_at(axis: str, size: int) -> dict[str, int]:
    if axis == "patch size":  # ViT's tokens, the class token among them
        return BASE | {"length": (IMAGE // size) ** 2 + 1}
    return BASE | {axis: size}


def theory(form: str, sizes: dict[str, int]) -> float:
    """Multiplications of a forward pass, twice; a step is three of them."""
    n, d, layers, batch = (sizes[key] for key in ("length", "width", "depth", "batch"))
    if form == "LSTM":
        return 2 * batch * layers * 12 * n * d * d
    if form == "dot product alone":
        return 2 * batch * (2 * n * d * d + 2 * n * n * d)
    if form == "additive alone":
        return 2 * batch * (2 * n * d * d + 3 * n * n * d)
    return 2 * batch * layers * (12 * n * d * d + 2 * n * n * d)


def kept_bytes(model: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """What autograd keeps for the backward pass, each storage counted once."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(x)
    return sum(seen.values())


def measured(axis: str, rounds: int) -> list[Line]:
    """Turn about: at each size every form has its step, `rounds` times; medians."""
    lines = {form: Line(axis, form) for form in FORMS_OF[axis]}
    for size in track(AXES[axis], description=axis, transient=True):
        sizes = sizes_at(axis, size)
        chosen = {form: line for form, line in lines.items() if sizes["length"] <= LONGEST.get(form, math.inf)}
        torch.manual_seed(0)
        x = torch.randn(sizes["batch"], sizes["length"], sizes["width"]).requires_grad_()
        models = {form: FORMS[form](sizes) for form in chosen}
        times: dict[str, list[float]] = {form: [] for form in chosen}
        for _ in range(rounds + 1):
            for form, model in models.items():
                times[form].append(clocked(lambda model=model, x=x: model(x).sum().backward()))
        for form, line in chosen.items():
            line.size.append(size)
            line.ms.append(statistics.median(times[form][1:]))
            line.mb.append(kept_bytes(models[form], x) / 2**20)
            line.flops.append(theory(form, sizes))
    return list(lines.values())


def main(rounds: int) -> bool:
    """Prints exponents, draws results/scaling.svg, and keeps both."""
    torch.set_num_threads(1)
    lines = [line for axis in AXES for line in measured(axis, rounds)]
    places = by_place(1)
    for way, found in places.items():
        lines.append(Line("place of a token", f"{way} decoding", list(found), list(found.values())))
    found = {"base": BASE, "rounds": rounds, "lines": [vars(line) for line in lines]}
    print(as_terminal(*tables.scaling(found)))
    picture(lines).save(str(RESULTS / "scaling.svg"))
    return keep("scaling", found)


def picture(lines: list[Line]) -> alt.Chart:
    """Time against every axis, both logarithmic; theory dashed, through its largest size."""
    rows: list[dict[str, Any]] = []
    for line in lines:
        drawn = [("measured", line.ms)]
        if line.flops:
            largest = max(range(len(line.ms)), key=lambda i, line=line: line.flops[i])
            drawn.append(("theory", [f * line.ms[largest] / line.flops[largest] for f in line.flops]))
        rows += [
            {"axis": line.axis, "form": line.form, "size": size, "ms": ms, "kind": kind}
            for kind, values in drawn for size, ms in zip(line.size, values, strict=True)
        ]  # fmt: skip
    parts = []
    for axis in dict.fromkeys(line.axis for line in lines):
        some = alt.Data(values=[row for row in rows if row["axis"] == axis])
        chart = alt.Chart(some, title=axis, width=260, height=200).mark_line(point=alt.OverlayMarkDef(size=18))
        parts.append(chart.encode(
            x=alt.X("size:Q", scale=alt.Scale(type="log", base=2), title=axis),
            y=alt.Y("ms:Q", scale=alt.Scale(type="log"), title="ms"),
            color=alt.Color("form:N", title=None),
            strokeDash=alt.StrokeDash("kind:N", title=None, legend=alt.Legend(symbolType="stroke")),
        ))  # fmt: skip
    return alt.concat(*parts, columns=3).configure(background="white")
