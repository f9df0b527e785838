"""Kept results of the benchmarks as tables, without torch: the commands print them, the README shows them."""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.launch.question import BadInput

RESULTS = Path(__file__).parent / "results"
OURS = ("ours", "tuned")  # as the launcher starts it: what the others are held against
LAST = 3  # an exponent is fitted to the costliest sizes: what the cost tends to
Table = tuple[list[str], list[list[str]]]  # heads, lines


def training(found: dict[str, Any]) -> Table:
    """Of each family and precision: whom ours is how many times as fast as."""
    heads = [
        "family", "precision", "side", "allocator", "a second", "lowest … highest", "ours is", "lowest … highest",
        "GFLOP a step", "of the ceiling", "memory",
    ]  # fmt: skip
    lines = []
    for part in found["parts"]:
        for side in part["sides"]:
            speed, ratio = side["per_second"], side["ratio"]
            is_ours = (side["side"], side["allocator"]) == OURS
            times = ["", ""] if is_ours else [f"{ratio['median']:.2f} ×", span(ratio, ".2f")]
            lines.append([
                part["family"], part["precision"], side["side"], side["allocator"],
                f"{speed['median']:,.0f} {part['unit']}", span(speed, ",.0f"), *times,
                f"{part['flops_per_step'] / 1e9:.0f}", f"{side['of_ceiling']:.0f} %",
                f"{side['memory'] / 2**20:,.0f} MiB",
            ])  # fmt: skip
    return heads, lines


def decoding(found: dict[str, Any]) -> Table:
    """Whole searches, ours beside Hugging Face's."""
    heads = ["search", "side", "cache", "sentences/s", "lowest … highest", "ours with the cache is"]
    lines = []
    for line in found["searched"]:
        is_ours = line["side"] == "ours" and line["cached"]
        lines.append([
            f"beam {line['beam']}" if line["beam"] > 1 else "greedy", line["side"], "yes" if line["cached"] else "no",
            f"{line['per_second']['median']:,.1f}", span(line["per_second"], ",.1f"),
            "" if is_ours else f"{line['ratio']['median']:.2f} ×",
        ])  # fmt: skip
    return heads, lines


def places(found: dict[str, Any]) -> Table:
    """What a token takes by its place in the sentence; kept with `decoding`."""
    cached, uncached = found["milliseconds"]["cached"], found["milliseconds"]["uncached"]
    lines = [[str(p), f"{cached[p]:.2f}", f"{uncached[p]:.2f}", f"{uncached[p] / cached[p]:.1f}"] for p in cached]
    return ["token", "with the cache, ms", "without, ms", "ratio"], lines


def launching(found: dict[str, Any]) -> Table:
    """What runs cost beside their steps: each, and all of them once."""
    steps, walls, runs = sum(found["steps"]), sum(found["walls"]), found["runs"]
    heads = ["runs", "training steps, s", "a run besides, s", "share of the run", "once for all, s", "share of all"]
    line = [f"{steps / runs:.1f}", f"{(walls - steps) / runs:.1f}", f"{100 * (1 - steps / walls):.0f} %"]
    return heads, [[str(runs), *line, f"{found['wall'] - walls:.1f}", f"{100 * (1 - steps / found['wall']):.0f} %"]]


def scaling(found: dict[str, Any]) -> Table:
    """How time and memory grow along each axis, beside theory."""
    heads = ["axis", "form", "sizes", "ms at the ends", "time grows as", "theory", "memory grows as", "MB at the ends"]

    def line(one: dict[str, Any]) -> list[str]:
        def grows(values: list[float]) -> str:
            return f"size^{exponent(one['size'], values):.2f}" if values else ""

        def ends(values: list[float]) -> str:
            return f"{values[0]:,.1f} … {values[-1]:,.1f}" if values else ""

        ms, mb = one["ms"], one["mb"]
        sizes = f"{one['size'][0]} … {one['size'][-1]}"
        return [one["axis"], one["form"], sizes, ends(ms), grows(ms), grows(one["flops"]), grows(mb), ends(mb)]

    return heads, [line(one) for one in found["lines"]]


def exponent(size: list[int], value: list[float]) -> float:
    """The slope of log value over log size, by least squares, at the last sizes, which cost most."""
    points = list(zip(size, value, strict=True))[-LAST:]
    x, y = [[math.log(v) for v in column] for column in zip(*points, strict=True)]
    return statistics.linear_regression(x, y).slope


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def span(found: dict[str, float], form: str) -> str:
    return f"{found['lowest']:{form}} … {found['highest']:{form}}"


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], Table]]] = {  # name → the result that it is made of, and how
    "training": ("training", training),
    "decoding": ("decoding", decoding),
    "places": ("decoding", places),
    "launching": ("launching", launching),
    "scaling": ("scaling", scaling),
}


def kept(name: str) -> Table:
    """The table of that name, of what was measured last.

    Raises:
        BadInput: where there is none of that name, or nothing was measured.
    """
    if name not in TABLES:
        raise BadInput(f"no table {name!r} of a benchmark; known: {', '.join(TABLES)}")
    result, make = TABLES[name]
    path = RESULTS / f"{result}.json"
    if not path.exists():
        raise BadInput(f"there is no {path.name} yet: `ablate bench` and `ablate bench --scaling` measure")
    return make(json.loads(path.read_text()))
