"""Tasks for a pre-trained encoder; any data set of `datasets` with the columns named. Here: classes of sentences.

`tagging.py` has tags for words, `questions.py` answers to questions.
"""

import random
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from .base import HELD_OUT, SequenceData, class_number, columns_of, open_dataset
from .batching import Examples, padded
from .segments import Row, row
from .tokenizer import encode_plain

IGNORED = -1  # a position without a label
UNSEEN = -2  # a position whose label training has never seen


class Labelled(NamedTuple):
    """A row with what is to be found out about it; the label is one number or one a token."""

    row: Row
    label: np.ndarray


class LabelledRows(Examples):
    """The examples of one split."""

    def __init__(self, rows: list[Labelled]) -> None:
        self.rows = rows
        self.lengths = np.array([[len(example.row.ids)] for example in rows], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[int, Labelled]:
        return index, self.rows[index]

    def content(self) -> Iterator[np.ndarray]:
        for example in self.rows:
            yield from (example.row.ids, example.label)


def collate(examples: list[tuple[int, Labelled]]) -> dict[str, torch.Tensor]:
    """{"ids", "segments": (batch, position), "label": (batch, labels a row), "index": (batch,)}, padded at the end."""
    index, found = zip(*examples, strict=True)
    return {
        "ids": padded([example.row.ids for example in found]),
        "segments": padded([example.row.segments for example in found], 0),
        "label": padded([example.label for example in found], IGNORED),
        "index": torch.tensor(index),
    }


class TaskData(SequenceData):
    """Labelled rows, cut into word pieces by the pre-trained model's own tokeniser.

    Args:
        dataset: a hub name, a folder (from the working directory, the project, or $ABLATE_DATA), or a task on the
            embedded stories (`toy_tasks`).
        checkpoint: the pre-trained model, from the model's settings.
        config: the data set's configuration on the hub, if it has several.
        train, valid, test: the splits' names; valid: held_out takes a tenth of the training split, the same in every
            run.
        max_length: tokens of a row, special ones included; longer ones lose their end.
        batch_tokens, num_workers: see `SequenceData`.

    Attributes:
        labels: the names of the classes, in order.
        scores: what `score` reports.
    """

    collate = staticmethod(collate)
    scores: tuple[str, ...]

    def __init__(
        self,
        *,
        dataset: str,
        checkpoint: str,
        config: str | None = None,
        train: str = "train",
        valid: str = "validation",
        test: str = "test",
        max_length: int = 128,
        batch_tokens: int = 2048,
        num_workers: int = 0,
    ) -> None:
        super().__init__(batch_tokens=batch_tokens, num_workers=num_workers)
        self.dataset, self.config, self.checkpoint, self.max_length = dataset, config, checkpoint, max_length
        self.splits = {"train": train, "valid": valid, "test": test}
        if HELD_OUT in (train, test):
            raise ValueError(f"only data.valid can be {HELD_OUT}: it is a tenth of the training split")

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Those that are read."""

    @abstractmethod
    def rows_of(self, columns: list[list], tokenizer: Tokenizer, labels: list[str], split: str) -> dict[str, Any]:
        """`rows`, the labelled rows, and whatever `score` needs."""

    @abstractmethod
    def labels_of(self, columns: list[list]) -> list[str]:
        """The classes of the training split."""

    @abstractmethod
    def score(self, split: str, predictions: dict[int, Any]) -> dict[str, float]:
        """The task's metrics, from what the model says of each row."""

    def where(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "config": self.config, "columns": self.columns, "splits": self.splits,
                "checkpoint": self.checkpoint, "length": self.max_length, **self.form()}  # fmt: skip

    def form(self) -> dict[str, Any]:
        return {}

    def describe(self) -> str:
        return f"data set {self.dataset!r}"

    def prepare(self) -> dict[str, Any]:
        from lit_modules.pretrained import read

        tokenizer, text = read(self.checkpoint).tokenizer, self.read()
        labels = self.labels_of(text["train"])
        parts = {split: self.rows_of(columns, tokenizer, labels, split) for split, columns in text.items()}
        examples = {split: LabelledRows(part.pop("rows")) for split, part in parts.items()}
        return {"tokenizer": tokenizer, "labels": labels, "examples": examples, "gold": parts}

    def read(self) -> dict[str, list[list]]:
        """split → columns."""
        loaded = open_dataset(self.dataset, self.config)
        wanted = {split: name for split, name in self.splits.items() if name != HELD_OUT}
        text = {split: columns_of(loaded, self.dataset, name, self.columns) for split, name in wanted.items()}
        if "valid" not in text:
            rows = list(zip(*text["train"], strict=True))
            random.Random(0).shuffle(rows)
            tenth = max(1, len(rows) // 10)
            for split, part in (("train", rows[tenth:]), ("valid", rows[:tenth])):
                text[split] = [list(column) for column in zip(*part, strict=True)]
        return text

    @property
    def n_labels(self) -> int:
        self.load()
        return len(self.labels)

    @property
    def longest(self) -> int:
        self.load()
        return max(int(examples.lengths.max()) for examples in self.examples.values())

    def state_dict(self) -> dict[str, Any]:
        """Travels in every checkpoint, for `ablate try`."""
        return {"tokenizer": self.tokenizer.to_str(), "labels": self.labels}


class SentenceTask(TaskData):
    """One class a sentence, or a pair of sentences.

    Args:
        text, label: the columns.
        second: the column of the second sentence; `nothing` for a task on one.
        task: the arguments of `TaskData`.

    Scores, in percent: accuracy, and chance: the share of the commonest class.
    """

    scores = ("accuracy", "chance")

    def __init__(self, text: str = "text", second: str = "nothing", label: str = "label", **task: Any) -> None:
        super().__init__(**task)
        self.texts, self.label = (text,) if second == "nothing" else (text, second), label

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.texts, self.label)

    def labels_of(self, columns: list[list]) -> list[str]:
        return sorted(set(map(str, columns[-1])))

    def rows_of(self, columns: list[list], tokenizer: Tokenizer, labels: list[str], split: str) -> dict[str, Any]:
        *texts, classes = columns
        numbers = [class_number(labels, str(label), split, self.describe()) for label in classes]
        rows = sentence_rows(tokenizer, texts, self.max_length)
        return {"rows": [Labelled(r, np.array([n])) for r, n in zip(rows, numbers, strict=True)], "labels": numbers}

    def score(self, split: str, predictions: dict[int, int]) -> dict[str, float]:
        gold = np.array([self.gold[split]["labels"][i] for i in predictions])
        right = np.array(list(predictions.values())) == gold
        return {"accuracy": 100 * float(right.mean()), "chance": 100 * float(np.bincount(gold).max() / len(gold))}


def sentence_rows(tokenizer: Tokenizer, texts: list[list[str]], max_length: int) -> list[Row]:
    """One sentence, or two, of which the longer loses its end where both are too long."""
    encoded = [list(encode_plain(tokenizer, column)) for column in texts]
    room = max_length - 1 - len(encoded)
    return [row(*cut_to(list(parts), room)) for parts in zip(*encoded, strict=True)]


def cut_to(parts: list[np.ndarray], room: int) -> list[np.ndarray]:
    while sum(map(len, parts)) > room:
        longest = max(range(len(parts)), key=lambda i: len(parts[i]))
        parts[longest] = parts[longest][:-1]
    return parts
