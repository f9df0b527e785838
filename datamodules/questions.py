"""Extractive question answering, in windows over a context that may be longer than a row."""

from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer
from torchmetrics.functional.text import squad

from .segments import Row, row
from .tasks import Labelled, TaskData


class Window(NamedTuple):
    """A question with a part of its context, which may be too long for one row."""

    row: Row
    question: int  # which
    offsets: np.ndarray  # (position, 2): characters of the context; -1 outside it


class QuestionTask(TaskData):
    """Extractive question answering in SQuAD's form: which span of the context is the answer?

    Args:
        context, question, answers: the columns; answers is {text: […], answer_start: […]}.
        overlap: tokens that two windows on one context share.
        task: the arguments of `TaskData`; max_length is that of a window with its question.

    Scores: exact and f1, in percent, by the official definition (torchmetrics).
    """

    scores = ("exact", "f1")

    def __init__(
        self,
        context: str = "context",
        question: str = "question",
        answers: str = "answers",
        overlap: int = 32,
        **task: Any,
    ) -> None:
        super().__init__(**task)
        self.overlap, self.context, self.question, self.answers = overlap, context, question, answers

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.context, self.question, f"{self.answers}.text", f"{self.answers}.answer_start")

    def form(self) -> dict[str, Any]:
        return {"overlap": self.overlap}

    def labels_of(self, columns: list[list]) -> list[str]:
        return ["start", "end"]

    def rows_of(self, columns: list[list], tokenizer: Tokenizer, labels: list[str], split: str) -> dict[str, Any]:
        rows, windows, gold = [], [], []
        for i, (context, question, texts, starts) in enumerate(zip(*columns, strict=True)):
            for text, start in zip(texts, starts, strict=True):
                if context[start : start + len(text)] != text:
                    raise ValueError(
                        f"row {i} of the split {split!r} of {self.describe()}: the answer {text!r} is not in the "
                        f"context at character {start}"
                    )
            if not texts:
                raise ValueError(f"row {i} of the split {split!r} of {self.describe()}: no answer; each must have one")
            start = starts[0] + len(texts[0]) - len(texts[0].lstrip())
            span = (start, start + len(texts[0].strip()))
            for window in windows_on(tokenizer, question, context, i, self.max_length, self.overlap):
                rows.append(Labelled(window.row, np.array(tokens_of(window.offsets, *span))))
                windows.append(window)
            gold.append({"context": context, "question": question, "answers": list(texts)})
        return {"rows": rows, "windows": windows, "questions": gold}

    def score(self, split: str, predictions: dict[int, tuple[float, int, int]]) -> dict[str, float]:
        windows, questions = self.gold[split]["windows"], self.gold[split]["questions"]
        answers = best_answers(predictions, windows, questions)
        gold = {i: questions[i]["answers"] for i in answers}
        scores = squad(
            [{"id": str(i), "prediction_text": text} for i, text in answers.items()],
            [{"id": str(i), "answers": {"text": texts, "answer_start": [0] * len(texts)}} for i, texts in gold.items()],
        )
        return {"exact": float(scores["exact_match"]), "f1": float(scores["f1"])}


def windows_on(
    tokenizer: Tokenizer, question: str, context: str, number: int, max_length: int, overlap: int
) -> list[Window]:
    """[CLS] question [SEP] part of the context [SEP], as many as cover it."""
    asked = np.array(tokenizer.encode(question, add_special_tokens=False).ids[: max_length // 2], dtype=np.int32)
    encoding = tokenizer.encode(context, add_special_tokens=False)
    ids, offsets = np.array(encoding.ids, dtype=np.int32), np.array(encoding.offsets).reshape(-1, 2)
    room = max_length - 3 - len(asked)
    if overlap >= room:
        raise ValueError(f"data.overlap {overlap} leaves no room: a window holds {room} tokens of the context")
    found = []
    for start in range(0, max(len(ids) - overlap, 1), room - overlap):
        part = slice(start, start + room)
        whole = row(asked, ids[part])
        places = np.full((len(whole.ids), 2), -1)
        places[len(asked) + 2 : -1] = offsets[part]
        found.append(Window(whole, number, places))
    return found


def tokens_of(offsets: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """First and last token of a span of characters; [CLS] twice where the window does not hold all of it."""
    inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start) & (offsets[:, 0] >= 0))
    if not len(inside) or offsets[inside[0], 0] > start or offsets[inside[-1], 1] < end:
        return 0, 0
    return int(inside[0]), int(inside[-1])


def best_answers(
    predictions: dict[int, tuple[float, int, int]], windows: list[Window], questions: list[dict[str, Any]]
) -> dict[int, str]:
    """question → the text of the best span of all its windows."""
    best: dict[int, tuple[float, str]] = {}
    for i, (score, first, last) in predictions.items():
        window = windows[i]
        text = questions[window.question]["context"][window.offsets[first, 0] : window.offsets[last, 1]]
        if window.question not in best or score > best[window.question][0]:
            best[window.question] = score, text
    return {question: text for question, (_, text) in best.items()}
