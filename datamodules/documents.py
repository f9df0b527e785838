"""Documents for BERT's pre-training: the embedded stories, and any data set of documents that `datasets` opens."""

import sys
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from . import toy_documents
from .base import SequenceData, columns_of, open_dataset
from .batching import Examples, padded
from .segments import Document, Negative, Row, full_sentences, pairs
from .tokenizer import encode_plain, train_tokenizer

NEGATIVE: dict[str, Negative] = {"mlm+nsp": "random", "mlm": "random", "mlm+sop": "swapped"}
FIXED = 20181011  # evaluation rows are the same in every run


class Rows(Examples):
    """The rows of one split; drawn anew at each epoch of training."""

    def __init__(self, documents: list[Document], input_format: str, negative: Negative, max_length: int) -> None:
        self.documents, self.input_format, self.negative, self.max_length = (
            documents, input_format, negative, max_length,
        )  # fmt: skip
        self.draw(FIXED, 0)
        self.fixed = self.rows

    def draw(self, seed: int, epoch: int) -> None:
        rng = np.random.default_rng([seed, epoch])
        self.rows = INPUT_FORMAT[self.input_format](self.documents, self.max_length, self.negative, rng)
        self.lengths = np.array([[len(row.ids)] for row in self.rows], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[int, Row]:
        return index, self.rows[index]

    def content(self) -> Iterator[np.ndarray]:
        for document in self.documents:
            yield from document
        for row in self.fixed:  # not those of an epoch, which depend on the seed
            yield row.ids


INPUT_FORMAT = {
    "pairs": lambda documents, length, negative, rng: pairs(documents, max_length=length, negative=negative, rng=rng),
    "full_sentences": lambda documents, length, negative, rng: full_sentences(documents, max_length=length, rng=rng),
}


def collate(rows: list[tuple[int, Row]], continues: np.ndarray) -> dict[str, torch.Tensor]:
    """{"ids", "segments", "continues": (batch, position), "pair", "index": (batch,)}, padded at the end.

    Args:
        continues: for each word piece whether it goes on with a word (`##s`), for masks of whole words.
    """
    index, found = zip(*rows, strict=True)
    ids = padded([row.ids for row in found])
    return {
        "ids": ids,
        "continues": torch.from_numpy(continues[ids.numpy()]),
        "segments": padded([row.segments for row in found], 0),
        "pair": torch.tensor([row.pair for row in found]),
        "index": torch.tensor(index),
    }


class DocumentData(SequenceData):
    """Rows of word pieces for an encoder. A subclass says where the documents come from.

    A batch is what `collate` gives; masks are the model's business. Training rows are drawn anew at each epoch. The
    split `test` has true pairs, the same for every objective and format; `pairs` has the objective's own, for the
    accuracy of its second task.

    Args:
        objective: the model's, which says what a wrong second segment is.
        input_format: pairs: two segments (Devlin et al. 2019); full_sentences: packed, without pairs (Liu et al. 2019).
        vocab_size: the most word pieces.
        case: lower: upper case and accents are removed; kept.
        batch_tokens, num_workers: see `SequenceData`.
        max_length: tokens of a row, [CLS] and [SEP] included.

    Raises:
        ValueError: where a second task has no pairs, or no second document to draw from.
    """

    def __init__(
        self,
        *,
        objective: Literal["mlm+nsp", "mlm", "mlm+sop"],
        input_format: Literal["pairs", "full_sentences"],
        vocab_size: int,
        case: Literal["lower", "kept"],
        batch_tokens: int,
        max_length: int,
        num_workers: int,
    ) -> None:
        super().__init__(batch_tokens=batch_tokens, num_workers=num_workers)
        if objective != "mlm" and input_format != "pairs":
            raise ValueError(f"objective {objective} asks about pairs of segments: data.input_format must be pairs")
        if max_length < 8:
            raise ValueError(f"data.max_length {max_length}: a pair with its special tokens needs at least 8")
        self.objective, self.input_format, self.max_length = objective, input_format, max_length
        self.wanted_size, self.case = vocab_size, case
        self.test_splits = ["test"] if objective == "mlm" else ["test", "pairs"]

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """What the documents depend on."""

    @abstractmethod
    def read(self) -> dict[str, list[list[str]]]:
        """The documents of train, valid and test, as lists of sentences."""

    def where(self) -> dict[str, Any]:
        return self.source() | {
            "objective": self.objective, "format": self.input_format, "size": self.wanted_size, "case": self.case,
            "length": self.max_length,
        }  # fmt: skip

    def prepare(self) -> dict[str, Any]:
        text = {split: self.filled(split, documents) for split, documents in self.read().items()}
        lines = (line for document in text["train"] for line in document)
        kind = "wordpiece" if self.case == "lower" else "wordpiece-cased"
        tokenizer = train_tokenizer(lines, kind=kind, vocab_size=self.wanted_size)
        ids = {split: encoded(tokenizer, documents) for split, documents in text.items()}
        wrong = NEGATIVE[self.objective]
        examples = {
            "train": Rows(ids["train"], self.input_format, wrong, self.max_length),
            "valid": Rows(ids["valid"], self.input_format, wrong, self.max_length),
            "test": Rows(ids["test"], "pairs", "nothing", self.max_length),
        }
        if self.objective != "mlm":
            examples["pairs"] = Rows(ids["test"], "pairs", wrong, self.max_length)
        continues = np.array([tokenizer.id_to_token(i).startswith("##") for i in range(tokenizer.get_vocab_size())])
        return {"tokenizer": tokenizer, "examples": examples, "collate": partial(collate, continues=continues)}

    def filled(self, split: str, documents: list[list[str]]) -> list[list[str]]:
        """Documents without their empty lines; empty documents are left out, and that is said.

        Raises:
            ValueError: where none is left.
        """
        kept = [[line for line in document if line.strip()] for document in documents]
        full = [document for document in kept if document]
        if not full:
            raise ValueError(f"the split {split!r} of {self.describe()} has no document with text")
        if len(full) < len(kept):
            print(f"{len(kept) - len(full)} of {len(kept)} documents of {split!r} are empty: left out", file=sys.stderr)
        return full

    def own_splits(self) -> list[str]:
        return ["train", "valid", "test"]  # `pairs` are test's documents once more

    @property
    def vocab_size(self) -> int:
        self.load()
        return self.tokenizer.get_vocab_size()

    @property
    def longest(self) -> int:
        return self.max_length

    def state_dict(self) -> dict[str, Any]:
        """Travels in every checkpoint, for fine-tuning and `ablate try`."""
        return {"tokenizer": self.tokenizer.to_str()}


def encoded(tokenizer, documents: list[list[str]]) -> list[Document]:
    """Sentences as ids; a sentence without a token is left out."""
    ids = iter(encode_plain(tokenizer, [line for document in documents for line in document]))
    sentences = [[next(ids) for _ in document] for document in documents]
    return [kept for document in sentences if (kept := [sentence for sentence in document if len(sentence)])]


class ToyDocuments(DocumentData):
    """The embedded stories, see `toy_documents`; nothing to download.

    Args:
        train_documents, held_out: stories of the training split, and of each of valid and test.
        The others: see `DocumentData`.
    """

    def __init__(
        self,
        objective: Literal["mlm+nsp", "mlm", "mlm+sop"],
        input_format: Literal["pairs", "full_sentences"] = "pairs",
        train_documents: int = 10_000,
        held_out: int = 200,
        vocab_size: int = 400,
        batch_tokens: int = 2048,
        max_length: int = 64,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            objective=objective, input_format=input_format, vocab_size=vocab_size, case="lower",
            batch_tokens=batch_tokens, max_length=max_length, num_workers=num_workers,
        )  # fmt: skip
        self.sizes = {"train": train_documents, "held_out": held_out}

    def source(self) -> dict[str, Any]:
        return self.sizes

    def read(self) -> dict[str, list[list[str]]]:
        made = toy_documents.documents(**self.sizes)
        return {split: [document.lines() for document in documents] for split, documents in made.items()}


class TextDocuments(DocumentData):
    """Any data set of documents of `datasets`, by hub name or local folder; a line of the text is a sentence.

    Args:
        dataset: a hub name or a folder (from the working directory, the project, or $ABLATE_DATA).
        config: the data set's configuration on the hub, if it has several.
        text: the column.
        train, valid, test: the splits' names.
        The others: see `DocumentData`.

    Raises:
        ValueError: as `open_dataset`, `columns_of` and `DocumentData` do.
    """

    def __init__(
        self,
        dataset: str,
        objective: Literal["mlm+nsp", "mlm", "mlm+sop"],
        input_format: Literal["pairs", "full_sentences"] = "pairs",
        config: str | None = None,
        text: str = "text",
        train: str = "train",
        valid: str = "validation",
        test: str = "test",
        vocab_size: int = 8000,
        case: Literal["lower", "kept"] = "lower",
        batch_tokens: int = 4096,
        max_length: int = 128,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            objective=objective, input_format=input_format, vocab_size=vocab_size, case=case,
            batch_tokens=batch_tokens, max_length=max_length, num_workers=num_workers,
        )  # fmt: skip
        self.dataset, self.config, self.column = dataset, config, text
        self.splits = {"train": train, "valid": valid, "test": test}

    def source(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "config": self.config, "column": self.column, "splits": self.splits}

    def describe(self) -> str:
        return f"data set {self.dataset!r}"

    def read(self) -> dict[str, list[list[str]]]:
        loaded = open_dataset(self.dataset, self.config)
        texts = {s: columns_of(loaded, self.dataset, name, (self.column,))[0] for s, name in self.splits.items()}
        return {split: [text.splitlines() for text in column] for split, column in texts.items()}
