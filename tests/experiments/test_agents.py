"""W&B's real agent on a stand-in for its server, and results brought to W&B afterwards."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from experiments.launch.agents import create_sweep, sweep_config
from experiments.launch.grid import arguments
from experiments.launch.question import ROOT, BadInput, read
from experiments.record.result import read_result
from tests.wandb_stand_in import StandIn

SMALL = ["--only", "model.patch_size=2,4", "--seeds", "1", "--set", "trainer.max_steps=4", "--set", "trainer.val_check_interval=2"]


@pytest.fixture
def server():
    stand_in = StandIn()
    yield stand_in
    stand_in.close()


def call(*command, cwd, **env):
    here = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the environment is active
    env = {**os.environ, "PATH": here, "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=env, cwd=cwd, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_question_is_created_as_a_sweep_and_answered_by_an_agent_and_by_us(server, tmp_path):
    out = str(tmp_path / "out")
    env = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "x" * 40, "WANDB_ENTITY": "lab", "ABLATE_OUT": out}
    said = call("experiments.cli", "wandb", "sweep", "patch_size", *SMALL, cwd=tmp_path, **env)
    assert "wandb agent lab/transformer-ablations/sweep0" in said and "sbatch --array=0-7" in said
    assert server.sweeps["sweep0"]["parameters"]["model.patch_size"] == {"values": [2, 4]}

    by_hand = ["fit", "--question", "patch_size", "--config", "experiments/recipes/vit/digits.yaml", "--model.patch_size=2",
               "--trainer.max_steps=4", "--trainer.val_check_interval=2", "--seed_everything=0"]  # fmt: skip
    call("experiments.train", *by_hand, cwd=tmp_path, ABLATE_OUT=out, WANDB_MODE="disabled")
    (first,) = (tmp_path / "out").glob("patch_size/*/*/*/result.json")
    before = first.stat().st_mtime_ns

    agents = tmp_path / "elsewhere"
    agents.mkdir()
    said = call("wandb", "agent", "lab/transformer-ablations/sweep0", cwd=agents, WANDB_MODE="offline", **env)
    assert "finished already" in said and server.asked.count("CreateAgent") == 1
    results = {path: read_result(path) for path in (tmp_path / "out").glob("patch_size/*/*/*/result.json")}
    assert sorted(r["arm"]["model.patch_size"] for r in results.values()) == [2, 4]
    assert first.stat().st_mtime_ns == before
    table = call("experiments.cli", "table", "patch_size", "--out", out, "--format", "csv", "--set", "trainer.max_steps=4", cwd=tmp_path, ABLATE_OUT=out)
    assert len([line for line in table.splitlines() if line.startswith(("2,", "4,"))]) == 2
    assert "nothing to do" in call("experiments.cli", "run", "patch_size", *SMALL, cwd=tmp_path, ABLATE_OUT=out)

    # one W&B run a result, never doubled; a failed attempt is no result
    failed = first.parent.parent / "seed-9-failed"
    failed.mkdir()
    (failed / "result.json").write_text(json.dumps(read_result(first) | {"status": "failed", "seed": 9}))
    bring = ("experiments.cli", "wandb", "sync", "patch_size", "--out", out)
    assert "2 runs written, 0 were there already" in call(*bring, cwd=tmp_path, WANDB_MODE="offline")
    assert "0 runs written, 2 were there already" in call(*bring, cwd=tmp_path, WANDB_MODE="offline")
    (run,) = (first.parent / "wandb").glob(f"offline-run-*-patch_size-{read_result(first)['key']}")
    shown = call("wandb", "leet", "inspect", "--json", str(run), cwd=tmp_path)
    records = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert str(read_result(first)["metrics"]["test/accuracy"])[:8] in shown
    assert any(record.get("type") == "run" for record in records) and f"patch_size-{read_result(first)['key']}" in shown


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "sweeps").glob("*.yaml")))
def test_the_sweep_of_every_question_is_what_its_file_says(name):
    theirs, ours = yaml.safe_load((ROOT / "sweeps" / f"{name}.yaml").read_text()), sweep_config(read(name))
    assert {key: ours[key] for key in theirs} == theirs
    question = read(name)
    assert arguments(question, question.arms()[0], 0)[:2] == ["-m", "experiments.train"]


def test_without_a_login_it_says_what_does_the_same(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="wandb login.*`ablate run` does the same"):
        create_sweep(read("patch_size"), "project", None)
