"""The three families' training steps beside their peers', in both precisions: one table, kept under results/.

ablate bench
"""

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.progress import Progress
from torch.utils.flop_counter import FlopCounterMode

from experiments.answer.render import as_terminal
from experiments.launch.question import BadInput
from experiments.record import facts
from lit_modules.components.attention import attention_weights

from . import bert, tables, translation, vit
from .tables import OURS, RESULTS, spread
from .turns import Batch, Family, Turn

FAMILIES: dict[str, Callable[[], Family]] = {
    "translation": translation.family,
    "bert": bert.family,
    "vit": vit.family,
}
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
QUICK = 2  # stretches of the quick form
LOST = 2 / 3  # of the ratio that was measured: less, and the quick form fails


def measure(
    name: str, precision: str, rounds: int, quick: bool, folder: Path, told: Callable[[str], None]
) -> dict[str, Any]:
    """Every side of a family, `rounds` stretches after one that warms up."""
    family = FAMILIES[name]()
    plain, tuned = [(side, "default") for side in family.sides], [(side, "tuned") for side in family.tuned]
    wanted = [OURS, (family.tuned[-1], "default")] if quick else [OURS, *plain, *tuned]
    torch.manual_seed(0)
    prepared = family.prepare(family.steps * (rounds + 1))
    if len(prepared[0]) < family.steps * (rounds + 1):
        raise BadInput(f"--rounds {rounds}: {name} has {len(prepared[0])} batches, {family.steps} for each stretch")
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
    ours = [stretch["per_second"] for stretch in found[OURS][1:]]
    sides = []
    for (side, allocator), stretches in found.items():
        speeds = [stretch["per_second"] for stretch in stretches[1:]]
        share = 100 * statistics.median(speeds) * flops / count / ceiling
        sides.append({
            "side": side, "allocator": allocator, "memory": stretches[0]["memory"], "of_ceiling": share,
            "per_second": spread(speeds), "ratio": spread([a / b for a, b in zip(ours, speeds, strict=True)]),
        })  # fmt: skip
    return {
        "family": name, "precision": precision, "rounds": rounds, "unit": family.unit, "about": family.about,
        "flops_per_step": flops, "ceiling": ceiling, "sides": sides,
    }  # fmt: skip


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


def main(families: list[str], rounds: int, quick: bool) -> bool:
    """Prints the table and keeps it, each part with its machine, commit and date; parts that are not measured now stay.
    Then the quick form's pairs are measured and kept. The quick form itself keeps nothing, and says whether no ratio
    has fallen by a third.

    Raises:
        BadInput: of the quick form, where nothing has been kept to hold it against.
    """
    before = kept_parts("quick")
    parts = [(name, precision) for name in families for precision in PRECISIONS]
    if quick and (lacking := [part for part in parts if part not in before]):
        raise BadInput(f"nothing to hold {' '.join(lacking[0])} against: `ablate bench {lacking[0][0]}` measures it")
    if not quick:
        measured = [measured_part(part, rounds, False) for part in parts]
        print(as_terminal(*tables.training({"parts": measured})))
        merge("training", measured)
    os.environ.pop("ABLATE_DATA", None)  # embedded data, which are everywhere the same
    pairs = [measured_part(part, QUICK, True) for part in parts]
    print(as_terminal(*tables.training({"parts": pairs})))
    return holds(pairs, before) if quick else merge("quick", pairs)


def measured_part(part: tuple[str, str], rounds: int, quick: bool) -> dict[str, Any]:
    with Progress(transient=True) as bar, TemporaryDirectory() as folder:
        task = bar.add_task(" ".join(part), total=None)
        return measure(*part, rounds, quick, Path(folder), lambda words: bar.update(task, description=words))


def kept_parts(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What was measured last, by family and precision; "training" or "quick"."""
    path = RESULTS / f"{name}.json"
    found = json.loads(path.read_text())["parts"] if path.exists() else []
    return {(part["family"], part["precision"]): part for part in found}


def merge(name: str, measured: list[dict[str, Any]]) -> bool:
    """Keeps the parts beside those that were not measured now."""
    now = {(part["family"], part["precision"]): part | {"threads": 1} | about() for part in measured}
    every, known = [(family, precision) for family in FAMILIES for precision in PRECISIONS], kept_parts(name) | now
    return write(name, {"parts": [known[part] for part in every if part in known]})


def holds(measured: list[dict[str, Any]], before: dict[tuple[str, str], dict[str, Any]]) -> bool:
    """Whether ours beside a peer is at least two thirds of what was kept; no peer, no proof."""
    fine = True
    for part in measured:
        known = before[part["family"], part["precision"]]["sides"]
        ratios = {(side["side"], side["allocator"]): side["ratio"]["median"] for side in known}
        for side in part["sides"][1:]:
            now, then = side["ratio"]["median"], ratios[side["side"], side["allocator"]]
            fell = now < LOST * then
            print(f"{part['family']} {part['precision']}, {side['side']}: {now:.2f}, kept {then:.2f}{': LOST' * fell}")
            fine = fine and not fell
        if len(part["sides"]) < 2:
            print(f"{part['family']} {part['precision']}: no peer is installed to hold ours against")
            fine = False
    return fine


def about(on_gpu: bool = False) -> dict[str, Any]:
    """Where, with what and when something was measured."""
    return {
        "hardware": facts.hardware(on_gpu), "versions": facts.versions(), "commit": facts.commit(),
        "date": time.strftime("%F"),
    }  # fmt: skip


def keep(name: str, found: dict[str, Any]) -> bool:
    return write(name, found | {"threads": 1} | about())


def write(name: str, found: dict[str, Any]) -> bool:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"kept in experiments/bench/results/{name}.json, one thread")
    return True
