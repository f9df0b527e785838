"""Results that were made without W&B, brought to it: one W&B run for each, written from the run's own files."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.progress import track

from experiments.launch.question import BadInput

from .identity import Run
from .metrics_file import read_metrics
from .result import read_result
from .wandb_run import logged_in, wandb_logger

MARK = "synced.json"


def results_below(out: Path, questions: Iterable[str]) -> list[Path]:
    """The result files of these questions."""
    return [path for name in questions for path in sorted((out / name).glob("*/*/seed-*/result.json"))]


def known_to_wandb(folder: Path, ended: str) -> bool:
    """This very result was brought there before, or logged there while it ran (an offline run's folder is called
    offline-run-…). What was written while W&B is off line counts while it is."""
    if (folder / MARK).exists():
        mark = json.loads((folder / MARK).read_text())
        return mark["ended"] == ended and (not mark["offline"] or offline())
    return any((folder / "wandb").glob("run-*"))


def offline() -> bool:
    return os.environ.get("WANDB_MODE") == "offline"


def sync(out: Path, questions: Iterable[str]) -> tuple[int, int]:
    """Writes what W&B does not have yet: answers, not failed attempts. A run's id is its key, and its rows have the
    run's own steps: written twice it would be one run still.

    Returns:
        (runs written, runs that were there already).

    Raises:
        BadInput: nobody is logged in.
    """
    if not (logged_in() or offline()):
        raise BadInput("not logged in to W&B: `wandb login`, or WANDB_API_KEY (WANDB_MODE=offline writes offline runs)")
    results = {path: read_result(path) for path in results_below(out, questions)}
    answers = {path: result for path, result in results.items() if result["status"] != "failed"}
    todo = {path: result for path, result in answers.items() if not known_to_wandb(path.parent, result["ended"])}
    for path, result in track(todo.items(), "to W&B", transient=True):
        write(path, result, out)
    return len(todo), len(answers) - len(todo)


def write(path: Path, result: dict[str, Any], out: Path) -> None:
    """Every logged scalar at its step, and the result's metrics as the summary."""
    run = Run(result["question"], result["recipe"], result["arm"], result["seed"], result["settings"], out)
    logger = wandb_logger(run, result["config"])
    by_step: dict[int, dict[str, float]] = {}
    for metric, steps in read_metrics(path.parent / "metrics.csv").items():
        for step, value in steps.items():
            by_step.setdefault(step, {})[metric] = value
    for step in sorted(by_step):
        logger.experiment.log({**by_step[step], "trainer/global_step": step}, step=step)
    logger.experiment.summary.update({**result["metrics"], "status": result["status"]})
    at = {"id": logger.experiment.id, "url": logger.experiment.url, "offline": offline(), "ended": result["ended"]}
    logger.experiment.finish()
    (path.parent / MARK).write_text(json.dumps(at) + "\n")
