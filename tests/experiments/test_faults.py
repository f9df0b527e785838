"""What happens on real machines: a full disk, a loader that raises, memory that runs short. Nothing finished is lost."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from lightning.pytorch.plugins.io import TorchCheckpointIO

from datamodules.images import ImageExamples
from experiments import train as program
from experiments.launch.pool import Job, Pool
from experiments.launch.question import ROOT
from experiments.record import result as results
from experiments.record.identity import identify
from experiments.record.result import read_result

RUN = ["fit", "--config", "experiments/recipes/vit/digits.yaml", "--config", "experiments/recipes/smoke.yaml",
       "--trainer.max_steps=8"]  # fmt: skip


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        patch.setenv("ABLATE_OUT", str(tmp_path_factory.mktemp("whole")))
        program.train(RUN)
        return read_result(identify(RUN).folder / "result.json")["metrics"]


def goes_on_and_ends_alike(uninterrupted):
    assert program.train(RUN) == 0
    folder = identify(RUN).folder
    assert read_result(folder / "result.json")["metrics"] == uninterrupted
    assert not [path for path in folder.rglob("*") if path.suffix == ".part" or path.name.startswith(".result")]


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_disk_is_full_at_a_checkpoint(monkeypatch, uninterrupted):
    real, calls = TorchCheckpointIO.save_checkpoint, []

    def fills_up(self, checkpoint, path, storage_options=None):
        calls.append(path)
        real(self, checkpoint, path, storage_options)
        if len(calls) == 4:
            full_disk()

    with monkeypatch.context() as broken, pytest.raises(OSError, match="No space left"):
        broken.setattr(TorchCheckpointIO, "save_checkpoint", fills_up)
        program.train(RUN)
    failed = read_result(identify(RUN).folder / "result.json")
    assert failed["status"] == "failed" and "No space left" in failed["reason"]
    goes_on_and_ends_alike(uninterrupted)


def test_the_disk_is_full_at_the_result(monkeypatch, uninterrupted):
    with monkeypatch.context() as broken, pytest.raises(OSError, match="No space left"):
        broken.setattr(results.os, "fsync", full_disk)
        program.train(RUN)
    assert not (identify(RUN).folder / "result.json").exists()
    goes_on_and_ends_alike(uninterrupted)


def test_the_loader_raises(monkeypatch, uninterrupted):
    real, calls = ImageExamples.__getitems__, []

    def breaks(self, index):
        calls.append(1)
        if len(calls) == 9:
            raise RuntimeError("the network drive is gone")
        return real(self, index)

    with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="drive is gone"):
        broken.setattr(ImageExamples, "__getitems__", breaks)
        program.train(RUN)
    failed = read_result(identify(RUN).folder / "result.json")
    assert failed["status"] == "failed" and failed["reason"] == "RuntimeError: the network drive is gone"
    goes_on_and_ends_alike(uninterrupted)


SLOWER = [pytest.param(how, marks=pytest.mark.slow) for how in (signal.SIGTERM, signal.SIGUSR1)]


@pytest.mark.parametrize("how", [signal.SIGKILL, *SLOWER])
def test_a_signal_at_any_moment(how, monkeypatch, tmp_path, uninterrupted):
    """Each run goes on from where it was, to the same figures."""
    slow = "import time; from lit_modules.vit import Vit; real = Vit.training_loss\n"
    slow += "def waits(self, batch): time.sleep(0.4); return real(self, batch)\n"
    slow += "Vit.training_loss = waits\nfrom experiments import train; import sys; train.train(sys.argv[1:])"
    child = subprocess.Popen(
        [sys.executable, "-c", slow, *RUN], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    last = identify(RUN).folder / "checkpoints/last.ckpt"
    for _ in range(600):
        if last.exists() or child.poll() is not None:
            break
        time.sleep(0.1)
    time.sleep(0.6)
    child.send_signal(how)
    child.wait(60)
    assert not (identify(RUN).folder / "result.json").exists() or how != signal.SIGKILL
    goes_on_and_ends_alike(uninterrupted)


def test_memory_runs_short(tmp_path):
    """The system kills the largest process; the launcher says what that may mean, and runs the others."""
    runs = [identify([*RUN, f"--seed_everything={seed}"], tmp_path) for seed in range(2)]
    pool = Pool(
        [Job(runs[0], [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]), Job(runs[1], ["true"])], jobs=2
    )
    for _ in pool.states(every=0.05):
        pass
    outcome = {job.run.seed: (job.outcome, job.reason) for job in pool.ended}
    assert outcome[0][0] == "killed" and "memory is short: fewer --jobs" in outcome[0][1]
    assert outcome[1][0] == "failed"
