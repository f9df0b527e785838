"""The embedded language: rules by example, splits, speed of making it."""

import pytest

from datamodules import toy_language
from datamodules.toy_language import LONG, Grammar, splits
from datamodules.translation import ToyTranslation


@pytest.fixture(scope="module")
def made():
    return splits(train_pairs=4000, eval_pairs=200, max_words=24)


@pytest.fixture(scope="module")
def pairs():
    grammar = Grammar(seed=3)
    return [grammar.sentence() for _ in range(30_000)]


def test_splits_share_no_sentence_and_keep_their_lengths(made):
    seen = set()
    for split, (english, german) in made.items():
        assert len(english) == len(german) == (4000 if split == "train" else 200)
        assert len(set(english)) == len(english) and not seen & set(english)
        seen |= set(english)
        lengths = [len(line.split()) for line in english]
        low, high = LONG if split == "long" else (4, 24)
        assert low <= min(lengths) and max(lengths) <= high
    assert max(len(e.split()) for e in made["train"][0]) < min(len(e.split()) for e in made["long"][0])


def test_held_out_sentences_do_not_depend_on_the_size_of_training(made):
    other = splits(train_pairs=10, eval_pairs=200, max_words=24)
    assert all(other[split] == made[split] for split in ("valid", "test", "long"))


def test_a_sentence_has_one_translation(pairs):
    targets = {}
    for english, german in pairs:
        assert targets.setdefault(english, german) == german


def test_known_sentences(pairs):
    """Order, agreement and the bracket, by sentences that the grammar must be able to say, found by their pattern."""
    german = dict(pairs)

    def some(*words, without=()):
        return next(
            (e, g) for e, g in german.items() if all(w in e for w in words) and not any(w in e for w in without)
        )

    english, target = some("invites", without=(",", "may", "can"))  # a separable prefix ends the main clause
    assert target.endswith(" ein .") and " lädt " in target
    english, target = some("invites", "because", without=("who", "invites no", "whom"))
    clause = target.split("weil")[1].split(" , ")[0] if english.index("because") < english.index("invites") else target
    assert "einlädt" in clause or " lädt " in clause
    english, target = some("has seen", without=(",",))
    assert target.endswith(" gesehen .") and " hat " in target
    english, target = some("today", without=(",",))
    assert "heute" in target


def test_german_finite_verb_is_second_after_a_fronted_time(pairs):
    times = {"today": "heute", "now": "jetzt", "often": "oft", "always": "immer", "sometimes": "manchmal"}
    fronted = [(e, g) for e, g in pairs if e.split()[0] in times and "," not in e]
    assert len(fronted) > 100
    finite = set()
    for kind in (
        toy_language.ACCUSATIVE_VERBS,
        toy_language.DATIVE_VERBS,
        toy_language.GIVING_VERBS,
        toy_language.INTRANSITIVE_VERBS,
    ):
        finite |= {form for verb in kind for form in verb[4:6]}
    finite |= {"hat", "haben"} | {form for modal in toy_language.MODALS for form in modal[1:]}
    for english, german in fronted:
        first, second = german.split()[:2]
        assert first == times[english.split()[0]] and second in finite


def test_articles_agree_in_case():
    """Subject and object of a masculine noun, by hand."""
    people = dict((p.english, p) for p in toy_language.all_noun_phrases(toy_language.NOUNS, toy_language.ADJECTIVES))
    assert people["an old dog"].german == ("ein alter Hund", "einen alten Hund", "einem alten Hund")
    assert people["the old women"].german == ("die alten Frauen", "die alten Frauen", "den alten Frauen")
    assert people["this small child"].german == ("dieses kleine Kind", "dieses kleine Kind", "diesem kleinen Kind")
    assert people["no red cat"].german == ("keine rote Katze", "keine rote Katze", "keiner roten Katze")


def test_the_datamodule_knows_every_word_and_holds_integers():
    data = ToyTranslation(train_pairs=20_000, eval_pairs=100)
    data.load()
    for pairs in data.examples.values():
        for ids in (*pairs.sources, *pairs.targets):
            assert ids.dtype.kind == "i" and 3 not in ids.tolist()
    assert data.fingerprint == ToyTranslation.fingerprint.fget(data)


def test_text_survives_the_round_trip():
    data = ToyTranslation(train_pairs=2000, eval_pairs=50)
    data.load()
    import torch

    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(t[1:]) for t in data.examples["test"].targets], batch_first=True)
    assert data.texts(ids) == data.references("test")
