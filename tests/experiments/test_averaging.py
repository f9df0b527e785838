"""Averaged checkpoints: the mean is the mean, siblings share it, a killed training has the same."""

import json

import pytest
import torch
from datasets import Dataset

from datamodules.local import checkpoint_path
from experiments import train as program
from experiments.launch.question import ROOT, BadInput
from experiments.record.averaging import kept_weights, selected
from experiments.record.identity import identify
from experiments.record.result import read_result
from lit_modules.translation import moses_bleu

CONFIGS = [f"--config=experiments/recipes/{name}.yaml" for name in ("translation/toy", "smoke")]
TINY = ["--data.train_pairs=400", "--data.eval_pairs=20", "--trainer.max_steps=8", "--trainer.val_check_interval=2"]


pytestmark = pytest.mark.usefixtures("quiet")


def averaging(count, *more, method="greedy"):
    arm = [f"--selection.average={count}", f"--model.decoding.method={method}"]
    return ["fit", "--question", str(ROOT / "sweeps/averaging.yaml"), *CONFIGS, *TINY, *arm, *more]


def done(arguments):
    assert program.train(arguments) == 0
    return read_result(identify(arguments).folder / "result.json")


def weights_of(path):
    return torch.load(path, weights_only=True)["state_dict"]


def test_the_mean_of_the_last_weights_is_tested_and_siblings_share_the_training():
    mean = done(averaging(3))
    folder = identify(averaging(3)).folder
    kept = kept_weights(folder / "checkpoints")
    assert [path.name for path in kept] == ["weights-4.ckpt", "weights-6.ckpt", "weights-8.ckpt"]
    tested = checkpoint_path(str(folder))
    assert tested.name == "average-3.ckpt" and mean["metrics"]["averaged"] == 3 and "best_step" not in mean["metrics"]
    each = [weights_of(path) for path in kept]
    for name, weight in weights_of(tested).items():
        torch.testing.assert_close(weight, sum(w[name].double() for w in each).div(3).float(), rtol=0, atol=1e-7)

    best = done(averaging(0))
    assert best["trained_by"] == mean["key"] and "averaged" not in best["metrics"]
    alone = done(averaging(0, "--trainer.limit_val_batches=1.0"))  # nothing to share: the key differs
    for name in ("valid/nll", "test/nll", "test/bleu"):
        assert best["metrics"][name] == pytest.approx(alone["metrics"][name], rel=1e-6)
    assert best["metrics"]["test/nll"] != mean["metrics"]["test/nll"] != best["metrics"]["valid/nll"]
    two = done(averaging(2, method="beam"))
    assert two["trained_by"] == mean["key"] and two["metrics"]["averaged"] == 2
    assert checkpoint_path(str(identify(averaging(2, method="beam")).folder)) == folder / "checkpoints/average-2.ckpt"
    assert checkpoint_path(str(identify(averaging(0)).folder)) == folder / "checkpoints/best.ckpt"


def test_a_choice_of_decoding_is_looked_for_on_validation_with_the_same_training(monkeypatch, tmp_path):
    """`--set data.test=validation`: the tested checkpoint on the split that was validated on."""
    lines = {"en": ["Two dogs run.", "A man sings.", "A dog sings."], "de": ["Zwei Hunde laufen.", "Ein Mann singt.", "Ein Hund singt."]}
    for split, some in (("train", slice(2)), ("validation", slice(1, 3)), ("test", slice(0, 3, 2))):
        pairs = {column: texts[some] * 9 for column, texts in lines.items()}
        Dataset.from_dict(pairs).to_parquet(tmp_path / "multi30k" / f"{split}.parquet")
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    captions = ["--config=experiments/recipes/translation/multi30k.yaml", "--config=experiments/recipes/smoke.yaml"]
    rest = ["--trainer.max_steps=4", "--trainer.val_check_interval=2", "--selection.average=0"]
    asked = ["fit", "--question", "averaging", *captions, *rest, "--model.decoding.method=greedy"]
    test = done(asked)
    looked = done([*asked, "--data.test=validation"])
    assert looked["trained_by"] == test["key"] and looked["data_fingerprint"] != test["data_fingerprint"]
    assert looked["variant"] != test["variant"], "they never stand in one table"
    assert looked["metrics"]["test/nll"] == pytest.approx(test["metrics"]["valid/nll"], rel=1e-6)
    assert looked["metrics"]["test/nll"] != pytest.approx(test["metrics"]["test/nll"], rel=1e-3)


def test_a_short_training_averages_what_there_is_and_says_so():
    short = done(averaging(10))
    assert short["metrics"]["averaged"] == 4
    assert done(averaging(5))["trained_by"] == short["key"], "no other training would have more"


def test_fewer_weights_than_asked_are_no_sibling():
    done(averaging(2))
    assert "trained_by" not in done(averaging(4))


def test_killed_and_resumed_has_the_mean_of_the_uninterrupted(monkeypatch, tmp_path):
    whole = done(averaging(3))
    monkeypatch.setenv("ABLATE_OUT", str(tmp_path / "killed"))
    steps = {"taken": 0}
    step = program.L.LightningModule.optimizer_step

    def dies(self, *arguments, **more):
        steps["taken"] += 1
        if steps["taken"] == 8:
            raise KeyboardInterrupt
        return step(self, *arguments, **more)

    monkeypatch.setattr(program.L.LightningModule, "optimizer_step", dies)
    with pytest.raises(BaseException):  # noqa: B017  Lightning's own exit
        program.train(averaging(3))
    monkeypatch.setattr(program.L.LightningModule, "optimizer_step", step)
    resumed = done(averaging(3))
    for name in ("valid/nll", "test/nll", "test/bleu", "averaged"):
        assert resumed["metrics"][name] == whole["metrics"][name]


def test_weights_of_other_code_are_not_averaged_in(monkeypatch):
    monkeypatch.setattr("experiments.record.facts.code_fingerprint", lambda: "before")
    with monkeypatch.context() as patched, pytest.raises(BaseException):  # noqa: B017
        patched.setattr(program, "test", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        program.train(averaging(3))
    checkpoints = identify(averaging(3)).folder / "checkpoints"
    (checkpoints / "weights-99.ckpt").write_bytes((checkpoints / "weights-8.ckpt").read_bytes())
    monkeypatch.setattr("experiments.record.facts.code_fingerprint", lambda: "after")
    done(averaging(3))
    assert [path.name for path in kept_weights(checkpoints)] == ["weights-4.ckpt", "weights-6.ckpt", "weights-8.ckpt"]


def test_nothing_to_test_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no checkpoint to test"):
        selected(tmp_path, 0)
    with pytest.raises(FileNotFoundError, match="holds no 3 weights to test"):
        selected(tmp_path, 3)


def test_a_negative_number_is_refused():
    with pytest.raises(BadInput, match="average -1 must be 0"):
        program.train(averaging(-1))


def test_a_folder_stands_for_its_checkpoint_whatever_its_result_says(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/best.ckpt").touch()
    for said in ("", "{", json.dumps({"status": "failed"})):
        (tmp_path / "result.json").write_text(said)
        assert checkpoint_path(str(tmp_path)) == tmp_path / "checkpoints/best.ckpt"


def test_moses_bleu_is_that_of_tokens_by_hand():
    """One sentence of six tokens, one of them wrong."""
    found = moses_bleu(["Ein Mann, der lacht."], ["Ein Mann, der Läuft."], "de")
    # Ein Mann , der lacht . / Ein Mann , der Läuft . : 5/6, 3/5, 2/4, 1/3
    assert found["bleu_moses"] == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25, abs=1e-6)
    small = moses_bleu(["ein mann, der läuft."], ["Ein Mann, der Läuft."], "de")
    assert small["bleu_moses_lc"] == pytest.approx(100) and small["bleu_moses"] == 0
