"""ViT: our training step beside timm's, with its fused attention and without, and torchvision's, of the same size."""

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from datamodules.images import Images
from datamodules.local import local_folder
from lit_modules.choices import Arch
from lit_modules.vit import Vit

from .turns import OPTIM, Batch, Family, Loss

SIZES = {"d_model": 192, "n_heads": 3, "n_layers": 6, "d_ff": 768}
IMAGE, PATCH, BATCH, CLASSES = 32, 4, 128, 10


def prepare(count: int) -> tuple[list[Batch], int]:
    """Of CIFAR-10, or of noise: what is in an image costs nothing. The number is not used."""
    if (folder := local_folder("cifar10")) is None:
        label = F.one_hot(torch.arange(BATCH) % CLASSES, CLASSES).float()
        return [{"image": images, "label": label} for images in torch.randn(count, BATCH, 3, IMAGE, IMAGE)], 0
    data = Images(str(folder), image="img", valid="held_out", batch_size=BATCH)
    data.load()
    return list(itertools.islice(data.train_dataloader(), count)), 0


def with_loss(model: nn.Module) -> tuple[nn.Module, Loss]:
    return model, lambda batch: F.cross_entropy(model(batch["image"]).float(), batch["label"])


def ours(_: int) -> tuple[nn.Module, Loss]:
    arch = Arch(**SIZES, norm="pre", activation="gelu", dropout=0.0)
    return with_loss(Vit(arch, OPTIM, n_labels=CLASSES, image_size=IMAGE, channels=3, patch_size=PATCH))


def timms(fused: bool) -> Callable[[int], tuple[nn.Module, Loss]]:
    def make(_: int) -> tuple[nn.Module, Loss]:
        import timm

        model = timm.models.VisionTransformer(
            img_size=IMAGE, patch_size=PATCH, embed_dim=SIZES["d_model"], depth=SIZES["n_layers"],
            num_heads=SIZES["n_heads"], mlp_ratio=SIZES["d_ff"] / SIZES["d_model"], num_classes=CLASSES,
        )  # fmt: skip
        for block in model.blocks:
            block.attn.fused_attn = fused
        return with_loss(model)

    return make


def torchvisions(_: int) -> tuple[nn.Module, Loss]:
    import torchvision

    return with_loss(torchvision.models.VisionTransformer(
        image_size=IMAGE, patch_size=PATCH, num_layers=SIZES["n_layers"], num_heads=SIZES["n_heads"],
        hidden_dim=SIZES["d_model"], mlp_dim=SIZES["d_ff"], num_classes=CLASSES,
    ))  # fmt: skip


def family() -> Family:
    real = local_folder("cifar10") is not None
    return Family(
        unit="images",
        about=f"{'CIFAR-10' if real else 'noise'}, patch {PATCH}, d_model 192, 6 layers, batch {BATCH}",
        steps=2,
        sides={
            "ours": ours,
            "timm, fused attention": timms(True),
            "timm, explicit attention": timms(False),
            "torchvision": torchvisions,
        },
        tuned=("timm, fused attention", "timm, explicit attention"),
        prepare=prepare, count=lambda batch: len(batch["image"]),
    )  # fmt: skip
