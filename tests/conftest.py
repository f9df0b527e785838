"""Shapes and types of public signatures are checked in every test; nothing reaches the network or the user's folders."""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # two test processes on two cores must not fight

from pathlib import Path  # noqa: E402

from jaxtyping import install_import_hook  # noqa: E402

# the generators of the embedded data know no tensors, and call themselves a million times
checked = [f"datamodules.{p.stem}" for p in (Path(__file__).parents[1] / "datamodules").glob("*.py") if "toy_" not in p.stem]
install_import_hook(["lit_modules", *checked], "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402

os.environ |= {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@pytest.fixture(autouse=True)
def one_seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory):
    """No test writes where a user's runs or tokenisers lie."""
    os.environ["ABLATE_OUT"] = str(tmp_path_factory.mktemp("runs"))
    os.environ["ABLATE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def quiet(monkeypatch, tmp_path):
    """Runs of the test's own, without W&B."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("ABLATE_OUT", str(tmp_path / "runs"))
