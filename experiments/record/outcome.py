"""Everything that goes into a result, collected at a run's end."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from torch.utils.flop_counter import FlopCounterMode

from datamodules.batching import TokenBudget
from lit_modules.base import AblationModule
from lit_modules.components.attention import attention_weights

from . import facts
from .identity import Run
from .result import write_result

if TYPE_CHECKING:
    from experiments.train import AblationCLI


FEW = 8  # examples: explicit attention holds all weights, and this process's peak memory is a column of the table


def cost_per_token(model: AblationModule, data: L.LightningDataModule) -> tuple[float, float]:
    """FLOPs of forward and backward for each token (or image), and the percent of them that q · k and the weighted sums
    of values take: the part that grows with the square of the length. Counted by torch on a few examples of the first
    training batch, in the explicit form, whose products of batches of matrices are these two alone.

    An estimate: the attention's share depends on how long those sentences are.
    """
    batch = few_examples(data)
    model.eval()
    with FlopCounterMode(display=False) as counter, attention_weights(model):
        model.training_loss(batch).smoothed.backward()
    model.zero_grad()
    model.train()
    of_attention = counter.get_flop_counts()["Global"].get(torch.ops.aten.bmm, 0)
    total = counter.get_total_flops()
    return total / int(model.batch_tokens(batch)), 100 * of_attention / total


def few_examples(data: L.LightningDataModule, batches: TokenBudget | None = None) -> dict[str, torch.Tensor]:
    """The beginning of the first training batch.

    Args:
        batches: those of training, where they are made already.
    """
    return data.batch_of("train", next(iter(batches or data.batches("train")))[:FEW])


OF_TRAINING = (
    "selection", "flops", "tokens", "tokens_per_step", "steps", "seconds", "tokens_per_second", "peak_memory_bytes",
    "padding", "world_size", "hardware",
)  # fmt: skip


def record(run: Run, cli: "AblationCLI", status: str, started: float, sibling: dict | None = None, **more: Any) -> Path:
    """The result file; what training cost stands in the sibling's result where that run's checkpoint was tested."""
    model, data, best = cli.model, cli.datamodule, cli.best
    score = "nan" if best.best_model_score is None else best.best_model_score
    on_gpu = cli.trainer.strategy.root_device.type == "cuda"
    tokens, seconds = int(model.tokens_seen), cli.progress.seconds
    trained_by = {"trained_by": sibling["key"], **{key: sibling[key] for key in OF_TRAINING}} if sibling else {}
    return write_result(run.folder, {
        "question": run.question,
        "recipe": run.recipe,
        "arm": run.arm,
        "seed": run.seed,
        "key": run.key,
        "variant": run.variant,
        "training": run.training,
        "settings": run.settings,
        "status": status,
        "metrics": {},
        **more,
        "selection": {"metric": best.monitor, "mode": best.mode, "best": float(score)},
        "bleu_signature": getattr(model, "bleu_signature", None),
        "parameters": sum(p.numel() for p in model.parameters()),
        "flops": cli.flops_per_token * tokens,
        "flops_per_token": cli.flops_per_token,
        "unit": model.unit,
        "tokens": tokens,
        "tokens_per_step": tokens / max(cli.trainer.global_step, 1),
        "steps": cli.trainer.global_step,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds if seconds else 0.0,
        "peak_memory_bytes": getattr(cli, "peak_memory_bytes", None) or facts.peak_memory_bytes(on_gpu),
        "config": cli.flat,
        "padding": data.batches("train").padding(),
        "data_fingerprint": data.fingerprint,
        **cli.code,
        "world_size": cli.trainer.world_size,
        "versions": facts.versions(),
        "hardware": facts.hardware(on_gpu),
        "started": time.strftime("%FT%TZ", time.gmtime(started)),
        "ended": time.strftime("%FT%TZ", time.gmtime()),
        **trained_by,
    })  # fmt: skip
