"""Binds a question to the real parser, model and data before anything runs."""

import logging
import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.record.identity import merged

from .grid import arguments
from .keys import check_keys
from .question import SEED, BadInput, Question, line_of

if TYPE_CHECKING:
    from experiments.train import AblationCLI


def check(question: Question) -> int:
    """Parses every arm's command line with the program's own parser and builds its model and data.

    Returns:
        How many arms were bound.

    Raises:
        BadInput: file and line, the key, and the known words.
    """
    arms, of_tasks = question.arms(), []
    for arm in arms:
        try:
            cli = check_arguments(arguments(question, arm, question.seeds[0]))
            of_tasks = of_tasks or check_tasks(cli)  # those of the first arm that has any stand for all
            known = [n for n in cli.model.metric_names(cli.datamodule) if not n.startswith("valid/")] + of_tasks
            if question.metric not in known:
                raise BadInput(f"metric.name {question.metric!r} is not known; it takes {' | '.join(known)}")
        except BadInput as error:
            raise BadInput(f"{where(question, str(error))}: {error}") from error
    return len(arms)


def check_arguments(tokens: list[str]) -> "AblationCLI":
    """One command line, after `python`, bound to parser, model and data."""
    flags = tokens[tokens.index("fit") + 1 :]
    check_keys(merged(flags))
    from experiments.train import built

    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    for talker in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(talker).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return built(None, ["fit", *flags])


def check_tasks(cli: "AblationCLI") -> list[str]:
    """Binds every task after the pre-training to the model as it was built; the names of their metrics."""
    from experiments.downstream import Downstream, tasks_of, untrained

    page, known = cli.config[cli.subcommand].downstream, []
    tasks = tasks_of(Downstream(recipes=page.recipes, overlay=page.overlay, tasks=page.tasks))
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = untrained(cli, Path(folder) / "untrained.ckpt") if tasks else None
        for task in tasks:
            try:
                bound = check_arguments(task.on(checkpoint, seed=0))
            except BadInput as error:
                raise BadInput(f"task {task.name}: {error}") from error
            names = [name for name in bound.model.metric_names(bound.datamodule) if name.startswith("test/")]
            known += [f"{task.name}/{name.removeprefix('test/')}" for name in names]
    return [*known, "downstream/average"] if tasks else []


def where(question: Question, message: str) -> str:
    """file:line of the parameter that the message speaks of, else of the recipe."""
    text = question.path.read_text()
    for key in (*question.varied, *question.fixed, SEED, "metric.name"):
        if key in message:
            return f"{question.path}:{line_of(text, key.split('.name')[0])}"
    return f"{question.path}, recipe {question.command[question.command.index('--config') + 1]}"
