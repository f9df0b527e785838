"""Asks questions on this machine: what is missing is run, what is finished is not."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from experiments.record.identity import Run
from experiments.record.result import finished, lock

from .grid import command, run_of
from .pool import Engine, Job
from .progress import Display
from .question import Question


def runs(question: Question, out: Path) -> list[tuple[dict, int, Run]]:
    return [(arm, seed, run_of(question, arm, seed, out)) for arm, seed in question.runs()]


def siblings_last(todo: list[tuple[dict, int, Run]]) -> list[tuple[dict, int, Run]]:
    """One run of each training first: the others are tested from its checkpoint and would only wait."""
    first, later = {}, []
    for job in todo:
        if first.setdefault(job[2].training, job) is not job:
            later.append(job)
    return [*first.values(), *later]


def dry(question: Question, out: Path, engine: Callable[[list[Job], Path], Engine]) -> None:
    """Prints what `ask` would start: the command of each run, and how the engine would start them."""
    waiting = [Job(run, command(question, arm, seed)) for arm, seed, run in siblings_last(missing(question, out))]
    for job in waiting:
        print(shlex.join(job.command))
    print(f"{question.name}: {len(waiting)} of {len(question.runs())} runs to do; `ablate check` tries their keys")
    if waiting:
        print(engine(waiting, out / question.name).how())


def missing(question: Question, out: Path) -> list[tuple[dict, int, Run]]:
    return [(arm, seed, run) for arm, seed, run in runs(question, out) if not finished(run.folder)]


def ask(question: Question, out: Path, engine: Callable[[list[Job], Path], Engine]) -> list[Job]:
    """Runs what has no result yet, and returns those jobs; an empty list where there was nothing to do.

    Args:
        engine: from the jobs and the question's folder to what runs them.

    Raises:
        BadInput: by `check`, or where another `ablate run` works in the same folder.
        KeyboardInterrupt: after the running ones were stopped; asked again, they go on from their checkpoints.
    """
    todo = missing(question, out)
    if not todo:
        return []
    with lock(out / question.name, "an `ablate run`"):
        from .check import check

        print(f"{question.name}: {len(todo)} of {len(question.runs())} runs to do; checking the arms", file=sys.stderr)
        waiting = [Job(run, command(question, arm, seed)) for arm, seed, run in siblings_last(todo)]
        runner = engine(waiting, out / question.name)
        runner.prepare()
        try:
            check(question)
        except BaseException:
            runner.stop()
            raise
        with Display(len(waiting)) as display:
            for state in runner.states():
                display.show(state)
            display.show(runner)
        return runner.ended
