"""Sentence pairs for translation: the embedded toy language, and any parallel data set that `datasets` opens."""

import random
from abc import abstractmethod
from typing import Any, Literal

import torch

from . import toy_language
from .base import SequenceData, columns_of, open_dataset
from .batching import Pairs, collate
from .tokenizer import decode, encode, train_tokenizer

# languages whose abbreviations Moses' tokeniser knows, and whose words stand apart
MOSES = ("ca cs de el en es fi fr hu is it lt lv nl pl pt ro ru sk sl sv ta").split()
Texts = dict[str, tuple[list[str], list[str]]]  # split → (sources, targets)


class TranslationData(SequenceData):
    """Tokenised, length-bucketed sentence pairs. A subclass says where the texts come from.

    A batch is {"source": (batch, source), "target": (batch, target + 1), "index": (batch,)}: sources end with EOS,
    targets begin with BOS and end with EOS.

    Args:
        tokenizer: bpe (byte-level, shared by both languages), bpe-lower (the same in small letters, in which the
            translations are written and scored, too) or word.
        vocab_size: the most entries of the shared vocabulary.
        batch_tokens: slots of a training step, source and target with their padding; several ranks share them, so that
            a step is the same size on one device and on many.
        max_length: tokens of a sequence, BOS and EOS included; longer ones are cut in training and evaluation alike.
        num_workers: loader processes.
    """

    collate = staticmethod(collate)

    def __init__(
        self,
        *,
        tokenizer: Literal["bpe", "bpe-lower", "word"],
        vocab_size: int,
        batch_tokens: int,
        max_length: int,
        num_workers: int,
    ) -> None:
        super().__init__(batch_tokens=batch_tokens, num_workers=num_workers)
        self.kind, self.wanted_size, self.max_length = tokenizer, vocab_size, max_length
        self.lowercase = tokenizer == "bpe-lower"

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """What the texts depend on."""

    def where(self) -> dict[str, Any]:
        return self.source() | {"kind": self.kind, "size": self.wanted_size, "max_length": self.max_length}

    @abstractmethod
    def read(self) -> Texts:
        """The texts of train, valid, test and any further test split."""

    def prepare(self) -> dict[str, Any]:
        text = self.read()
        for split, (sources, _) in text.items():
            if not sources:
                raise ValueError(f"the split {split!r} of {self.describe()} is empty")
        if self.lowercase:
            text = {split: (sources, [line.lower() for line in targets]) for split, (sources, targets) in text.items()}
        tokenizer = train_tokenizer(text["train"][0] + text["train"][1], kind=self.kind, vocab_size=self.wanted_size)
        pairs = {
            split: Pairs(
                encode(tokenizer, sources, max_length=self.max_length, bos=False),
                encode(tokenizer, targets, max_length=self.max_length, bos=True),
            )
            for split, (sources, targets) in text.items()
        }
        return {"text": text, "tokenizer": tokenizer, "examples": pairs}

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary as trained; the model's embedding is made for it."""
        self.load()
        return self.tokenizer.get_vocab_size()

    @property
    def language(self) -> str | None:
        """Of the targets, as Moses' tokeniser names it; None where it has no business."""
        return None

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that the model will see."""
        self.load()
        return max(int(pairs.lengths.max()) for pairs in self.examples.values())

    def state_dict(self) -> dict[str, str]:
        """Travels in every checkpoint, so that `ablate try` needs no data."""
        return {"tokenizer": self.tokenizer.to_str()}

    # ---- back to text

    def texts(self, ids: torch.Tensor) -> list[str]:
        """Detokenised lines, cut at the first EOS."""
        return decode(self.tokenizer, ids)

    def sources(self, split: str) -> list[str]:
        return self.text[split][0]

    def references(self, split: str) -> list[str]:
        return self.text[split][1]


class ToyTranslation(TranslationData):
    """English to German in the embedded toy language, see `toy_language`; nothing to download.

    Args:
        train_pairs, eval_pairs: sentences of the training split, and of each of valid, test and long.
        max_words: the longest source sentence of train, valid and test, in words. The split `long` has only sentences
            of `toy_language.LONG` words, so at the default they are longer than any in training.
        batch_tokens, num_workers: see `TranslationData`.
    """

    def __init__(
        self,
        train_pairs: int = 40_000,
        eval_pairs: int = 500,
        max_words: int = 24,
        batch_tokens: int = 1000,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            tokenizer="word", vocab_size=10_000, batch_tokens=batch_tokens, max_length=128, num_workers=num_workers
        )
        self.sizes = {"train_pairs": train_pairs, "eval_pairs": eval_pairs, "max_words": max_words}
        self.test_splits = ["test", "long"]

    def source(self) -> dict[str, Any]:
        return self.sizes

    def read(self) -> Texts:
        return toy_language.splits(**self.sizes)


class RandomTargets(TranslationData):
    """Random words with random translations: there is nothing to learn, so whoever predicts has seen the answer.

    Every target token is drawn anew from `words` words, each as likely as the other, and no sentence has an end: an
    honest model's nll on sentences that it has not trained on is at least ln(words), and a lower one is a leak.

    Args:
        words: of the vocabulary.
        length: words of a sentence, source and target.
        train_pairs, eval_pairs: sentences of the training split (enough for no second epoch), of valid and of test.
        batch_tokens, num_workers: see `TranslationData`.
    """

    def __init__(
        self,
        words: int = 64,
        length: int = 16,
        train_pairs: int = 20_000,
        eval_pairs: int = 300,
        batch_tokens: int = 1000,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            tokenizer="word", vocab_size=words + 4, batch_tokens=batch_tokens, max_length=128, num_workers=num_workers
        )
        self.sizes = {"words": words, "length": length, "train_pairs": train_pairs, "eval_pairs": eval_pairs}

    def source(self) -> dict[str, Any]:
        return self.sizes

    def read(self) -> Texts:
        drawn, words, length = random.Random(20170612), self.sizes["words"], self.sizes["length"]
        held_out = self.sizes["eval_pairs"]
        counts = {"train": self.sizes["train_pairs"], "valid": held_out, "test": held_out}

        def lines(count: int) -> list[str]:
            return [" ".join(f"w{drawn.randrange(words)}" for _ in range(length)) for _ in range(count)]

        return {split: (lines(count), lines(count)) for split, count in counts.items()}

    def prepare(self) -> dict[str, Any]:
        prepared = super().prepare()
        endless = {s: Pairs(p.sources, [t[:-1] for t in p.targets]) for s, p in prepared["examples"].items()}
        return prepared | {"examples": endless}


class ParallelText(TranslationData):
    """Any parallel data set of `datasets`, by hub name or local folder, on one code path.

    Args:
        dataset: a hub name (`bentrevett/multi30k`) or a folder (tried from the working directory, then the project).
        config: the data set's configuration on the hub, if it has several; a local folder has none.
        source, target: the columns; inside a nested one with a dot (`translation.en`).
        train, valid, test: the splits' names.
        tokenizer, vocab_size, batch_tokens, max_length, num_workers: see `TranslationData`.

    Raises:
        ValueError: where it cannot be opened; at a missing column or split, naming the known ones; at an empty split.
    """

    def __init__(
        self,
        dataset: str,
        source: str = "en",
        target: str = "de",
        config: str | None = None,
        train: str = "train",
        valid: str = "validation",
        test: str = "test",
        tokenizer: Literal["bpe", "bpe-lower", "word"] = "bpe",
        vocab_size: int = 8000,
        batch_tokens: int = 4096,
        max_length: int = 128,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            tokenizer=tokenizer, vocab_size=vocab_size, batch_tokens=batch_tokens, max_length=max_length,
            num_workers=num_workers,
        )  # fmt: skip
        self.dataset, self.config = dataset, config
        self.columns, self.splits = (source, target), {"train": train, "valid": valid, "test": test}

    def source(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "config": self.config, "columns": self.columns, "splits": self.splits}

    def describe(self) -> str:
        return f"data set {self.dataset!r}"

    @property
    def language(self) -> str | None:
        last = self.columns[1].rsplit(".", 1)[-1]
        return last if last in MOSES else None

    def read(self) -> Texts:
        loaded = open_dataset(self.dataset, self.config)
        return {
            split: tuple(columns_of(loaded, self.dataset, name, self.columns)) for split, name in self.splits.items()
        }
