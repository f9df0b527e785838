"""A warm process that forks runs: several seconds of imports are paid once, not by every run.

    python -m experiments.launch.nursery FOLDER

reads a line of JSON for each run from its standard input, {"job", "command", "env", "log"}, and answers with
{"job", "pid"} and, when that has ended, {"job", "status"}. FOLDER is only there to be seen in a list of processes. For
CPUs alone: what has looked for a GPU must not be forked.
"""

import json
import os
import runpy
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .processes import die_with_parent

PROGRAM = ["-m", "experiments.train"]


class Forked:
    """A run of a nursery, with what the pool uses of `subprocess.Popen`."""

    def __init__(self, nursery: "Nursery") -> None:
        self.nursery, self.pid, self.returncode = nursery, None, None

    def poll(self) -> int | None:
        self.nursery.listen()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        began = time.monotonic()
        while self.poll() is None:
            if timeout is not None and time.monotonic() - began > timeout:
                raise subprocess.TimeoutExpired("a forked run", timeout)
            time.sleep(0.05)
        return self.returncode

    def signal(self, how: int) -> None:
        """To the run and all that it has started; one that is not forked yet will never be."""
        if self.pid is None and self.returncode is None:
            self.nursery.close()
        elif self.pid is not None:
            os.killpg(self.pid, how)


class Nursery:
    """The launcher's side; it ends with the launcher."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.said, self.jobs = b"", []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "experiments.launch.nursery", str(folder)], env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        os.set_blocking(self.process.stdout.fileno(), False)

    def start(self, command: list[str], env: dict[str, str], log: Path) -> Forked:
        self.jobs.append(Forked(self))
        order = {"job": len(self.jobs) - 1, "command": command, "env": env, "log": str(log)}
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.listen()
        return self.jobs[-1]

    def listen(self) -> None:
        """Takes in what was said; without a nursery nothing lives."""
        gone = self.process.poll() is not None
        self.said += self.process.stdout.read() or b""
        *lines, self.said = self.said.split(b"\n")
        for told in map(json.loads, lines):
            job = self.jobs[told["job"]]
            job.pid, job.returncode = told.get("pid", job.pid), told.get("status", job.returncode)
        for job in self.jobs if gone else ():
            job.returncode = -9 if job.returncode is None else job.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


# ---- the warm process


def main() -> None:
    """Until standard input is closed, and every run has ended."""
    import experiments.downstream  # noqa: F401
    import experiments.record.inside  # noqa: F401
    import experiments.record.outcome  # noqa: F401
    import experiments.record.wandb_run  # noqa: F401  what `experiments.train` imports; itself it is run anew

    running: dict[int, int] = {}
    orders, open_ = b"", True
    while open_ or running:
        if open_ and select.select([0], [], [], 0.05)[0]:
            came = os.read(0, 1 << 16)
            open_, orders = bool(came), orders + came
        elif not open_:
            time.sleep(0.05)
        *lines, orders = orders.split(b"\n")
        for order in map(json.loads, lines):
            if not (pid := os.fork()):
                return become(order)
            running[pid] = order["job"]
            say({"job": order["job"], "pid": pid})
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            say({"job": running.pop(ended[0]), "status": os.waitstatus_to_exitcode(ended[1])})


def say(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def become(order: dict[str, Any]) -> None:
    """The forked child: `python -m experiments.train …` from here on, as if it had been started so."""
    os.setsid()
    die_with_parent()
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, descriptor in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(file, descriptor)
    os.environ.clear()
    os.environ |= order["env"]
    sys.argv = order["command"][2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
