"""Several sides, turn about in one process on the same batches, so that what else the machine does hits all alike."""

import statistics
from collections.abc import Callable
from typing import Any

from rich.progress import track

Batch = dict[str, Any]


def compare(sides: dict[str, Callable[[list[Batch]], float]], stretches: list[list[Batch]], what: str) -> dict:
    """Tokens a second of each side, and ours (the first) as a multiple of each other one.

    Args:
        sides: name → what trains on a stretch of batches and gives tokens a second.
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
        "tokens_per_second": {name: statistics.median(speed[name] for speed in rounds[1:]) for name in sides},
        "ratio": {
            peer: {"median": statistics.median(r), "lowest": min(r), "highest": max(r)} for peer, r in ratios.items()
        },
    }
