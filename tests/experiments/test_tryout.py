"""`ablate try`: from a checkpoint alone to translations and a picture; bad input is one message."""

import io
import subprocess
import sys

import pytest
import torch
from tokenizers import Tokenizer

from datamodules.tokenizer import BOS, EOS, decode
from experiments import train as program
from experiments.launch.question import ROOT, BadInput
from experiments.pictures import attention_chart, save
from experiments.record.identity import identify
from experiments.tryout import batches, cross_attention, main, restored, translated
from lit_modules.generation import Decoding

ARGUMENTS = [
    "fit", "--config", "experiments/recipes/translation/toy.yaml", "--config", "experiments/recipes/smoke.yaml",
    "--config", "experiments/recipes/mistakes.yaml", "--data.train_pairs=400", "--data.eval_pairs=20",
]  # fmt: skip
SENTENCES = "the old man sees a dog .\n\nthe wizard sees a dog .\n"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        patch.setenv("ABLATE_OUT", str(tmp_path_factory.mktemp("runs")))
        assert program.train(ARGUMENTS) == 0
        return identify(ARGUMENTS).folder


def test_a_restored_model_is_the_trained_one(run_folder):
    model, data = restored(run_folder)
    tokenizer = Tokenizer.from_str(data["tokenizer"])
    cli = program.AblationCLI(None, ARGUMENTS)
    cli.datamodule.setup("fit")
    weights = torch.load(run_folder / "checkpoints/best.ckpt", weights_only=True)["state_dict"]
    cli.model.load_state_dict(weights)
    assert tokenizer.to_str() == cli.datamodule.tokenizer.to_str()
    batch = next(iter(cli.datamodule.val_dataloader()))
    same = [m.eval().translate(batch["source"], Decoding()) for m in (model, cli.model)]
    assert torch.equal(*same) and type(model).__name__ == "MistakenTranslation"


@pytest.mark.parametrize("beam", [1, 3])
def test_a_line_of_output_for_each_line_of_input(run_folder, monkeypatch, capsys, beam, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.StringIO(SENTENCES))
    main(run_folder, [], beam, 0.6, tmp_path / "attention.svg")
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3 and "wizard" in err and (tmp_path / "attention.svg").stat().st_size > 1000
    assert "the" in (tmp_path / "attention.svg").read_text()


def test_the_weights_of_the_picture_are_rows_over_the_source(run_folder):
    model, data = restored(run_folder)
    tokenizer = Tokenizer.from_str(data["tokenizer"])
    source, written = translated(model, tokenizer, ["the old man sees a dog ."], Decoding())
    tokens, words, weights = cross_attention(model, tokenizer, source, written)
    assert tokens == ["the", "old", "man", "sees", "a", "dog", ".", "<eos>"] and set(weights) == {"layer 0", "layer 1"}
    for matrix in weights.values():
        assert matrix.shape == (len(words), len(tokens))
        torch.testing.assert_close(matrix.sum(1), torch.ones(len(words)))


@pytest.mark.parametrize("suffix, begins", [("html", b"<!"), ("png", b"\x89PNG"), ("svg", b"<svg")])
def test_pictures_need_no_network(tmp_path, suffix, begins):
    path = tmp_path / "new folder" / f"picture.{suffix}"
    save(attention_chart(["a", "a"], ["b"], {"layer 0": torch.tensor([[0.25, 0.75]])}), path)
    content = path.read_bytes()
    assert content.lstrip().startswith(begins) and b"src=\"http" not in content


def test_batches_keep_every_line():
    assert list(batches(io.StringIO("a\n\nb"))) == [["a", "", "b"]]
    assert [len(b) for b in batches(io.StringIO("x\n" * 70))] == [32, 32, 6]


def test_decode_cuts_at_the_end(run_folder):
    tokenizer = Tokenizer.from_str(restored(run_folder)[1]["tokenizer"])
    dog = tokenizer.token_to_id("dog")
    assert decode(tokenizer, torch.tensor([[dog, EOS, dog], [dog, dog, BOS]])) == ["dog", "dog dog"]


def test_bad_input_is_one_message(run_folder, tmp_path):
    with pytest.raises(BadInput, match="no checkpoint .*give a run's folder"):
        restored(tmp_path / "nothing")
    (tmp_path / "some.ckpt").write_text("none of ours")
    with pytest.raises(BadInput, match="some.ckpt is no checkpoint of this version of the project"):
        restored(tmp_path / "some.ckpt")
    with pytest.raises(BadInput, match="ends with .html, .svg or .png"):
        main(run_folder, [], 1, 0.6, tmp_path / "picture.jpg")
    ended = subprocess.run([sys.executable, "-m", "experiments.cli", "try", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2 and ended.stderr.startswith("error: no checkpoint")
