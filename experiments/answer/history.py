"""How a run went: its learning curves and its last samples, from its own files, or from those that were committed."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments.record.metrics_file import read_metrics
from experiments.record.result import INSIDE

Curves = dict[str, list[tuple[int, float]]]  # metric → (optimiser step, value)
POINTS = 40
NAME = "history.json"


def history(folder: Path) -> tuple[Curves, list[dict[str, str]]]:
    """Curves of training loss and validation, at most `POINTS` points each, and the samples of the last validation."""
    files = [path for name in (NAME, "metrics.csv", "samples.txt") if (path := folder / name).exists()]
    return read_once(folder, tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files))


@lru_cache(maxsize=10_000)
def read_once(folder: Path, state: tuple[tuple[str, int, int], ...]) -> tuple[Curves, list[dict[str, str]]]:
    """For each state of a run's files: every chart asks for the same curves."""
    if (kept := folder / NAME).exists():
        read = json.loads(kept.read_text())
        return {name: [tuple(point) for point in points] for name, points in read["curves"].items()}, read["samples"]
    logged = read_metrics(folder / "metrics.csv")
    wanted = {name: steps for name, steps in logged.items() if name == "train/loss" or name.startswith("valid/")}
    return {name: thinned(sorted(steps.items())) for name, steps in wanted.items()}, samples(folder / "samples.txt")


def inside(folder: Path) -> dict[str, Any]:
    """The matrices that the run has left of its insides, see `record/inside.py`; empty where it has left none."""
    path = folder / INSIDE
    return json.loads(path.read_text()) if path.exists() else {}


def thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Evenly, the last one among them; five digits."""
    every = -(-len(points) // POINTS)
    return [(step, float(f"{value:.5g}")) for step, value in points[::-1][::every][::-1]]


def samples(path: Path) -> list[dict[str, str]]:
    """The last block of samples.txt, of the test split where there is one: a mapping from column to text a sample."""
    if not path.exists():
        return []
    blocks = re.split(r"^--- ", path.read_text(errors="replace"), flags=re.MULTILINE)
    block = next((block for block in blocks[::-1] if block.startswith("test/")), blocks[-1]).splitlines()[1:]
    rows: list[dict[str, str]] = []
    for line in block:
        column, _, text = line.strip().partition("  ")
        if not rows or column in rows[-1]:
            rows.append({})
        rows[-1][column] = text
    return rows


def commit_history(folder: Path, target: Path, with_pictures: bool) -> None:
    curves, said = history(folder)
    if curves or said:
        (target / NAME).write_text(json.dumps({"curves": curves, "samples": said}, ensure_ascii=False) + "\n")
    if with_pictures and (found := inside(folder)):
        (target / INSIDE).write_text(json.dumps(found, ensure_ascii=False) + "\n")
