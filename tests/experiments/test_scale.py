"""A question of five thousand runs, half of them finished: what a lab has after a year."""

import json
import subprocess
import sys

import pytest

from experiments.launch.ask import missing, runs
from experiments.launch.question import ROOT, read

SEEDS = 1250


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """(sweep file, results folder): four arms, and every second run (two arms of four) finished."""
    folder = tmp_path_factory.mktemp("many")
    sweep, out = folder / "many.yaml", folder / "runs"
    text = (ROOT / "sweeps/patch_size.yaml").read_text().replace("- patch_size", "- many")
    sweep.write_text(text.replace("[0, 1, 2, 3, 4]", str(list(range(SEEDS)))))
    source = next((ROOT / "experiments/answer/committed/score_divisor").glob("*/*/*/result.json"))
    like = json.loads(source.read_text())
    for i, (arm, seed, run) in enumerate(runs(read(str(sweep)), out)):
        if i % 2:
            run.folder.mkdir(parents=True)
            own = {"question": "many", "recipe": run.recipe, "arm": arm, "seed": seed, "key": run.key, "variant": run.variant,
                   "settings": run.settings, "metrics": {"test/accuracy": 90 + seed % 7}}  # fmt: skip
            (run.folder / "result.json").write_text(json.dumps(like | own))
    return sweep, out


def test_half_of_five_thousand_are_missing(many):
    sweep, out = many
    assert len(missing(read(str(sweep)), out)) == 2500


@pytest.mark.parametrize("command", [["table"], ["run", "--dry-run"]])
def test_five_thousand_runs_in_half_a_gigabyte_and_seconds(many, command):
    sweep, out = many
    program = (
        "import sys; from experiments.cli import main; from experiments.record.facts import peak_memory_bytes\n"
        "try: main()\n"
        "finally: print(peak_memory_bytes(False), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, command[0], str(sweep), *command[1:], "--out", str(out)],
        capture_output=True, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "│\n" not in done.stdout and "1250" in done.stdout if command == ["table"] else "2500 of 5000 runs to do" in done.stdout
    assert int(done.stderr.split()[-1]) < 500e6
