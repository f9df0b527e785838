"""Any parallel data set: columns, splits, BOS and EOS, batches by token budget, several workers and ranks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.base import PREPARED
from datamodules.batching import Pairs, TokenBudget, collate, filled, loader
from datamodules.tokenizer import BOS, EOS, PAD, encode, train_tokenizer
from datamodules.translation import ParallelText

MULTI30K = Path(__file__).parents[3] / "shared/data/multi30k"
ENGLISH = ["A man walks.", "Two dogs run on the beach.", "A woman in a red dress sings.", "Children play."] * 5
GERMAN = [
    "Ein Mann geht.",
    "Zwei Hunde laufen am Strand.",
    "Eine Frau in einem roten Kleid singt.",
    "Kinder spielen.",
] * 5


@pytest.fixture
def folder(tmp_path):
    """A local folder of the form that a hub's repository has."""
    for split in ("train", "validation", "test"):
        Dataset.from_dict({"en": ENGLISH, "de": GERMAN}).to_parquet(tmp_path / f"{split}.parquet")
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_prepared():
    """The folders of these tests change under the same name."""
    PREPARED.clear()


def parallel(folder, **more):
    data = ParallelText(**{"dataset": str(folder), "vocab_size": 300, "batch_tokens": 200, **more})
    data.load()
    return data


@pytest.mark.parametrize("max_length", [128, 6])
def test_targets_begin_with_bos_and_end_with_eos_exactly_once(folder, max_length):
    data = parallel(folder, max_length=max_length)
    for source, target in zip(data.examples["train"].sources, data.examples["train"].targets, strict=True):
        assert target[0] == BOS and target[-1] == EOS and source[-1] == EOS
        assert list(target).count(BOS) == list(target).count(EOS) == list(source).count(EOS) == 1
        assert len(source) <= max_length and len(target) <= max_length and BOS not in source


def test_byte_level_bpe_gives_any_text_back(folder):
    data = parallel(folder)
    line = "Größe: 3 € – “naïve” 中文"
    ids = torch.tensor([[*data.tokenizer.encode(line).ids, EOS, PAD]])
    assert data.texts(ids) == [line]


def test_small_letters(folder):
    """Capitals are lowered on the way in, those of the references, too; the source is shown as it was written."""
    data, kept = parallel(folder, tokenizer="bpe-lower"), parallel(folder)
    ids = torch.tensor([[*data.tokenizer.encode("Größe: ÄRGER").ids, EOS, PAD]])
    assert data.texts(ids) == ["größe: ärger"] and data.lowercase and not kept.lowercase
    assert data.references("test") == [line.lower() for line in GERMAN] != kept.references("test")
    assert data.sources("test") == kept.sources("test") == ENGLISH


def test_tokenizer_is_cached_by_content(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "kept"))
    first = train_tokenizer(ENGLISH, kind="bpe", vocab_size=300)
    train_tokenizer(ENGLISH, kind="bpe", vocab_size=300)
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert train_tokenizer(ENGLISH, kind="bpe", vocab_size=300).get_vocab() == first.get_vocab()
    train_tokenizer(GERMAN, kind="bpe", vocab_size=300)
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_nested_columns(tmp_path):
    rows = [{"translation": {"en": e, "de": d}} for e, d in zip(ENGLISH, GERMAN, strict=True)]
    for split in ("train", "validation", "test"):
        Dataset.from_list(rows).to_parquet(tmp_path / f"{split}.parquet")
    assert parallel(tmp_path, source="translation.en", target="translation.de").sources("test") == ENGLISH


def test_a_missing_column_is_named_with_the_known_ones(folder):
    with pytest.raises(ValueError, match="no column 'fr'; it has en, de"):
        parallel(folder, target="fr")


def test_a_missing_split_is_named_with_the_known_ones(folder):
    with pytest.raises(ValueError, match="no split 'dev'; it has train, validation, test"):
        parallel(folder, valid="dev")


def test_an_empty_split_is_named(folder):
    Dataset.from_dict({"en": [""][:0], "de": [""][:0]}).to_parquet(folder / "test.parquet")
    with pytest.raises(ValueError, match='data set .* cannot be opened .*"test" corresponds to no data'):
        parallel(folder)


def test_a_split_without_rows_is_named(folder, monkeypatch):
    """Where `datasets` opens it all the same."""
    texts = {"train": (ENGLISH, GERMAN), "valid": (ENGLISH, GERMAN), "test": ([], [])}
    monkeypatch.setattr(ParallelText, "read", lambda self: texts)
    with pytest.raises(ValueError, match="split 'test' of data set .* is empty"):
        parallel(folder)


def test_a_folder_that_was_prepared_once_is_not_taken_for_another_of_its_name(folder, monkeypatch):
    """Offline, `datasets` itself opens `captions` from its cache, wherever the folder lay; that would be other data."""
    shelf = folder / "shelf"
    for split in ("train", "validation", "test"):
        Dataset.from_dict({"en": ENGLISH, "de": GERMAN}).to_parquet(shelf / "captions" / f"{split}.parquet")
    monkeypatch.setenv("ABLATE_DATA", str(shelf))
    assert parallel("captions").sources("valid") == ENGLISH
    monkeypatch.delenv("ABLATE_DATA")
    PREPARED.clear()  # as in another process
    with pytest.raises(ValueError, match="no folder of that name here, in the project or in .ABLATE_DATA; a name on the hub"):
        parallel("captions")


def test_what_is_no_data_set_is_named(tmp_path):
    (tmp_path / "train.parquet").write_text("no parquet")
    for dataset in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ValueError, match=f"data set '{dataset}' cannot be opened"):
            parallel(dataset)


def test_a_pair_larger_than_the_budget_is_refused(folder):
    data = parallel(folder, batch_tokens=5)
    with pytest.raises(ValueError, match="batch_tokens 5 must be at least that"):
        data.batches("train")


# ---- batches


def lengths_of(count, seed=0):
    return np.random.default_rng(seed).integers(1, 12, (count, 2))


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(3, 200),
    budget=st.integers(24, 200),
    world=st.integers(1, 3),
    shuffle=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_every_sentence_once_within_the_budget(count, budget, world, shuffle, epoch):
    lengths, seen = lengths_of(count), []
    for rank in range(world):
        sampler = TokenBudget(pairs_of(lengths), budget=budget, shuffle=shuffle, seed=7, rank=rank, world=world)
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        for batch in batches:
            if world == 1 or len(batch) > 2:  # with several ranks a batch of few long ones may take more in
                assert lengths[batch].max(0).sum() * len(batch) <= budget
        seen += [i for batch in batches for i in batch]
    assert len(set(seen)) == len(seen), "none twice"
    assert sorted(seen) == list(range(count)), "none lost"


@pytest.mark.parametrize("world", [2, 3])
def test_a_step_has_the_same_examples_on_any_number_of_ranks(world):
    def steps(world):
        samplers = [TokenBudget(pairs_of(lengths_of(200)), budget=160, shuffle=True, seed=3, rank=r, world=world) for r in range(world)]
        assert len({len(sampler) for sampler in samplers}) == 1
        return [sorted(i for part in parts for i in part) for parts in zip(*samplers, strict=True)], samplers

    (one, _), (many, samplers) = steps(1), steps(world)
    assert one == many
    assert all(part for sampler in samplers for part in sampler), "no rank is left without work"


@pytest.mark.parametrize("world, parts", [
    (1, [[0], [1, 2, 3], [4], [5, 6]]),
    (2, [[0, 1, 2], [3, 4], [5, 6]]),
    (3, [[0, 1, 2, 3], [4, 5, 6]]),
    (7, [[0, 1, 2, 3, 4, 5, 6]]),
])  # fmt: skip
def test_batches_too_small_for_the_ranks_are_filled(world, parts):
    batches = [np.array(part) for part in ([0], [1, 2, 3], [4], [5, 6])]
    assert [batch.tolist() for batch in filled(batches, world)] == parts


def test_an_epochs_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch):
        sampler = TokenBudget(pairs_of(lengths_of(100)), budget=60, shuffle=True, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1) and order(0, 0) != order(1, 0)


def test_a_resumed_epoch_goes_on_after_what_was_read():
    sampler = TokenBudget(pairs_of(lengths_of(100)), budget=60, shuffle=True)
    sampler.set_epoch(2)
    whole = list(sampler)
    sampler.read = (2, 3)
    assert list(sampler) == list(sampler) == whole[3:] and len(sampler) == len(whole)
    sampler.set_epoch(3)
    assert len(list(sampler)) == len(sampler)


def pairs_of(lengths):
    return Pairs([np.full(s, 5) for s, _ in lengths], [np.full(t + 1, 5) for _, t in lengths])


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_read_the_same_batches(workers):
    pairs = pairs_of(lengths_of(60))
    sampler = TokenBudget(pairs, budget=60, shuffle=True, seed=1)
    read = [batch["index"].tolist() for batch in loader(sampler, collate, workers=workers)]
    assert read == list(sampler)


def test_collate_pads_at_the_end():
    batch = collate(
        [(4, np.array([5, EOS]), np.array([BOS, 6, 7, EOS])), (2, np.array([8, 9, EOS]), np.array([BOS, EOS]))]
    )
    assert batch["source"].tolist() == [[5, EOS, PAD], [8, 9, EOS]]
    assert batch["target"].tolist() == [[BOS, 6, 7, EOS], [BOS, EOS, PAD, PAD]]
    assert batch["index"].tolist() == [4, 2]


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="Multi30k lies beside the project on the developers' machines only")
def test_multi30k_pads_less_than_five_per_cent():
    data = parallel(MULTI30K, vocab_size=8000, batch_tokens=2048)
    assert len(data.examples["train"]) == 29_000 and len(data.examples["valid"]) == 1014 and len(data.examples["test"]) == 1000
    assert data.batches("train").padding() < 0.05
    assert data.references("test")[0].startswith("Ein Mann mit einem orangefarbenen Hut")


# ---- random targets


def test_random_targets_have_no_end_and_cannot_be_predicted():
    import math

    from datamodules.translation import RandomTargets

    data = RandomTargets(words=8, length=5, train_pairs=4000, eval_pairs=50)
    data.load()
    pairs = data.examples["train"]
    assert {len(t) for t in pairs.targets} == {1 + 5} and {len(s) for s in pairs.sources} == {5 + 1}
    assert not any(EOS in t for t in pairs.targets) and data.vocab_size == 8 + 4
    tokens = np.concatenate([t[1:] for t in pairs.targets])
    share = np.bincount(tokens, minlength=12)[4:] / len(tokens)
    assert abs(share - 1 / 8).max() < 0.01
    entropy = -(share * np.log(share)).sum()
    assert entropy == pytest.approx(math.log(8), abs=1e-3)
    sources = np.stack([s[:5] for s in pairs.sources])
    targets = np.stack([t[1:] for t in pairs.targets])
    assert abs((sources == targets).mean() - 1 / 8) < 0.02, "the source says nothing of the target"
    assert set(data.text["valid"][1]).isdisjoint(data.text["test"][1])


def test_a_long_list_is_encoded_in_chunks_with_the_same_ids(monkeypatch):
    from datamodules import tokenizer as module

    texts = [f"w{i % 7} w{i % 5}" for i in range(23)]
    made = train_tokenizer(texts, kind="word", vocab_size=50)
    whole = encode(made, texts, max_length=9, bos=True)
    monkeypatch.setattr(module, "CHUNK", 4)
    for a, b in zip(whole, encode(made, texts, max_length=9, bos=True), strict=True):
        assert a.tolist() == b.tolist()
