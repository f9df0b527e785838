"""Tasks: labels on first pieces, windows and spans, official scores, and bad rows."""

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Sequence, Value

from datamodules.questions import QuestionTask, tokens_of, windows_on
from datamodules.tagging import TaggingTask, pieces_of
from datamodules.tasks import IGNORED, SentenceTask, cut_to
from datamodules.tokenizer import CLS, SEP, train_tokenizer
from lit_modules.bert import Bert
from lit_modules.choices import Arch
from lit_modules.finetuning import Tagging
from lit_modules.optimization import Optim

TEXT = ["playing unbelievable games with the old dog", "the cat sleeps in the garden", "running away from home"] * 30


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXT, kind="wordpiece", vocab_size=60)


@pytest.fixture(scope="module")
def checkpoint(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "bert.ckpt"
    model = Bert(arch=Arch(d_model=8, n_heads=2, n_layers=1, d_ff=8), optim=Optim(lr=1e-3, warmup_steps=1), vocab_size=60)
    parts = {"hyper_parameters": dict(model.hparams), "state_dict": model.state_dict()}
    torch.save(parts | {"data": {"tokenizer": tokenizer.to_str()}}, path)
    return str(path)


def written(folder, features=None, **splits):
    for split, rows in splits.items():
        Dataset.from_dict(rows, features=features).to_parquet(folder / f"{split}.parquet")
    return str(folder)


SENTENCES = {"text": ["the dog", "the cat", "a cat"], "label": ["d", "c", "c"]}


def test_classes_have_names_and_a_held_out_tenth_is_the_same_in_every_run(checkpoint, tmp_path):
    rows = {"text": [f"the dog {i}" for i in range(100)], "label": [i % 3 for i in range(100)]}
    features = Features({"text": Value("string"), "label": ClassLabel(names=["low", "middle", "high"])})
    folder = written(tmp_path, features, train=rows, test=rows)
    one, other = (SentenceTask(dataset=folder, checkpoint=checkpoint, valid="held_out") for _ in range(2))
    one.load()
    other.load()
    assert one.labels == ["high", "low", "middle"] and one.n_labels == 3
    assert len(one.examples["valid"]) == 10 and len(one.examples["train"]) == 90
    assert one.fingerprint == other.fingerprint
    assert one.score("test", {0: 1, 1: 1, 2: 0}) == {"accuracy": pytest.approx(200 / 3), "chance": pytest.approx(100 / 3)}


def test_two_sentences_are_two_segments_and_the_longer_is_cut(checkpoint, tmp_path):
    rows = {"one": ["the dog"], "two": ["the cat sleeps in the garden"], "label": [1]}
    folder = written(tmp_path, train=rows, validation=rows, test=rows)
    data = SentenceTask(dataset=folder, checkpoint=checkpoint, text="one", second="two", max_length=9)
    data.load()
    row = data.examples["train"].rows[0].row
    assert row.ids[0] == CLS and (row.ids == SEP).sum() == 2 and len(row.ids) == 9
    first = 2 + len(data.tokenizer.encode("the dog", add_special_tokens=False).ids)
    assert row.segments.tolist() == [0] * first + [1] * (9 - first) and row.ids[first - 1] == SEP
    assert [len(part) for part in cut_to([np.arange(2), np.arange(9)], 6)] == [2, 4]


def test_the_label_stands_on_the_first_piece_of_a_word(tokenizer):
    ids, firsts = pieces_of(tokenizer, ["playing", "unbelievable", "dog", "☃"], max_length=64)
    pieces = [tokenizer.id_to_token(i) for i in ids]
    assert len(firsts) == 4 and any(piece.startswith("##") for piece in pieces)
    assert all(not pieces[first].startswith("##") for first in firsts) and pieces[firsts[3]] == "[UNK]"
    short, fitting = pieces_of(tokenizer, ["playing"] * 30, max_length=10)
    assert len(short) <= 10 and len(fitting) < 30 and short[-1] == SEP


def test_chunks_are_scored_by_hand_and_words_beyond_the_row_count_as_o(checkpoint, tmp_path):
    rows = {"tokens": [["the", "old", "dog", "sleeps"]], "tags": [["B-NP", "I-NP", "I-NP", "B-VP"]]}
    data = TaggingTask(dataset=written(tmp_path, train=rows, validation=rows, test=rows), checkpoint=checkpoint)
    data.load()
    assert data.labels == ["B-NP", "B-VP", "I-NP", "O"]
    label = data.examples["train"].rows[0].label
    assert label[0] == IGNORED and label[label != IGNORED].tolist() == [0, 2, 2, 1]
    assert data.score("test", {0: [0, 2, 2, 1]}) == {"f1": 100.0, "accuracy": 100.0}
    half = data.score("test", {0: [0, 2, 3, 1]})  # NP too short, VP right: precision 1/2, recall 1/2
    assert half == {"f1": pytest.approx(50.0), "accuracy": pytest.approx(75.0)}
    cut = data.score("test", {0: [0, 2]})  # one chunk found, and it is not one of the two
    assert cut == {"f1": 0.0, "accuracy": pytest.approx(50.0)}


def test_a_tag_that_training_has_never_seen_is_said_and_counts_as_missed(checkpoint, tmp_path, capsys):
    """CoNLL-2000's test split has one."""
    rows = {"tokens": [["the", "dog"], ["a", "cat"]], "tags": [["B-X", "O"]] * 2}
    test = {"tokens": [["the", "dog"]], "tags": [["B-X", "B-Y"]]}
    data = TaggingTask(dataset=written(tmp_path, train=rows, validation=rows, test=test), checkpoint=checkpoint)
    data.load()
    assert "tags of 'test' that training has never seen count as missed: B-Y" in capsys.readouterr().err
    assert data.score("test", {0: [0, 1]}) == {"f1": pytest.approx(200 / 3), "accuracy": 50.0}
    batch = data.collate([data.examples["test"][0]])
    model = Tagging(optim=Optim(lr=1e-3, warmup_steps=1), checkpoint=checkpoint, n_labels=2).eval()
    loss = model.training_loss(batch)
    assert loss.tokens == 1
    assert len(model.predicted(model.logits(batch), batch)[0]) == 2, "it is predicted all the same"


def test_tags_may_be_classes(checkpoint, tmp_path):
    names = Sequence(ClassLabel(names=["O", "B-X"]))
    features = Features({"tokens": Sequence(Value("string")), "tags": names})
    rows = {"tokens": [["the", "dog"]], "tags": [[0, 1]]}
    data = TaggingTask(dataset=written(tmp_path, features, train=rows, validation=rows, test=rows), checkpoint=checkpoint)
    data.load()
    assert data.labels == ["B-X", "O"]


CONTEXT = "the cat sleeps in the garden with the old dog running away from home playing unbelievable games"


def test_windows_cover_the_context_and_the_answer_is_found_in_characters(tokenizer):
    answer = "old dog"
    start = CONTEXT.index(answer)
    windows = windows_on(tokenizer, "who sleeps", CONTEXT, 0, max_length=24, overlap=6)
    assert len(windows) > 2
    seen = set()
    for window in windows:
        assert len(window.row.ids) <= 24 and window.row.ids[0] == CLS
        inside = window.offsets[:, 0] >= 0
        assert (window.row.segments[inside] == 1).all() and not inside[-1]
        seen |= {(int(a), int(b)) for a, b in window.offsets[inside]}
        first, last = tokens_of(window.offsets, start, start + len(answer))
        whole = window.offsets[inside][0, 0] <= start and window.offsets[inside][-1, 1] >= start + len(answer)
        assert ((first, last) != (0, 0)) == bool(whole)
        if whole:
            assert CONTEXT[window.offsets[first, 0] : window.offsets[last, 1]] == answer
    assert seen == set(tokenizer.encode(CONTEXT, add_special_tokens=False).offsets)


def squad_rows(answer="the old dog", start=None):
    start = CONTEXT.index("the old dog") if start is None else start
    return {"context": [CONTEXT], "question": ["who runs"], "answers": [{"text": [answer], "answer_start": [start]}]}


def test_the_best_window_answers_and_the_score_is_the_official_one(checkpoint, tmp_path):
    folder = written(tmp_path, **dict.fromkeys(("train", "validation", "test"), squad_rows()))
    data = QuestionTask(dataset=folder, checkpoint=checkpoint, max_length=24, overlap=6)
    data.load()
    windows = data.gold["test"]["windows"]
    start = CONTEXT.index("the old dog")
    held = {i: tokens_of(w.offsets, start, start + 11) for i, w in enumerate(windows)}
    good = next(i for i, span in held.items() if span != (0, 0))
    other = next(i for i in held if i != good)
    inside = int(np.flatnonzero(windows[other].offsets[:, 0] >= 0)[0])
    predictions = {good: (2.0, *held[good]), other: (1.0, inside, inside)}
    assert data.score("test", predictions) == {"exact": 100.0, "f1": 100.0}  # articles do not count
    first, last = held[good]
    pieces = windows[good].offsets
    old = next(i for i in range(first, last + 1) if pieces[i, 0] >= start + 4)
    partly = data.score("test", {good: (2.0, old, last)})
    assert partly == {"exact": 100.0, "f1": 100.0}, "`old dog` and `the old dog` are one answer"
    dog = next(i for i in range(first, last + 1) if pieces[i, 0] >= start + 8)
    partly = data.score("test", {good: (2.0, dog, last)})
    assert partly["exact"] == 0.0 and partly["f1"] == pytest.approx(100 * 2 / 3, abs=1e-3)
    assert data.score("test", predictions | {other: (3.0, inside, inside)})["exact"] == 0.0


@pytest.mark.parametrize("task, rows, test, message", [
    (SentenceTask, SENTENCES, {"text": ["x"], "label": ["new"]}, "'test' of .* has the label 'new', which training has never seen; it has c, d"),
    (SentenceTask, {"text": ["x"]}, {"text": ["x"]}, "no column 'label'; it has text"),
    (TaggingTask, {"tokens": [["a"]], "tags": [["B-X"]]}, {"tokens": [["a", "b"]], "tags": [["B-X"]]}, "'test': 2 words and 1 tags: "),
    (QuestionTask, squad_rows(), squad_rows(answer="the young dog"), "row 0 of the split 'test' .*: the answer 'the young dog' is not in the context at character"),
    (QuestionTask, squad_rows(), {**squad_rows(), "answers": [{"text": [], "answer_start": []}]}, "no answer; each must have one"),
])  # fmt: skip
def test_bad_rows_are_one_message(task, rows, test, message, checkpoint, tmp_path):
    features = None
    if task is QuestionTask:
        answers = {"text": Sequence(Value("string")), "answer_start": Sequence(Value("int32"))}
        features = Features({"context": Value("string"), "question": Value("string"), "answers": answers})
    folder = written(tmp_path, features, train=rows, validation=rows, test=test)
    with pytest.raises(ValueError, match=message):
        task(dataset=folder, checkpoint=checkpoint).load()


def test_too_much_overlap_is_one_message(checkpoint, tmp_path):
    folder = written(tmp_path, **dict.fromkeys(("train", "validation", "test"), squad_rows()))
    with pytest.raises(ValueError, match="data.overlap 30 leaves no room"):
        QuestionTask(dataset=folder, checkpoint=checkpoint, max_length=24, overlap=30).load()
