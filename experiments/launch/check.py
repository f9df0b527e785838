"""Binds a question to the real parser, model and data before anything runs."""

import contextlib
import io
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
    from experiments.train import AblationCLI

    said = io.StringIO()
    logging.getLogger("lightning").setLevel(logging.ERROR)
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cli = AblationCLI(None, ["fit", *flags])
            cli.datamodule.setup("fit")
            cli.model.check_data(cli.datamodule)
        except SystemExit:
            raise BadInput(said.getvalue().strip().splitlines()[-1]) from None
        except (ValueError, FileNotFoundError) as error:
            raise BadInput(str(error)) from error


def where(question: Question, message: str) -> str:
    """file:line of the parameter that the message speaks of, else of the recipe."""
    text = question.path.read_text()
    for key in (*question.varied, *question.fixed, SEED):
        if key in message:
            return f"{question.path}:{line_of(text, key)}"
    return f"{question.path}, recipe {question.command[question.command.index('--config') + 1]}"
