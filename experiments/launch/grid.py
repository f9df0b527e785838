"""From a question to command lines: exactly what W&B's agent would run."""

import sys
from pathlib import Path

from experiments.record.identity import Run, identify

from .question import Question, Value


def arguments(question: Question, arm: dict[str, Value], seed: int) -> list[str]:
    """What follows the interpreter in the agent's command: ${args} is `--key=value` with Python's str()."""
    return fill(question.command, [f"--{key}={value}" for key, value in question.parameters(arm, seed).items()])


def command(question: Question, arm: dict[str, Value], seed: int) -> list[str]:
    """The whole command line, rendered by wandb's `create_sweep_command` and `create_sweep_command_args`."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    chosen = {key: {"value": value} for key, value in question.parameters(arm, seed).items()}
    flags = create_sweep_command_args({"args": chosen})["args"]
    return [sys.executable, *fill(create_sweep_command(list(question.command)), flags)]


def fill(tokens: list[str] | tuple[str, ...], flags: list[str]) -> list[str]:
    """The macros exchanged; the interpreter is put in front by `command`."""
    macros = {"${args}": flags, "${env}": [], "${interpreter}": []}
    return [word for token in tokens for word in macros.get(token, [token])]


def run_of(question: Question, arm: dict[str, Value], seed: int, out: Path) -> Run:
    """The run's identity, from the arguments that it will get."""
    return identify(arguments(question, arm, seed), out)
