"""`ablate run` from outside, as its user calls it: end to end, killed, twice at once, with arms that fail."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from experiments.launch.question import ROOT
from experiments.record.result import lock, read_result

ABLATE = [sys.executable, "-m", "experiments.cli"]


@pytest.fixture
def tiny(tmp_path):
    """A sweep file anywhere, over the toy recipe under smoke."""

    def write(parameters, name="tiny"):
        path = tmp_path / f"{name}.yaml"
        smoke = ["--config", "experiments/recipes/translation/toy.yaml", "--config", "experiments/recipes/smoke.yaml"]
        path.write_text(yaml.safe_dump({
            "program": "experiments/train.py", "method": "grid", "metric": {"name": "test/nll", "goal": "minimize"},
            "parameters": {**parameters, "data.train_pairs": {"value": 300}, "data.eval_pairs": {"value": 20}},
            "command": ["${env}", "${interpreter}", "-m", "experiments.train", "fit", "--question", str(path), *smoke, "${args}"],
        }, sort_keys=False))  # fmt: skip
        return path

    return write


def environment(out):
    return {**os.environ, "ABLATE_OUT": str(out), "WANDB_MODE": "offline", "COLUMNS": "300"}


def ablate(*arguments, out, cwd=ROOT, timeout=240):
    return subprocess.run(
        [*ABLATE, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=environment(out), timeout=timeout
    )


def results(out):
    return {(json.dumps(r["arm"]), r["seed"]): r for r in map(read_result, out.rglob("result.json"))}


def figures(out):
    """What the table is made of, without times."""
    return {key: (r["status"], r["metrics"], r["tokens"], r["flops"]) for key, r in results(out).items()}


NORM = {"model.arch.norm": {"values": ["post", "pre"]}, "seed_everything": {"values": [0, 1]}}


def test_from_sweep_file_to_table_and_nothing_to_do_the_second_time(tiny, tmp_path):
    path, out = tiny(NORM), tmp_path / "out"
    first = ablate("run", path, "--jobs", 2, out=out, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("finished after") == 4 and "baseline" in first.stdout and "p (Holm)" in first.stdout
    assert len(results(out)) == 4 and len(list(out.rglob("offline-run-*"))) == 4, "one W&B run a run"
    began = time.monotonic()
    second = ablate("run", path, out=out)
    seconds = time.monotonic() - began
    assert second.returncode == 0 and "nothing to do: all 4 runs of tiny are finished" in second.stdout
    assert seconds < 4, "under two seconds on a free machine (README); doubled here for a busy one"
    assert first.stdout.split("results:")[0] in second.stdout, "the same table"
    table = ablate("table", path, "--format", "latex", out=out)
    assert table.returncode == 0 and "post" in table.stdout


def test_killed_in_the_middle_and_run_again_it_ends_in_the_same_table(tiny, tmp_path):
    one_seed = {"seed_everything": {"values": [0]}}
    path = tiny({**NORM, **one_seed, "trainer.max_steps": {"value": 40}, "trainer.val_check_interval": {"value": 10}})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert ablate("run", path, "--jobs", 2, out=whole).returncode == 0
    launcher = subprocess.Popen([*ABLATE, "run", str(path), "--jobs", "2"], env=environment(killed), cwd=ROOT,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    deadline = time.monotonic() + 100
    while not list(killed.rglob("last.ckpt")) and time.monotonic() < deadline:
        time.sleep(0.1)
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    time.sleep(0.5)
    alive = subprocess.run(["pgrep", "-f", f"nursery {killed}"], capture_output=True, text=True).stdout
    assert not alive, "the runs die with their launcher"
    assert list(killed.rglob("last.ckpt")) and len(list(killed.rglob("result.json"))) < 2, "in the middle"
    assert ablate("run", path, "--jobs", 2, out=killed).returncode == 0
    assert figures(killed) == figures(whole)


def heed_ctrl_c():
    """A shell starts its background jobs deaf to SIGINT; on a terminal they are not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_stops_everything_and_says_how_to_go_on(tiny, tmp_path):
    path, out = tiny({**NORM, "trainer.max_steps": {"value": 5000}}), tmp_path / "out"
    launcher = subprocess.Popen(
        [*ABLATE, "run", str(path), "--jobs", "1"],
        env=environment(out),
        cwd=ROOT,
        preexec_fn=heed_ctrl_c,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(out.rglob("progress.json")):
        time.sleep(0.2)
    launcher.send_signal(signal.SIGINT)
    said = launcher.communicate(timeout=30)[1]
    assert launcher.returncode == 130 and "the same command goes on" in said
    assert not subprocess.run(["pgrep", "-f", f"nursery {out}"], capture_output=True, text=True).stdout


def test_a_diverged_arm_is_shown_and_a_crashed_one_names_its_log_and_the_others_go_on(tiny, tmp_path):
    """A rate of 1e30 diverges; where a file stands in the place of a run's checkpoints, that run crashes."""
    path, out = (
        tiny(
            {
                "model.optim.lr": {"values": [0.001, 1e30]},
                "model.optim.warmup_steps": {"value": 0},
                "seed_everything": {"values": [0, 1]},
            }
        ),
        tmp_path / "out",
    )
    from experiments.launch.grid import run_of
    from experiments.launch.question import read

    broken = run_of(read(str(path)), {"model.optim.lr": 0.001}, 1, out).folder
    broken.mkdir(parents=True)
    (broken / "checkpoints").write_text("in the way")
    ended = ablate("run", path, "--jobs", 2, out=out)
    assert ended.returncode == 1
    assert "diverged after" in ended.stderr and f"(log: {broken / 'log.txt'})" in ended.stderr
    said = " ".join(ended.stdout.split())
    assert "diverged 2 of 2 (seed 0, 1)" in said and "failed 1 of 2 (seed 1)" in said and "Fisher p" in said
    assert sorted(r["status"] for r in results(out).values()) == [
        "diverged",
        "diverged",
        "failed",
        "finished",
    ]
    (broken / "checkpoints").unlink()
    again = ablate("run", path, "--jobs", 2, out=out)
    assert again.returncode == 0 and again.stderr.count("started") == 1, "only what failed is repeated"


def test_two_launchers_on_one_folder(tiny, tmp_path):
    path, out = tiny(NORM), tmp_path / "out"
    with lock(out / "tiny", "an `ablate run`"):
        ended = ablate("run", path, out=out)
    assert (
        ended.returncode == 2
        and "an `ablate run` is already at work in" in ended.stderr
        and f"process {os.getpid()}" in ended.stderr
    )


def test_a_folder_that_cannot_be_written(tiny):
    ended = ablate("run", tiny(NORM), "--out", "/dev/null/runs", out="unused")
    assert ended.returncode == 2 and "error: cannot write to /dev/null/runs" in ended.stderr and "--out" in ended.stderr


def test_a_corrupt_result_stops_before_anything_runs(tiny, tmp_path):
    path, out = tiny(NORM), tmp_path / "out"
    from experiments.launch.grid import run_of
    from experiments.launch.question import read

    folder = run_of(read(str(path)), {"model.arch.norm": "pre"}, 0, out).folder
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{")
    ended = ablate("run", path, out=out)
    assert (
        ended.returncode == 2
        and f"{folder / 'result.json'} is no JSON" in ended.stderr
        and "only this run will be repeated" in ended.stderr
    )
    assert not list(out.rglob("log.txt")) and (folder / "result.json").read_text() == "{"


@pytest.mark.parametrize("arguments, message", [
    (["run", "norn"], "no question 'norn': did you mean norm? neither a file nor one of"),
    (["run", "score_divisor", "--set", "model.arch.d_k=4"], "the question score_divisor varies it"),
    (["run", "score_divisor", "--set", "model.arch.norm"], "write KEY=VALUE"),
    (["run", "score_divisor", "--set", "model.arch.nrom=pre"], "did you mean model.arch.norm?"),
    (["run", "score_divisor", "--only", "model.arch.d_k=17"], "the values are 16, 64, 128"),
    (["run", "norm", "--only", "model.arch.n_layers=2,model.optim.lr=3e-3"], "another key takes an --only of its own"),
    (["run", "score_divisor", "--recipe", "nowhere.yaml"], "no recipe 'nowhere.yaml'"),
    (["run", "score_divisor", "--recipe", "experiments/recipes/translation/multi30k.yaml", "--set", "data.dataset=/nowhere"], "data set '/nowhere' cannot be opened"),
    (["table", "score_divisor", "--format", "word"], "known are terminal, markdown, csv, latex, json"),
    (["bench", "cooking"], "no benchmark 'cooking'"),
])  # fmt: skip
def test_bad_input_is_one_line_and_status_2(arguments, message, tmp_path):
    ended = ablate(*arguments, out=tmp_path / "out")
    assert ended.returncode == 2 and message in ended.stderr and ended.stderr.count("error:") == 1, ended.stderr
    assert "Traceback" not in ended.stderr and not list((tmp_path / "out").rglob("result.json"))


def test_help_answers_without_heavy_imports():
    code = "import sys; sys.argv = ['ablate', '--help']\ntry:\n    from experiments.cli import main; main()\nexcept SystemExit:\n    print(sorted({'torch', 'lightning', 'wandb', 'datasets', 'scipy', 'numpy'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout
    assert "A lab bench for questions" in said and said.rstrip().endswith("[]")


def test_list_shows_every_question(tmp_path):
    said = ablate("list", out=tmp_path).stdout
    for path in (ROOT / "sweeps").glob("*.yaml"):
        assert path.stem in said
    assert "6 × 5" in said and "0 of 30" in said


def test_local_workers_see_disjoint_gpus_and_share_the_threads(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from experiments.launch.pool import Job, Pool

    for visible, jobs, expected in (
        ("3,5", 2, ["3", "5"]),
        ("0,1,2,3", 2, ["0,1", "2,3"]),
        ("4,6", 1, ["4,6"]),
        ("7", 2, ["7", "7"]),
    ):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        pool = Pool([], jobs=jobs)
        pool.threads = 4
        seen = [pool.environment(Job(SimpleNamespace(out=tmp_path), [], slot=slot)) for slot in range(jobs)]
        assert [env["CUDA_VISIBLE_DEVICES"] for env in seen] == expected and seen[0]["OMP_NUM_THREADS"] == "4"


def test_runs_share_the_cores_unless_somebody_says_how_many_threads(monkeypatch):
    from experiments.launch import pool

    monkeypatch.setattr(pool.os, "cpu_count", lambda: 8)
    for said, threads in ((None, 4), ("1", 1), ("3", 3), ("all", 4), ("0", 4)):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if said:
            monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert pool.Pool([], jobs=2, gpus=[]).threads == threads
