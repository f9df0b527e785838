"""The three families' training steps beside their peers', in both precisions: one table, kept under results/.

ablate bench
"""

import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.progress import Progress
from torch.utils.flop_counter import FlopCounterMode

from experiments.answer.render import as_terminal
from experiments.record import facts
from lit_modules.components.attention import attention_weights

from . import bert, translation, vit
from .turns import Batch, Family, Turn

FAMILIES: dict[str, Callable[[], Family]] = {
    "translation": translation.family,
    "bert": bert.family,
    "vit": vit.family,
}
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
RESULTS = Path(__file__).parent / "results"
HEADS = [
    "family", "precision", "side", "allocator", "per second", "lowest … highest", "ours as a multiple",
    "lowest … highest", "GFLOP a step", "of the ceiling, %", "memory, MB",
]  # fmt: skip
LOST = 2 / 3  # of the ratio that was measured: less, and the quick form fails


def measure(
    name: str, precision: str, rounds: int, quick: bool, folder: Path, told: Callable[[str], None]
) -> dict[str, Any]:
    """Every side of a family, `rounds` stretches after one that warms up."""
    family = FAMILIES[name]()
    plain, tuned = [(side, "default") for side in family.sides], [(side, "tuned") for side in ("ours", *family.tuned)]
    wanted = [("ours", "default"), (family.tuned[-1], "default")] if quick else [*plain, *tuned]
    torch.manual_seed(0)
    prepared = family.prepare(family.steps * (rounds + 1))
    torch.save(prepared, folder / "prepared.pt")
    turns = {key: Turn(name, key[0], precision, key[1], folder / "prepared.pt") for key in wanted}
    for key, turn in list(turns.items()):
        if missing := turn.answer().get("missing"):
            print(f"{key[0]} is left out: {missing} is not installed (pip install '.[peers]')")
            turns.pop(key).end()
    found = {key: [] for key in turns}
    for stretch in range(rounds + 1):
        order = list(turns)[stretch % len(turns) :] + list(turns)[: stretch % len(turns)]
        for key in order:
            told(f"{name} {precision}: {key[0]}")
            found[key].append(turns[key].train(stretch))
    for turn in turns.values():
        turn.end()
    flops, count = cost(family, *prepared)
    ceiling = matmul_ceiling(PRECISIONS[precision])
    ours = [stretch["per_second"] for stretch in found["ours", "default"][1:]]
    sides = []
    for (side, allocator), stretches in found.items():
        speeds = [stretch["per_second"] for stretch in stretches[1:]]
        share = 100 * statistics.median(speeds) * flops / count / ceiling
        sides.append({
            "side": side, "allocator": allocator, "memory": stretches[0]["memory"], "of_ceiling": share,
            "per_second": spread(speeds), "ratio": spread([a / b for a, b in zip(ours, speeds, strict=True)]),
        })  # fmt: skip
    return {
        "family": name, "precision": precision, "unit": family.unit, "about": family.about, "flops_per_step": flops,
        "ceiling": ceiling, "sides": sides,
    }  # fmt: skip


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def cost(family: Family, batches: list[Batch], vocab_size: int) -> tuple[int, int]:
    """FLOPs of our forward and backward on a batch, with explicit attention, and the tokens or images in it; a step of
    any side is held against them, whatever else it does."""
    model, loss = family.sides["ours"](vocab_size)
    with FlopCounterMode(display=False) as counter, attention_weights(model):
        loss(batches[0]).backward()
    return counter.get_total_flops(), family.count(batches[0])


def matmul_ceiling(kind: torch.dtype) -> float:
    """FLOPs a second of the best of a few products as large as the models have them, one thread."""
    torch.set_num_threads(1)
    best = 0.0
    for rows, inner, outer in ((2048, 128, 512), (2048, 256, 1024), (8320, 192, 768)):
        x, w = torch.randn(rows, inner).to(kind), torch.randn(outer, inner).to(kind)
        for _ in range(8):
            began = time.perf_counter()
            torch.nn.functional.linear(x, w)
            best = max(best, 2 * rows * inner * outer / (time.perf_counter() - began))
    return best


def rows(measured: list[dict[str, Any]]) -> list[list[str]]:
    """The table, a line for every side."""
    lines = []
    for part in measured:
        for side in part["sides"]:
            speed, ratio = side["per_second"], side["ratio"]
            is_ours = side["side"] == "ours" and side["allocator"] == "default"
            multiple = ["", ""] if is_ours else [f"{ratio['median']:.2f}", span(ratio, ".2f")]
            lines.append([
                part["family"], part["precision"], side["side"], side["allocator"],
                f"{speed['median']:,.0f} {part['unit']}", span(speed, ",.0f"), *multiple,
                f"{part['flops_per_step'] / 1e9:.0f}", f"{side['of_ceiling']:.0f}", f"{side['memory'] / 2**20:,.0f}",
            ])  # fmt: skip
    return lines


def span(found: dict[str, float], form: str) -> str:
    return f"{found['lowest']:{form}} … {found['highest']:{form}}"


def main(families: list[str], rounds: int, quick: bool) -> bool:
    """Prints the table and keeps it; the quick form keeps nothing, and says whether no ratio has fallen by a third."""
    rounds = 2 if quick else rounds
    parts = [(name, precision) for name in families for precision in PRECISIONS]
    with Progress(transient=True) as bar, TemporaryDirectory() as folder:
        task = bar.add_task("bench", total=len(parts))
        measured = []
        for name, precision in parts:
            told = partial(describe, bar, task)
            measured.append(measure(name, precision, rounds, quick, Path(folder), told))
            bar.advance(task)
    print(as_terminal(HEADS, rows(measured)))
    return holds(measured) if quick else keep("training", {"rounds": rounds, "parts": measured})


def describe(bar: Progress, task: Any, words: str) -> None:
    bar.update(task, description=words)


def holds(measured: list[dict[str, Any]]) -> bool:
    """Whether ours beside a peer is at least two thirds of what results/training.json says."""
    fine = True
    kept = {(p["family"], p["precision"]): p for p in json.loads((RESULTS / "training.json").read_text())["parts"]}
    for part in measured:
        known = kept[part["family"], part["precision"]]["sides"]
        before = {(side["side"], side["allocator"]): side["ratio"]["median"] for side in known}
        for side in part["sides"][1:]:
            now, then = side["ratio"]["median"], before[side["side"], side["allocator"]]
            fell = now < LOST * then
            print(f"{part['family']} {part['precision']}, {side['side']}: {now:.2f}, kept {then:.2f}{': LOST' * fell}")
            fine = fine and not fell
    return fine


def keep(name: str, found: dict[str, Any]) -> bool:
    """Writes a result with machine, versions, commit and date."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({
        **found, "threads": 1, "hardware": facts.hardware(on_gpu=False), "versions": facts.versions(),
        "commit": facts.commit(), "date": time.strftime("%F"),
    }, indent=1) + "\n")  # fmt: skip
    print(f"kept in experiments/bench/results/{name}.json, one thread")
    return True
