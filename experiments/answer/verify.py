"""Runs one committed cell again, and says whether what comes out lies where the committed seeds say that it should."""

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

from experiments.launch.progress import clock
from experiments.launch.question import ROOT, BadInput
from experiments.record.facts import code_fingerprint
from experiments.record.identity import arm_name, identify
from experiments.record.result import read_result

from .overview import wall_seconds
from .render import machine
from .reproduce import command_of
from .results import Group
from .statistics import mean_sd
from .table import finished


@dataclass(frozen=True)
class Check:
    """One cell, before and now.

    Attributes:
        now: None where it diverged.
        low, high: the 95 % prediction interval for one more run of this arm, from its n committed seeds:
            mean ± t(n - 1) · sd · √(1 + 1/n); None of a single seed, which only the same figure can confirm.
    """

    cell: str
    metric: str
    before: float
    now: float | None
    low: float | None
    high: float | None

    @property
    def holds(self) -> bool:
        if self.now is None or self.low is None:
            return self.now == self.before
        return self.low <= self.now <= self.high

    def __str__(self) -> str:
        if self.now is None:
            return f"{self.cell}: diverged, where {self.metric} {self.before:.4f} is committed"
        same = "equal to" if self.now == self.before else f"{self.now - self.before:+.4g} from"
        found = f"{self.cell}: {self.metric} {self.now:.4f}, {same} the committed {self.before:.4f}"
        if self.low is None:
            return f"{found}; of its arm's only seed, which nothing but the same figure confirms"
        words = "lies within" if self.holds else "lies OUTSIDE"
        return f"{found}; {words} [{self.low:.4f}, {self.high:.4f}], where one more run of this arm is expected (95 %)"


def verify(group: Group, cell: str | None, out: Path) -> Check:
    """Trains the cell anew below `out`/verified, or takes the result that an earlier verification left there.

    Args:
        group: as it was run, with every rate that was tried.
        cell: ARM/SEED as folders name them, patch_size=8/0 for instance; the first arm's first seed if None.

    Raises:
        BadInput: an unknown cell, one that did not finish, or a run that fails.
    """
    cells = [(arm, seed) for arm, seeds in group.results.items() for seed in seeds]
    known = {f"{arm_name(named(group, arm))}/{seed}": (arm, seed) for arm, seed in cells}
    cell = cell or next(iter(known))
    if cell not in known:
        arms = "; ".join(sorted({name.rpartition("/")[0] for name in known}))
        seeds = ", ".join(map(str, sorted({seed for _, seed in cells})))
        raise BadInput(f"--cell {cell}: write ARM/SEED; {group.question.name} has {arms} with seeds {seeds}")
    arm, seed = known[cell]
    metric, committed = group.question.metric, group.results[arm][seed]
    values = finished(group.results[arm], metric)
    if seed not in values:
        raise BadInput(f"--cell {cell}: its committed run is {committed['status']}, without {metric} to hold against")
    found = carried_out(group, arm, committed, out / "verified")
    now = found["metrics"][metric] if found["status"] == "finished" else None
    return Check(f"{group.question.name} {cell}", metric, values[seed], now, *expected(list(values.values())))


def expected(values: list[float]) -> tuple[float, float] | tuple[None, None]:
    """Where one more run lies with 95 %, see `Check`."""
    mean, sd = mean_sd(values)
    if sd is None:
        return None, None
    half = float(stats.t.ppf(0.975, len(values) - 1)) * sd * (1 + 1 / len(values)) ** 0.5
    return mean - half, mean + half


def named(group: Group, arm: tuple) -> dict:
    return dict(zip(group.question.varied, arm, strict=True))


def carried_out(group: Group, arm: tuple, committed: dict, folder: Path) -> dict:
    """The result of the very run that is committed, made anew where no present code has made it yet.

    Raises:
        BadInput: the present recipe or data make another run of it, or it fails.
    """
    words = shlex.split(command_of(group, named(group, arm), committed["seed"]))[1:]
    run = identify(words[words.index("fit") :], folder)
    if run.key != committed["key"]:
        raise BadInput(
            f"the recipe or the data have changed since: the same words make run {run.key} now, not {committed['key']}"
        )
    path = run.folder / "result.json"
    if path.exists() and read_result(path)["code_fingerprint"] != code_fingerprint():
        run.folder.rename(run.folder.with_name(f"{run.folder.name}-{int(path.stat().st_mtime)}"))  # of older code
    took = f"took {clock(wall_seconds(committed))} on {machine(committed['hardware'])}"
    print(f"running {arm_name(named(group, arm))} seed {committed['seed']}, which {took}", file=sys.stderr)
    env = {**os.environ, "ABLATE_OUT": str(folder)}
    ended = subprocess.run([sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True)
    if ended.returncode or not path.exists():
        raise BadInput(f"the run failed with status {ended.returncode}: {shlex.join(words)}\n{ended.stderr[-2000:]}")
    return read_result(path)
