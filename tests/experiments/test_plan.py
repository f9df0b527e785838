"""From a pilot to a plan, and what was promised beside what happened; one committed cell again."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from test_table import put, result

from experiments.answer import plan, results, verify
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
    words = "score_divisor --only model.arch.d_k=16"
    promise, text = plan.plan(group, effect=None, budget=None, jobs=2, words=words)
    assert promise.seeds == seeds_needed(1, 1) == 10 and promise.seconds == 10 * 2 * 9
    assert promise.detectable == {"one, d_k 16": pytest.approx(detectable(1, 10))}
    assert f"20 runs take about 1:30, 2 at a time: ablate run {words} --seeds 10 --jobs 2" in text
    budgeted, _ = plan.plan(group, effect=None, budget=40, jobs=1, words=words)
    assert budgeted.seeds == 2, "two seeds of two arms of nine seconds"
    nothing, poor = plan.plan(group, effect=None, budget=20, jobs=1, words=words)
    assert nothing is None and "Two seeds of all arms are 4 runs, and about 2 fit into the budget" in poor
    out_of_reach, told = plan.plan(group, effect=0.01, budget=None, jobs=1, words=words)
    assert out_of_reach is None and "Out of reach, more than 30 seeds: one, d_k 16" in told and "ablate run" not in told


def test_a_plan_counts_every_rate_that_is_tried_and_holms_correction():
    """norm tunes three rates: 24 arms a seed are run, 8 stand in the table, 4 comparisons are corrected for."""
    (group,) = results.as_asked(results.groups(read("norm"), None), read("norm"))
    seconds = [plan.seconds_of(group, arm) for arm in group.results]
    assert len(seconds) == 24 and plan.seconds_of_a_seed(group) == pytest.approx(sum(seconds))
    assert plan.comparisons_of(group) == 4 == len(plan.pilot(group))
    promise, text = plan.plan(group, effect=30, budget=None, jobs=2, words="norm")
    assert promise.detectable["pre, warmup_steps 100, n_layers 6"] == pytest.approx(
        detectable(plan.pilot(group)[1].sd, promise.seeds, 4)
    )
    assert f"{24 * promise.seeds} runs take about" in text and "p < .05 / 4, Holm's strictest step" in text


def test_curves_are_paired_by_seed_whatever_was_finished_first(monkeypatch):
    """The same results in another order of completion: the same words."""
    (group,) = results.groups(read("heads"), ROOT / "nothing here")
    backwards = {arm: dict(reversed(seeds.items())) for arm, seeds in group.results.items()}
    mixed = {arm: seeds if i % 2 else backwards[arm] for i, (arm, seeds) in enumerate(group.results.items())}
    said = [plan.plan(replace(group, results=found), effect=9, budget=None, jobs=1, words="")[1] for found in (group.results, mixed)]
    assert said[0] == said[1]


def test_what_was_promised_is_held_against_what_happened(tmp_path, monkeypatch):
    promise, _ = plan.plan(pilot_of(tmp_path, monkeypatch, range(3)), effect=1.7, budget=None, jobs=1, words="")
    assert promise.seeds == seeds_needed(1.7, 1) == 5
    plan.keep(promise, tmp_path / "out")
    before = results.groups(read("score_divisor").only({"model.arch.d_k": ["16"]}), tmp_path / "out")[0]
    assert plan.held_against(before, tmp_path / "out") is None, "its seeds are not there yet"
    after = pilot_of(tmp_path, monkeypatch, (3, 4))
    told = plan.held_against(after, tmp_path / "out")
    assert "1:30 of one process; the runs took 1:30" in told and "one, d_k 16" in told


def test_one_seed_is_no_pilot(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="no two seeds of score_divisor to plan from: `ablate run … --seeds 2` is a pilot"):
        plan.pilot(pilot_of(tmp_path, monkeypatch, [0]))


def committed():
    for path in sorted((ROOT / "sweeps").glob("*.yaml")):
        yield from results.groups(read(path.stem), ROOT / "nothing here")


def test_every_committed_result_has_a_command_that_makes_the_same_run():
    """The key of the run that the command would start is the result's own, where recipe and data are as they were."""
    same, other = 0, set()
    for group in committed():
        for arm, seeds in group.results.items():
            named = dict(zip(group.question.varied, arm, strict=True))
            for seed, found in list(seeds.items())[:1]:
                words = shlex.split(command_of(group, named, seed))
                assert words[:5] == ["python", "-m", "experiments.train", "fit", "--question"]
                again = identify(words[3:])
                assert (again.arm, again.seed) == (found["arm"], seed)
                same += again.key == found["key"]
                if again.key != found["key"]:
                    other.add((group.question.name, group.recipe))
    elsewhere = {("nsp", "bert-documents"), ("bert_position", "bert-documents"), ("averaging", "translation-multi30k_tiny")}  # data that may not be here
    elsewhere |= {("patch_size_cifar10", "vit-cifar10"), ("cnn_vs_vit", "vit-cifar10"), ("vit_position", "vit-cifar10")}
    elsewhere |= {(name, "translation-multi30k") for name in ("score_divisor", "look_ahead", "position_multi30k", "norm")}
    assert same > 60 and other <= elsewhere, other - elsewhere


def test_a_committed_cell_is_run_again_and_lies_in_its_interval(tmp_path):
    out = tmp_path / "with a space"
    command = [sys.executable, "-m", "experiments.cli", "verify", "patch_size", "--cell", "patch_size=8/0", "--out", str(out)]
    env = {**os.environ, "WANDB_MODE": "disabled", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=280)
    assert done.returncode == 0 and "lies within" in done.stdout, done.stdout + done.stderr
    (path,) = out.rglob("result.json")
    assert json.loads(path.read_text())["status"] == "finished" and "/verified/" in str(path)


def test_a_tuned_cell_is_verified_at_its_own_rate(tmp_path, monkeypatch):
    (group,) = results.as_asked(results.groups(read("norm"), None), read("norm"))
    started = []
    monkeypatch.setattr(verify.subprocess, "run", lambda words, **_: started.append(words) or SimpleNamespace(returncode=1, stderr="boom"))
    with pytest.raises(BadInput, match="the run failed with status 1"):
        verify.verify(group, "lr=0.0003,n_layers=6,norm=post,warmup_steps=0/0", tmp_path)
    assert "--model.optim.lr=0.0003" in started[0] and "--model.arch.norm=post" in started[0]


def test_a_cell_that_is_none_or_another_run_by_now_is_refused(tmp_path, monkeypatch):
    (group,) = results.groups(read("patch_size"), ROOT / "nothing here")
    with pytest.raises(BadInput, match="--cell patch_size=9/0: write ARM/SEED; patch_size has patch_size=1; patch_size=2;"):
        verify.verify(group, "patch_size=9/0", tmp_path)
    changed = {**group.settings, "trainer.max_steps": 7}
    with pytest.raises(BadInput, match="the recipe or the data have changed since"):
        verify.verify(replace(group, settings=changed), "patch_size=8/0", tmp_path)


def test_a_cell_that_diverges_does_not_hold(tmp_path, monkeypatch):
    (group,) = results.groups(read("patch_size"), ROOT / "nothing here")
    monkeypatch.setattr(verify, "carried_out", lambda *_: {"status": "diverged", "metrics": {}})
    found = verify.verify(group, "patch_size=8/0", tmp_path)
    assert not found.holds and str(found).startswith("patch_size patch_size=8/0: diverged, where test/accuracy 9")


def test_where_one_more_run_is_expected(tmp_path, monkeypatch):
    """By hand: 2 ± 4.302653 · 1 · √(4/3). A lone seed expects nothing, and only its own figure confirms it."""
    assert verify.expected([1.0, 3.0, 2.0]) == pytest.approx((2 - 4.968276, 2 + 4.968276), abs=1e-5)
    (group,) = results.groups(read("patch_size"), ROOT / "nothing here")
    alone = replace(group, results={arm: {0: seeds[0]} for arm, seeds in group.results.items()})
    before = alone.results[8,][0]["metrics"]["test/accuracy"]
    for now, holds in ((before, True), (before - 0.5, False)):
        monkeypatch.setattr(verify, "carried_out", lambda *_, now=now: {"status": "finished", "metrics": {"test/accuracy": now}})
        found = verify.verify(alone, "patch_size=8/0", tmp_path)
        assert found.holds == holds and "of its arm's only seed" in str(found)
    gone = {arm: {0: seeds[0] | {"status": "diverged"}} for arm, seeds in group.results.items()}
    with pytest.raises(BadInput, match="its committed run is diverged, without test/accuracy"):
        verify.verify(replace(group, results=gone), "patch_size=8/0", tmp_path)
