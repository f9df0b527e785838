"""Where runs are run: on this machine or on a cluster."""

import os
from collections.abc import Callable
from pathlib import Path

from .pool import Engine, Job, Pool, visible_gpus
from .question import BadInput
from .slurm import Slurm, cluster_of

Start = Callable[[list[Job], Path], Engine]


def engine_of(engine: str, jobs: int | None, gpus_per_run: int | None, slurm: list[str]) -> Start:
    """From jobs and the question's folder to what runs them.

    Raises:
        BadInput: an unknown engine, or options of the other one.
    """
    if engine not in ("local", "slurm"):
        raise BadInput(f"--engine {engine}: known are local, slurm")
    of_the_other = {"jobs": jobs, "gpus-per-run": gpus_per_run} if engine == "slurm" else {"slurm": slurm}
    if wrong := [name for name, value in of_the_other.items() if value]:
        advice = "--slurm at_once=N and gpus=N" if engine == "slurm" else "--engine slurm"
        raise BadInput(f"--{wrong[0]} does not go with --engine {engine}: use {advice}")
    if engine == "slurm":
        cluster = cluster_of(slurm)
        return lambda waiting, folder: Slurm(waiting, cluster, folder / ".slurm")
    gpus = visible_gpus()
    at_once = jobs or len(gpus) or os.cpu_count() or 1
    return lambda waiting, folder: Pool(waiting, at_once, gpus, gpus_per_run)
