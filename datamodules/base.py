"""What every datamodule here shares: prepared once a process, batches by a budget, resume within an epoch."""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch.utils.data import DataLoader

from . import toy_tasks
from .batching import Examples, TokenBudget, loader
from .local import local_folder

HELD_OUT = "held_out"  # the word for a validation split that is a tenth of the training split
PREPARED: dict[type, tuple[str, dict[str, Any]]] = {}


class SequenceData(L.LightningDataModule):
    """Examples in batches of about equal length; an image counts as one. A subclass says where they come from.

    Args:
        batch_tokens: slots of a training step, padding included; several ranks share them, so that a step is the same
            size on one device and on many.
        num_workers: loader processes.

    Attributes:
        examples: split → its examples; train, valid and those of `test_splits`.
        collate: examples → batch.
    """

    collate: Callable[[list], dict[str, torch.Tensor]]
    whole_batches = False  # see `TokenBudget`

    def __init__(self, *, batch_tokens: int, num_workers: int) -> None:
        super().__init__()
        self.batch_tokens, self.num_workers = batch_tokens, num_workers
        self.test_splits = ["test"]
        self.examples: dict[str, Examples] = {}

    @abstractmethod
    def where(self) -> dict[str, Any]:
        """What the examples depend on."""

    @abstractmethod
    def prepare(self) -> dict[str, Any]:
        """The attributes that loading sets, `examples` among them."""

    def load(self) -> None:
        """Reads, trains the tokeniser and encodes: once a process for the same arguments."""
        if self.examples:
            return
        key, kind = repr(self.where()), type(self)
        if PREPARED.get(kind, ("",))[0] != key:
            PREPARED.pop(kind, None)  # one data set of a kind is enough to hold
            PREPARED[kind] = key, self.prepare()
        vars(self).update(PREPARED[kind][1])

    def describe(self) -> str:
        return type(self).__name__

    @property
    def fingerprint(self) -> str:
        """Hash of all token ids of `own_splits`."""
        digest = hashlib.sha256()
        for split in self.own_splits():
            digest.update(split.encode())
            for sequence in self.examples[split].content():
                digest.update(sequence.tobytes())
        return digest.hexdigest()[:16]

    def own_splits(self) -> list[str]:
        """Those that are no second view of another."""
        return list(self.examples)

    def setup(self, stage: str) -> None:
        self.load()

    def batches(self, split: str) -> TokenBudget:
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        return TokenBudget(
            self.examples[split],
            budget=self.batch_tokens,
            shuffle=split == "train",
            seed=torch.initial_seed() % 2**63,
            rank=rank,
            world=world,
            whole=self.whole_batches,
        )

    def batch_of(self, split: str, index: list[int]) -> dict[str, torch.Tensor]:
        """Some examples of a split as a batch, fetched as a loader does."""
        examples = self.examples[split]
        fetched = examples.__getitems__(index) if hasattr(examples, "__getitems__") else [examples[i] for i in index]
        return self.collate(fetched)

    def train_dataloader(self) -> DataLoader:
        batches = self.batches("train")
        if self.trainer:  # a resumed run goes on where it stood in its epoch
            epoch = self.trainer.fit_loop.epoch_progress.current.processed
            batches.set_epoch(epoch)
            batches.read = epoch, self.trainer.fit_loop.epoch_loop.batch_progress.current.ready
        return loader(batches, self.collate, workers=self.num_workers)

    def val_dataloader(self) -> DataLoader:
        return loader(self.batches("valid"), self.collate, workers=self.num_workers)

    def test_dataloader(self) -> list[DataLoader]:
        return [loader(self.batches(split), self.collate, workers=self.num_workers) for split in self.test_splits]


def open_dataset(dataset: str, config: str | None = None):
    """Every split of a data set, by hub name or local folder; or a task on the embedded stories, see `toy_tasks`.

    Raises:
        ValueError: where it cannot be opened.
    """
    import datasets  # half a second that the embedded language need not pay

    if dataset in toy_tasks.TASKS:
        return {split: datasets.Dataset.from_dict(rows) for split, rows in toy_tasks.splits(dataset).items()}
    folder = local_folder(dataset)
    if folder is None and "/" not in dataset:  # `datasets` would take any folder of that name it has ever prepared
        raise ValueError(
            f"data set {dataset!r} cannot be opened: no folder of that name here, in the project or in $ABLATE_DATA; "
            "a name on the hub has the form OWNER/NAME"
        )
    try:
        if folder and (splits := split_folders(folder)):
            return datasets.load_dataset(str(folder), data_files={split: f"{split}/**" for split in splits})
        return datasets.load_dataset(str(folder or dataset), None if folder else config)
    except (ValueError, OSError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"data set {dataset!r} cannot be opened (a folder with its files, or a hub name): {error}"
        ) from error


def split_folders(folder: Path) -> list[str]:
    """The splits of torchvision's form, SPLIT/CLASS/FILE; empty for any other. `datasets` would look for the splits'
    names anywhere in a path, and take a class that is called `train` for one."""
    inside = [path for path in folder.iterdir() if not path.name.startswith(".")]
    in_form = all(path.is_dir() and any(below.is_dir() for below in path.iterdir()) for path in inside)
    return sorted(path.name for path in inside) if in_form else []


def columns_of(loaded, dataset: str, split: str, columns: tuple[str, ...]) -> list[list]:
    """The columns of one split; inside a nested one with a dot (`translation.en`).

    Raises:
        ValueError: at a missing split or column, naming the known ones, and at an empty split.
    """
    if split not in loaded:
        raise ValueError(f"data set {dataset!r} has no split {split!r}; it has {', '.join(loaded)}")
    rows = loaded[split].flatten()
    for column in columns:
        if column not in rows.column_names:
            raise ValueError(f"data set {dataset!r} has no column {column!r}; it has {', '.join(rows.column_names)}")
    if not len(rows):
        raise ValueError(f"the split {split!r} of data set {dataset!r} is empty")
    return [named(rows, column) for column in columns]


def named(rows, column: str) -> list:
    """The values; classes by their names, where the data set has any."""
    feature, values = rows.features[column], list(rows[column])
    if names := getattr(feature, "names", None):
        return [names[value] if value >= 0 else str(value) for value in values]
    if names := getattr(getattr(feature, "feature", None), "names", None):
        return [[names[value] for value in sequence] for sequence in values]
    return values


def class_number(labels: list[str], label: str, split: str, whose: str, seen: Collection[str] | None = None) -> int:
    """A class's number among the labels.

    Args:
        seen: those of the training split, where some labels may have no example there.

    Raises:
        ValueError: at a class that the training split has not.
    """
    seen = labels if seen is None else seen
    if label not in seen:
        raise ValueError(
            f"the split {split!r} of {whose} has the label {label!r}, which training has never seen; it has "
            f"{', '.join(name for name in labels if name in seen)}"
        )
    return labels.index(label)
