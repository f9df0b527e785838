"""What comes after pre-training: each task is fine-tuned from the checkpoint that was chosen, in the same run.

A task is a recipe like any other, and its run a run like any other, in a folder below its parent's: it resumes, and is
not run again. Its test metrics stand in the parent's result under the task's name (`toy_roles/f1`); downstream/average
is the mean over the tasks of the metric that chose their checkpoints, on the test split, as GLUE's.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import torch

from experiments.launch.keys import check_keys
from experiments.launch.question import BadInput
from experiments.record.identity import Run, identify, merged, recipe_name
from experiments.record.result import finished, read_result

if TYPE_CHECKING:
    from experiments.train import AblationCLI


@dataclass(frozen=True, kw_only=True)
class Downstream:
    """The tasks after pre-training.

    Args:
        recipes: of `experiments/recipes/tasks/`, or files of your own.
        overlay: a recipe that is laid over each of them.
        tasks: all, or none: pre-training alone.
    """

    recipes: list[str] = field(default_factory=list)
    overlay: str | None = None
    tasks: Literal["all", "none"] = "all"


@dataclass(frozen=True)
class Task:
    """One task: its name in the metrics, and the command line of its run without checkpoint and seed."""

    name: str
    arguments: list[str]

    def on(self, checkpoint: Path, seed: int) -> list[str]:
        return ["fit", *self.arguments, f"--model.checkpoint={checkpoint}", f"--seed_everything={seed}"]


def tasks_of(page: Downstream) -> list[Task]:
    """The tasks, their keys checked.

    Raises:
        BadInput: an unknown file, key or word, or two tasks of one name.
    """
    if page.tasks == "none":
        return []
    overlay = ["--config", page.overlay] if page.overlay else []
    tasks = [Task(recipe_name([recipe]).split("-")[-1], ["--config", recipe, *overlay]) for recipe in page.recipes]
    for task in tasks:
        check_keys(merged(task.arguments))
    called = [task.name for task in tasks]
    if twice := [name for name in called if called.count(name) > 1]:
        raise BadInput(f"downstream.recipes: two tasks are called {twice[0]}: their scores would stand in one place")
    return tasks


def fine_tune(
    tasks: list[Task], run: Run, checkpoint: Path, carry_out: Callable[[Run, list[str]], Path]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Runs what is missing, one task after the other, and gathers the test metrics and what each run was.

    Args:
        carry_out: trains one run and leaves its result.
    """
    metrics, runs, main = {}, {}, []
    for task in tasks:
        arguments = task.on(checkpoint, run.seed)
        below = identify(arguments, out=run.folder / "downstream")
        if not finished(below.folder):
            carry_out(below, arguments)
        result = read_result(below.folder / "result.json")
        tested = {k.removeprefix("test/"): v for k, v in result["metrics"].items() if k.startswith("test/")}
        metrics |= {f"{task.name}/{name}": value for name, value in tested.items()}
        main.append(tested.get(result["selection"]["metric"].removeprefix("valid/"), math.nan))
        runs[task.name] = {key: result[key] for key in ("status", "key", "seconds", "data_fingerprint")}
    if not any(map(math.isnan, main)):  # a task that diverged has no score
        metrics["downstream/average"] = fmean(main)
    return metrics, runs


def untrained(cli: "AblationCLI", path: Path) -> Path:
    """A checkpoint of the model as it was built, for binding the tasks before anything is trained."""
    parts = {"hyper_parameters": dict(cli.model.hparams), "state_dict": cli.model.state_dict()}
    torch.save(parts | {"data": cli.datamodule.state_dict()}, path)
    return path
