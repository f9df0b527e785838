"""From a pilot to a plan, and what was promised beside what happened; one committed cell again."""

import json
import os
import shlex
import subprocess
import sys

import pytest
from test_table import put, result

from experiments.answer import plan, results
from experiments.answer.reproduce import command_of
from experiments.answer.statistics import detectable, seeds_needed
from experiments.launch.question import ROOT, BadInput, read
from experiments.record.identity import identify

ARMS = [("sqrt_d_k", 16), ("one", 16)]
BLEU = {"sqrt_d_k": [70, 72, 74, 71, 73, 70], "one": [69, 70, 74, 69, 71, 69]}


def pilot_of(tmp_path, monkeypatch, seeds):
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "none")
    for arm in ARMS:
        for seed in seeds:
            metrics = {"test/bleu": float(BLEU[arm[0]][seed])}
            put(tmp_path / "out", **{**result(arm, 0), "seed": seed, "key": f"{arm}{seed}", "metrics": metrics})
    question = read("score_divisor").only({"model.arch.d_k": ["16"]})
    (group,) = results.groups(question, tmp_path / "out")
    return group


def test_a_plan_by_hand(tmp_path, monkeypatch):
    """Differences -1, -2, 0: mean -1, sd 1; a run takes nine seconds."""
    group = pilot_of(tmp_path, monkeypatch, range(3))
    (comparison,) = plan.pilot(group)
    assert (comparison.difference, comparison.sd, comparison.n, comparison.seconds) == (-1, 1, 3, 9)
    promise, text = plan.plan(group, effect=None, budget=None, jobs=2)
    assert promise.seeds == seeds_needed(1, 1) == 10 and promise.seconds == 10 * 2 * 9
    assert promise.detectable == {"one, d_k 16": pytest.approx(detectable(1, 10))}
    assert "10 seeds of 2 arms take about 1:30, 2 at a time: ablate run score_divisor --seeds 10 --jobs 2" in text
    budgeted, _ = plan.plan(group, effect=None, budget=40, jobs=1)
    assert budgeted.seeds == 2, "two seeds of two arms of nine seconds"
    _, poor = plan.plan(group, effect=None, budget=20, jobs=1)
    assert "two seeds of two arms alone take 0:36: the budget is too small" in poor


def test_what_was_promised_is_held_against_what_happened(tmp_path, monkeypatch):
    promise, _ = plan.plan(pilot_of(tmp_path, monkeypatch, range(3)), effect=1.7, budget=None, jobs=1)
    assert promise.seeds == seeds_needed(1.7, 1) == 5
    plan.keep(promise, tmp_path / "out")
    before = results.groups(read("score_divisor").only({"model.arch.d_k": ["16"]}), tmp_path / "out")[0]
    assert plan.held_against(before, tmp_path / "out") is None, "its seeds are not there yet"
    after = pilot_of_more(tmp_path, monkeypatch)
    told = plan.held_against(after, tmp_path / "out")
    assert "1:30 of one process; the runs took 1:30" in told and "one, d_k 16" in told


def pilot_of_more(tmp_path, monkeypatch):
    for arm in ARMS:
        for seed in (3, 4):
            metrics = {"test/bleu": float(BLEU[arm[0]][seed])}
            put(tmp_path / "out", **{**result(arm, 0), "seed": seed, "key": f"{arm}{seed}", "metrics": metrics})
    (group,) = results.groups(read("score_divisor").only({"model.arch.d_k": ["16"]}), tmp_path / "out")
    return group


def test_one_seed_is_no_pilot(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="no two seeds of score_divisor to plan from; a pilot: `ablate run score_divisor --seeds 2`"):
        plan.pilot(pilot_of(tmp_path, monkeypatch, [0]))


def committed():
    for path in sorted((ROOT / "sweeps").glob("*.yaml")):
        yield from results.groups(read(path.stem), ROOT / "nothing here")


def test_every_committed_result_has_a_command_that_makes_the_same_run():
    """The key of the run that the command would start is the result's own, where recipe and data are as they were."""
    same = other = 0
    for group in committed():
        for arm, seeds in group.results.items():
            named = dict(zip(group.question.varied, arm, strict=True))
            for seed, found in list(seeds.items())[:1]:
                words = shlex.split(command_of(group, named, seed))
                assert words[:5] == ["python", "-m", "experiments.train", "fit", "--question"]
                if str(group.settings.get("data.dataset", "")).startswith("folder "):
                    other += 1
                    continue
                again = identify(words[3:])
                assert (again.arm, again.seed) == (found["arm"], seed)
                same += again.key == found["key"]
                other += again.key != found["key"]
    assert same > 60 and same > 4 * other, (same, other)


@pytest.mark.parametrize("cell, status, said", [
    ("patch_size=8/0", 0, "lies within"), ("patch_size=9/0", 2, "has patch_size=1/0"),
])  # fmt: skip
def test_a_committed_cell_is_run_again_and_lies_in_its_interval(tmp_path, cell, status, said):
    command = [sys.executable, "-m", "experiments.cli", "verify", "patch_size", "--cell", cell, "--out", str(tmp_path)]
    env = {**os.environ, "WANDB_MODE": "disabled", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=280)
    assert done.returncode == status and said in done.stdout + done.stderr, done.stdout + done.stderr
    if status == 0:
        (path,) = tmp_path.rglob("result.json")
        assert json.loads(path.read_text())["status"] == "finished" and "/verified/" in str(path)
