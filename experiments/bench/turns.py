"""Several sides, turn about in one process on the same batches, so that what else the machine does hits all alike."""

import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from experiments.answer.render import as_terminal
from experiments.record import facts
from lit_modules.optimization import Optim, optimizer_and_schedule

Batch = dict[str, Any]
OPTIM = Optim(lr=1e-4, warmup_steps=10)


def side(
    model: nn.Module, loss: Callable[[Batch], Tensor], count: Callable[[Batch], int], bf16: bool
) -> Callable[[list[Batch]], float]:
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


def compare(
    sides: dict[str, Callable[[list[Batch]], float]], stretches: list[list[Batch]], what: str, unit: str = "tokens"
) -> dict:
    """How many a second each side does, and ours (the first) as a multiple of each other one.

    Args:
        sides: name → what trains on a stretch of batches and gives tokens (images) a second.
        stretches: the first warms up and is not counted.

    Returns:
        {"tokens_per_second": name → median, "ratio": peer → {median, lowest, highest} of the stretches' own ratios}.
    """
    rounds = []
    for i, stretch in enumerate(track(stretches, description=what, transient=True)):
        names = list(sides)[i % len(sides) :] + list(sides)[: i % len(sides)]
        rounds.append({name: sides[name](stretch) for name in names})
    ours, *peers = sides
    ratios = {peer: [speed[ours] / speed[peer] for speed in rounds[1:]] for peer in peers}
    return {
        f"{unit}_per_second": {name: statistics.median(speed[name] for speed in rounds[1:]) for name in sides},
        "ratio": {
            peer: {"median": statistics.median(r), "lowest": min(r), "highest": max(r)} for peer, r in ratios.items()
        },
    }


def keep(measured: dict[str, dict], path: Path, unit: str = "tokens", **about: Any) -> None:
    """Prints precision by precision what `compare` found, and writes it down with machine, versions and commit."""
    heads = ["precision", "side", f"{unit}/s", "ours as a multiple", "lowest … highest"]
    lines = []
    for precision, m in measured.items():
        for name, speed in m[f"{unit}_per_second"].items():
            ratio = m["ratio"].get(name)
            shown = [f"{ratio['median']:.2f}", f"{ratio['lowest']:.2f} … {ratio['highest']:.2f}"] if ratio else ["", ""]
            lines.append([precision, name, f"{speed:,.0f}", *shown])
    print(as_terminal(heads, lines))
    path.write_text(json.dumps({
        **about, "threads": torch.get_num_threads(), "measured": measured, "hardware": facts.hardware(on_gpu=False),
        "versions": facts.versions(), "commit": facts.commit(), "date": time.strftime("%F"),
    }, indent=1) + "\n")  # fmt: skip
    print(f"kept in {path.name}; one thread, all sides in one process with one allocator")
