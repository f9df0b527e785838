"""Binds a question to the real parser, model and data before anything runs."""

import logging
import math
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.record.identity import arm_name, merged

from .grid import arguments
from .keys import check_keys
from .question import SEED, BadInput, Question, line_of

if TYPE_CHECKING:
    from datamodules.batching import TokenBudget
    from experiments.train import AblationCLI


LATER = ("model.optim.", "model.decoding.", "model.samples", "model.extra_length")  # no first loss depends on them


def check(question: Question) -> int:
    """Parses every arm's command line with the program's own parser and builds its model and data.

    Returns:
        How many arms were bound.

    Raises:
        BadInput: file and line, the key, and the known words.
    """
    arms, of_tasks, bound = question.arms(), [], []
    for arm in arms:
        try:
            cli = check_arguments(arguments(question, arm, question.seeds[0]))
            of_tasks = of_tasks or check_tasks(cli)  # those of the first arm that has any stand for all
            known = [n for n in cli.model.metric_names(cli.datamodule) if not n.startswith("valid/")] + of_tasks
            if question.metric not in known:
                raise BadInput(f"metric.name {question.metric!r} is not known; it takes {' | '.join(known)}")
            stratum = tuple(value for key, value in arm.items() if key != question.contrast)
            batches, data = cli.datamodule.batches("train"), cli.datamodule.fingerprint
            found = {"beginning": beginning(cli, batches), "data": data, "tokens": reads(cli, batches)}
            hold_against(bound, Bound(arm_name(arm), stratum, cli.flat, **found))
        except BadInput as error:
            raise BadInput(f"{where(question, str(error))}: {error}") from error
    return len(arms)


@dataclass(frozen=True)
class Bound:
    """An arm as it was built.

    Attributes:
        stratum: the values of its choices but the contrast: arms of one stratum are compared with one another.
        flat: its resolved configuration.
        beginning: its first loss and the norm of its first gradient, with dropout drawn alike.
        data: the fingerprint of what it reads.
        tokens: how many real tokens (or images) it trains on.
    """

    name: str
    stratum: tuple[Any, ...]
    flat: dict[str, Any]
    beginning: tuple[float, float]
    data: str
    tokens: float


def beginning(cli: "AblationCLI", batches: "TokenBudget") -> tuple[float, float]:
    import torch

    from experiments.record.outcome import few_examples
    from lit_modules.base import gradient_norm

    batch = few_examples(cli.datamodule, batches)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = cli.model.training_loss(batch).smoothed
    loss.backward()
    norm = float(gradient_norm(cli.model))
    cli.model.zero_grad()
    return float(loss.detach()), norm


def reads(cli: "AblationCLI", batches: "TokenBudget") -> float:
    """Tokens of the whole training: those of a mean batch of its first epoch, times the batches that its steps take."""
    trainer = cli.config[cli.subcommand].trainer
    an_epoch = sum(int(batches.lengths[batch].sum()) for batch in batches.batches())
    steps, epochs = trainer.max_steps, trainer.max_epochs
    by_steps = steps * trainer.accumulate_grad_batches * an_epoch / len(batches) if steps >= 0 else math.inf
    return min(by_steps, epochs * an_epoch if epochs is not None and epochs >= 0 else math.inf)


def hold_against(others: list[Bound], arm: Bound) -> None:
    """An arm that is another one under a second name is refused; what else should be known of the two is said.

    Raises:
        BadInput: naming both arms.
    """
    for other in others:
        differ = sorted(key for key in arm.flat.keys() | other.flat.keys() if arm.flat.get(key) != other.flat.get(key))
        if not differ:
            raise BadInput(f"the arms {other.name} and {arm.name} resolve to the same configuration")
        of_the_model = all(key.startswith("model.") and not key.startswith(LATER) for key in differ)
        if of_the_model and (other.beginning, other.data) == (arm.beginning, arm.data):
            say(f"{other.name} and {arm.name} begin alike: {', '.join(differ)} changes neither first loss nor gradient")
    baseline = next((other for other in others if other.stratum == arm.stratum), arm)
    if arm.data != baseline.data:
        say(f"{arm.name} reads other data than {baseline.name}")
    if abs(arm.tokens / baseline.tokens - 1) > 0.01:
        say(f"{arm.name} trains on {arm.tokens:,.0f} tokens, {baseline.name} on {baseline.tokens:,.0f}")
    others.append(arm)


def say(what: str) -> None:
    print(f"note: {what}", file=sys.stderr)


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
