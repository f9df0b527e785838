"""Several sides, each in a process of its own, turn about on the same batches: while one trains, the others wait.

What else the machine does hits all alike, each has the allocator that its environment asks for, and a process's memory
is its own. A side's stretch is several steps: switching at every step was seen to slow one of them down.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.launch.allocator import KEEPS, NAME
from lit_modules.optimization import Optim, optimizer_and_schedule

Batch = dict[str, Any]
Loss = Callable[[Batch], Tensor]
OPTIM = Optim(lr=1e-4, warmup_steps=10)
ALLOCATORS = {"default": {NAME: ""}, "tuned": {NAME: KEEPS}}


@dataclass(frozen=True)
class Family:
    """What is trained, by whom.

    Attributes:
        unit: what is counted: tokens or images.
        about: the setting, in words, and whether the data are real.
        steps: of a stretch.
        sides: name → makes a model and its loss, given the vocabulary's size; "ours" is the first.
        tuned: peers that are timed with the tuned allocator as well, as "ours" is.
        prepare: that many batches, the same at every call, and the vocabulary's size.
        count: real tokens or images of a batch.
    """

    unit: str
    about: str
    steps: int
    sides: dict[str, Callable[[int], tuple[nn.Module, Loss]]]
    tuned: tuple[str, ...]
    prepare: Callable[[int], tuple[list[Batch], int]]
    count: Callable[[Batch], int]


class Turn:
    """A side's process."""

    def __init__(self, family: str, side: str, precision: str, allocator: str, prepared: Path) -> None:
        command = [sys.executable, "-m", "experiments.bench.turns", family, side, precision, str(prepared)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **ALLOCATORS[allocator]}
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command, env=environment, cwd=Path(__file__).parents[2], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.said,
        )  # fmt: skip

    def answer(self) -> dict[str, float]:
        """What the process says next; {"missing": a package} where a peer is not installed."""
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.said.seek(0)
        told = "".join(self.said.readlines()[-5:])
        raise RuntimeError(f"a side of the benchmark ended early: {' '.join(self.process.args[3:])}\n{told}")

    def train(self, stretch: int) -> dict[str, float]:
        """Trains on a stretch: {"per_second": …}, at the first one {"memory": bytes} as well."""
        print(stretch, file=self.process.stdin, flush=True)
        return self.answer()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def training(model: nn.Module, loss: Loss, count: Callable[[Batch], int], bf16: bool) -> Callable[[list[Batch]], float]:
    """What trains a model on batches, whole steps: forward, loss, backward, optimiser; and says how many of what
    `count` counts it did in a second."""
    optimizer = optimizer_and_schedule(model.parameters(), OPTIM, 1000)["optimizer"]

    def per_second(batches: list[Batch]) -> float:
        began = time.perf_counter()
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
                value = loss(batch)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
        return sum(map(count, batches)) / (time.perf_counter() - began)

    return per_second


def resident() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_during(work: Callable[[], Any]) -> tuple[Any, int]:
    """What `work` gives, and by how many bytes the process grew meanwhile, looked at every two milliseconds."""
    gc.collect()
    before, seen, done = resident(), [], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            seen.append(resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    found = work()
    done.set()
    watcher.join()
    return found, max(seen, default=before) - before


def serve(family: Family, side: str, bf16: bool, prepared: Path) -> None:
    """The process of one side: ready, then a stretch for every line that comes in."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    batches, vocab_size = torch.load(prepared, weights_only=True)
    torch.manual_seed(0)
    try:
        model, loss = family.sides[side](vocab_size)
    except ImportError as error:
        print(json.dumps({"missing": error.name}), flush=True)
        return
    per_second = training(model, loss, family.count, bf16)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        stretch = batches[int(line) * family.steps : (int(line) + 1) * family.steps]
        if int(line) == 0:  # warms up; the watcher may disturb it
            speed, memory = peak_during(lambda chosen=stretch: per_second(chosen))
            print(json.dumps({"per_second": speed, "memory": memory}), flush=True)
        else:
            print(json.dumps({"per_second": per_second(stretch)}), flush=True)


if __name__ == "__main__":
    from experiments.bench.training import FAMILIES

    name, whose, kind, file = sys.argv[1:]
    serve(FAMILIES[name](), whose, kind == "bf16", Path(file))
