"""The SLURM engine: one job array a question, one task a run, submitted by submitit.

A run goes on from its own last checkpoint whenever its program starts again, so a preempted, requeued or timed-out task
needs nothing but to be started again. The launcher may die: asked again it finds the tasks that still live.
"""

import getpass
import json
import os
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from experiments.record.result import finished

from .pool import Engine, Job, devices_of, environment, last_line
from .question import BadInput, canonical

EVERY = 2.0  # seconds between two looks at the queue
PATIENCE = 900  # seconds for which squeue may fail to answer
LAG = 30  # seconds for which a task may be in no list, or its result not yet be seen on a shared disk
RESTARTS = 1000  # preemptions and time-outs that one task may survive
IN_VAIN = 3  # of them, one after the other, without a new checkpoint
LARGEST = 1000  # tasks of an array (Slurm's MaxArraySize is 1001 unless changed)
OVER = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What every run of a question asks of the cluster.

    Args:
        partition, account, qos, constraint: as sbatch takes them; left out where empty.
        time: minutes; a run that needs longer goes on in a second allocation.
        gpus: of each node.
        cpus: of each task; the program computes with as many threads.
        memory: of each node, "8G" for instance.
        at_once: tasks of the array that may run at one time.
        grace: seconds before the end of the time at which a task is warned, and put back into the queue.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    time: int = 60
    gpus: int = 0
    cpus: int = 1
    memory: str = ""
    at_once: int = 256
    grace: int = 90


def cluster_of(options: list[str]) -> Cluster:
    """From `--slurm KEY=VALUE` and `--slurm FILE.yaml`, later ones winning.

    Raises:
        BadInput: no such file, or an unknown key, naming the known ones; a value of another type.
    """
    given: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if equals:
            given[key] = canonical(value)
            continue
        if not Path(option).is_file():
            raise BadInput(f"--slurm {option}: neither KEY=VALUE nor a YAML file")
        given |= yaml.safe_load(Path(option).read_text()) or {}
    known = {field.name: field.type for field in fields(Cluster)}
    for key, value in given.items():
        if key not in known:
            raise BadInput(f"--slurm {key}: unknown; it takes {', '.join(known)}")
        if known[key] is int and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise BadInput(f"--slurm {key}={value}: needs a whole number")
    cluster = Cluster(**{key: str(value) if known[key] is str else value for key, value in given.items()})
    if cluster.time * 60 <= cluster.grace:
        raise BadInput(f"--slurm time={cluster.time} minutes must be longer than grace={cluster.grace} seconds")
    return cluster


@dataclass
class Task:
    """What a task of the array does: the run's own command, once a rank.

    Attributes:
        command: interpreter and arguments.
        out: the results folder.
        in_vain: allocations one after the other that left no new checkpoint.
    """

    command: list[str]
    folder: str
    out: str
    threads: int
    in_vain: int = 0
    seen: float = 0.0

    def __call__(self) -> None:
        self.seen = self.last_checkpoint()
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        log_path = Path(self.folder) / "log.txt"
        with log_path.open("a") as log:
            print(f"$ {shlex.join(self.command)}", file=log, flush=True)
            process = subprocess.run(
                self.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=environment(self.out, self.threads),
            )  # fmt: skip
        if process.returncode:
            raise RuntimeError(f"exit status {process.returncode}: {last_line(log_path)} (log: {log_path})")

    def last_checkpoint(self) -> float:
        path = Path(self.folder) / "checkpoints" / "last.ckpt"
        return path.stat().st_mtime if path.exists() else 0.0

    def checkpoint(self):
        """Before a preemption or a time-out: the same again; what has been trained stands in the last checkpoint."""
        import submitit

        self.in_vain = 0 if self.last_checkpoint() > self.seen else self.in_vain + 1
        if self.in_vain >= IN_VAIN:
            with (Path(self.folder) / "log.txt").open("a") as log:
                print(
                    f"error: no checkpoint in {IN_VAIN} allocations: raise --slurm time, or lower "
                    "trainer.val_check_interval, after which checkpoints are written", file=log,
                )  # fmt: skip
            return None
        return submitit.helpers.DelayedSubmission(self)


class Slurm(Engine):
    """Submits what is not in the queue already, and watches.

    A task is known by its array's name and its place in it, both written down before it is submitted: a launcher that
    dies in between submits nothing twice.
    """

    def __init__(self, jobs: list[Job], cluster: Cluster, folder: Path) -> None:
        super().__init__(jobs)
        self.cluster, self.folder = cluster, folder
        self.book = folder / "submitted.json"  # run key → task, as NAME_PLACE
        self.tasks: dict[str, str] = {}
        self.gone: dict[str, float] = {}  # run key → since when its task is in no list

    def parameters(self, name: str) -> dict[str, Any]:
        """sbatch's, with one task for each device.

        Raises:
            BadInput: where devices, nodes and GPUs cannot be brought together.
        """
        devices, nodes = shape(self.waiting[0].command, self.cluster)
        asked = asdict(self.cluster)
        words = {key: asked[key] for key in ("partition", "account", "qos", "constraint") if asked[key]}
        words |= {"mem": self.cluster.memory} if self.cluster.memory else {}
        words |= {"gpus_per_node": self.cluster.gpus} if self.cluster.gpus else {}
        return {
            "job_name": name, "time": self.cluster.time, "nodes": nodes, "ntasks_per_node": devices,
            "cpus_per_task": self.cluster.cpus, "array_parallelism": self.cluster.at_once,
            "signal_delay_s": self.cluster.grace, "stderr_to_stdout": True, "additional_parameters": {"requeue": True},
            "setup": ["export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"],  # srun does not inherit it since 22.05
            **words,
        }  # fmt: skip

    def how(self) -> str:
        """The sbatch script, without submitting anything."""
        from submitit.slurm.slurm import _make_sbatch_string as submitit_script

        program = shlex.join([sys.executable, "-u", "-m", "submitit.core._submit", str(self.folder)])
        count = min(len(self.waiting), LARGEST)
        return submitit_script(program, self.folder, map_count=count, **self.parameters(self.new_name()))

    def new_name(self) -> str:
        return f"ablate-{self.folder.parent.name}-{uuid.uuid4().hex[:8]}"

    def submit(self) -> None:
        known = json.loads(self.book.read_text()) if self.book.exists() else {}
        alive = settled()
        self.tasks = {job.run.key: known[job.run.key] for job in self.waiting if known.get(job.run.key) in alive}
        if self.tasks:
            print(f"{len(self.tasks)} runs are in the queue already: {', '.join(sorted(set(self.tasks.values())))}")
        new = [job for job in self.waiting if job.run.key not in self.tasks]
        for start in range(0, len(new), LARGEST):
            self.submit_array(new[start : start + LARGEST], known)

    def submit_array(self, jobs: list[Job], known: dict[str, str]) -> None:
        """
        Raises:
            BadInput: what sbatch refuses, in its words.
        """
        import submitit

        self.folder.mkdir(parents=True, exist_ok=True)
        name = self.new_name()
        own = {job.run.key: f"{name}_{place}" for place, job in enumerate(jobs)}
        self.tasks |= own
        known |= own
        draft = self.book.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(known, indent=1))
        draft.replace(self.book)
        tasks = [Task(job.command, str(job.run.folder), str(job.run.out), self.cluster.cpus) for job in jobs]
        try:
            executor = submitit.SlurmExecutor(self.folder, max_num_timeout=RESTARTS)
            executor.update_parameters(**self.parameters(name))
            submitted = executor.submit_array(tasks)
        except (RuntimeError, submitit.core.utils.FailedJobError) as error:
            raise BadInput(f"--engine slurm: {error}") from error
        print(f"submitted {len(jobs)} runs as job {submitted[0].job_id.split('_')[0]}")

    def states(self, every: float = EVERY) -> Iterator["Slurm"]:
        """Until no task is left in the queue. Leaving it early leaves the queue alone."""
        self.submit()
        answered = time.monotonic()
        while self.waiting or self.running:
            try:
                alive = queue()
                answered = time.monotonic()
            except BadInput:
                if time.monotonic() - answered > PATIENCE:
                    raise
                alive = None
            for job in [*self.waiting, *self.running]:
                self.look_at(job, alive)
            yield self
            if self.waiting or self.running:
                time.sleep(every)

    def look_at(self, job: Job, alive: dict[str, str] | None) -> None:
        """Moves the job where it belongs; `alive` is None where squeue did not answer."""
        key = job.run.key
        if finished(job.run.folder):
            self.move(job, "ended")
            self.close(job, "")
        elif alive is None:
            return
        elif self.tasks[key] not in alive:
            if time.monotonic() - self.gone.setdefault(key, time.monotonic()) > LAG:
                self.move(job, "ended")
                self.close(job, f"no longer in the queue: {last_line(job.log) if job.log.exists() else 'no log'}")
        else:
            self.gone.pop(key, None)
            runs = alive[self.tasks[key]] == "RUNNING"
            if runs and job not in self.running:
                job.started, job.outcome = time.time(), "running"
                self.move(job, "running")
            elif not runs and job in self.running:
                job.outcome = "waiting"
                self.move(job, "waiting")

    def move(self, job: Job, where: str) -> None:
        for name in ("waiting", "running"):
            if job in getattr(self, name):
                getattr(self, name).remove(job)
        getattr(self, where).append(job)


def shape(command: list[str], cluster: Cluster) -> tuple[int, int]:
    """(devices, nodes) of one run, by its own settings.

    Raises:
        BadInput: `devices: auto`, which a cluster cannot reserve, or GPUs other than the devices.
    """
    devices, nodes = devices_of(command)
    if not isinstance(devices, int) or not isinstance(nodes, int):
        raise BadInput(f"trainer.devices is {devices!r}: give a number (--set trainer.devices=N), to be reserved")
    if cluster.gpus and cluster.gpus != devices:
        raise BadInput(
            f"--slurm gpus={cluster.gpus}, but a run uses trainer.devices {devices} on each of {nodes} nodes, one task "
            f"each: give --slurm gpus={devices} or --set trainer.devices={cluster.gpus}"
        )
    return devices, nodes


def settled(seconds: float = 60) -> dict[str, str]:
    """The queue when none of ours is just ending: such a task will be gone, or will be put back."""
    until = time.monotonic() + seconds
    while "COMPLETING" in (alive := queue()).values() and time.monotonic() < until:
        time.sleep(1)
    return alive


def queue() -> dict[str, str]:
    """NAME_PLACE → state, of all that this user has in the queue and that may still run. By squeue: it stands where
    accounting (sacct) does not."""
    try:
        command = [
            "squeue",
            "--noheader",
            "--array",
            "--states=all",
            "--user",
            getpass.getuser(),
            "--format",
            "%i|%T|%j",
        ]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise BadInput(f"--engine slurm: squeue does not answer: {str(said).strip()}") from error
    rows = [line.strip().split("|") for line in listed.splitlines() if line.count("|") == 2]
    return {f"{name}_{task.partition('_')[2]}": state for task, state, name in rows if state not in OVER}
