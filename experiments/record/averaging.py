"""The mean of the last checkpoints' weights (Vaswani et al. 2017, section 6.1: the last five, or twenty)."""

from pathlib import Path

import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from datamodules.local import tested_path

PREFIX = "weights-"


def keep_weights(folder: Path, count: int) -> ModelCheckpoint:
    """What writes the weights after every validation, and keeps the last `count` of them."""
    return ModelCheckpoint(
        folder, filename=f"{PREFIX}{{step}}", auto_insert_metric_name=False, monitor="step", mode="max",
        save_top_k=count, save_weights_only=True, save_on_train_epoch_end=False, enable_version_counter=False,
    )  # fmt: skip


def kept_weights(folder: Path) -> list[Path]:
    """The weights after the last validations, oldest first."""
    return sorted(folder.glob(f"{PREFIX}*.ckpt"), key=lambda path: int(path.stem.removeprefix(PREFIX)))


def forget(folder: Path) -> None:
    """Removes all weights and means: those of other code are not averaged in."""
    for path in (*kept_weights(folder), *folder.glob("average-*.ckpt")):
        path.unlink()


def count_of(checkpoint: Path) -> int:
    """How many weights a tested checkpoint is the mean of; 0 for the best one."""
    return int(checkpoint.stem.removeprefix("average-")) if checkpoint.stem.startswith("average-") else 0


def selected(folder: Path, count: int) -> Path:
    """The checkpoint to test: the best one, or one whose weights are the mean of the last `count` kept.

    Everything else in it is the best one's. Sums in double precision; whole numbers are the last one's.

    Raises:
        FileNotFoundError: where there is none, or fewer than `count`.
    """
    kept, best = kept_weights(folder)[-count:], tested_path(folder, 0)
    if not best.exists() or (count and len(kept) < count):
        raise FileNotFoundError(f"{folder} holds no {f'{count} weights' if count else 'checkpoint'} to test")
    if not count:
        return best
    whole = torch.load(best, weights_only=True, map_location="cpu")
    last = torch.load(kept[-1], weights_only=True, map_location="cpu")
    sums = {name: torch.zeros_like(w, dtype=torch.float64) for name, w in last["state_dict"].items()}
    for path in kept:
        for name, weight in torch.load(path, weights_only=True, map_location="cpu")["state_dict"].items():
            sums[name] += weight
    mean = {
        name: (sums[name] / count).to(w.dtype) if w.is_floating_point() else w for name, w in last["state_dict"].items()
    }
    path = tested_path(folder, count)
    draft = path.with_suffix(".part")
    torch.save({**whole, "state_dict": mean, "epoch": last["epoch"], "global_step": last["global_step"]}, draft)
    draft.replace(path)
    return path
