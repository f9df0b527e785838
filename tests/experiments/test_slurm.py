"""The SLURM engine on a real Slurm of one machine; what needs none of it stands first."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.launch import slurm
from experiments.launch.pool import Job
from experiments.launch.question import ROOT, BadInput
from experiments.launch.slurm import Cluster, Slurm, Task, cluster_of, shape
from experiments.record.identity import identify
from experiments.record.result import read_result

INSTALLED = all(map(shutil.which, ("slurmctld", "slurmd", "munged", "sbatch")))
needs_slurm = pytest.mark.skipif(not INSTALLED, reason="Slurm is not installed: apt-get install slurm-wlm munge")
QUICK = ["--set", "trainer.max_steps=6", "--set", "trainer.val_check_interval=3", "--only", "model.patch_size=2,4"]


def ablate(*arguments, out, check=True, **env):
    command = [sys.executable, "-m", "experiments.cli", *arguments, "--out", str(out)]
    env = {**os.environ, "WANDB_MODE": "disabled", "PYTHONPATH": str(ROOT), **env}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=out.parent, timeout=280)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


# ---- options


def test_options_come_from_a_file_and_from_the_command_line(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text("partition: gpu\ntime: 120\nmemory: 8G\n")
    assert cluster_of([str(file), "time=30", "gpus=2"]) == Cluster(partition="gpu", time=30, memory="8G", gpus=2)
    assert cluster_of([]) == Cluster()


@pytest.mark.parametrize("options, message", [
    (["partiton=gpu"], "--slurm partiton: unknown; it takes partition, account"),
    (["time=soon"], "--slurm time=soon: needs a whole number"),
    (["lab.yml"], "--slurm lab.yml: neither KEY=VALUE nor a YAML file"),
    (["time=1", "grace=60"], "--slurm time=1 minutes must be longer than grace=60 seconds"),
])  # fmt: skip
def test_wrong_options_are_named(options, message):
    with pytest.raises(BadInput, match=message):
        cluster_of(options)


def test_tasks_are_held_against_devices_and_nodes():
    command = ["python", "-m", "experiments.train", "fit", "--config", "experiments/recipes/vit/imagenet.yaml"]
    assert shape([*command, "--trainer.num_nodes=2"], Cluster(gpus=8)) == (8, 2)
    with pytest.raises(BadInput, match="gpus=4, but a run uses trainer.devices 8 on each of 1 nodes"):
        shape(command, Cluster(gpus=4))
    with pytest.raises(BadInput, match="trainer.devices is 'auto': give a number"):
        shape([*command, "--trainer.devices=auto"], Cluster())


@pytest.mark.parametrize("arguments, message", [
    (["--engine", "condor"], "--engine condor: known are local, slurm"),
    (["--engine", "slurm", "--jobs", "2"], "--jobs does not go with --engine slurm"),
    (["--slurm", "time=3"], "--slurm does not go with --engine local"),
])  # fmt: skip
def test_engines_are_not_mixed_up(tmp_path, arguments, message):
    done = ablate("run", "patch_size", *arguments, out=tmp_path / "out", check=False)
    assert done.returncode == 2 and message in done.stderr


def test_a_dry_run_prints_the_script_and_runs_nothing(tmp_path):
    options = ["--engine", "slurm", "--slurm", "partition=gpu", "--slurm", "account=lab", "--slurm", "time=120",
               "--slurm", "gpus=1", "--slurm", "constraint=a100", "--slurm", "at_once=3", "--slurm", "memory=8G"]  # fmt: skip
    said = ablate("run", "patch_size", *QUICK, *options, "--dry-run", out=tmp_path / "out").stdout
    for line in ("--partition=gpu", "--account=lab", "--time=120", "--gpus-per-node=1", "--constraint=a100", "--requeue",
                 "--array=0-9%3", "--ntasks-per-node=1", "--mem=8G", "--signal=USR2@90"):  # fmt: skip
        assert f"#SBATCH {line}\n" in said, line
    assert said.count("experiments.train fit --question patch_size") == 10 and "10 of 10 runs to do" in said
    assert not (tmp_path / "out").exists()


def job_of(tmp_path, seed=0):
    run = identify(["fit", "--config", "experiments/recipes/vit/digits.yaml", f"--seed_everything={seed}"], tmp_path)
    return Job(run, [sys.executable, "-m", "experiments.train", "fit", "--config", "experiments/recipes/vit/digits.yaml"])


def test_a_task_that_is_stopped_is_put_back_until_it_no_longer_gets_anywhere(tmp_path):
    task = Task(["true"], str(tmp_path), str(tmp_path), 1)
    last = tmp_path / "checkpoints" / "last.ckpt"
    last.parent.mkdir()
    for attempt in range(4):
        task()
        last.write_text("newer")
        os.utime(last, (attempt + 1, attempt + 1))
        assert task.checkpoint().function is task, "submitit calls this very object again"
    back = []
    for _ in range(3):
        task()
        back.append(task.checkpoint() is not None)
    assert back == [True, True, False] and "no checkpoint in 3 allocations" in (tmp_path / "log.txt").read_text()


def test_nothing_is_submitted_twice_where_the_launcher_died_at_any_moment(tmp_path, monkeypatch):
    """The book is written before sbatch; a task is known by its array's name and its place."""
    submitted = []

    class Executor:
        def __init__(self, folder, max_num_timeout):
            pass

        def update_parameters(self, **parameters):
            self.name = parameters["job_name"]

        def submit_array(self, tasks):
            submitted.append((self.name, len(tasks)))
            raise KeyboardInterrupt  # after sbatch has taken it

    monkeypatch.setattr("submitit.SlurmExecutor", Executor)
    monkeypatch.setattr(slurm, "queue", lambda: {})
    jobs = [job_of(tmp_path, seed) for seed in range(3)]
    with pytest.raises(KeyboardInterrupt):
        Slurm(jobs, Cluster(), tmp_path / "q" / ".slurm").submit()
    ((name, count),) = submitted
    monkeypatch.setattr(slurm, "queue", lambda: {f"{name}_0": "PENDING", f"{name}_1": "RUNNING"})
    again = Slurm(jobs, Cluster(), tmp_path / "q" / ".slurm")
    with pytest.raises(KeyboardInterrupt):
        again.submit()
    assert count == 3 and submitted[1][1] == 1 and set(again.tasks) == {job.run.key for job in jobs}


def test_a_question_of_many_runs_is_cut_into_arrays(tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(slurm, "queue", lambda: {})
    monkeypatch.setattr(slurm, "LARGEST", 2)
    monkeypatch.setattr(Slurm, "submit_array", lambda self, jobs, known: sizes.append(len(jobs)))
    Slurm([job_of(tmp_path, seed) for seed in range(5)], Cluster(), tmp_path / "q" / ".slurm").submit()
    assert sizes == [2, 2, 1]


def test_a_look_at_the_queue(tmp_path, monkeypatch):
    """One absence, or a squeue that does not answer, is no verdict."""
    job = job_of(tmp_path)
    watch = Slurm([job], Cluster(), tmp_path / "q" / ".slurm")
    watch.tasks = {job.run.key: "a_0"}
    clock = [0.0]
    monkeypatch.setattr(slurm.time, "monotonic", lambda: clock[0])
    for state, place, outcome in (
        ("PENDING", "waiting", "waiting"), ("RUNNING", "running", "running"), ("COMPLETING", "waiting", "waiting"),
        (None, "waiting", "waiting"), ("GONE", "waiting", "waiting"), ("REQUEUED", "waiting", "waiting"),
        ("RUNNING", "running", "running"), ("GONE", "running", "running"), ("GONE", "ended", "failed"),
    ):  # fmt: skip
        clock[0] += 20
        watch.look_at(job, None if state is None else {"a_0": state} if state != "GONE" else {})
        clock[0] += 20
        assert job in getattr(watch, place) and job.outcome == outcome, (state, place)
    assert "no longer in the queue: no log" in job.reason


# ---- a cluster


@pytest.fixture(scope="module")
def cluster():
    """SLURM_CONF of a cluster of this machine."""
    folder = Path("/tmp") / f"sl{os.getpid()}"  # short: a socket lies below it
    script, port = str(ROOT / "tests/slurm_cluster.sh"), str(20000 + os.getpid() % 20000)
    subprocess.run(["bash", script, "start", str(folder), port], check=True, capture_output=True, timeout=60)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    for _ in range(60):
        if "idle" in subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True).stdout:
            break
        time.sleep(0.5)
    yield os.environ["SLURM_CONF"]
    subprocess.run(["scancel", "--user", str(os.getuid())], capture_output=True)
    subprocess.run(["bash", script, "stop", str(folder)], capture_output=True)
    del os.environ["SLURM_CONF"]
    shutil.rmtree(folder, ignore_errors=True)


@needs_slurm
def test_a_question_runs_on_the_cluster_and_is_not_repeated(cluster, tmp_path):
    out = tmp_path / "out"
    options = [*QUICK, "--seeds", "1", "--engine", "slurm", "--slurm", "partition=low", "--slurm", "time=5"]
    done = ablate("run", "patch_size", *options, out=out)
    assert "submitted 2 runs as job" in done.stdout and "submitted" not in done.stderr
    results = [read_result(path) for path in out.glob("patch_size/*/*/*/result.json")]
    assert [result["status"] for result in results] == ["finished"] * 2
    assert "nothing to do" in ablate("run", "patch_size", *options, out=out).stdout
    with_local = ablate("run", "patch_size", *QUICK, "--seeds", "1", out=out).stdout
    assert "nothing to do" in with_local, "the same runs, whatever engine made them"


@needs_slurm
@pytest.mark.slow
def test_a_run_that_fails_says_why(cluster, tmp_path):
    options = [*QUICK, "--seeds", "1", "--set", "data.num_workers=-1", "--engine", "slurm", "--slurm", "partition=low"]
    done = ablate("run", "patch_size", *options, out=tmp_path / "out", check=False)
    assert done.returncode == 1 and "no longer in the queue" in done.stderr and "num_workers" in done.stderr


@needs_slurm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_outlives_its_time(cluster, tmp_path):
    """A minute for a run of two: it is warned, put back, and goes on from its checkpoint."""
    options = ["--set", "trainer.max_steps=1500", "--set", "trainer.val_check_interval=50", "--only", "model.patch_size=2,4",
               "--seeds", "1", "--engine", "slurm", "--slurm", "partition=low", "--slurm", "time=1", "--slurm", "grace=30"]  # fmt: skip
    command = [sys.executable, "-m", "experiments.cli", "run", "patch_size", *options, "--out", str(tmp_path / "out")]
    env = {**os.environ, "WANDB_MODE": "disabled", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [path.read_text() for path in (tmp_path / "out").glob("patch_size/*/*/*/log.txt")]
    assert sum(log.count("$ ") > 1 for log in logs) >= 1, "it did not fit into a minute"


@needs_slurm
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_requeued_preempted_and_without_its_launcher_a_question_ends_in_one_complete_table(cluster, tmp_path):
    """Six runs; one is requeued by hand, one preempted by the higher partition, the launcher killed and started again."""
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "experiments.cli", "run", "patch_size", "--only", "model.patch_size=2,4", "--seeds", "3",
        "--set", "trainer.max_steps=1500", "--set", "trainer.val_check_interval=50", "--engine", "slurm",
        "--slurm", "partition=low", "--slurm", "time=20", "--out", str(out),
    ]  # fmt: skip
    env = {**os.environ, "WANDB_MODE": "disabled", "PYTHONPATH": str(ROOT)}

    def queue():
        listed = subprocess.run(["squeue", "-h", "-r", "-o", "%i %T %P"], capture_output=True, text=True).stdout
        return [line.split() for line in listed.splitlines()]

    def wait_for(what, seconds=300):
        for _ in range(seconds * 2):
            if found := what():
                return found
            time.sleep(0.5)
        raise AssertionError(f"waited in vain; queue {queue()}")

    def checkpoints():
        return sorted(out.glob("patch_size/*/*/*/checkpoints/last.ckpt"))

    first = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
    wait_for(lambda: len(checkpoints()) >= 2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    book = json.loads((out / "patch_size/.slurm/submitted.json").read_text())
    assert len(book) == 6

    running = wait_for(lambda: [task for task, state, _ in queue() if state == "RUNNING"])
    subprocess.run(["scontrol", "requeue", running[0]], check=True)
    wait_for(lambda: [t for t, state, _ in queue() if t == running[0] and state == "PENDING"])
    wait_for(lambda: [t for t, state, _ in queue() if state == "RUNNING"])
    time.sleep(20)
    urgent = ["sbatch", "-p", "high", "--exclusive", "--wrap", "sleep 5", "-o", str(tmp_path / "urgent.log")]
    subprocess.run(urgent, check=True, capture_output=True)
    wait_for(lambda: [t for t, state, part in queue() if part == "high" and state == "RUNNING"])

    second = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path, timeout=1200)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "runs are in the queue already" in second.stdout and "submitted" not in second.stdout
    results = [read_result(path) for path in out.glob("patch_size/*/*/*/result.json")]
    assert len(results) == 6 and all(result["status"] == "finished" for result in results)
    logs = [path.read_text() for path in out.glob("patch_size/*/*/*/log.txt")]
    assert sum(log.count("$ ") > 1 for log in logs) >= 2, "two runs were started again"
    for result in results:
        metrics = result["metrics"]
        assert result["steps"] == 1500 and metrics["test/accuracy"] > 80
    for path in out.glob("patch_size/*/*/*/metrics.csv"):
        from experiments.record.metrics_file import read_metrics

        steps = sorted(read_metrics(path)["valid/accuracy"])
        assert steps == list(range(50, 1501, 50)), "no gap, no double"
