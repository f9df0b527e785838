"""W&B: one run a run, offline unless somebody is logged in, labelled so that its tables group without clicking."""

import json
import netrc
import os
from typing import Any
from urllib.parse import urlparse

import lightning as L
from lightning.pytorch.loggers import WandbLogger

from .identity import Run, arm_name
from .metrics_file import read_metrics


def wandb_logger(run: Run, config: dict[str, Any]) -> WandbLogger:
    """One W&B run, offline unless logged in; config, arm, group and job type set so that its table groups at once."""
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_MODE", "online" if logged_in() else "offline")
    arm = arm_name(run.arm)
    by_agent = "WANDB_RUN_ID" in os.environ  # an agent has named the run already
    return WandbLogger(
        save_dir=str(run.folder),
        project=os.environ.get("WANDB_PROJECT", "transformer-ablations"),
        name=f"{arm} seed {run.seed}",
        group=f"{run.question}/{run.recipe}/{run.variant}/{arm}",
        job_type=run.question,
        tags=[run.question, run.recipe],
        id=None if by_agent else f"{run.question}-{run.key}",
        resume=None if by_agent else "allow",
        config={**config, "arm": arm, "seed": run.seed, "recipe": run.recipe, "variant": run.variant},
        offline=os.environ["WANDB_MODE"] == "offline",
    )


def wandb_loggers(trainer: L.Trainer) -> list[WandbLogger]:
    """Those of a training, on the rank that has the W&B run."""
    return [logger for logger in trainer.loggers if isinstance(logger, WandbLogger) and trainer.is_global_zero]


def logged_in() -> bool:
    """Whether W&B would find a key without asking: in the environment or in ~/.netrc, where `wandb login` puts it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def relog(run: Run) -> None:
    """A sweep's agent that asks for a finished run gets its numbers from disk."""
    if "WANDB_SWEEP_ID" not in os.environ:
        return
    result = json.loads((run.folder / "result.json").read_text())
    logger = wandb_logger(run, result["config"])
    for metric, steps in read_metrics(run.folder / "metrics.csv").items():
        for step, value in steps.items():
            logger.log_metrics({metric: value}, step=step)
    logger.experiment.summary.update(result["metrics"])
    logger.experiment.finish()
