"""Documents to rows: pairs half true, lengths, truncation, packing; and the bad input that documents can be."""

import numpy as np
import pytest
from datasets import Dataset

from datamodules import toy_documents
from datamodules.documents import TextDocuments, ToyDocuments
from datamodules.segments import full_sentences, pairs, truncated
from datamodules.tokenizer import CLS, SEP

SENTENCE = 10  # tokens


def documents(count=40, sentences=12, seed=0):
    """Every token says where it stands: 100,000 · document + 100 · sentence + place, so that origins can be read off."""
    return [
        [np.array([100_000 * (d + 1) + 100 * s + t for t in range(SENTENCE)], dtype=np.int32) for s in range(sentences)]
        for d in range(count)
    ]


def halves(row):
    """Segments A and B without special tokens."""
    first = int((row.segments == 0).sum())
    assert row.ids[0] == CLS and row.ids[first - 1] == SEP and row.ids[-1] == SEP
    return row.ids[1 : first - 1], row.ids[first:-1]


def made(negative, max_length=64, seed=1, **more):
    return pairs(documents(**more), max_length=max_length, negative=negative, rng=np.random.default_rng(seed))


def test_half_of_the_pairs_are_true_and_the_others_from_another_document():
    rows = [row for seed in range(30) for row in made("random", seed=seed)]
    wrong = np.mean([row.pair for row in rows])
    several = [row for row in rows if not row.pair or len(halves(row)[0]) > SENTENCE]
    assert 0.5 <= wrong < 0.62, "half, and those whose first segment is all that was gathered"
    assert len(several) > 1000
    for row in rows:
        a, b = halves(row)
        same = a[-1] // 100_000 == b[0] // 100_000
        assert same != bool(row.pair)
        assert len({token // 100_000 for token in a}) == len({token // 100_000 for token in b}) == 1


def test_a_true_second_segment_is_what_follows():
    for row in made("nothing"):
        a, b = halves(row)
        assert row.pair == 0 and (np.diff(np.concatenate([a, b])) > 0).all()


def test_swapped_pairs_are_the_same_two_in_the_wrong_order():
    rows = [row for seed in range(30) for row in made("swapped", seed=seed)]
    assert abs(np.mean([row.pair for row in rows]) - 0.5) < 0.03
    for row in rows:
        a, b = halves(row)
        assert a[0] // 100_000 == b[0] // 100_000 and (a[0] > b[0]) == bool(row.pair)


def test_nine_in_ten_rows_are_full_and_one_in_ten_is_short():
    lengths = np.array([len(row.ids) for seed in range(20) for row in made("nothing", seed=seed, sentences=100)])
    assert lengths.max() == 64 and lengths.min() < 40
    assert 0.84 < (lengths == 64).mean() < 0.93, "90 % want to be full; a document's end may stop them"


def test_sentences_meant_for_a_segment_that_another_document_filled_are_used_again():
    rows = made("random", sentences=30)
    for document in documents(sentences=30):
        number = document[0][0] // 100_000
        firsts = {int(t) // 100 for row in rows for t in halves(row)[0] if t // 100_000 == number}
        seconds = {int(t) // 100 for row in rows if not row.pair for t in halves(row)[1] if t // 100_000 == number}
        assert len(firsts | seconds) == 30, "no sentence is lost"


def test_the_longer_segment_is_truncated_at_either_end():
    rng, first, second = np.random.default_rng(0), np.arange(100), np.arange(1000, 1010)
    starts = set()
    for _ in range(20):
        a, b = truncated(first, second, 60, rng)
        assert len(a) == 50 and np.array_equal(b, second) and (np.diff(a) == 1).all()
        starts.add(int(a[0]))
    assert len(starts) > 5
    assert [len(part) for part in truncated(first, first, 60, rng)] == [30, 30]


def test_full_sentences_are_packed_across_documents_with_a_separator():
    rows = full_sentences(documents(sentences=7), max_length=64, rng=np.random.default_rng(0))
    tokens = [int(t) for row in rows for t in row.ids[1:-1] if t != SEP]
    assert sorted(tokens) == sorted(int(t) for d in documents(sentences=7) for s in d for t in s), "nothing lost or twice"
    assert all(not row.segments.any() and row.pair == 0 and len(row.ids) <= 64 for row in rows)
    assert np.mean([len(row.ids) for row in rows]) > 56
    for row in rows:
        inner = row.ids[1:-1]
        for i in np.flatnonzero(inner == SEP):
            if 0 < i < len(inner) - 1:
                assert inner[i - 1] // 100_000 != inner[i + 1] // 100_000
        crossings = [i for i in range(len(inner) - 1) if SEP not in inner[i : i + 2]
                     and inner[i] // 100_000 != inner[i + 1] // 100_000]  # fmt: skip
        assert not crossings


def test_a_sentence_longer_than_a_row_is_cut_into_pieces():
    rows = full_sentences([[np.arange(100, 300)]], max_length=64, rng=np.random.default_rng(0))
    assert [len(row.ids) for row in rows] == [64, 64, 64, 16]
    assert np.concatenate([row.ids[1:-1] for row in rows]).tolist() == list(range(100, 300))


# ---- the embedded stories


@pytest.fixture(scope="module")
def toy():
    data = ToyDocuments(objective="mlm+nsp", train_documents=1500)
    data.load()
    return data


def test_padding_is_under_five_percent_and_epochs_differ(toy):
    batches = toy.batches("train")
    assert batches.padding() < 0.01
    first = [row.ids.tolist() for row in toy.examples["train"].rows]
    batches.set_epoch(1)
    batches.batches()
    second = [row.ids.tolist() for row in toy.examples["train"].rows]
    assert first != second
    batches.set_epoch(0)
    batches.batches()
    assert [row.ids.tolist() for row in toy.examples["train"].rows] == first


def test_evaluation_rows_are_the_same_for_every_objective_and_format(toy):
    others = [ToyDocuments(objective="mlm+sop", train_documents=300), ToyDocuments(objective="mlm", train_documents=300),
              ToyDocuments(objective="mlm", input_format="full_sentences", train_documents=300)]  # fmt: skip
    wanted = [toy.tokenizer.decode(row.ids.tolist(), skip_special_tokens=False) for row in toy.examples["test"].rows]
    for other in others:
        other.load()
        found = [other.tokenizer.decode(r.ids.tolist(), skip_special_tokens=False) for r in other.examples["test"].rows]
        assert found == wanted
    same = [ToyDocuments(objective=o, train_documents=300) for o in ("mlm+nsp", "mlm")]
    for data in same:
        data.load()
    assert same[0].fingerprint == same[1].fingerprint != others[0].fingerprint, "mlm reads the pairs of mlm+nsp"
    assert others[0].test_splits == ["test", "pairs"] and others[1].test_splits == ["test"]


def test_the_next_sentence_is_learnable_but_not_from_word_overlap_alone(toy):
    """Who is bound to which adjective decides 94 of 100 pairs; how many words the two share decides 74."""
    from sklearn.ensemble import GradientBoostingClassifier

    def words(row):
        pieces = [toy.tokenizer.id_to_token(i) for i in row.ids]
        first = int((row.segments == 0).sum())
        return pieces[:first], pieces[first:]

    def overlap(row):
        a, b = map(set, words(row))
        return [len(a & b), len(a), len(b), len(a & b) / len(a | b), len(a & b) / len(b)]

    def bindings(row):
        named = [{(p[i + 1], p[i + 2]) for i in range(len(p) - 2) if p[i] == "the"} for p in words(row)]
        new = [{(p[i + 1], p[i + 2]) for i in range(len(p) - 2) if p[i] in ("a", "an")} for p in words(row)]
        known = named[0] | new[0]
        return [len(named[1] & known), len(named[1]), len(known), len(new[1] & known)]

    scores = {}
    for features in (overlap, bindings):
        x, y = [features(r) for r in toy.examples["train"].rows], [r.pair for r in toy.examples["train"].rows]
        model = GradientBoostingClassifier(random_state=0).fit(x, y)
        test = toy.examples["pairs"].rows
        scores[features.__name__] = model.score([features(r) for r in test], [r.pair for r in test])
    assert scores["overlap"] < 0.79 and scores["bindings"] > 0.9, scores


def test_gold_roles_and_questions_belong_to_the_text():
    for document in toy_documents.documents(train=1, held_out=100)["test"]:
        lines = document.lines()
        for parts, line in zip(document.sentences, lines, strict=True):
            assert len(toy_documents.tags(parts)) == len(line.split())
        asked = [question.text for question in document.questions]
        assert len(set(asked)) == len(asked), "no event is asked about twice"
        for question in document.questions:
            answer = " ".join(lines[question.sentence].split()[question.start : question.end])
            assert answer.startswith(("the ", "a ", "an ")) != question.text.startswith("where")
        for name in document.names:
            introduced = [i for i, line in enumerate(lines) if f"a {name}" in line or f"an {name}" in line]
            mentioned = [i for i, line in enumerate(lines) if f"the {name}" in line]
            assert len(introduced) <= 1 and (not mentioned or introduced[0] <= mentioned[0])


# ---- bad input


def written(folder, train, held_out=("one . \n two .", "three .\nfour .")):
    for split, texts in (("train", train), ("validation", held_out), ("test", held_out)):
        Dataset.from_dict({"text": list(texts)}).to_parquet(folder / f"{split}.parquet")
    return str(folder)


STORY = "the dog runs .\nit is red .\nthe cat sleeps ."


def test_documents_of_one_sentence_and_empty_ones_are_read(tmp_path, capsys):
    folder = written(tmp_path, [STORY, "only one sentence here .", "", " \n ", STORY])
    for objective in ("mlm+nsp", "mlm+sop"):
        data = TextDocuments(dataset=folder, objective=objective, vocab_size=100, max_length=32)
        data.load()
        assert "2 of 5 documents of 'train' are empty: left out" in capsys.readouterr().err
        assert len(data.examples["train"]) >= 3


@pytest.mark.parametrize("train, more, message", [
    ([STORY], {}, "second segments are drawn from other documents: 1 document is not enough"),
    (["", " "], {}, "the split 'train' of data set '.*' has no document with text"),
    ([STORY] * 2, {"text": "body"}, "no column 'body'; it has text"),
    ([STORY] * 2, {"valid": "dev"}, "no split 'dev'; it has train, validation, test"),
    ([STORY] * 2, {"max_length": 6}, "max_length 6: a pair with its special tokens needs at least 8"),
    ([STORY] * 2, {"input_format": "full_sentences"}, "objective mlm\\+nsp asks about pairs"),
])  # fmt: skip
def test_bad_documents_are_one_message(train, more, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        TextDocuments(dataset=written(tmp_path, train), objective="mlm+nsp", vocab_size=100, **more).load()


def test_one_document_is_enough_for_sentence_order(tmp_path):
    data = TextDocuments(dataset=written(tmp_path, [STORY]), objective="mlm+sop", vocab_size=100, max_length=32)
    data.load()
    assert len(data.examples["train"]) >= 1
