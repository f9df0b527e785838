"""Binds a question to the real parser, model and data before anything runs."""

import logging
import os
import warnings
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
    arms = question.arms()
    for arm in arms:
        try:
            cli = check_arguments(arguments(question, arm, question.seeds[0]))
            known = [name for name in cli.model.metric_names(cli.datamodule) if not name.startswith("valid/")]
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


def where(question: Question, message: str) -> str:
    """file:line of the parameter that the message speaks of, else of the recipe."""
    text = question.path.read_text()
    for key in (*question.varied, *question.fixed, SEED, "metric.name"):
        if key in message:
            return f"{question.path}:{line_of(text, key.split('.name')[0])}"
    return f"{question.path}, recipe {question.command[question.command.index('--config') + 1]}"
