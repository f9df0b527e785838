"""Asks questions on this machine: what is missing is run, what is finished is not."""

import sys
from pathlib import Path

from experiments.record.identity import Run
from experiments.record.result import finished, lock

from .grid import command, run_of
from .pool import Job, Pool
from .progress import Display
from .question import Question


def runs(question: Question, out: Path) -> list[tuple[dict, int, Run]]:
    return [(arm, seed, run_of(question, arm, seed, out)) for arm, seed in question.runs()]


def siblings_last(missing: list[tuple[dict, int, Run]]) -> list[tuple[dict, int, Run]]:
    """One run of each training first: the others are tested from its checkpoint and would only wait."""
    first, later = {}, []
    for job in missing:
        if first.setdefault(job[2].training, job) is not job:
            later.append(job)
    return [*first.values(), *later]


def ask(question: Question, out: Path, jobs: int) -> list[Job]:
    """Runs what has no result yet, and returns those jobs; an empty list where there was nothing to do.

    Raises:
        BadInput: by `check`, or where another `ablate run` works in the same folder.
        KeyboardInterrupt: after the running ones were stopped; asked again, they go on from their checkpoints.
    """
    wanted = runs(question, out)
    missing = [(arm, seed, run) for arm, seed, run in wanted if not finished(run.folder)]
    if not missing:
        return []
    with lock(out / question.name, "an `ablate run`"):
        from .check import check

        print(f"{question.name}: {len(missing)} of {len(wanted)} runs to do; checking the arms", file=sys.stderr)
        check(question)
        waiting = [Job(run, command(question, arm, seed)) for arm, seed, run in siblings_last(missing)]
        pool = Pool(waiting, jobs)
        with Display(len(waiting)) as display:
            for state in pool.states():
                display.show(state)
            display.show(pool)
        return pool.ended
