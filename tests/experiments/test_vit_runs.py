"""ViT's runs: every recipe under smoke, every choice bites, cost by formula, resume, `ablate try` on images."""

import inspect
import typing

import numpy as np
import pytest
import torch
from PIL import Image as Pil
from typer.testing import CliRunner

from datamodules.images import Digits, Images
from experiments import train as program
from experiments.cli import app
from experiments.launch.check import check_arguments
from experiments.launch.grid import arguments
from experiments.launch.keys import hint_of
from experiments.launch.question import BadInput, read
from experiments.record.identity import identify, merged
from experiments.record.outcome import cost_per_token
from experiments.record.result import read_result
from experiments.tryout import restored
from experiments.tryout_vit import opened, principal_filters
from lit_modules.choices import Arch
from lit_modules.components.diagnostics import attention_rollout
from lit_modules.optimization import Optim
from lit_modules.vit import Vit

DIGITS, SMOKE = "experiments/recipes/vit/digits.yaml", "experiments/recipes/smoke.yaml"


pytestmark = pytest.mark.usefixtures("quiet")


def digits(*flags):
    return ["fit", "--config", DIGITS, "--config", SMOKE, *flags]


def done(arguments):
    assert program.train(arguments) == 0
    return read_result(identify(arguments).folder / "result.json")


RECIPES = {
    "cifar10": ["--data.batch_size=9"],
    "imagenet": ["--data.batch_size=9", "--trainer.precision=32-true", "--data.image_size=32", "--data.num_workers=0"],
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_of_files_runs_under_smoke(recipe, shelf, monkeypatch):
    monkeypatch.setenv("ABLATE_DATA", str(shelf))
    result = done(["fit", "--config", f"experiments/recipes/vit/{recipe}.yaml", "--config", SMOKE, *RECIPES[recipe]])
    assert result["status"] == "finished" and result["unit"] == "images" and result["tokens"] == 36
    assert result["metrics"]["tokens_per_image"] == (65 if recipe == "cifar10" else 5)


def test_a_run_on_digits_leaves_its_costs_and_what_its_attention_looks_like():
    result = done(digits())
    assert {"test/nll", "test/accuracy", "test/top5", "valid/accuracy", "attention_share"} <= set(result["metrics"])
    assert any(name.startswith("end/encoder.1.self_attention/") for name in result["metrics"])
    assert result["metrics"]["tokens_per_image"] == 17 and result["tokens"] == 400


@pytest.mark.parametrize("patch_size, pooling", [(2, "cls"), (2, "mean"), (1, "mean"), (4, "cls")])
def test_flops_and_attentions_share_by_hand(patch_size, pooling):
    """Forward, in multiply-adds: N P² C d for the patches, L (4 d² + 2 d d_ff) T for the maps, 2 L T² d for attention,
    d · classes for the head; two FLOPs each, twice more backward, but for the patches' unused gradient to the pixels."""
    d, inner, n_layers = 16, 40, 3
    arch = Arch(d_model=d, n_heads=2, d_ff=inner, n_layers=n_layers, norm="pre", activation="gelu", dropout=0.0)
    model = Vit(arch=arch, optim=Optim(lr=1.0, warmup_steps=0), n_labels=10, image_size=8, channels=1,
                patch_size=patch_size, pooling=pooling)  # fmt: skip
    data = Digits(batch_size=7)
    data.load()
    patches = 64 // patch_size**2
    tokens = patches + (pooling == "cls")
    embed, attention = patches * patch_size**2 * d, 2 * n_layers * tokens**2 * d
    maps = n_layers * tokens * (4 * d**2 + 2 * d * inner) + d * 10
    total = 2 * (2 * embed + 3 * maps + 3 * attention)
    flops, share = cost_per_token(model, data)
    assert flops == pytest.approx(total)
    assert share == pytest.approx(100 * 6 * attention / total)


def test_the_diagonal_of_patch_width_is_at_equal_flops():
    question, costs = read("patch_width"), []
    for patch_size, width in ((2, 32), (1, 12), (4, 66)):
        arm = {"model.patch_size": patch_size, "model.arch.d_model": width}
        assert arm in question.arms()
        cli = check_arguments(arguments(question, arm, 0))
        costs.append(cost_per_token(cli.model, cli.datamodule)[0])
    assert max(costs) / min(costs) < 1.03, costs


@pytest.mark.parametrize("share", [0.3, 0.1, 0.02])
def test_both_networks_train_at_every_share_of_cnn_vs_vit_on_whole_batches(share):
    assert {"model.network": "resnet", "model.optim.lr": 0.001, "data.train_share": share} in read("cnn_vs_vit").arms()
    for network in ("vit", "resnet"):
        result = done(digits(f"--model.network={network}", f"--data.train_share={share}", "--trainer.max_steps=5",
                             "--model.arch.d_model=32"))  # fmt: skip
        assert result["tokens"] == 5 * min(100, round(1000 * share))


def test_a_run_killed_in_a_later_epoch_goes_on_as_if_it_had_not_been(monkeypatch, tmp_path):
    """Images are moved and mixed at random, and batches drawn anew at each epoch."""
    small = digits("--data.augment=crop", "--data.mix=both", "--data.train_share=0.2", "--data.batch_size=64",
                   "--trainer.max_steps=14", "--trainer.val_check_interval=3", "--model.arch.dropout=0.1")  # fmt: skip
    whole = done(small)
    real, calls = Vit.training_loss, []

    def dies(self, batch):
        calls.append(1)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return real(self, batch)

    monkeypatch.setenv("ABLATE_OUT", str(tmp_path / "killed"))
    with monkeypatch.context() as broken, pytest.raises((KeyboardInterrupt, SystemExit)):
        broken.setattr(Vit, "training_loss", dies)
        program.train(small)
    assert (identify(small).folder / "checkpoints/last.ckpt").exists()
    assert done(small)["metrics"] == whole["metrics"]


def test_worker_processes_change_nothing():
    """Over two epochs, and in what comes out."""
    small = ["--data.augment=crop", "--data.mix=mixup", "--data.train_share=0.2", "--trainer.max_steps=5"]
    one, other = (
        done(digits(*small, f"--data.num_workers={n}", f"--model.optim.beta2={b}"))
        for n, b in ((0, 0.98), (2, 0.98000001))
    )
    assert one["key"] != other["key"]
    assert one["metrics"]["test/nll"] == pytest.approx(other["metrics"]["test/nll"], rel=1e-5)


# ---- every choice bites

CHOICES = {
    "model.patch_size": [1, 2, 4, 8], "model.position": None, "model.pooling": None, "model.network": None,
    "model.label_smoothing": [0.0, 0.1], "model.optim.schedule": None, "model.arch.d_ff": [16, 32, "fourfold"],
    "data.augment": None, "data.mix": None, "data.train_share": [0.1, 1.0], "data.batch_size": [50, 100],
}  # fmt: skip
ELSEWHERE = {"model.arch", "model.optim", "model.n_labels", "model.image_size", "model.channels", "model.checkpoint",
             "data.num_workers"}  # fmt: skip


def test_every_argument_of_the_model_and_the_data_is_walked():
    known = {f"{head}.{name}" for head, kind in (("model", Vit), ("data", Digits))
             for name in inspect.signature(kind.__init__).parameters if name != "self"}  # fmt: skip
    walked = {key for key in CHOICES if not key.startswith(("model.optim.", "model.arch."))}
    assert known == walked | ELSEWHERE
    of_files = set(inspect.signature(Images.__init__).parameters) - {"self"}
    assert of_files >= {key.removeprefix("data.") for key in walked if key.startswith("data.")}


@pytest.mark.parametrize("key", CHOICES)
def test_every_value_of_every_choice_changes_what_is_trained(key):
    seen = {}
    for value in CHOICES[key] or typing.get_args(hint_of(key, merged(digits()))):
        flags = ["--model.optim.warmup_steps=1", "--trainer.limit_val_batches=0", f"--{key}={value}"]
        cli = program.AblationCLI(None, digits(*flags))
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
        weights = torch.cat([p.detach().flatten() for p in cli.model.network.parameters()])
        seen[value] = float(weights.double().abs().sum())
    assert len(set(seen.values())) == len(seen), seen


# ---- bad input


@pytest.mark.parametrize("flag, message", [
    ("--model.patch_size=3", "patch_size 3 does not divide an image of 8 × 8 pixels"),
    ("--model.patch_size=16", "patch_size 16 does not divide an image of 8 × 8 pixels"),
    ("--model.position=learned", r"model.position: 'learned' is not known; it takes learned_1d \| learned_2d"),
    ("--model.image_size=8", "model.image_size is no choice: it comes from the data"),
    ("--model.pool=mean", "did you mean model.pooling"),
    ("--model.checkpoint=nowhere", "no checkpoint 'nowhere'"),
    ("--data.augment=flip", r"data.augment: 'flip' is not known; it takes none \| crop"),
])  # fmt: skip
def test_bad_input_is_one_message(flag, message):
    with pytest.raises(BadInput, match=message):
        program.train(digits(flag))


def test_weights_for_colour_are_refused_on_grey_images(tmp_path, shelf, monkeypatch):
    monkeypatch.setenv("ABLATE_DATA", str(shelf))
    colour = ["fit", "--config", "experiments/recipes/vit/cifar10.yaml", "--config", SMOKE, "--data.batch_size=8"]
    done(colour)
    folder = identify(colour).folder
    with pytest.raises(BadInput, match=r"patches.project.weight is \(16, 48\) in the file, \(16, 16\) in this model"):
        program.train(digits(f"--model.checkpoint={folder}", "--model.patch_size=4"))


def test_a_run_starts_from_another_runs_weights(tmp_path):
    first = digits("--trainer.max_steps=6")
    done(first)
    second = digits(f"--model.checkpoint={identify(first).folder}", "--model.optim.lr=1e-9")
    result = done(second)
    best = restored(identify(first).folder)[0].state_dict()
    moved = restored(identify(second).folder)[0].state_dict()
    assert result["status"] == "finished" and all(torch.allclose(best[name], moved[name], atol=1e-6) for name in best)


# ---- try


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        patch.setenv("ABLATE_OUT", str(tmp_path_factory.mktemp("looked")))
        done(digits())
        return identify(digits()).folder


def ablate_try(*arguments):
    return CliRunner().invoke(app, ["try", *map(str, arguments)], catch_exceptions=False)


def test_try_names_the_classes_and_draws(looked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(2):
        Pil.fromarray(np.full((8, 8), 40 * i, dtype=np.uint8)).save(tmp_path / f"{i}.png")
    said = ablate_try(looked, "0.png", "1.png")
    lines = said.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["0.png", "1.png"] and len(lines[0].split("  ")) == 6
    page = (tmp_path / "0.attention.html").read_text()
    assert "Attention rollout" in page and "Similarity of the positions" in page and "Principal components" in page
    sideways, exif = Pil.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)), Pil.Exif()
    exif[0x0112] = 6
    sideways.save(tmp_path / "sideways.png", exif=exif)
    assert np.array_equal(opened(tmp_path / "sideways.png", 8, 1)[0], np.rot90(np.array(sideways), -1))
    Pil.fromarray(np.zeros((4, 6, 3), dtype=np.uint8)).save(tmp_path / "colour.png")
    said = ablate_try(looked, "colour.png", "--picture", tmp_path / "seen.svg")
    assert "read as L" in said.stderr and "enlarged to 8 × 8" in said.stderr and (tmp_path / "seen.svg").exists()


def test_try_refuses_what_it_cannot_look_at(looked, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"nothing")
    Pil.fromarray(np.full((8, 8), 1000, dtype=np.uint16)).save(tmp_path / "deep.png")
    for given, message in (
        ((looked,), "this model reads images"),
        ((looked, tmp_path / "none.png"), "is no image that can be read"),
        ((looked, tmp_path / "broken.png"), "is no image that can be read"),
        ((looked, tmp_path / "deep.png"), "more than eight bits"),
        ((looked, "0.png", "--picture", "seen.gif"), "ends with .html, .svg or .png"),
    ):
        with pytest.raises(BadInput, match=message):
            ablate_try(*given)


def test_what_is_drawn_by_hand():
    a, b = torch.tensor([[[0.5, 0.5], [0.0, 1.0]]]), torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    wanted = torch.tensor([[1.0, 0.0], [0.25, 0.75]]) @ torch.tensor([[0.75, 0.25], [0.0, 1.0]])
    torch.testing.assert_close(attention_rollout([a, b]), wanted)
    model = Vit(arch=Arch(d_model=16, n_heads=2, n_layers=1, d_ff=16), optim=Optim(lr=1.0, warmup_steps=0), n_labels=3,
                image_size=8, channels=1, patch_size=2)  # fmt: skip
    similar = model.network.position_similarity()
    assert torch.allclose(similar.diagonal(), torch.ones(16))
    table = model.network.position.table
    torch.testing.assert_close(similar[2, 5], torch.nn.functional.cosine_similarity(table[2], table[5], dim=0))
    filters = principal_filters(model)
    assert filters.shape == (4, 1, 2, 2)
    centred = model.network.patches.project.weight - model.network.patches.project.weight.mean(0)
    spread = (centred @ filters.flatten(1).T).detach().var(0)
    assert (spread[:-1] >= spread[1:]).all() and spread.sum() == pytest.approx(centred.var(0).sum().item(), rel=1e-4)
