"""Shapes and types of public signatures are checked in every test; nothing reaches the network or the user's folders."""

import os
import tempfile

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # two test processes on two cores must not fight

from pathlib import Path  # noqa: E402

from jaxtyping import install_import_hook  # noqa: E402

# the generators of the embedded data know no tensors, and call themselves a million times
checked = [f"datamodules.{p.stem}" for p in (Path(__file__).parents[1] / "datamodules").glob("*.py") if "toy_" not in p.stem]
install_import_hook(["lit_modules", *checked], "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402

os.environ |= {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
if "PYTEST_XDIST_WORKER" not in os.environ:  # one for all workers, which inherit it; it goes with this process
    PREPARED = tempfile.TemporaryDirectory(prefix="datasets-")
    os.environ["HF_DATASETS_CACHE"] = PREPARED.name


@pytest.fixture(autouse=True)
def one_seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory):
    """No test writes where a user's runs or tokenisers lie."""
    os.environ["ABLATE_OUT"] = str(tmp_path_factory.mktemp("runs"))
    os.environ["ABLATE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """Folders of the form that the real data sets have, for $ABLATE_DATA: a few captions, pictures of noise."""
    import numpy as np
    from datasets import ClassLabel, Dataset, Features, Image
    from PIL import Image as Pil

    folder, draw = tmp_path_factory.mktemp("shelf"), np.random.default_rng(0)
    captions = {"en": ["Two dogs run.", "A man sings."] * 9, "de": ["Zwei Hunde laufen.", "Ein Mann singt."] * 9}
    forms = {"cifar10": ("img", "label", (32, 32, 3)), "imagenet-1k": ("image", "label", (40, 60, 3))}
    for split in ("train", "validation", "test"):
        Dataset.from_dict(captions).to_parquet(folder / "multi30k" / f"{split}.parquet")
        for name, (image, label, shape) in forms.items():
            features = Features({image: Image(), label: ClassLabel(names=[f"class {i}" for i in range(10)])})
            pictures = [Pil.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)) for _ in range(40)]
            rows = {image: pictures, label: [i % 10 for i in range(40)]}
            Dataset.from_dict(rows, features=features).to_parquet(folder / name / f"{split}.parquet")
    return folder


@pytest.fixture
def quiet(monkeypatch, tmp_path):
    """Runs of the test's own, without W&B."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("ABLATE_OUT", str(tmp_path / "runs"))
