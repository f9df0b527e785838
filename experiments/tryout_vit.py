"""`ablate try` with a ViT: what an image is taken for, and pictures of what the model looks at."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from datamodules.augmentation import normalised
from datamodules.pixels import array_of, converted, fitted
from experiments.launch.question import BadInput
from lit_modules.components.attention import attention_weights
from lit_modules.components.diagnostics import attention_rollout
from lit_modules.vit import Vit

BEST = 5  # classes that are shown
COMPONENTS = 28  # of the filters (Dosovitskiy et al. 2021, figure 7)


@torch.no_grad()
def look_at(model: Vit, data: dict[str, Any], files: list[Path], picture: Path | None) -> None:
    """Prints the likeliest classes of each image, and draws the first.

    Raises:
        BadInput: no image, or a file that is none.
    """
    if not files:
        raise BadInput("this model reads images: ablate try RUN_FOLDER IMAGE…")
    for i, file in enumerate(files):
        pixels = opened(file, model.hparams["image_size"], model.hparams["channels"])
        image = normalised(torch.from_numpy(pixels)[None], np.array(data["mean"]), np.array(data["sd"]))
        shares = model(image)[0].float().softmax(-1)
        best = shares.topk(min(BEST, len(shares)))
        named = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        print(f"{file}  " + "  ".join(f"{data['labels'][c]} {share:.3f}" for share, c in named))
        if i == 0:
            draw(model, image, pixels, picture or Path(f"{file.stem}.attention.html"), asked=picture is not None)


def opened(file: Path, size: int, channels: int) -> np.ndarray:
    """(channels, size, size), uint8; says what had to be changed."""
    try:
        image = ImageOps.exif_transpose(Image.open(file))  # as `datasets` does
        image.load()
    except Exception as error:  # a broken file may raise almost anything in PIL
        raise BadInput(f"{file} is no image that can be read: {error}") from error
    mode = {1: "L", 3: "RGB"}[channels]
    if image.mode != mode:
        print(f"{file}: of mode {image.mode}, read as {mode}, as the model was trained", file=sys.stderr)
    if min(image.size) < size:
        print(f"{file}: {image.width} × {image.height} pixels, enlarged to {size} × {size}", file=sys.stderr)
    try:
        return array_of(fitted(converted(image, mode, str(file)), size))
    except ValueError as error:
        raise BadInput(str(error)) from error


def draw(model: Vit, image: Tensor, pixels: np.ndarray, path: Path, asked: bool) -> None:
    from experiments.pictures import save
    from experiments.pictures_vit import page

    with attention_weights(model.network) as seen:
        model.network(image)
    if not seen:
        if asked:
            raise BadInput(f"--picture: a {model.hparams['network']} has no attention to draw")
        return
    weights = [attended.weights[0].float() for attended in seen.values()]
    side = model.network.patches.grid
    maps = {f"layer {i}": model.network.over_patches(layer) for i, layer in enumerate(weights)}
    rollout = model.network.over_patches(attention_rollout(weights))
    places = model.network.position_similarity()
    filters = principal_filters(model)
    save(page(pixels, maps, rollout, None if places is None else places.unflatten(1, (side, side)), filters), path)
    print(f"attention of the first image, positions and filters: {path}", file=sys.stderr)


def principal_filters(model: Vit) -> Tensor:
    """(component, channels, P, P): principal components of the patch embedding's filters, the largest first."""
    embed = model.network.patches
    filters = embed.project.weight.float()
    components = torch.linalg.svd(filters - filters.mean(0), full_matrices=False).Vh[:COMPONENTS]
    return components.unflatten(1, (-1, embed.patch_size, embed.patch_size))
