"""Weights for a ViT to start from: ours, or timm's under its own names, at another image size where need be."""

import sys
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from datamodules.local import checkpoint_path

if TYPE_CHECKING:
    from .vit import Vit

GRID = "network.position.table"
HEAD = ("head.weight", "head.bias")
SAME = ("n_heads", "d_k", "norm", "activation", "score_divisor", "position", "pooling", "network")
OF_LAYER = {
    "norm1": "residuals.0.norm", "attn.qkv": "self_attention.query_key_value", "attn.proj": "self_attention.output",
    "norm2": "residuals.1.norm", "mlp.fc1": "feed_forward.inner", "mlp.fc2": "feed_forward.outer",
}  # fmt: skip
OF_MODEL = {"patch_embed.proj": "network.patches.project", "norm": "network.encoder.final_norm", "head": "head"}


def start_from(checkpoint: str, model: "Vit") -> None:
    """Loads what the file holds; the head only if it has as many classes. timm's files do not say how many heads the
    attention has, nor its activation: these must be given as they were.

    Raises:
        ValueError: no such file, other weights than a ViT's, or other sizes or choices, naming the first.
    """
    weights, own = read(checkpoint, dict(model.hparams)), model.state_dict()
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


def read(checkpoint: str, settings: dict[str, Any]) -> dict[str, Tensor]:
    """A checkpoint's weights under our names.

    Args:
        settings: the model's; a checkpoint of ours must have been made by the same choices.
    """
    path = checkpoint_path(checkpoint)
    path = path / "model.safetensors" if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"no checkpoint {checkpoint!r}: give a run's folder, a .ckpt, .safetensors or .pth file")
    try:
        kept = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, weights_only=True, map_location="cpu")
        )
        weights = dict(kept.get("state_dict", kept.get("model", kept)))
        weights = from_timm(weights) if "patch_embed.proj.weight" in weights else weights
    except Exception as error:  # whatever is wrong with a file that is no checkpoint
        raise ValueError(f"{checkpoint} cannot be read as weights ({type(error).__name__}: {error})") from error
    theirs, ours = (flat(made) for made in (kept.get("hyper_parameters", {}), settings))
    for name in set(theirs) & set(SAME):
        if theirs[name] != ours[name]:
            raise ValueError(f"{checkpoint} was made with {name} {theirs[name]}, this model with {ours[name]}")
    return weights


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings.get("arch", {}), **settings}


def from_timm(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm's `vit_*`: names exchanged, the convolution's kernels flattened, x_class and its position added up."""
    kept, ours = dict(theirs), {}
    grid = kept.pop("pos_embed", None)
    if "cls_token" in kept:
        ours["network.pooling.vector"] = kept.pop("cls_token")[0, 0]
        if grid is not None and round(grid.shape[1] ** 0.5) ** 2 == grid.shape[1] - 1:  # else it has no position
            ours["network.pooling.vector"] = ours["network.pooling.vector"] + grid[0, 0]
            grid = grid[:, 1:]
    if grid is not None:
        ours[GRID] = grid[0]
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
