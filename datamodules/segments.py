"""From documents to the rows that BERT reads: pairs of segments, or full sentences packed."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from .tokenizer import CLS, SEP

Document = list[np.ndarray]  # sentences, as token ids
Negative = Literal["random", "swapped", "nothing"]
SHORT = 0.1  # of the rows are shorter than they need be (Devlin et al. 2019, appendix A.2)


class Row(NamedTuple):
    """[CLS] A [SEP] B [SEP], or [CLS] A [SEP].

    Attributes:
        segments: 0 for [CLS] A [SEP], 1 for B [SEP].
        pair: 1 where B is not what follows A, else 0.
    """

    ids: np.ndarray
    segments: np.ndarray
    pair: int


def row(first: np.ndarray, second: np.ndarray | None = None, pair: int = 0) -> Row:
    """Adds the special tokens."""
    if second is None:
        ids = np.concatenate([[CLS], first, [SEP]])
        return Row(ids.astype(np.int32), np.zeros(len(ids), dtype=np.int8), pair)
    ids = np.concatenate([[CLS], first, [SEP], second, [SEP]])
    segments = np.zeros(len(ids), dtype=np.int8)
    segments[len(first) + 2 :] = 1
    return Row(ids.astype(np.int32), segments, pair)


def pairs(documents: list[Document], *, max_length: int, negative: Negative, rng: np.random.Generator) -> list[Row]:
    """Segment pairs (Devlin et al. 2019, section 3.1, task 2, and appendix A.2). A segment is some whole sentences.

    Sentences of a document are gathered until they fill a row; a random first part of them is A. B is the rest, or with
    probability ½ something else, by `negative`:

        random: as much from another document (NSP); the sentences that were meant for B are used again.
        swapped: the same two in the wrong order (sentence-order prediction; Lan et al. 2020, section 3.1).
        nothing: always the rest.

    What is gathered may be a single sentence: its B is then always random under `random`, else the sentence is cut in
    two. Pairs that are too long lose tokens of the longer segment, from its start or end at random.

    Raises:
        ValueError: where there is no other document to draw from.
    """
    if negative == "random" and len(documents) < 2:
        raise ValueError(f"second segments are drawn from other documents: {len(documents)} document is not enough")
    rows: list[Row] = []
    for at in rng.permutation(len(documents)).tolist():
        sentences, start = documents[at], 0
        while start < len(sentences):
            room = max_length - 3
            target = int(rng.integers(2, room + 1)) if rng.random() < SHORT else room
            end, gathered = start, 0
            while end < len(sentences) and gathered < target:
                gathered += len(sentences[end])
                end += 1
            cut = int(rng.integers(start + 1, end)) if end - start > 1 else end
            first = np.concatenate(sentences[start:cut])
            wrong = negative != "nothing" and rng.random() < 0.5
            if negative == "random" and (wrong or cut == end):
                second, wrong, end = elsewhere(documents, at, target - len(first), rng), True, cut
            elif cut == end:  # one sentence
                if len(first) < 2:
                    break
                first, second = np.array_split(first, 2)
            else:
                second = np.concatenate(sentences[cut:end])
            if wrong and negative == "swapped":
                first, second = second, first
            rows.append(row(*truncated(first, second, room, rng), int(wrong)))
            start = end
    return rows


def elsewhere(documents: list[Document], at: int, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Sentences from a random place of another document, until `wanted` tokens are reached."""
    other = int(rng.integers(len(documents) - 1))
    sentences = documents[other + (other >= at)]
    start = end = int(rng.integers(len(sentences)))
    gathered = 0
    while end == start or (end < len(sentences) and gathered < wanted):
        gathered += len(sentences[end])
        end += 1
    return np.concatenate(sentences[start:end])


def truncated(first: np.ndarray, second: np.ndarray, room: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Both within `room`: the longer one loses a token at a time, from its start or end."""
    both = [first, second]
    while len(both[0]) + len(both[1]) > room:
        longer = int(len(both[1]) >= len(both[0]))
        both[longer] = both[longer][1:] if rng.random() < 0.5 else both[longer][:-1]
    return both


def full_sentences(documents: list[Document], *, max_length: int, rng: np.random.Generator) -> list[Row]:
    """Rows filled with sentences as they follow, across the ends of documents, which [SEP] marks (Liu et al. 2019,
    section 4.2, FULL-SENTENCES). A sentence longer than a row is cut into pieces."""
    rows: list[Row] = []
    waiting: list[np.ndarray] = []
    room = max_length - 2

    def flush() -> None:
        if waiting:
            rows.append(row(np.concatenate(waiting)))
            waiting.clear()

    for at in rng.permutation(len(documents)).tolist():
        for sentence in pieces(documents[at], room):
            if sum(map(len, waiting)) + len(sentence) > room:
                flush()
            waiting.append(sentence)
        if sum(map(len, waiting)) + 1 < room:
            waiting.append(np.array([SEP], dtype=np.int32))
    if waiting and waiting[-1][-1] == SEP:
        waiting.pop()
    flush()
    return rows


def pieces(sentences: Document, room: int) -> Iterator[np.ndarray]:
    for sentence in sentences:
        for start in range(0, len(sentence), room):
            yield sentence[start : start + room]
