"""Tagging: a class for every word, in chunks."""

import sys
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from .segments import Row
from .tasks import IGNORED, UNSEEN, Labelled, TaskData
from .tokenizer import CLS, SEP, UNK


class TaggingTask(TaskData):
    """A tag for every word, in IOB2 (B-…, I-…, O). The label stands on a word's first piece; the others are ignored.

    Args:
        tokens, tags: the columns.
        task: the arguments of `TaskData`. Words beyond max_length have no prediction and count as O.

    A tag that training has never seen cannot be predicted: it is said, counts as missed, and is left out of the nll.

    Scores, in percent: f1 of whole chunks (seqeval, as CoNLL's evaluation), and accuracy of the words.
    """

    scores = ("f1", "accuracy")

    def __init__(self, tokens: str = "tokens", tags: str = "tags", **task: Any) -> None:
        super().__init__(**task)
        self.words, self.tags = tokens, tags

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.words, self.tags)

    def labels_of(self, columns: list[list]) -> list[str]:
        return sorted({str(tag) for sentence in columns[1] for tag in sentence} | {"O"})

    def rows_of(self, columns: list[list], tokenizer: Tokenizer, labels: list[str], split: str) -> dict[str, Any]:
        rows, gold, known = [], [], {label: i for i, label in enumerate(labels)}
        unseen = sorted({str(tag) for tags in columns[1] for tag in tags} - set(labels))
        if unseen:
            said = f"tags of {split!r} that training has never seen count as missed: {', '.join(unseen)}"
            print(said, file=sys.stderr)
        for words, tags in zip(*columns, strict=True):
            if len(words) != len(tags):
                row = f"{self.describe()}, split {split!r}"
                raise ValueError(f"{row}: {len(words)} words and {len(tags)} tags: {words}")
            ids, firsts = pieces_of(tokenizer, words, self.max_length)
            numbers = [known.get(str(tag), UNSEEN) for tag in tags]
            label = np.full(len(ids), IGNORED)
            for number, first in zip(numbers, firsts, strict=False):
                label[first] = number
            rows.append(Labelled(Row(ids, np.zeros(len(ids), dtype=np.int8), 0), label))
            gold.append(list(map(str, tags)))
        return {"rows": rows, "tags": gold}

    def score(self, split: str, predictions: dict[int, list[int]]) -> dict[str, float]:
        from seqeval.metrics import f1_score

        gold = [self.gold[split]["tags"][i] for i in predictions]
        found = [[self.labels[n] for n in tags] + ["O"] * (len(wanted) - len(tags))
                 for tags, wanted in zip(predictions.values(), gold, strict=True)]  # fmt: skip
        words = [a == b for x, y in zip(found, gold, strict=True) for a, b in zip(x, y, strict=True)]
        return {"f1": 100 * float(f1_score(gold, found)), "accuracy": 100 * sum(words) / len(words)}


def pieces_of(tokenizer: Tokenizer, words: list[str], max_length: int) -> tuple[np.ndarray, list[int]]:
    """[CLS] pieces [SEP], and where each word that fits begins. A word without a piece is an unknown one."""
    ids, firsts = [CLS], []
    for word in words:
        pieces = tokenizer.encode(word, add_special_tokens=False).ids or [UNK]
        if len(ids) + len(pieces) + 1 > max_length:
            break
        firsts.append(len(ids))
        ids += pieces
    return np.array([*ids, SEP], dtype=np.int32), firsts
