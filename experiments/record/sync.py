"""Results that were made without W&B, brought to it: one W&B run for each, written from the run's own files."""

import json
from collections.abc import Iterable
from pathlib import Path

from rich.progress import track

from .identity import Run
from .metrics_log import read_metrics
from .result import read_result
from .wandb_run import wandb_logger

MARK = "synced.json"


def results_below(out: Path, questions: Iterable[str]) -> list[Path]:
    """The result files of these questions."""
    return [path for name in questions for path in sorted((out / name).glob("*/*/seed-*/result.json"))]


def known_to_wandb(folder: Path) -> bool:
    """Brought there before, or logged there while it ran (an offline run's folder is called offline-run-…)."""
    return (folder / MARK).exists() or any((folder / "wandb").glob("run-*"))


def sync(out: Path, questions: Iterable[str]) -> tuple[int, int]:
    """Writes what W&B does not have yet. A run's id is its key: written twice it would be one run still.

    Returns:
        (runs written, runs that were there already).
    """
    paths = results_below(out, questions)
    todo = [path for path in paths if not known_to_wandb(path.parent)]
    for path in track(todo, "to W&B", transient=True):
        write(path, out)
    return len(todo), len(paths) - len(todo)


def write(path: Path, out: Path) -> None:
    """Every logged scalar at its step, and the result's metrics as the summary."""
    result = read_result(path)
    run = Run(result["question"], result["recipe"], result["arm"], result["seed"], result["settings"], out)
    logger = wandb_logger(run, result["config"])
    by_step: dict[int, dict[str, float]] = {}
    for metric, steps in read_metrics(path.parent / "metrics.csv").items():
        for step, value in steps.items():
            by_step.setdefault(step, {})[metric] = value
    for step in sorted(by_step):
        logger.log_metrics(by_step[step], step=step)
    logger.experiment.summary.update({**result["metrics"], "status": result["status"]})
    at = {"id": logger.experiment.id, "url": logger.experiment.url, "offline": logger.experiment.settings._offline}
    logger.experiment.finish()
    (path.parent / MARK).write_text(json.dumps(at) + "\n")
