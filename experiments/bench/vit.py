"""Our ViT's training step beside timm's and torchvision's of the same size: one process, the same batches, turn about.

timm with its fused attention and without. Timed over whole steps: forward, cross-entropy, backward, optimiser.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor

from datamodules.images import Images
from lit_modules.choices import Arch
from lit_modules.vit import Vit

from .turns import OPTIM, compare, keep, side

SIZES = {"d_model": 192, "n_heads": 3, "n_layers": 6, "d_ff": 768}
IMAGE, PATCH, BATCH, CLASSES, STEPS = 32, 4, 128, 10, 2
RESULTS = Path(__file__).parent / "results" / "vit.json"
Loss = Callable[[dict[str, Tensor]], Tensor]


def with_loss(model: torch.nn.Module) -> tuple[torch.nn.Module, Loss]:
    return model, lambda batch: F.cross_entropy(model(batch["image"]).float(), batch["label"])


def ours() -> tuple[torch.nn.Module, Loss]:
    arch = Arch(**SIZES, norm="pre", activation="gelu", dropout=0.0)
    return with_loss(Vit(arch, OPTIM, n_labels=CLASSES, image_size=IMAGE, channels=3, patch_size=PATCH))


def timms(fused: bool) -> tuple[torch.nn.Module, Loss]:
    model = timm.models.VisionTransformer(
        img_size=IMAGE, patch_size=PATCH, embed_dim=SIZES["d_model"], depth=SIZES["n_layers"],
        num_heads=SIZES["n_heads"], mlp_ratio=SIZES["d_ff"] / SIZES["d_model"], num_classes=CLASSES,
    )  # fmt: skip
    for block in model.blocks:
        block.attn.fused_attn = fused
    return with_loss(model)


def torchvisions() -> tuple[torch.nn.Module, Loss]:
    return with_loss(torchvision.models.VisionTransformer(
        image_size=IMAGE, patch_size=PATCH, num_layers=SIZES["n_layers"], num_heads=SIZES["n_heads"],
        hidden_dim=SIZES["d_model"], mlp_dim=SIZES["d_ff"], num_classes=CLASSES,
    ))  # fmt: skip


SIDES = {
    "ours": ours,
    "timm, fused attention": partial(timms, fused=True),
    "timm, explicit attention": partial(timms, fused=False),
    "torchvision": torchvisions,
}


def batches_of(dataset: str | None, count: int) -> list[dict[str, Tensor]]:
    """CIFAR-10's own, or noise: what is in an image costs nothing."""
    if dataset is None:
        noise = torch.randn(count, BATCH, 3, IMAGE, IMAGE)
        return [
            {"image": images, "label": F.one_hot(torch.arange(BATCH) % CLASSES, CLASSES).float()} for images in noise
        ]
    data = Images(dataset, image="img", valid="held_out", batch_size=BATCH)
    data.load()
    loader = iter(data.train_dataloader())
    return [next(loader) for _ in range(count)]


def measure(batches: list[dict[str, Tensor]], bf16: bool) -> dict:
    torch.manual_seed(0)
    sides = {name: side(*make(), lambda batch: len(batch["image"]), bf16) for name, make in SIDES.items()}
    stretches = [batches[i : i + STEPS] for i in range(0, len(batches), STEPS)]
    return compare(sides, stretches, "bf16" if bf16 else "fp32", "images")


def main(dataset: str | None, rounds: int) -> None:
    """Prints the table and keeps it under results/."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batches = batches_of(dataset, STEPS * (rounds + 1))
    measured = {name: measure(batches, bf16) for name, bf16 in (("fp32", False), ("bf16", True))}
    keep(
        measured, RESULTS, "images", sizes=SIZES, data="CIFAR-10" if dataset else "noise", image_size=IMAGE,
        patch_size=PATCH, batch=BATCH, rounds=rounds, steps_per_stretch=STEPS,
    )  # fmt: skip
