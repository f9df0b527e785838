"""A run at a glance in the terminal: state, figures, curves, samples, files."""

import json
import math
from pathlib import Path

from experiments.launch.progress import clock
from experiments.launch.question import BadInput
from experiments.record.identity import arm_name
from experiments.record.result import read_result

from .history import history
from .render import as_terminal

BLOCKS = "▁▂▃▄▅▆▇█"
CURVES = ("train/loss", "valid/nll", "valid/bleu", "valid/accuracy")


def glance(folder: Path) -> str:
    """
    Raises:
        BadInput: the folder holds no run.
    """
    result, progress = folder / "result.json", folder / "progress.json"
    if not (result.exists() or progress.exists()):
        raise BadInput(f"{folder} holds no run: give runs/QUESTION/RECIPE/ARM/seed-…")
    found = read_result(result) if result.exists() else None
    parts = [about(found) if found else unfinished(folder, json.loads(progress.read_text()))]
    curves, samples = history(folder)
    drawn = [[name, sparkline(curves[name]), *ends(curves[name])] for name in CURVES if name in curves]
    if drawn:
        parts.append(as_terminal(["curve", "", "first", "last", "at step"], drawn))
    if found:
        shown = {k: v for k, v in found["metrics"].items() if k.split("/")[0] not in ("start", "end", "train", "valid")}
        parts.append(as_terminal(["metric", "value"], [[name, f"{value:.4g}"] for name, value in shown.items()]))
    parts += ["\n".join(f"{column:>12}  {text}" for column, text in sample.items()) for sample in samples[:2]]
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "wandb" not in path.parts)
    sizes = [[str(file.relative_to(folder)), f"{file.stat().st_size:,}"] for file in files]
    return "\n\n".join([*parts, as_terminal(["file", "bytes"], sizes)])


def about(result: dict) -> str:
    """Which run it is, how it ended, and why where it did not end well."""
    names = [result["question"], result["recipe"], arm_name(result["arm"]), f"seed {result['seed']}", result["status"]]
    steps, commit = result.get("steps", 0), result.get("commit") or "unknown"
    cost = f"{steps} steps in {clock(result['seconds'])}, ended {result['ended']}, commit {commit}"
    return "\n".join([" · ".join(names), cost, *([result["reason"]] if "reason" in result else [])])


def unfinished(folder: Path, progress: dict) -> str:
    done = f"{progress['stage']}, step {progress['step']} of {progress['total']}"
    return f"{folder.parent.name} · {folder.name} · no result yet: {done}"


def sparkline(points: list[tuple[int, float]]) -> str:
    values = [value for _, value in points if math.isfinite(value)]
    if not values:
        return ""
    low, span = min(values), max(values) - min(values) or 1.0
    return "".join(BLOCKS[min(int((value - low) / span * len(BLOCKS)), len(BLOCKS) - 1)] for value in values)


def ends(points: list[tuple[int, float]]) -> list[str]:
    return [f"{points[0][1]:.4g}", f"{points[-1][1]:.4g}", str(points[-1][0])]
