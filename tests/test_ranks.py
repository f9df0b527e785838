"""Several ranks (CPU, gloo): the same gradients, the same metrics, one result, one W&B run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments.launch.question import ROOT
from experiments.record.result import read_result


def run(*command, **env):
    ended = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, cwd=ROOT, timeout=280,
                           env={**os.environ, "OMP_NUM_THREADS": "1", **env})  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended


def test_gradients_are_the_same_on_two_ranks_with_unequal_token_counts(tmp_path):
    for ranks in (1, 2):
        run(Path(__file__).parent / "ranks.py", "gradients", ranks, tmp_path)
    one, two = (torch.load(tmp_path / f"gradients-{ranks}.pt") for ranks in (1, 2))
    assert one["tokens"] == two["tokens"] == 8 * 6 + 30 + 8
    for name, gradient in one["gradients"].items():
        torch.testing.assert_close(two["gradients"][name], gradient, atol=1e-6, rtol=1e-5)


def test_metrics_count_each_sentence_once_on_one_two_and_three_ranks(tmp_path):
    found = {}
    for ranks in (1, 2, 3):
        run(Path(__file__).parent / "ranks.py", "evaluation", ranks, tmp_path)
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
