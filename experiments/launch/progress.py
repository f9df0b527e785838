"""What is going on: a bar for each running run and one for the question, with the time left."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from experiments.record.identity import arm_name

from .pool import Engine, Job


class Display:
    """Bars on a terminal, a line at each start and end elsewhere."""

    def __init__(self, total: int) -> None:
        self.total, self.began = total, time.time()
        self.bars = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
            TextColumn("{task.fields[say]}"),
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self.tasks: dict[str, int] = {}
        self.told: dict[str, str] = {}  # run key → outcome
        self.overall = self.bars.add_task("[bold]runs", total=total, say="")

    def __enter__(self) -> "Display":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def show(self, pool: Engine) -> None:
        """Draws the pool's present state."""
        started = [job for job in pool.waiting if title(job) in self.tasks]  # and put back into a queue
        for job in [*started, *pool.running, *pool.ended]:
            self.tell(job)
            self.draw(job)
        self.bars.update(self.overall, completed=len(pool.ended), say=self.left(pool))

    def draw(self, job: Job) -> None:
        name, said = title(job), job.progress()
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(name, total=None, say="starting")
        self.bars.update(
            self.tasks[name], completed=said.get("step", 0), total=said.get("total"), say=said.get("stage", "starting"),
            visible=job.outcome == "running",
        )  # fmt: skip

    def tell(self, job: Job) -> None:
        """Once a change of state."""
        if self.told.get(job.run.key) == job.outcome:
            return
        self.told[job.run.key] = job.outcome
        seconds = f" after {clock(time.time() - job.started)}" if job.started and job.outcome != "running" else ""
        reason = f": {job.reason} (log: {job.log})" if job.reason else ""
        if job.outcome != "running" or self.bars.disable:
            word = {"running": "started", "waiting": "back in the queue"}.get(job.outcome, job.outcome)
            self.bars.console.print(
                f"{time.strftime('%H:%M:%S')}  {title(job)}  {word}{seconds}{reason}", highlight=False, soft_wrap=True
            )

    def left(self, pool: Engine) -> str:
        """From the share of all steps that is done, as far as it is known."""
        shares = [
            min(1.0, said["step"] / said["total"]) for job in pool.running if (said := job.progress()).get("total")
        ]
        done = len(pool.ended) + sum(shares)
        if done < 0.05:
            return "time left: measuring"
        return f"time left: about {clock((time.time() - self.began) * (self.total - done) / done)}"


def title(job: Job) -> str:
    return f"{job.run.question} {arm_name(job.run.arm)} seed {job.run.seed}"


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
