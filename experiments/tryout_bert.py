"""`ablate try` with an encoder: fills masks, classifies, tags and answers, a line at a time."""

import sys

import numpy as np
import torch
from torch import Tensor

from datamodules.questions import Window, best_answers, windows_on
from datamodules.segments import Row, row
from datamodules.tagging import pieces_of
from datamodules.tasks import IGNORED, Labelled, collate, sentence_rows
from datamodules.tokenizer import MASK, UNK
from lit_modules.base import AblationModule
from lit_modules.bert import Bert
from lit_modules.finetuning import Classification, QuestionAnswering, Tagging

BEST = 5  # fillings of a mask that are shown
READS = {
    Bert: "write a text a line, with [MASK] where something is missing; two segments are parted by a tab",
    Classification: "write a sentence a line; two sentences are parted by a tab",
    Tagging: "write a sentence a line, words and marks parted by spaces",
    QuestionAnswering: "write a question, a tab and the text that has the answer, on one line",
}


@torch.no_grad()
def say(model: AblationModule, tokenizer, labels: list[str], line: str) -> None:
    """Prints what the model makes of one line."""
    texts = [text.strip() for text in line.split("\t")]
    longest = model.network.embedding.position.longest or 512
    next(action for kind, action in DOES.items() if isinstance(model, kind))(model, tokenizer, labels, texts, longest)


def fill(model: Bert, tokenizer, labels: list[str], texts: list[str], longest: int) -> None:
    """The likeliest pieces for each mask; from a left-to-right model, for what comes after the text."""
    parts = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts[:2]]
    batch = batch_of([whole(row(*map(as_ids, parts)), longest)])
    known(tokenizer, batch)
    logits = model.head(model.network(batch["ids"], batch["segments"]))[0].softmax(-1)
    masks = (batch["ids"][0] == MASK).nonzero()[:, 0].tolist()
    if model.hparams["direction"] == "causal":
        if masks:
            print("a left-to-right model fills no masks: it goes on where the text ends", file=sys.stderr)
        masks = [len(batch["ids"][0]) - 2]  # before the last [SEP]
    elif not masks:
        print("nothing is missing: write [MASK] for a word", file=sys.stderr)
    for place in masks:
        best = logits[place].topk(BEST)
        shown = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        print("  ".join(f"{tokenizer.id_to_token(i)} {share:.3f}" for share, i in shown))


def classify(model: Classification, tokenizer, labels: list[str], texts: list[str], longest: int) -> None:
    rows = sentence_rows(tokenizer, [[text] for text in texts[:2]], longest)
    batch = batch_of(rows)
    known(tokenizer, batch)
    shares = model.logits(batch)[0].softmax(-1)
    print("  ".join(f"{labels[i]} {shares[i]:.3f}" for i in shares.argsort(descending=True).tolist()))


def tag(model: Tagging, tokenizer, labels: list[str], texts: list[str], longest: int) -> None:
    words = texts[0].split()
    ids, firsts = pieces_of(tokenizer, words, longest)
    batch = batch_of([Row(ids, 0 * ids.astype("int8"), 0)])
    known(tokenizer, batch)
    tags = model.logits(batch)[0].argmax(-1)[firsts].tolist()
    if len(firsts) < len(words):
        print(f"cut after {len(firsts)} words", file=sys.stderr)
    print(" ".join(f"{word}/{labels[i]}" for word, i in zip(words, tags, strict=False)))


def answer(model: QuestionAnswering, tokenizer, labels: list[str], texts: list[str], longest: int) -> None:
    if len(texts) < 2:
        print("write the question, a tab, and the text that has the answer", file=sys.stderr)
        return
    question, context = texts[:2]
    windows: list[Window] = windows_on(tokenizer, question, context, 0, longest, longest // 4)
    batch = batch_of([window.row for window in windows])
    known(tokenizer, batch)
    found = dict(enumerate(model.predicted(model.logits(batch), batch)))
    print(best_answers(found, windows, [{"context": context}])[0])


DOES = {Bert: fill, Classification: classify, Tagging: tag, QuestionAnswering: answer}


def as_ids(ids: list[int]):
    return np.array(ids, dtype=np.int32)


def whole(one: Row, longest: int) -> Row:
    if len(one.ids) > longest:
        print(f"cut to {longest} tokens", file=sys.stderr)
    return Row(one.ids[:longest], one.segments[:longest], 0)


def batch_of(rows: list[Row]) -> dict[str, Tensor]:
    return collate([(i, Labelled(one, as_ids([IGNORED]))) for i, one in enumerate(rows)])


def known(tokenizer, batch: dict[str, Tensor]) -> None:
    """Says how many pieces the model does not know."""
    if unknown := int((batch["ids"] == UNK).sum()):
        print(f"{unknown} pieces are not in the vocabulary of {tokenizer.get_vocab_size()}", file=sys.stderr)
