"""What rides along with every training: random numbers in checkpoints, progress for the launcher, whole checkpoints."""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from experiments.launch.question import BadInput

from .wandb_run import wandb_loggers


class RandomState(L.Callback):
    """Lightning's checkpoints hold no random-number state: with it, killed and resumed equals uninterrupted."""

    def __init__(self) -> None:
        self.loaded: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        # plain tensors and tuples: a checkpoint stays readable without trusting pickled objects
        kind, key, *rest = np.random.get_state()
        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "numpy": (kind, torch.from_numpy(key.astype(np.int64)), *rest),
            "python": random.getstate(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.loaded = state_dict

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.loaded is not None:
            torch.set_rng_state(self.loaded["torch"])
            if self.loaded["cuda"] and len(self.loaded["cuda"]) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(self.loaded["cuda"])
            kind, key, *rest = self.loaded["numpy"]
            np.random.set_state((kind, key.numpy().astype(np.uint32), *rest))
            version, internal, gauss = self.loaded["python"]
            random.setstate((version, tuple(internal), gauss))


class Belonging(L.Callback):
    """A checkpoint says whose it is; that of another run is refused instead of silently training another arm. All ranks
    of a run hold one configuration.

    Args:
        config: a hash of the resolved configuration.

    Raises:
        BadInput: when a checkpoint of another training is loaded, or of another number of ranks, whose place within the
            epoch would be another one; when a rank has another configuration.
    """

    def __init__(self, training: str, code: str, config: str) -> None:
        self.training, self.code, self.config, self.world, self.fits = training, code, config, 1, True

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.world, self.fits = trainer.world_size, stage == "fit"
        if len(held := set(pl_module.of_all_ranks(self.config))) > 1:
            raise BadInput(f"the ranks hold {len(held)} configurations: start all of them with the same command")

    def state_dict(self) -> dict[str, Any]:
        return {"training": self.training, "code": self.code, "world": self.world}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["training"] != self.training:
            raise BadInput(
                f"the checkpoint belongs to training {state_dict['training']}, not to {self.training}: move it away"
            )
        if self.fits and (before := state_dict.get("world", self.world)) != self.world:
            raise BadInput(
                f"the checkpoint was written by {before} ranks, and here are {self.world}: go on with as many "
                f"(trainer.devices × trainer.num_nodes), or move it away and start anew"
            )


class BestInSummary(L.Callback):
    """W&B's summary of a validation metric is its value at the best checkpoint, and the steps are the optimiser's."""

    def __init__(self, metric: str, mode: str) -> None:
        self.metric, self.mode = metric, mode

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for logger in wandb_loggers(trainer):
            for some in ("train/*", "valid/*"):
                logger.experiment.define_metric(some, step_metric="trainer/global_step")
            logger.experiment.define_metric(self.metric, step_metric="trainer/global_step", summary=self.mode)


class Progress(L.Callback):
    """progress.json, at most twice a second: the launcher draws its bars from it. Also adds up the training time."""

    def __init__(self, folder: Path) -> None:
        self.path, self.written, self.seconds, self.since = folder / "progress.json", 0.0, 0.0, None
        self.trains = False

    def write(self, trainer: L.Trainer, stage: str) -> None:
        if trainer.is_global_zero:
            done, total = trainer.global_step, int(trainer.estimated_stepping_batches)
            draft = self.path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({"step": done, "total": total, "stage": stage, "time": time.time()}))
            draft.replace(self.path)
            self.written = time.monotonic()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.trains = True
        self.write(trainer, "training")
        self.since = time.monotonic()

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        if self.since is None:  # the first one after a validation and its checkpoints
            self.since = time.monotonic()

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        if time.monotonic() - self.written > 0.5:
            self.write(trainer, "training")

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.pause()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.pause()

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.trains:  # else a sibling's checkpoint is tested without a training of one's own
            self.write(trainer, "test")

    def pause(self) -> None:
        """Seconds of optimiser steps alone, validations and checkpoints left out."""
        if self.since is not None:
            self.seconds += time.monotonic() - self.since
            self.since = None

    def state_dict(self) -> dict[str, Any]:
        running = time.monotonic() - self.since if self.since is not None else 0.0
        return {"seconds": self.seconds + running}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.since is None and not self.seconds:  # a resumed training, not the best checkpoint's test
            self.seconds = state_dict["seconds"]


class WholeCheckpoints(TorchCheckpointIO):
    """Writes beside the file and renames: a killed run never leaves half a checkpoint."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        draft = Path(path).with_suffix(f".{os.getpid()}.part")
        try:
            super().save_checkpoint(checkpoint, draft, storage_options)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
