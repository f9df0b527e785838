"""The SLURM engine: one job array a question, one task a run, submitted by submitit.

A run goes on from its own last checkpoint whenever its program starts again, so a preempted, requeued or timed-out task
needs nothing but to be started again. The launcher may die: asked again it finds the tasks that still live.
"""

import getpass
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from experiments.record.identity import merged
from experiments.record.result import finished

from .pool import Engine, Job, last_line
from .question import BadInput, canonical

EVERY = 2.0  # seconds between two looks at the queue
RESTARTS = 1000  # preemptions and time-outs that one task may survive


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
    return Cluster(**{key: str(value) if known[key] is str else value for key, value in given.items()})


@dataclass
class Task:
    """What a task of the array does: the run's own command, once a rank.

    Attributes:
        command: interpreter and arguments.
        out: the results folder.
    """

    command: list[str]
    folder: str
    out: str
    threads: int

    def __call__(self) -> None:
        own = {"ABLATE_OUT": self.out, "OMP_NUM_THREADS": str(self.threads), "MKL_NUM_THREADS": str(self.threads)}
        own |= {"TOKENIZERS_PARALLELISM": "false", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "PYTHONUNBUFFERED": "1"}
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        log_path = Path(self.folder) / "log.txt"
        with log_path.open("a") as log:
            print(f"$ {' '.join(self.command)}", file=log, flush=True)
            process = subprocess.run(
                self.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**os.environ, **own}
            )
        if process.returncode:
            raise RuntimeError(f"exit status {process.returncode}: {last_line(log_path)} (log: {log_path})")

    def checkpoint(self):
        """Before a preemption or a time-out: the same again; what has been trained stands in the last checkpoint."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


class Slurm(Engine):
    """Submits what is not in the queue already, and watches."""

    def __init__(self, jobs: list[Job], cluster: Cluster, folder: Path) -> None:
        super().__init__(jobs)
        self.cluster, self.folder = cluster, folder
        self.book = folder / "submitted.json"  # run key → task of an array
        self.ids: dict[str, str] = {}

    def executor(self):
        """submitit's, with one task for each device.

        Raises:
            BadInput: where devices, nodes and GPUs cannot be brought together.
        """
        import submitit

        devices, nodes = shape(self.waiting[0].command, self.cluster)
        asked = asdict(self.cluster)
        words = {key: asked[key] for key in ("partition", "account", "qos", "constraint") if asked[key]}
        words |= {"mem": self.cluster.memory} if self.cluster.memory else {}
        words |= {"gpus_per_node": self.cluster.gpus} if self.cluster.gpus else {}
        executor = submitit.SlurmExecutor(self.folder, max_num_timeout=RESTARTS)
        executor.update_parameters(
            job_name=f"ablate-{self.folder.parent.name}", time=self.cluster.time, nodes=nodes, ntasks_per_node=devices,
            cpus_per_task=self.cluster.cpus, array_parallelism=self.cluster.at_once, signal_delay_s=self.cluster.grace,
            stderr_to_stdout=True, additional_parameters={"requeue": True}, **words,
        )  # fmt: skip
        return executor

    def how(self) -> str:
        """The sbatch script, without submitting anything."""
        from submitit.slurm.slurm import _make_sbatch_string as submitit_script

        executor = self.executor()
        parameters = executor.parameters | {"map_count": len(self.waiting)}
        return submitit_script(executor._submitit_command_str, self.folder, **parameters)

    def submit(self) -> None:
        known = json.loads(self.book.read_text()) if self.book.exists() else {}
        alive = queue()
        for job in list(self.waiting):
            if (task := known.get(job.run.key)) in alive:
                self.ids[job.run.key] = task
        new = [job for job in self.waiting if job.run.key not in self.ids]
        if self.ids:
            print(f"{len(self.ids)} runs are in the queue already: {', '.join(sorted(set(self.ids.values())))}")
        if not new:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        tasks = [Task(job.command, str(job.run.folder), str(job.run.out), self.cluster.cpus) for job in new]
        submitted = self.executor().map_array(Task.__call__, tasks)
        self.ids |= {job.run.key: task.job_id for job, task in zip(new, submitted, strict=True)}
        draft = self.book.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({**known, **self.ids}, indent=1))
        draft.replace(self.book)
        print(f"submitted {len(new)} runs as job {submitted[0].job_id.split('_')[0]}")

    def states(self, every: float = EVERY) -> Iterator["Slurm"]:
        """Until no task is left in the queue. Leaving it early leaves the queue alone."""
        self.submit()
        while self.waiting or self.running:
            alive = queue()
            for job in [*self.waiting, *self.running]:
                state = alive.get(self.ids[job.run.key], "GONE")
                if finished(job.run.folder):
                    self.move(job, "ended")
                    self.close(job, "")
                elif state == "GONE":
                    self.move(job, "ended")
                    self.close(job, f"no longer in the queue: {last_line(job.log) if job.log.exists() else 'no log'}")
                elif state == "RUNNING" and job not in self.running:
                    job.started, job.outcome = time.time(), "running"
                    self.move(job, "running")
                elif state != "RUNNING" and job in self.running:
                    job.outcome = "waiting"
                    self.move(job, "waiting")
            yield self
            if self.waiting or self.running:
                time.sleep(every)

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
    settings = merged(command[command.index("fit") + 1 :])
    devices, nodes = settings.get("trainer.devices", 1), settings.get("trainer.num_nodes", 1)
    if not isinstance(devices, int) or not isinstance(nodes, int):
        raise BadInput(f"trainer.devices is {devices!r}: give a number (--set trainer.devices=N), to be reserved")
    if cluster.gpus and cluster.gpus != devices:
        raise BadInput(
            f"--slurm gpus={cluster.gpus}, but a run uses trainer.devices {devices} on each of {nodes} nodes, one task "
            f"each: give --slurm gpus={devices} or --set trainer.devices={cluster.gpus}"
        )
    return devices, nodes


def queue() -> dict[str, str]:
    """task → state, of all that this user has in the queue. By squeue: it stands where accounting (sacct) does not."""
    try:
        command = ["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i|%T"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise BadInput(f"--engine slurm: squeue does not answer: {str(said).strip()}") from error
    return dict(line.strip().split("|") for line in listed.splitlines() if "|" in line)
