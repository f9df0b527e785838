"""What a trained model looks like inside, on one example of validation: matrices that the dashboard and W&B draw."""

import json
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from datamodules.tokenizer import pieces
from lit_modules.base import AblationModule

from .result import INSIDE

LONGEST = 20  # tokens of a sequence that still reads well in a picture
PIXELS = 12  # of a cell, where W&B shows it


def look_inside(model: AblationModule, data: L.LightningDataModule) -> dict[str, Any]:
    """title → rows, columns (tokens, or None where a number says enough) and weights, row by row."""
    training = model.training
    model.eval()
    with torch.no_grad():
        batch = model.transfer_batch_to_device(one_example(data), model.device, 0)
        found = {
            picture.title: {
                "rows": named(data, picture.rows),
                "columns": named(data, picture.columns),
                "weights": [[round(float(w), 3) for w in row] for row in picture.matrix],
            }
            for picture in model.pictures(batch)
        }
    model.train(training)
    return found


def one_example(data: L.LightningDataModule) -> dict[str, Tensor]:
    """The first of validation that is not long, the first of all if every one is."""
    short = np.flatnonzero(data.examples["valid"].lengths.max(1) <= LONGEST)
    return data.batch_of("valid", [int(short[0]) if len(short) else 0])


def named(data: L.LightningDataModule, ids: Tensor | None) -> list[str] | None:
    return None if ids is None else pieces(data.tokenizer, ids)


def write(found: dict[str, Any], folder: Path) -> None:
    if found:
        (folder / INSIDE).write_text(json.dumps(found, ensure_ascii=False) + "\n")


def images(found: dict[str, Any]) -> dict[str, Image.Image]:
    """Dark where the weight is large, each picture by its own largest."""
    drawn = {}
    for title, matrix in found.items():
        weights = np.array(matrix["weights"])
        shade = 255 * (1 - (weights - weights.min()) / max(np.ptp(weights), 1e-9))
        image = Image.fromarray(shade.astype(np.uint8))
        drawn[title] = image.resize((image.width * PIXELS, image.height * PIXELS), Image.Resampling.NEAREST)
    return drawn
