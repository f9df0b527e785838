"""What a run costs beside its training steps: a question of one arm is asked as anyone asks it, W&B offline, one run at
a time, into a folder of its own, and its wall time is held against the seconds that its steps took. Outside them are
imports, the check of the arms, the data, one validation, the test, checkpoints, pictures and the result."""

import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.answer.render import as_terminal
from experiments.record.result import read_result

from . import tables
from .training import keep

RUNS, STEPS = 3, 1300  # about a minute of steps on the embedded data
QUESTION = [
    "heads", "--only", "model.arch.n_heads=8", "--jobs", "1",
    "--set", f"trainer.max_steps={STEPS}", "--set", f"trainer.val_check_interval={STEPS}",
]  # fmt: skip
moment = datetime.fromisoformat
ROOT = Path(__file__).parents[2]


def main() -> bool:
    """Prints the shares and keeps them."""
    with TemporaryDirectory() as out:
        command = [sys.executable, "-m", "experiments.cli", "run", *QUESTION, "--seeds", str(RUNS), "--out", out]
        environment = {**os.environ, "WANDB_MODE": "offline", "PYTHONPATH": str(ROOT)}
        environment.pop("OMP_NUM_THREADS", None)  # as many threads as the launcher gives
        began = time.perf_counter()
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        wall = time.perf_counter() - began
        results = [read_result(path) for path in sorted(Path(out).rglob("result.json"))]
    steps = [result["seconds"] for result in results]
    walls = [(moment(result["ended"]) - moment(result["started"])).seconds for result in results]
    found = {"runs": len(steps), "wall": wall, "steps": steps, "walls": walls}
    print(as_terminal(*tables.launching(found)))
    return keep("launching", found)
