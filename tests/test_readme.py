"""The README is true: its three steps suffice, its tables are those of the committed results, its commands exist."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from experiments.answer import results
from experiments.answer.overview import table_of_claims
from experiments.answer.render import as_markdown, columns, sheet
from experiments.answer.table import other_metrics, rows_of
from experiments.launch.question import ROOT, read

README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_three_steps_suffice(tmp_path):
    """Performs them, as printed, on a copy of the project, and runs the question in a tiny size."""
    for folder in ("experiments", "lit_modules", "datamodules", "sweeps"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "committed"))
    formula, word = blocks("python")
    (question,) = blocks("yaml")
    residual, choices = tmp_path / "lit_modules/components/residual.py", tmp_path / "lit_modules/choices.py"
    residual.write_text(residual.read_text() + "\n\n" + formula)
    page, count = re.subn(r"    norm: Literal\[.*\n", word, choices.read_text())
    assert count == 1
    choices.write_text(page)
    (tmp_path / "sweeps/sandwich.yaml").write_text(question)

    def ablate(*arguments):
        environment = {**os.environ, "ABLATE_OUT": str(tmp_path / "runs"), "WANDB_MODE": "offline"}
        command = [sys.executable, "-m", "experiments.cli", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250)

    checked = ablate("check", "sandwich")
    assert checked.stdout.strip() == "sandwich: 2 arms fit translation-toy", checked.stderr
    tiny = {"trainer.max_steps": 4, "trainer.val_check_interval": 4, "data.train_pairs": 300, "data.eval_pairs": 10}
    flags = [word for key, value in tiny.items() for word in ("--set", f"{key}={value}")]
    asked = ablate("run", "sandwich", "--seeds", "1", "--jobs", "2", *flags)
    assert asked.returncode == 0, asked.stderr
    assert "sandwich" in asked.stdout and "baseline" in asked.stdout and len(list(tmp_path.rglob("result.json"))) == 2
    typo = ablate("run", "sandwich", "--set", "model.arch.norm=sandwhich")
    assert typo.returncode == 2 and "varies it" in typo.stderr


def shipped(recipe):
    (group,) = [g for g in results.groups(read("score_divisor"), ROOT / "nothing here") if g.recipe == recipe]
    return group


@pytest.mark.parametrize(
    "recipe, only", [("translation-toy", {}), ("translation-multi30k", {"model.arch.d_k": ["64"]})]
)
def test_the_tables_are_those_of_the_committed_results(recipe, only):
    group = shipped(recipe)
    question = group.question.only(only).with_seeds(5 if recipe.endswith("toy") else 2)
    group = results.Group(question, *list(vars(group).values())[1:])
    for line in as_markdown(*columns(group, rows_of(group))).splitlines():
        assert line in README, line


def test_the_table_of_claims_is_what_the_command_prints():
    every = [read(path.stem) for path in sorted((ROOT / "sweeps").glob("*.yaml"))]
    printed = table_of_claims(every, ROOT / "nothing here")
    assert printed in README
    shown = set(re.findall(r"^\| `(\w+)` \|", printed, flags=re.MULTILINE))
    without = {q.name for q in every} - shown
    assert all(f"`{name}`" in README.split("No results yet:")[1].splitlines()[0] for name in without), without


def test_the_fingerprints_of_the_mistakes_are_those_of_the_committed_results():
    (group,) = results.groups(read("mistakes"), ROOT / "nothing here")
    assert as_markdown(*sheet(other_metrics(group), ["mistake"])) in README


def test_the_time_of_a_token_is_the_measured_one():
    measured = json.loads((ROOT / "experiments/bench/results/decoding.json").read_text())["milliseconds"]
    for place, cached in measured["cached"].items():
        uncached = measured["uncached"][place]
        assert f"| {place} | {cached:.2f} | {uncached:.2f} | {uncached / cached:.1f} |" in README


def test_the_speed_beside_hugging_faces_bert_is_the_measured_one():
    measured = json.loads((ROOT / "experiments/bench/results/bert.json").read_text())["measured"]
    for precision, found in measured.items():
        for name, speed in found["tokens_per_second"].items():
            ratio = found["ratio"].get(name)
            shown = f"{ratio['median']:.2f} | {ratio['lowest']:.2f} … {ratio['highest']:.2f} |" if ratio else "| |"
            assert f"| {precision} | {name} | {speed:,.0f} | {shown}" in README


def test_every_option_and_command_that_it_names_exists():
    said = subprocess.run([sys.executable, "-m", "experiments.cli", "run", "--help"], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": "200"}).stdout  # fmt: skip
    for option in ("--recipe", "--seeds", "--only", "--set", "--jobs", "--out"):
        assert option in said and option in README
    commands = set(re.findall(r"`?ablate ([a-z]+)", README)) - {"run", "list", "check", "table", "bench", "claims", "try", "export", "wandb"}
    assert not commands, commands


def test_every_path_that_it_names_exists():
    paths = re.findall(r"[`(]((?:sweeps|experiments|lit_modules|datamodules)/[\w./-]+)[`)]", README)
    assert len(paths) > 5
    for path in paths:
        assert (ROOT / path).exists() or path == "sweeps/sandwich.yaml", path
