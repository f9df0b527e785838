"""Binds a question to the real parser, model and data before anything runs."""

import logging
import os
import warnings

from experiments.record.identity import merged

from .grid import arguments
from .keys import check_keys
from .question import SEED, BadInput, Question, line_of


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
            check_arguments(arguments(question, arm, question.seeds[0]))
        except BadInput as error:
            raise BadInput(f"{where(question, str(error))}: {error}") from error
    return len(arms)


def check_arguments(tokens: list[str]) -> None:
    """One command line, after `python`."""
    flags = tokens[tokens.index("fit") + 1 :]
    check_keys(merged(flags))
    from experiments.train import built

    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    for talker in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(talker).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built(None, ["fit", *flags])


def where(question: Question, message: str) -> str:
    """file:line of the parameter that the message speaks of, else of the recipe."""
    text = question.path.read_text()
    for key in (*question.varied, *question.fixed, SEED):
        if key in message:
            return f"{question.path}:{line_of(text, key)}"
    return f"{question.path}, recipe {question.command[question.command.index('--config') + 1]}"
