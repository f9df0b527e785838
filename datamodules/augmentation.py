"""What happens to images in training, all of it torchvision's; and what all images look like to the model."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms import v2

ERASE = {"p": 0.25, "value": 0}


def cropped(size: int) -> v2.Transform:
    """Moved by up to an eighth of the side, black where nothing is."""
    return v2.RandomCrop(size, padding=max(1, size // 8))


def in_a_row(*transforms: Callable[[int], v2.Transform]) -> Callable[[int], v2.Transform]:
    return lambda size: v2.Compose([transform(size) for transform in transforms])


def flipped(size: int) -> v2.Transform:
    return v2.RandomHorizontalFlip()


def rand(size: int) -> v2.Transform:
    """RandAugment (Cubuk et al. 2020), two operations of strength 9."""
    return v2.RandAugment(num_ops=2, magnitude=9)


def erased(size: int) -> v2.Transform:
    return v2.RandomErasing(**ERASE)


def resized(size: int) -> v2.Transform:
    """8 to 100 % of the image, of about its shape (Szegedy et al. 2015)."""
    return v2.RandomResizedCrop(size, antialias=True)


AUGMENT: dict[str, Callable[[int], v2.Transform]] = {
    "none": lambda size: v2.Identity(),
    "crop": cropped,
    "crop_flip": in_a_row(cropped, flipped),
    "rand": in_a_row(cropped, flipped, rand, erased),
    "resized_crop": in_a_row(resized, flipped),
    "resized_crop_rand": in_a_row(resized, flipped, rand, erased),
}
OF_THE_WHOLE = ("resized_crop", "resized_crop_rand")  # these take an image before it is cut to size


def mixup(n_labels: int) -> v2.Transform:
    return v2.MixUp(alpha=0.8, num_classes=n_labels)


def cutmix(n_labels: int) -> v2.Transform:
    return v2.CutMix(alpha=1.0, num_classes=n_labels)


def unmixed(images: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    return images, label


MIX: dict[str, Callable[[int], Callable]] = {
    "none": lambda n_labels: unmixed,
    "mixup": mixup,
    "cutmix": cutmix,
    "both": lambda n_labels: v2.RandomChoice([mixup(n_labels), cutmix(n_labels)]),
}


def normalised(images: Tensor, mean: np.ndarray, sd: np.ndarray) -> Tensor:
    """uint8 (batch, channels, size, size) → floats, each channel's training mean and sd made 0 and 1."""
    mean, sd = (torch.from_numpy(np.asarray(of, dtype=np.float32))[:, None, None] for of in (mean, sd))
    return (images.float() - mean) / sd
