"""Forked runs are the runs that they would have been alone, and end with what they were forked from."""

import os
import signal
import subprocess
import sys
import time

import pytest

from experiments.launch.nursery import Nursery
from experiments.launch.pool import Job, Pool, environment
from experiments.launch.question import ROOT
from experiments.record.identity import identify
from experiments.record.metrics_file import read_metrics
from experiments.record.result import read_result

RUN = ["fit", "--config", "experiments/recipes/vit/digits.yaml", "--config", "experiments/recipes/smoke.yaml"]
COMMAND = [sys.executable, "-m", "experiments.train", *RUN]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.chdir(ROOT)


def test_a_forked_run_is_the_one_of_a_process_of_its_own(tmp_path):
    for name in ("alone", "forked"):
        job = Job(identify(RUN, tmp_path / name), COMMAND)
        pool = Pool([job], jobs=1)
        if name == "forked":
            pool.prepare()
        for _ in pool.states(every=0.05):
            pass
        assert job.outcome == "finished", job.log.read_text()
    alone, forked = (read_result(identify(RUN, tmp_path / name).folder / "result.json") for name in ("alone", "forked"))
    for same in ("key", "metrics", "tokens", "flops", "config", "code_fingerprint", "data_fingerprint"):
        assert alone[same] == forked[same], same
    curves = [read_metrics(identify(RUN, tmp_path / name).folder / "metrics.csv") for name in ("alone", "forked")]
    assert curves[0] == curves[1]
    assert identify(RUN, tmp_path / "forked").folder.joinpath("log.txt").read_text().startswith(f"$ {sys.executable} -m")


def until(what, seconds=60):
    for _ in range(seconds * 20):
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def test_status_signals_and_the_end_of_the_nursery(tmp_path):
    """A run that fails, one that is killed, and one whose nursery dies."""
    nursery = Nursery(tmp_path, environment(str(tmp_path), 1))
    env = environment(str(tmp_path), 1)
    wrong = nursery.start([*COMMAND, "--model.patch_size=3"], env, tmp_path / "wrong.txt")
    assert wrong.wait(60) == 2 and "patch_size 3" in (tmp_path / "wrong.txt").read_text()
    long = [*COMMAND, "--trainer.max_steps=100000", "--seed_everything=1"]
    killed = nursery.start(long, env, tmp_path / "killed.txt")
    until(lambda: (identify([*long[3:]], tmp_path).folder / "progress.json").exists())
    with pytest.raises(subprocess.TimeoutExpired):
        killed.wait(0.1)
    killed.signal(signal.SIGKILL)
    assert killed.wait(10) == -signal.SIGKILL
    left = nursery.start([*long, "--seed_everything=2"], env, tmp_path / "left.txt")
    until(lambda: left.poll() is None and left.pid is not None)
    nursery.close()
    assert left.poll() == -9
    until(lambda: not os.path.exists(f"/proc/{left.pid}"))
