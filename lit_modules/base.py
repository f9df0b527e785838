"""What every LightningModule here shares: the optimiser step, what is logged, and when a run has diverged."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from .components.loss import TokenLoss
from .optimization import Optim, optimizer_and_schedule
from .sharding import divide, keep_whole, own_part, shard, sharded, whole

SHOWN = 32  # places of a sequence that a picture shows


@dataclass(frozen=True)
class Picture:
    """A matrix to be drawn, its rows and columns named by token ids, or by their numbers."""

    title: str
    matrix: Tensor
    rows: Tensor | None = None
    columns: Tensor | None = None


def of_positions(similar: Tensor | None) -> list[Picture]:
    """How alike places are, as `position_similarity` says; none where nothing is added for a place."""
    return [] if similar is None else [Picture("similarity of positions", similar)]


class Diverged(RuntimeError):
    """The loss is NaN or infinite: a result, not a crash."""


class AblationModule(L.LightningModule):
    """One token-weighted training step for all models.

    The loss is Σ over the real target tokens / their number in the whole optimiser step, whatever the split into
    micro-batches and ranks: `training_step` returns the sum, and the gradients are divided just before the step.

    A subclass defines `training_loss(batch)` and `batch_tokens(batch)`; for validation and test what it has found of a
    split before the first batch, `nothing_found()`, what a batch adds, `evaluate(batch, split)`, and what all ranks'
    findings come to, `report()`; and, if it wants them recorded, `diagnose(batch)` and `layers()`.

    Attributes:
        unit: what `batch_tokens` counts.
        findings: numbers about this run that are no test metric: diagnostics and gradient norms at the start and the
            end. They travel with the checkpoint and into the result.
    """

    unit = "tokens"

    def __init__(self, optim: Optim) -> None:
        super().__init__()
        self.optim = optim
        self.findings: dict[str, float] = {}
        self.step_tokens = torch.zeros(2)  # of this rank since the last optimiser step: real targets; all real tokens
        self.tokens_seen = torch.zeros((), dtype=torch.long)  # all real tokens of all ranks since the first step
        self.sums = torch.zeros(3)  # of this rank since the last log: smoothed loss, nll, target tokens
        self.gradient_norm: Tensor | None = None

    @abstractmethod
    def training_loss(self, batch: dict[str, Tensor]) -> TokenLoss:
        """Sums over the batch's real target tokens."""

    @abstractmethod
    def batch_tokens(self, batch: dict[str, Tensor]) -> Tensor:
        """How many real tokens the model reads and predicts in this batch."""

    @abstractmethod
    def nothing_found(self) -> Any:
        """Where the evaluation of a split begins."""

    @abstractmethod
    def evaluate(self, batch: dict[str, Tensor], split: str) -> None:
        """Adds a batch to `self.found[split]`."""

    @abstractmethod
    def report(self) -> None:
        """Logs the metrics of every split in `self.found`, from all ranks' parts."""

    def diagnose(self, batch: dict[str, Tensor]) -> dict[str, float]:
        """What the model looks like inside, on one batch."""
        return {}

    def pictures(self, batch: dict[str, Tensor]) -> list[Picture]:
        """What is worth drawing of a batch with one example: attention, positions."""
        return []

    def layers(self) -> dict[str, nn.Module]:
        """The parts whose gradient norms are logged one by one."""
        return {}

    def configure_model(self) -> None:
        """Divides the model among the ranks of a ModelParallelStrategy, once.

        Raises:
            ValueError: at a mesh for tensor parallelism: no layer here is cut that way.
        """
        if (mesh := self.device_mesh) is None or sharded(self):
            return
        if mesh["tensor_parallel"].size() > 1:
            raise ValueError("trainer.strategy: write tensor_parallel_size 1, data_parallel_size devices × num_nodes")
        shard(self, self.layers().values(), mesh["data_parallel"])

    def configure_optimizers(self) -> dict[str, Any]:
        return optimizer_and_schedule(self.parameters(), self.optim, int(self.trainer.estimated_stepping_batches))

    # ---- the optimiser step

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = self.training_loss(batch)
        self.step_tokens = self.step_tokens.to(loss.tokens.device) + torch.stack(
            [loss.tokens, self.batch_tokens(batch)]
        )
        self.stepped = False
        self.sums = self.sums.to(loss.nll.device) + torch.stack([loss.smoothed.detach(), loss.nll, loss.tokens])
        return loss.smoothed

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Undoes Lightning's mean over micro-batches and DDP's over ranks; divides by the step's tokens."""
        targets, tokens = self.trainer.strategy.reduce(self.step_tokens, reduce_op="sum")
        self.step_tokens = torch.zeros(2)
        self.tokens_seen = self.tokens_seen.to(tokens.device) + tokens.long()
        self.stepped = True
        means = self.trainer.accumulate_grad_batches * self.trainer.world_size
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        torch._foreach_mul_([own_part(gradient) for gradient in gradients], means / targets.clamp_min(1))
        self.rate = optimizer.param_groups[0]["lr"]
        step = self.trainer.global_step + 1
        if step == 1 or self.logs_at(step):
            self.gradient_norm = whole(nn.utils.get_total_norm(gradients))
            self.layer_gradients = {
                f"{name}/layer_gradient": float(gradient_norm(layer)) for name, layer in self.layers().items()
            }
            found = {"gradient_norm": float(self.gradient_norm), **self.layer_gradients}
            for name, value in found.items():
                self.findings.setdefault(f"start/{name}", value)
                self.findings[f"end/{name}"] = value

    def logs_at(self, step: int) -> bool:
        """Every log_every_n_steps optimiser steps, and at the last."""
        return step % self.trainer.log_every_n_steps == 0 or step == int(self.trainer.estimated_stepping_batches)

    # ---- validation and test

    def on_validation_epoch_start(self) -> None:
        keep_whole(self)
        self.found = {"valid": self.nothing_found()}

    def on_test_epoch_start(self) -> None:
        keep_whole(self)
        self.found = {split: self.nothing_found() for split in self.trainer.datamodule.test_splits}

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.evaluate(batch, "valid")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        self.evaluate(batch, self.trainer.datamodule.test_splits[dataloader_idx])

    def on_validation_epoch_end(self) -> None:
        self.report()
        divide(self)

    def on_test_epoch_end(self) -> None:
        self.report()
        divide(self)

    # ---- what is logged

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = self.trainer.global_step
        if not self.stepped or not self.logs_at(step):
            return  # in the middle of an accumulated step, or nothing to log
        smoothed, nll, tokens = self.trainer.strategy.reduce(self.sums, reduce_op="sum").tolist()
        self.sums = torch.zeros(3)
        metrics = {
            "train/loss": smoothed / max(tokens, 1),
            "train/nll": nll / max(tokens, 1),
            "train/gradient_norm": float(self.gradient_norm),
            "train/lr": self.rate,
        }
        self.log_now(metrics | {f"train/{name}": value for name, value in self.layer_gradients.items()})
        self.log("loss", metrics["train/loss"], prog_bar=True, logger=False, batch_size=1)
        if not (math.isfinite(smoothed) and math.isfinite(metrics["train/gradient_norm"])):
            raise Diverged(f"loss {smoothed / max(tokens, 1)}, gradient norm {self.gradient_norm} at step {step}")

    def log_now(self, metrics: dict[str, float]) -> None:
        """To every logger at this optimiser step."""
        for logger in self.loggers:
            logger.log_metrics(metrics, step=self.trainer.global_step)

    def log_evaluation(self, metrics: dict[str, float]) -> None:
        """Of a whole split: to the loggers at this step, and to Lightning for the checkpoint rule and the bar."""
        self.log_now(metrics)
        for name, value in metrics.items():
            self.log(name, torch.tensor(value, dtype=torch.float64), prog_bar=True, logger=False, batch_size=1)

    def of_all_ranks(self, part: Any) -> list[Any]:
        """Every rank's own part of an evaluation."""
        if self.trainer.world_size == 1:
            return [part]
        parts = [None] * self.trainer.world_size
        torch.distributed.all_gather_object(parts, part)
        return parts

    def log_samples(self, name: str, columns: list[str], rows: list[list[str]]) -> None:
        """A few readable lines, to every logger that takes text."""
        for logger in self.loggers:
            if hasattr(logger, "log_text"):
                logger.log_text(name, columns=columns, data=rows, step=self.trainer.global_step)

    def log_translations(self, split: str, references: Sequence[str], translations: Sequence[str]) -> None:
        """All of a test split, to every logger that keeps them."""
        for logger in self.loggers:
            if hasattr(logger, "log_translations"):
                logger.log_translations(split, references, translations)

    # ---- why: diagnostics at the start and the end

    def on_train_start(self) -> None:
        self.record("start", self.trainer.val_dataloaders)

    def on_train_end(self) -> None:
        self.record("end", self.trainer.val_dataloaders)

    def record(self, when: str, validation: Iterable | None) -> None:
        """Diagnostics on the first validation batch, in evaluation mode; not taken again on resume."""
        if validation is None or f"{when}/recorded_at_step" in self.findings:
            return
        batch = self.transfer_batch_to_device(next(iter(validation)), self.device, 0)
        training = self.training
        self.eval()
        with torch.no_grad():
            found = {f"{when}/{name}": value for name, value in self.diagnose(batch).items()}
        self.train(training)
        self.findings |= found | {f"{when}/recorded_at_step": self.trainer.global_step}
        self.log_now(found)

    # ---- resume

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["class_path"] = f"{type(self).__module__}.{type(self).__qualname__}"  # `ablate try` builds it again
        checkpoint["findings"], checkpoint["tokens_seen"] = dict(self.findings), int(self.tokens_seen)
        checkpoint["sums"] = self.sums.cpu()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.tokens_seen:  # a trained model that looks at its best checkpoint keeps its own records
            return
        self.findings, self.tokens_seen = (
            dict(checkpoint["findings"]),
            torch.tensor(checkpoint["tokens_seen"]),
        )
        self.sums = checkpoint["sums"]


def gradient_norm(module: nn.Module) -> Tensor:
    """Euclidean norm over all parameters of a module; 0 where none has a gradient."""
    return whole(nn.utils.get_total_norm([p.grad for p in module.parameters() if p.grad is not None]))
