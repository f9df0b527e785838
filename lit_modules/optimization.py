"""The optimiser and its learning-rate schedule (Vaswani et al. 2017, section 5.3)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True, kw_only=True)
class Optim:
    """Adam with a warm-up.

    Args:
        lr: the peak learning rate, reached at optimiser step `warmup_steps`. The paper's is (d_model · warmup)^-0.5.
        warmup_steps: optimiser steps of linear rise; 0 starts at the peak.
        schedule: what follows the warm-up.
            inverse_sqrt: lr · √(warmup / t), the paper's equation 3.
            linear: a straight line that reaches 0 at the last optimiser step.
            cosine: half a cosine that reaches 0 there (Loshchilov and Hutter 2017; DeiT).
        beta1, beta2, eps: Adam's, with the paper's values as default.
        weight_decay: decoupled (AdamW); 0 in the paper.
    """

    lr: float
    warmup_steps: int
    schedule: Literal["inverse_sqrt", "linear", "cosine"] = "inverse_sqrt"
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.warmup_steps < 0 or not self.lr > 0:
            raise ValueError(f"lr {self.lr} must be positive and warmup_steps {self.warmup_steps} not negative")


def inverse_sqrt(step: int, warmup: int, total: int) -> float:
    """min(t / warmup, √(warmup / t)): equation 3 as a share of its peak."""
    return min(step / max(warmup, 1), (max(warmup, 1) / step) ** 0.5)


def linear(step: int, warmup: int, total: int) -> float:
    """t / warmup, then (total - t) / (total - warmup)."""
    if step < warmup:
        return step / warmup
    return max(0.0, (total - step) / max(total - warmup, 1))


def cosine(step: int, warmup: int, total: int) -> float:
    """t / warmup, then (1 + cos π (t - warmup) / (total - warmup)) / 2."""
    if step < warmup:
        return step / warmup
    return (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(total - warmup, 1)))) / 2


SCHEDULE: dict[str, Callable[[int, int, int], float]] = {
    "inverse_sqrt": inverse_sqrt,
    "linear": linear,
    "cosine": cosine,
}


def optimizer_and_schedule(parameters, optim: Optim, total_steps: int):
    """The pair that Lightning's `configure_optimizers` returns; the schedule moves once an optimiser step.

    The rate at optimiser step t = 1, 2, … total_steps is lr · schedule(t).
    """
    adam = torch.optim.AdamW(
        parameters,
        lr=optim.lr,
        betas=(optim.beta1, optim.beta2),
        eps=optim.eps,
        weight_decay=optim.weight_decay,
        fused=True,
    )
    share = SCHEDULE[optim.schedule]
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda done: share(done + 1, optim.warmup_steps, total_steps))
    return {"optimizer": adam, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
