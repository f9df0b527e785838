"""Weights for a ViT to start from: ours, or timm's under its own names, at another image size where need be."""

import sys
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file
from torch import Tensor

from datamodules.local import checkpoint_path

if TYPE_CHECKING:
    from .vit import Vit

GRID = "network.position.table"
HEAD = ("head.weight", "head.bias")
OF_LAYER = {
    "norm1": "residuals.0.norm", "attn.qkv": "self_attention.query_key_value", "attn.proj": "self_attention.output",
    "norm2": "residuals.1.norm", "mlp.fc1": "feed_forward.inner", "mlp.fc2": "feed_forward.outer",
}  # fmt: skip
OF_MODEL = {"patch_embed.proj": "network.patches.project", "norm": "network.encoder.final_norm", "head": "head"}


def start_from(checkpoint: str, model: "Vit") -> None:
    """Loads what the file holds; the head only if it has as many classes.

    Raises:
        ValueError: no such file, other weights than a ViT's, or other sizes, naming the first.
    """
    weights, own = read(checkpoint), model.state_dict()
    if weights.get("head.weight", torch.empty(0)).shape != own["head.weight"].shape:
        print(f"{checkpoint}: its head is for another number of classes: this one starts anew", file=sys.stderr)
        weights |= {name: own[name] for name in HEAD}
    if GRID in weights and GRID in own and weights[GRID].shape[1:] == own[GRID].shape[1:]:
        weights[GRID] = resampled(weights[GRID], len(own[GRID]))
    if odd := set(weights) ^ set(own):
        name = min(odd)
        raise ValueError(f"{checkpoint}: {name} is {'not in the file' if name in own else 'nowhere in this model'}")
    for name, weight in weights.items():
        if weight.shape != own[name].shape:
            shapes = f"{tuple(weight.shape)} in the file, {tuple(own[name].shape)} in this model"
            raise ValueError(f"{checkpoint}: {name} is {shapes}")
    model.load_state_dict(weights)


def read(checkpoint: str) -> dict[str, Tensor]:
    """A checkpoint's weights under our names."""
    path = checkpoint_path(checkpoint)
    path = path / "model.safetensors" if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"no checkpoint {checkpoint!r}: give a run's folder, a .ckpt, .safetensors or .pth file")
    weights = (
        load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True, map_location="cpu")
    )
    weights = weights.get("state_dict", weights)
    return from_timm(weights) if "patch_embed.proj.weight" in weights else weights


def from_timm(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm's `vit_*`: names exchanged, the convolution's kernels flattened, x_class and its position added up."""
    kept = dict(theirs)
    grid = kept.pop("pos_embed")[0]
    ours = {}
    if "cls_token" in kept:
        ours["network.pooling.vector"] = kept.pop("cls_token")[0, 0] + grid[0]
        grid = grid[1:]
    ours[GRID] = grid
    for name, weight in kept.items():
        module, _, kind = name.rpartition(".")
        if module.startswith("blocks."):
            _, i, part = module.split(".", 2)
            ours[f"network.encoder.layers.{i}.{OF_LAYER.get(part, part)}.{kind}"] = weight
        else:
            ours[f"{OF_MODEL.get(module, module)}.{kind}"] = weight.flatten(1) if weight.ndim == 4 else weight
    return ours


def resampled(grid: Tensor, patches: int) -> Tensor:
    """(n², d_model) → (patches, d_model) by bicubic interpolation; the same where the sizes are equal."""
    from timm.layers import resample_abs_pos_embed

    side = round(patches**0.5)
    return resample_abs_pos_embed(grid[None], [side, side], num_prefix_tokens=0)[0]
