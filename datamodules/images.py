"""Images with a class each: scikit-learn's digits, and any image data set of `datasets`, folders of files included.

split → ImageExamples → {"image": (batch, channels, size, size), "label": (batch, classes), "index": (batch,)}
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from .augmentation import AUGMENT, MIX, OF_THE_WHOLE, normalised
from .base import HELD_OUT, SequenceData, class_number, columns_of, open_dataset
from .batching import Examples
from .pixels import Decoded, Pixels, open_pixels

Look = tuple[np.ndarray, np.ndarray]


class ImageExamples(Examples):
    """One split. Random transforms depend on (seed, epoch, image) alone, whatever worker or rank draws them.

    Args:
        pixels: the images as they are.
        classes: of each image.
        n_labels: how many there are.
        look: (mean, sd) of each channel, in 0 … 255.
        augment, mix: what happens to an image and to a batch, by their names.
    """

    def __init__(
        self,
        pixels: Pixels,
        classes: np.ndarray,
        n_labels: int,
        look: Look,
        augment: str = "none",
        mix: str = "none",
    ) -> None:
        self.pixels, self.classes, self.n_labels, self.look = pixels, classes, n_labels, look
        self.image = pixels.whole if augment in OF_THE_WHOLE else pixels.__getitem__
        self.augment, self.mix, self.drawn = AUGMENT[augment](pixels.size), MIX[mix](n_labels), (0, 0)
        self.lengths = np.ones((len(classes), 1), dtype=np.int64)  # a batch is so many images

    def draw(self, seed: int, epoch: int) -> None:
        self.drawn = seed, epoch

    def __len__(self) -> int:
        return len(self.classes)

    def __getitems__(self, index: list[int]) -> dict[str, torch.Tensor]:
        with torch.random.fork_rng(devices=[]):
            images = normalised(torch.stack([self.augmented(i) for i in index]), *self.look)
            images, label = self.mix(images, torch.from_numpy(self.classes[index]))
        if label.ndim == 1:
            label = F.one_hot(label, self.n_labels)
        return {"image": images, "label": label.float(), "index": torch.tensor(index)}

    def augmented(self, i: int) -> torch.Tensor:
        torch.default_generator.manual_seed(int(np.random.SeedSequence([*self.drawn, i]).generate_state(1)[0]))
        return self.augment(torch.from_numpy(self.image(i)))

    def content(self) -> Iterator[np.ndarray]:
        yield self.classes
        yield from self.pixels.content()


def as_it_is(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The examples are collated where they are mixed."""
    return batch


class ImageData(SequenceData):
    """Images in batches of `batch_size`.

    Args:
        augment: in training; crop moves an image by up to an eighth of its size, crop_flip mirrors it, too; rand adds
            RandAugment (two operations of strength 9) and random erasing; resized_crop cuts out 8 to 100 % and mirrors,
            resized_crop_rand adds RandAugment and erasing. All of them torchvision's.
        mix: of training images: none, mixup (α 0.8), cutmix (α 1), or both, half of the batches each.
        train_share: the part of the training images of each class that is used; less is part of more.
        batch_size: images of a training step; several ranks share them.
        num_workers: loader processes.
    """

    collate = staticmethod(as_it_is)
    whole_batches = True

    def __init__(
        self,
        *,
        augment: str,
        mix: str,
        train_share: float,
        batch_size: int,
        num_workers: int,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"data.batch_size {batch_size} must be at least 1")
        if not 0 < train_share <= 1:
            raise ValueError(f"data.train_share {train_share} must lie above 0 and be at most 1")
        super().__init__(batch_tokens=batch_size, num_workers=num_workers)
        self.augment, self.mix, self.train_share = augment, mix, train_share

    @abstractmethod
    def read(self) -> tuple[dict[str, tuple[Pixels, list[str]]], list[str], Look]:
        """split → images and the names of their classes; all classes in order; mean and sd of each channel."""

    def prepare(self) -> dict[str, Any]:
        read, labels, look = self.read()
        seen, examples = set(read["train"][1]), {}
        for split, (pixels, names) in read.items():
            known = {name: class_number(labels, name, split, self.describe(), seen) for name in set(names)}
            classes = np.array([known[name] for name in names])
            change = {"augment": self.augment, "mix": self.mix} if split == "train" else {}
            examples[split] = ImageExamples(pixels, classes, len(labels), look, **change)
        return {"examples": examples, "labels": labels}

    def where(self) -> dict[str, Any]:
        return {"augment": self.augment, "mix": self.mix, "share": self.train_share}

    @property
    def n_labels(self) -> int:
        self.load()
        return len(self.labels)

    @property
    def image_size(self) -> int:
        self.load()
        return self.examples["train"].pixels.size

    @property
    def channels(self) -> int:
        self.load()
        return self.examples["train"].pixels.channels

    def state_dict(self) -> dict[str, Any]:
        """Travels in every checkpoint, for `ablate try`."""
        mean, sd = self.examples["train"].look
        return {"labels": self.labels, "mean": mean.tolist(), "sd": sd.tolist()}


class Digits(ImageData):
    """scikit-learn's handwritten digits: 1,797 grey images of 8 × 8 (Alpaydin and Kaynak 1998), 1,000 to train on, 297
    to validate, 500 to test; always the same ones.

    Args:
        augment, mix, train_share, batch_size, num_workers: see `ImageData`.
    """

    def __init__(
        self,
        augment: Literal["none", "crop"] = "none",
        mix: Literal["none", "mixup", "cutmix", "both"] = "none",
        train_share: float = 1.0,
        batch_size: int = 100,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            augment=augment, mix=mix, train_share=train_share, batch_size=batch_size, num_workers=num_workers
        )

    def read(self) -> tuple[dict[str, tuple[Pixels, list[str]]], list[str], Look]:
        from sklearn.datasets import load_digits

        images, classes = load_digits(return_X_y=True)
        images = (images.reshape(-1, 1, 8, 8) * 255 / 16).round().astype(np.uint8)
        order = np.random.default_rng(0).permutation(len(images))
        train = share_of_each_class(order[:1000], classes, self.train_share)
        parts = {"train": train, "valid": order[1000:1297], "test": order[1297:]}
        read = {split: (Decoded(images[part]), [str(c) for c in classes[part]]) for split, part in parts.items()}
        return read, [str(c) for c in range(10)], look_of(read["train"][0])


class Images(ImageData):
    """Any image data set of `datasets` with a column of images and one of classes.

    Args:
        dataset: a hub name, or a folder (from the working directory, the project, or $ABLATE_DATA): parquet files, or
            torchvision's form, train/CLASS/FILE.
        image, label: the columns.
        config: the data set's configuration on the hub, if it has several.
        train, valid, test: the splits' names; valid: held_out takes a tenth of the training split, the same in every
            run.
        colour: as_they_are: all images must agree; rgb and grey convert.
        image_size: pixels of a side: other images are resized and cut to the middle square; as_they_are: all images
            must be square and equal.
        decode: once: into one file of plain pixels beside the data sets' cache, read by memory map; each_time: by the
            loader's workers, for what is too large. With it a training image keeps its own form until it is cut.
        look: of the pixels: measured (mean and sd of the training images' channels become 0 and 1), or imagenet's.
        augment, mix, train_share, batch_size, num_workers: see `ImageData`.
    """

    def __init__(
        self,
        dataset: str,
        image: str = "image",
        label: str = "label",
        config: str | None = None,
        train: str = "train",
        valid: str = "validation",
        test: str = "test",
        colour: Literal["as_they_are", "rgb", "grey"] = "as_they_are",
        image_size: int | Literal["as_they_are"] = "as_they_are",
        decode: Literal["once", "each_time"] = "once",
        look: Literal["measured", "imagenet"] = "measured",
        augment: Literal["none", "crop", "crop_flip", "rand", "resized_crop", "resized_crop_rand"] = "crop_flip",
        mix: Literal["none", "mixup", "cutmix", "both"] = "none",
        train_share: float = 1.0,
        batch_size: int = 128,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            augment=augment, mix=mix, train_share=train_share, batch_size=batch_size, num_workers=num_workers
        )
        if decode == "each_time" and (image_size == "as_they_are" or look == "measured"):
            raise ValueError("data.decode each_time needs a number for data.image_size, and data.look imagenet")
        self.dataset, self.config, self.columns = dataset, config, (image, label)
        self.splits = {"train": train, "valid": valid, "test": test}
        self.form = {"colour": colour, "image_size": image_size, "decode": decode}
        self.look = look

    def where(self) -> dict[str, Any]:
        of_data = {"dataset": self.dataset, "config": self.config, "columns": self.columns, "splits": self.splits}
        return super().where() | of_data | self.form | {"look": self.look}

    def describe(self) -> str:
        return f"data set {self.dataset!r}"

    def read(self) -> tuple[dict[str, tuple[Pixels, list[str]]], list[str], Look]:
        loaded = open_dataset(self.dataset, self.config)
        read = {}
        for split, name in self.splits.items():
            if name != HELD_OUT:
                (classes,) = columns_of(loaded, self.dataset, name, self.columns[1:])
                pixels = open_pixels(loaded[name], self.columns[0], f"{name!r} of {self.describe()}", **self.form)
                read[split] = pixels, list(map(str, classes))
        pixels, classes = read["train"]
        order = np.random.default_rng(0).permutation(len(classes))
        held = 0 if "valid" in read else max(1, len(order) // 10)
        used = share_of_each_class(order[held:], np.array(classes), self.train_share)
        parts = {"train": used} | ({"valid": order[:held]} if held else {})
        for split, part in parts.items():
            part = np.sort(part)
            read[split] = pixels.part(part), [classes[i] for i in part]
        look = look_of(read["train"][0]) if self.look == "measured" else IMAGENET
        if len(look[0]) != pixels.channels:
            raise ValueError(f"data.look {self.look} is for coloured images; these are grey: give data.colour rgb")
        named = getattr(loaded[self.splits["train"]].features[self.columns[1]], "names", None)
        labels = named or sorted(set(read["train"][1]), key=natural)
        return {split: read[split] for split in ("train", "valid", "test")}, labels, look


IMAGENET = np.array([0.485, 0.456, 0.406]) * 255, np.array([0.229, 0.224, 0.225]) * 255


def share_of_each_class(order: np.ndarray, classes: np.ndarray, share: float) -> np.ndarray:
    """The first of each class in this order, at least one; less is part of more."""
    kept = [
        some[: max(1, round(share * len(some)))]
        for c in np.unique(classes[order])
        for some in [order[classes[order] == c]]
    ]
    return order[np.isin(order, np.concatenate(kept))]


def look_of(pixels: Decoded) -> Look:
    """Mean and sd of each channel, in 0 … 255."""
    counts = np.zeros((pixels.channels, 256), dtype=np.int64)
    for some in pixels.content():
        counts += [np.bincount(some[:, c].ravel(), minlength=256) for c in range(pixels.channels)]
    share, value = counts / counts.sum(1, keepdims=True), np.arange(256)
    mean = share @ value
    return mean, np.sqrt(share @ value**2 - mean**2).clip(1e-3)


def natural(name: str) -> tuple[int, int, str]:
    """Sorts 2 before 10."""
    return (0, int(name), name) if name.isdigit() else (1, 0, name)
