"""Images: digits, folders and parquet, decoding, shares, augmentation and mixing."""

import io
import pickle

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Image
from PIL import Image as Pil
from sklearn.datasets import load_digits

from datamodules import base, pixels
from datamodules.images import AUGMENT, Digits, ImageExamples, Images, look_of, share_of_each_class
from datamodules.pixels import Decoded, array_of, fitted


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    """Nothing is remembered from test to test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(base, "PREPARED", {})
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder)
    return folder


def png(array, mode="PNG"):
    file = io.BytesIO()
    Pil.fromarray(array).save(file, mode)
    return {"bytes": file.getvalue(), "path": None}


def pictures(n, shape=(8, 8, 3), seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def parquet(folder, splits):
    """splits: name → (arrays or encoded images, classes)"""
    features = Features({"image": Image(), "label": ClassLabel(names=["cat", "dog", "owl"])})
    for split, (images, classes) in splits.items():
        encoded = [image if image is None or isinstance(image, dict) else png(image) for image in images]
        Dataset.from_dict({"image": encoded, "label": classes}, features=features).to_parquet(
            folder / f"{split}.parquet"
        )
    return str(folder)


def whole(folder, n=30):
    return parquet(
        folder,
        {split: (pictures(n, seed=i), [0, 1, 2] * (n // 3)) for i, split in enumerate(("train", "validation", "test"))},
    )


def loaded(*args, **more):
    data = Images(*args, **more)
    data.load()
    return data


def test_the_digits_are_scikit_learns_in_three_disjoint_parts():
    data = Digits()
    data.load()
    assert {split: len(e) for split, e in data.examples.items()} == {"train": 1000, "valid": 297, "test": 500}
    assert (data.n_labels, data.image_size, data.channels) == (10, 8, 1)
    theirs, classes = load_digits(return_X_y=True)
    rows = {
        (tuple(image), c)
        for image, c in zip((theirs * 255 / 16).round().astype(int).tolist(), classes.tolist(), strict=True)
    }
    ours = [
        (tuple(e.pixels[i].ravel().tolist()), int(e.classes[i])) for e in data.examples.values() for i in range(len(e))
    ]
    assert len(ours) == 1797 and set(ours) == rows


def test_a_batch_is_what_the_files_hold(tmp_path):
    data = loaded(whole(tmp_path), augment="none")
    train = data.examples["train"]
    batch = train.__getitems__([3, 0])
    raw = pictures(30).astype(np.float64)
    mean, sd = raw.mean((0, 1, 2)), raw.std((0, 1, 2))
    wanted = ((raw[[3, 0]] - mean) / sd).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(batch["image"].numpy(), wanted, rtol=1e-4, atol=1e-4)
    assert batch["label"].tolist() == [[1, 0, 0], [1, 0, 0]] and batch["index"].tolist() == [3, 0]
    assert data.labels == ["cat", "dog", "owl"]


def test_torchvisions_folders_are_the_same_data(tmp_path):
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            for i, image in enumerate(pictures(4, seed=len(name + split))):
                Pil.fromarray(image).save(tmp_path / split / name / f"{i}.png")
    data = loaded(str(tmp_path), valid="held_out", augment="none")
    assert data.labels == ["cat", "dog"]
    assert {split: len(e) for split, e in data.examples.items()} == {"train": 7, "valid": 1, "test": 8}
    import torchvision

    theirs = torchvision.datasets.ImageFolder(tmp_path / "test")
    for i in range(8):
        image, label = theirs[i]
        assert (
            np.array_equal(data.examples["test"].pixels[i], array_of(image))
            and data.examples["test"].classes[i] == label
        )


def test_a_class_called_train_stays_in_its_split_and_splits_keep_their_names(tmp_path):
    for split in ("train", "val"):
        for name in ("bus", "train"):
            (tmp_path / split / name).mkdir(parents=True)
            for i, image in enumerate(pictures(3, seed=len(name + split))):
                Pil.fromarray(image).save(tmp_path / split / name / f"{i}.png")
    data = loaded(str(tmp_path), valid="held_out", test="val", augment="none")
    assert {split: len(e) for split, e in data.examples.items()} == {"train": 5, "valid": 1, "test": 6}


def test_classes_keep_the_numbers_that_their_data_set_gives_them(tmp_path):
    """The order of a checkpoint's head, a class without an example included."""
    features = Features({"image": Image(), "label": ClassLabel(names=["tench", "shark", "goldfish", "owl"])})
    for split in ("train", "validation", "test"):
        rows = {"image": [png(image) for image in pictures(3)], "label": [0, 3, 2]}
        Dataset.from_dict(rows, features=features).to_parquet(tmp_path / f"{split}.parquet")
    data = loaded(str(tmp_path))
    assert data.labels == ["tench", "shark", "goldfish", "owl"] and data.n_labels == 4
    assert data.examples["test"].classes.tolist() == [0, 3, 2]


def test_a_worker_is_sent_the_files_name_and_not_its_pixels(tmp_path):
    train = loaded(whole(tmp_path)).examples["train"].pixels
    sent = pickle.dumps(train)
    assert len(sent) < 5000
    assert np.array_equal(pickle.loads(sent)[7], train[7])


def test_an_epoch_of_training_has_whole_batches_alone_and_sees_every_image_in_time(tmp_path):
    data = loaded(whole(tmp_path), batch_size=8)
    batches, seen = data.batches("train"), set()
    for epoch in range(6):
        batches.set_epoch(epoch)
        assert [len(batch) for batch in batches] == [8, 8, 8]
        seen |= {i for batch in batches for i in batch}
    assert seen == set(range(30))
    assert sorted(i for batch in data.batches("valid") for i in batch) == list(range(30)), (
        "evaluation leaves nothing out"
    )
    assert [len(b) for b in loaded(str(tmp_path), batch_size=50).batches("train")] == [30]


def test_images_are_decoded_once(tmp_path, monkeypatch, cache):
    folder = whole(tmp_path)
    first = loaded(folder)
    monkeypatch.setattr(base, "PREPARED", {})
    monkeypatch.setattr(pixels, "decode_all", None)
    again = loaded(folder)
    assert isinstance(again.examples["train"].pixels.pixels, np.memmap)
    assert again.fingerprint == first.fingerprint
    assert not list(cache.rglob("*.part"))


def test_decoding_at_each_reading_gives_the_same_images(tmp_path):
    folder = whole(tmp_path)
    sizes = {"image_size": 4, "look": "imagenet", "augment": "none"}
    once, each = loaded(folder, **sizes), Images(folder, decode="each_time", **sizes)
    examples = each.prepare()["examples"]
    for split in ("train", "valid", "test"):
        mine, theirs = (e.__getitems__([5, 7]) for e in (examples[split], once.examples[split]))
        assert torch.equal(mine["image"], theirs["image"]) and torch.equal(mine["label"], theirs["label"])
    assert examples["train"].pixels.whole(5).shape == (3, 8, 8)


def test_less_is_part_of_more_and_has_every_class():
    classes = np.array([0] * 50 + [1] * 30 + [2] * 20)
    order = np.random.default_rng(1).permutation(100)
    parts = [share_of_each_class(order, classes, share) for share in (0.02, 0.1, 0.3, 1.0)]
    assert [np.bincount(classes[part]).tolist() for part in parts] == [[1, 1, 1], [5, 3, 2], [15, 9, 6], [50, 30, 20]]
    assert all(set(a) < set(b) for a, b in zip(parts, parts[1:], strict=False))
    assert np.array_equal(parts[-1], order)


def test_the_shares_of_a_data_set_are_nested_and_its_held_out_part_is_always_the_same(tmp_path):
    folder = whole(tmp_path)
    some, every = (loaded(folder, valid="held_out", train_share=share, augment="none") for share in (0.4, 1.0))
    held = [np.sort(data.examples["valid"].pixels.index) for data in (some, every)]
    assert np.array_equal(*held) and len(held[0]) == 3
    a, b = (set(data.examples["train"].pixels.index) for data in (some, every))
    assert a < b and len(b) == 27 and not b & set(held[0])


@pytest.mark.parametrize("augment", AUGMENT)
def test_every_augmentation_changes_images_and_keeps_their_form(augment):
    images = pictures(6, (3, 16, 16))
    examples = ImageExamples(Decoded(images), np.arange(6) % 3, 3, look_of(Decoded(images)), augment)
    plain = ImageExamples(Decoded(images), np.arange(6) % 3, 3, look_of(Decoded(images)))
    index = list(range(6))
    batch = examples.__getitems__(index)
    assert batch["image"].shape == (6, 3, 16, 16) and batch["image"].isfinite().all()
    assert torch.equal(batch["image"], plain.__getitems__(index)["image"]) == (augment == "none")


def test_an_augmented_image_depends_on_seed_epoch_and_image_alone():
    images = pictures(6, (3, 16, 16))
    examples = ImageExamples(Decoded(images), np.arange(6) % 3, 3, look_of(Decoded(images)), "rand")
    before = torch.get_rng_state()
    first = examples.__getitems__([0, 1, 2])["image"]
    assert torch.equal(torch.get_rng_state(), before), "the model's random numbers are its own"
    assert torch.equal(examples.__getitems__([2, 0])["image"], first[[2, 0]])
    examples.draw(0, 1)
    assert not torch.equal(examples.__getitems__([0, 1, 2])["image"], first)
    examples.draw(1, 0)
    assert not torch.equal(examples.__getitems__([0, 1, 2])["image"], first)


@pytest.mark.parametrize("mix", ["mixup", "cutmix", "both"])
def test_mixed_labels_are_the_shares_of_what_is_in_the_image(mix):
    """Image c is constant c, so its mean tells its share: exact for mixup; for cutmix by the area."""
    images = np.stack([np.full((1, 16, 16), 100 * c, dtype=np.uint8) for c in range(2)])
    examples = ImageExamples(Decoded(images), np.arange(2), 2, (np.zeros(1), np.ones(1)), "none", mix)
    seen = set()
    for epoch in range(8):
        examples.draw(0, epoch)
        batch = examples.__getitems__([0, 1])
        assert torch.allclose(batch["label"].sum(1), torch.ones(2))
        torch.testing.assert_close(batch["image"].mean((1, 2, 3)) / 100, batch["label"][:, 1], rtol=1e-5, atol=1e-5)
        seen.add(round(float(batch["label"][0, 0]), 4))
    assert len(seen) > 4


def test_other_shapes_are_cut_to_the_middle_square():
    wide = Pil.fromarray(
        np.hstack([np.zeros((4, 2, 3)), np.full((4, 4, 3), 200), np.zeros((4, 2, 3))]).astype(np.uint8)
    )
    assert (array_of(fitted(wide, 4)) == 200).all()
    assert fitted(wide, 8).size == (8, 8)


def broken():
    return {"bytes": png(pictures(1)[0])["bytes"][:60], "path": None}


BAD = {
    "corrupt": ([*pictures(2), broken()], {}, "image 2 of 'train' of data set .* cannot be read"),
    "grey among colour": ([*pictures(2), pictures(1, (8, 8))[0]], {}, r"image 2 .* is grey \(L\), the first coloured \(RGB\): give data.colour"),
    "transparent": (list(pictures(3, (8, 8, 4))), {}, "image 0 .* is of mode RGBA: give data.colour rgb or grey"),
    "several sizes": ([*pictures(2), pictures(1, (6, 9, 3))[0]], {}, "image 2 .* has 9 × 6 pixels, the first 8 × 8: give data.image_size"),
    "missing": ([*pictures(2), None], {}, "image 2 .* is missing"),
    "sixteen bits": ([*pictures(2), pictures(1, (8, 8))[0].astype(np.uint16) * 256], {"colour": "grey"}, "image 2 .* has more than eight bits"),
    "grey for a coloured look": (list(pictures(3, (8, 8))), {"look": "imagenet"}, "data.look imagenet is for coloured images"),
    "no such column": (list(pictures(3)), {"image": "img"}, "no images in a column 'img'; it has them in image"),
    "no images there": (list(pictures(3)), {"image": "label"}, "no images in a column 'label'; it has them in image"),
    "no such split": (list(pictures(3)), {"valid": "dev"}, "no split 'dev'; it has"),
    "no batch": (list(pictures(3)), {"batch_size": 0}, "data.batch_size 0 must be at least 1"),
    "no share": (list(pictures(3)), {"train_share": 0.0}, "data.train_share 0.0 must lie above 0"),
    "decoded at each reading without a size": (list(pictures(3)), {"decode": "each_time"}, "needs a number for data.image_size"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_images_are_answered_clearly(case, tmp_path, cache):
    images, more, message = BAD[case]
    ok = list(pictures(3, images[0].shape))
    folder = parquet(tmp_path, {"train": (images, [0, 1, 2]), "validation": (ok, [0, 1, 2]), "test": (ok, [0, 1, 2])})
    with pytest.raises(ValueError, match=message):
        loaded(folder, **more)
    assert not list(cache.rglob("*.part")), "no half a file stays"


def test_a_class_that_training_has_not_is_named(tmp_path):
    ok = list(pictures(3))
    folder = parquet(tmp_path, {"train": (ok, [0, 1, 1]), "validation": (ok, [0, 1, 1]), "test": (ok, [0, 1, 2])})
    with pytest.raises(
        ValueError,
        match="split 'test' of data set .* has the label 'owl', which training has never seen; it has cat, dog",
    ):
        loaded(folder)


def test_images_are_converted_where_it_is_asked_for(tmp_path):
    mixed = [*pictures(2), pictures(1, (8, 8))[0]]
    folder = parquet(tmp_path, {split: (mixed, [0, 1, 2]) for split in ("train", "validation", "test")})
    assert loaded(folder, colour="rgb").channels == 3
    assert loaded(folder, colour="grey").channels == 1
