"""The local engine: a pool of processes on this machine, each one run, with the arguments W&B's agent would pass."""

import json
import os
import shlex
import signal
import subprocess
import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.record.identity import Run, merged
from experiments.record.result import finished, read_result

from .allocator import allocator
from .nursery import PROGRAM, Forked, Nursery
from .processes import die_with_parent
from .question import BadInput

PATIENCE = 10  # seconds between asking a run to stop and killing it


@dataclass
class Job:
    """One run and its process."""

    run: Run
    command: list[str]
    process: subprocess.Popen | Forked | None = None
    slot: int = 0
    started: float = 0.0
    outcome: str = "waiting"
    reason: str = ""

    @property
    def log(self) -> Path:
        return self.run.folder / "log.txt"

    def progress(self) -> dict[str, Any]:
        """What the run last said of itself: step, total, stage."""
        try:
            said = json.loads((self.run.folder / "progress.json").read_text())
        except (OSError, json.JSONDecodeError):
            return {}
        return said if said.get("time", 0) >= self.started else {}


class Engine:
    """What runs jobs: each is in one of three lists, and `states()` yields whenever that may have changed."""

    def __init__(self, jobs: list[Job]) -> None:
        self.waiting, self.running, self.ended = list(jobs), [], []

    def prepare(self) -> None:
        """What may be done while the arms are still being checked."""

    def stop(self) -> None:
        """Undoes it where nothing is run after all."""

    @abstractmethod
    def states(self) -> Iterator["Engine"]:
        """Until all have ended."""

    @abstractmethod
    def how(self) -> str:
        """How the jobs would be started, in words or as a script."""

    def close(self, job: Job, reason: str, outcome: str = "failed") -> None:
        """Reads how the run ended: from its result if it left one, else as and for the reason that is given."""
        job.outcome, job.reason = outcome, reason
        if finished(job.run.folder):
            result = read_result(job.run.folder / "result.json")
            job.outcome, job.reason = result["status"], result.get("reason", "")


class Pool(Engine):
    """Runs jobs on this machine.

    Args:
        jobs: runs at a time.
        gpus: those that may be used; each run has `gpus_per_run` of its own (unless told, as many as its devices, or
            its share), and waits until so many are free.

    Raises:
        BadInput: fewer GPUs than one run needs, or other than its devices.
    """

    def __init__(
        self, waiting: list[Job], jobs: int, gpus: list[str] | None = None, gpus_per_run: int | None = None
    ) -> None:
        super().__init__(waiting)
        self.gpus = visible_gpus() if gpus is None else gpus
        devices = devices_of(waiting[0].command)[0] if waiting else 1
        ranks = devices if isinstance(devices, int) else 1
        wanted = gpus_per_run or (ranks if self.gpus and ranks > 1 else None)
        if wanted and wanted > len(self.gpus):
            raise BadInput(
                f"{wanted} GPUs for each run, but {len(self.gpus)} are visible here (trainer.devices {devices})"
            )
        if gpus_per_run and ranks > 1 and gpus_per_run != ranks:
            raise BadInput(f"--gpus-per-run {gpus_per_run}, but a run uses trainer.devices {ranks}")
        self.gpus_per_run = wanted or max(1, len(self.gpus) // jobs)
        self.jobs = min(jobs, len(self.gpus) // wanted) if wanted else jobs
        self.nursery: Nursery | None = None
        self.threads = threads_wanted() or max(1, (os.cpu_count() or 1) // (self.jobs * ranks))

    def prepare(self) -> None:
        """Starts what runs are forked from, where there is no GPU and one of them asks for this project's program."""
        ours = [job for job in self.waiting if job.command[1:3] == PROGRAM]
        if ours and not self.gpus:
            run = ours[0].run
            self.nursery = Nursery(run.out / run.question, environment(str(run.out), self.threads))

    def states(self, every: float = 0.3) -> Iterator["Pool"]:
        """Until all have ended. Leaving it early, by an exception too, stops what is running."""
        try:
            while self.waiting or self.running:
                for job in [j for j in self.running if j.process.poll() is not None]:
                    kill(job, signal.SIGKILL)  # ranks and workers that a killed process has left behind
                    self.running.remove(job)
                    self.ended.append(job)
                    self.close(job, why(job), "killed" if job.process.returncode < 0 else "failed")
                while self.waiting and len(self.running) < self.jobs:
                    self.start(self.waiting.pop(0))
                yield self
                time.sleep(every)
        finally:
            self.stop()

    def how(self) -> str:
        gpus = f", {self.gpus_per_run} of the GPUs {','.join(self.gpus)} for each" if self.gpus else ""
        memory = "; glibc is told to keep their memory" if allocator() else ""
        return f"{self.jobs} at a time on this machine, {self.threads} threads for each{gpus}{memory}"

    def start(self, job: Job) -> None:
        job.slot = min(set(range(self.jobs)) - {j.slot for j in self.running})
        job.run.folder.mkdir(parents=True, exist_ok=True)
        job.started, job.outcome = time.time(), "running"
        with job.log.open("a") as log:
            print(f"$ {shlex.join(job.command)}", file=log, flush=True)
            if self.nursery and job.command[1:3] == PROGRAM:
                job.process = self.nursery.start(job.command, self.environment(job), job.log)
            else:
                job.process = subprocess.Popen(
                    job.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    env=self.environment(job), start_new_session=True, preexec_fn=die_with_parent,
                )  # fmt: skip
        self.running.append(job)

    def environment(self, job: Job) -> dict[str, str]:
        """Threads that do not fight, the GPUs shared out."""
        own = environment(str(job.run.out), self.threads)
        if self.gpus:
            first = job.slot * self.gpus_per_run % len(self.gpus)
            own["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[first : first + self.gpus_per_run])
        return own

    def stop(self) -> None:
        """Asks what is running to stop, then makes it."""
        for job in self.running:
            kill(job, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        for job in self.running:
            try:
                job.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                kill(job, signal.SIGKILL)
                job.process.wait()
            job.outcome = "interrupted"
        self.ended += self.running
        self.running = []
        if self.nursery:
            self.nursery.close()


def why(job: Job) -> str:
    """Of a process that has ended without an answer: the signal that killed it, or its log's last word."""
    status = job.process.returncode
    if status == -signal.SIGKILL:
        return "SIGKILL, as by the system when memory is short: fewer --jobs, or a smaller batch"
    return signal.Signals(-status).name if status < 0 else last_line(job.log)


def threads_wanted() -> int:
    """OMP_NUM_THREADS, for instance of somebody with two launchers on one machine; 0 where it says nothing."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdecimal() else 0


def environment(out: str, threads: int) -> dict[str, str]:
    """This process's, with what every run needs whatever engine starts it."""
    own = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "ABLATE_OUT": out}
    own |= {"TOKENIZERS_PARALLELISM": "false", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **allocator(), **own}


def kill(job: Job, how: signal.Signals) -> None:
    """The run and all its children: loader workers, W&B's helper."""
    try:
        if isinstance(job.process, Forked):
            job.process.signal(how)
        else:
            os.killpg(job.process.pid, how)
    except ProcessLookupError:
        pass


def visible_gpus() -> list[str]:
    """The GPUs that runs may use, by CUDA_VISIBLE_DEVICES or nvidia-smi; no torch, so that the launcher stays light."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [gpu for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if gpu]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(i) for i, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU ")]


def devices_of(command: list[str]) -> tuple[Any, Any]:
    """(trainer.devices, trainer.num_nodes) of a run, by its own settings; (1, 1) where they are not given."""
    if "fit" not in command:
        return 1, 1
    settings = merged(command[command.index("fit") + 1 :])
    return settings.get("trainer.devices", 1), settings.get("trainer.num_nodes", 1)


def last_line(path: Path) -> str:
    """What a log says last, an error before all, since the run was last started."""
    latest = path.read_text(errors="replace").split("\n$ ")[-1]
    lines = [line.strip() for line in latest.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error:", "Error:")) or "Error: " in line]
    return (errors or lines or [""])[-1]
