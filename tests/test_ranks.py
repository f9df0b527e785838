"""Several ranks (CPU, gloo): the same gradients, the same metrics, one result, one W&B run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from experiments.launch.question import ROOT
from experiments.record.metrics_file import read_metrics
from experiments.record.result import read_result
from tests import ranks as ranks_of_one


def run(*command, **env):
    ended = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, cwd=ROOT, timeout=280,
                           env={**os.environ, "OMP_NUM_THREADS": "1", **env})  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended


def test_gradients_are_the_same_on_two_ranks_with_unequal_token_counts(tmp_path):
    ranks_of_one.gradients(1, tmp_path)
    run(Path(__file__).parent / "ranks.py", "gradients", 2, tmp_path)
    one, two = (torch.load(tmp_path / f"gradients-{ranks}.pt") for ranks in (1, 2))
    assert one["tokens"] == two["tokens"] == 8 * 6 + 30 + 8
    for name, gradient in one["gradients"].items():
        torch.testing.assert_close(two["gradients"][name], gradient, atol=1e-6, rtol=1e-5)


def test_metrics_count_each_sentence_once_on_one_two_and_three_ranks(tmp_path):
    found = {}
    ranks_of_one.evaluation(1, tmp_path)
    for ranks in (2, 3):
        run(Path(__file__).parent / "ranks.py", "evaluation", ranks, tmp_path)
    for ranks in (1, 2, 3):
        found[ranks] = json.loads((tmp_path / f"evaluation-{ranks}.json").read_text())
    for ranks in (2, 3):
        for name, value in found[1].items():
            assert found[ranks][name] == (value if "bleu" in name else pytest.approx(value, abs=1e-6, rel=1e-6)), (
                ranks,
                name,
            )


def test_a_run_on_two_ranks_leaves_one_result_and_one_wandb_run(tmp_path):
    run("-m", "experiments.train", "fit", "--config", "experiments/recipes/translation/toy.yaml", "--config",
        "experiments/recipes/smoke.yaml", "--data.train_pairs=400", "--data.eval_pairs=21", "--trainer.devices=2",
        "--trainer.strategy=ddp", ABLATE_OUT=str(tmp_path), WANDB_MODE="offline")  # fmt: skip
    (path,) = tmp_path.rglob("result.json")
    result = read_result(path)
    assert result["status"] == "finished" and result["steps"] == 4
    assert len(list(tmp_path.rglob("offline-run-*"))) == 1
    steps = [line for line in (path.parent / "metrics.csv").read_text().splitlines() if ",train/loss," in line]
    assert len(steps) == 4


CURVES = {  # without dropout and maskings, which are drawn rank by rank
    "translation": ["--config", "experiments/recipes/translation/toy.yaml", "--config", "experiments/recipes/smoke.yaml",
                    "--data.train_pairs=400", "--data.eval_pairs=21", "--model.arch.dropout=0.0"],
    "vit": ["--config", "experiments/recipes/vit/digits.yaml", "--config", "experiments/recipes/smoke.yaml",
            "--model.arch.dropout=0.0", "--data.augment=crop", "--data.batch_size=51"],
}  # fmt: skip
ALL = ["--trainer.limit_val_batches=1.0", "--trainer.limit_test_batches=1.0", "--trainer.max_steps=6"]


def spread(ranks: int, tmp_path: Path) -> dict[str, list[str]]:
    """Two ways to spread a run over ranks: whole copies, and wmt14_big's division, by its own lines."""
    strategy = yaml.safe_load((ROOT / "experiments/recipes/translation/wmt14_big.yaml").read_text())["trainer"]["strategy"]
    strategy["init_args"]["data_parallel_size"] = ranks
    (tmp_path / "sharded.yaml").write_text(yaml.safe_dump({"trainer": {"strategy": strategy, "devices": ranks}}))
    return {
        "ddp": [f"--trainer.devices={ranks}", "--trainer.strategy=ddp"],
        "sharded": ["--config", str(tmp_path / "sharded.yaml")],
    }


@pytest.mark.parametrize("family, how", [
    ("vit", "ddp"), ("vit", "sharded"), ("translation", "ddp"), ("translation", "sharded"),
])  # fmt: skip
@pytest.mark.slow
def test_the_loss_curve_and_the_result_are_those_of_one_rank(family, how, tmp_path):
    """At equal batches, with uneven counts of tokens on the ranks."""
    found = {}
    for name, flags in {"alone": [], how: spread(2, tmp_path)[how]}.items():
        out = tmp_path / name
        run("-m", "experiments.train", "fit", *CURVES[family], *flags, *ALL, ABLATE_OUT=str(out), WANDB_MODE="disabled")
        (path,) = out.rglob("result.json")
        found[name] = read_result(path), read_metrics(path.parent / "metrics.csv")
    (one, curve), (two, other) = found["alone"], found[how]
    assert two["world_size"] == 2
    assert all(one[same] == two[same] for same in ("key", "tokens", "parameters", "flops_per_token"))
    for metric in ("train/loss", "train/gradient_norm", "valid/nll"):
        assert curve[metric].keys() == other[metric].keys()
        for step, value in curve[metric].items():
            assert other[metric][step] == pytest.approx(value, rel=2e-5), (metric, step)
    assert two["metrics"]["test/nll"] == pytest.approx(one["metrics"]["test/nll"], rel=2e-5)


def test_each_rank_holds_half_of_a_divided_model(tmp_path):
    """Its parameters and the optimiser's moments; evaluation holds it whole, and divides it again."""
    run(Path(__file__).parent / "ranks.py", "halves", 2, tmp_path)
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("halves-*.json"))]
    whole = found[0]["whole"]
    for held in found:
        assert held["in_evaluation"] == whole
        for state in ("after_evaluation", "exp_avg"):
            assert held[state] == pytest.approx(whole / 2, rel=0.02), state  # rows that two do not divide are padded


@pytest.mark.slow
def test_a_divided_run_that_is_killed_goes_on_and_ends_like_an_uninterrupted_one(tmp_path):
    flags, curves = [*CURVES["translation"], *spread(2, tmp_path)["sharded"], *ALL], {}
    for name, at in (("whole", 0), ("killed", 5)):
        out = {"ABLATE_OUT": str(tmp_path / name), "WANDB_MODE": "disabled", "KILL_AT": str(at), "OMP_NUM_THREADS": "1"}
        killer = (
            "import os, sys; from experiments import train; keep = train.Progress.on_train_batch_end\n"
            "def die(self, trainer, *a, **k):\n    keep(self, trainer, *a, **k)\n"
            "    trainer.global_step == int(os.environ['KILL_AT']) and os.kill(os.getpid(), 9)\n"
            "train.Progress.on_train_batch_end = die; train.main()"
        )
        (tmp_path / "killer.py").write_text(killer)
        ended = subprocess.run([sys.executable, tmp_path / "killer.py", "fit", *flags], cwd=ROOT, env={**os.environ, **out})
        assert (ended.returncode != 0) == (name == "killed")
        if name == "killed":
            assert list((tmp_path / name).rglob("last.ckpt")) and not list((tmp_path / name).rglob("result.json"))
            run("-m", "experiments.train", "fit", *flags, **out)
        (path,) = (tmp_path / name).rglob("metrics.csv")
        curves[name] = read_metrics(path)
    assert curves["whole"] == curves["killed"]


@pytest.mark.slow
def test_two_arms_of_two_ranks_one_after_the_other(tmp_path):
    sizes = ["trainer.devices=2", "trainer.strategy=ddp", "trainer.max_steps=4", "trainer.val_check_interval=2"]
    options = ["--seeds", "1", "--only", "model.patch_size=2,4", *(word for size in sizes for word in ("--set", size))]
    run("-m", "experiments.cli", "run", "patch_size", *options, "--jobs", "1", "--out", tmp_path, WANDB_MODE="offline")
    results = [read_result(path) for path in tmp_path.glob("patch_size/*/*/*/result.json")]
    assert [result["world_size"] for result in results] == [2, 2]
    assert all("test/accuracy" in result["metrics"] for result in results)
    assert len(list(tmp_path.glob("patch_size/*/*/*"))) == 2 == len(list(tmp_path.rglob("offline-run-*")))


def test_a_pre_training_on_two_ranks_fine_tunes_on_one_and_leaves_one_result(tmp_path):
    run("-m", "experiments.train", "fit", "--config", "experiments/recipes/bert/toy.yaml", "--config",
        "experiments/recipes/smoke.yaml", "--data.train_documents=60", "--data.held_out=10", "--trainer.devices=2",
        "--trainer.strategy=ddp", "--downstream.recipes=[experiments/recipes/tasks/toy_roles.yaml]",
        ABLATE_OUT=str(tmp_path), WANDB_MODE="offline")  # fmt: skip
    whole, below = sorted(tmp_path.rglob("result.json"), key=lambda path: len(path.parts))
    result = read_result(whole)
    assert result["status"] == "finished" and result["world_size"] == 2 and read_result(below)["world_size"] == 1
    assert result["metrics"]["toy_roles/f1"] == read_result(below)["metrics"]["test/f1"]
    assert len(list(tmp_path.rglob("offline-run-*"))) == 1
