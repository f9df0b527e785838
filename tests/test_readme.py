"""The README is true: its three steps suffice, its tables are those of the committed results, its commands exist."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.answer import figures
from experiments.bench import tables
from experiments.commands.options import from_words
from experiments.launch.question import ROOT, BadInput

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


@pytest.mark.parametrize("page, least", [("README.md", {"table", "inside", "also", "claims"}), ("REAL_DATA.md", {"table", "also"})])
def test_its_tables_are_those_of_the_committed_results(page, least, monkeypatch):
    """Without the data that they were made of."""
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    text = (ROOT / page).read_text()
    assert figures.rewrite(text, from_words) == text, f"`ablate reproduce {page} --tables-only` writes them"
    kinds = [kind for _, kind, _, _ in figures.MARK.findall(text)]
    assert least <= set(kinds) and text.count("<!-- end -->") == len(kinds)


def test_what_the_overview_answers_from_real_data_has_its_table():
    pages = README + (ROOT / "REAL_DATA.md").read_text()
    markers = [words for _, kind, words, _ in figures.MARK.findall(pages) if kind in ("table", "also")]
    shown = {(words.split()[0], figures.committed(from_words(shlex.split(words))).data) for words in markers}
    name, real = "", set()
    for row in figures.made("claims", [], from_words).splitlines()[2:]:
        question, _, data = (cell.strip(" `") for cell in row.split("|")[1:4])
        name = question or name
        real |= {(name, data)} - {(name, "embedded")}
    assert len(real) >= 7 and real <= shown, real - shown


def test_every_question_without_results_is_named():
    every = {path.stem for path in (ROOT / "sweeps").glob("*.yaml")}
    printed = figures.made("claims", [], from_words)
    without = every - set(re.findall(r"^\| `(\w+)` \|", printed, flags=re.MULTILINE))
    assert all(f"`{name}`" in README.partition("No results yet:")[2].partition("\n")[0] for name in without), without


def test_a_marker_is_a_command_of_ablate_run():
    assert figures.asked("<!-- table norm --seeds 2 -->\nx\n<!-- end -->") == [["norm", "--seeds", "2"]]
    for wrong, said in (("<!-- tabel norm -->\nx\n<!-- end -->", "page.md:1: tabel is none of table, inside, also, claims"),
                        ("nothing", "has 0 markers"), ("<!-- table norm -->\nx", "has 1 markers .* not each an end")):
        with pytest.raises(BadInput, match=said):
            figures.check(wrong, Path("page.md"))
    assert figures.made("claims", ["norm"], from_words).count("`norm`") == 1
    with pytest.raises(BadInput, match="a marker says 'norm --sseds 2'"):
        from_words(["norm", "--sseds", "2"])
    with pytest.raises(BadInput, match="no committed results of norm with the recipe translation-wmt14"):
        figures.made("table", ["norm", "--recipe", "experiments/recipes/translation/wmt14.yaml"], from_words)


def test_the_speed_tables_are_the_measured_ones():
    """Made between markers like the others; every table of the benchmark stands there."""
    shown = [words for _, kind, words, _ in figures.MARK.findall(README) if kind == "bench"]
    assert set(shown) == set(tables.TABLES)
    with pytest.raises(BadInput, match="no table 'cooking' of a benchmark; known: training, decoding"):
        figures.made("bench", ["cooking"], from_words)


def test_the_speed_beside_the_fastest_peer_is_the_measured_one():
    """Of each family: against the fastest peer as it comes, and against the fastest with the same allocator."""
    parts = {(p["family"], p["precision"]): p["sides"] for p in json.loads((tables.RESULTS / "training.json").read_text())["parts"]}
    for family, name in {"translation": "translation", "bert": "BERT", "vit": "ViT"}.items():
        (row,) = re.findall(rf"^\| {name}[^|]*\|(.*goal.*)\|$", README, flags=re.MULTILINE)
        said = re.findall(r"([\d.]+) ×", row)
        measured = []
        for precision in ("fp32", "bf16"):
            peers = [s for s in parts[family, precision] if s["side"] != "ours" and (family != "bert" or "masked" in s["side"])]
            for allocator in ("default", "tuned"):
                fastest = max((s for s in peers if s["allocator"] == allocator), key=lambda s: s["per_second"]["median"])
                measured.append(f"{fastest['ratio']['median']:.2f}")
        assert said == measured, name


def test_every_option_and_command_that_it_names_exists():
    said = subprocess.run([sys.executable, "-m", "experiments.cli", "run", "--help"], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": "200"}).stdout  # fmt: skip
    for option in ("--recipe", "--seeds", "--only", "--set", "--jobs", "--out"):
        assert option in said and option in README
    commands = set(re.findall(r"`?ablate ([a-z]+)", README)) - {"run", "list", "check", "table", "bench", "claims", "try", "export", "wandb", "plan", "verify", "dashboard", "reproduce", "show"}
    assert not commands, commands


def test_every_path_that_it_names_exists():
    paths = re.findall(r"[`(]((?:sweeps|experiments|lit_modules|datamodules)/[\w./-]+)[`)]", README)
    assert len(paths) > 5
    for path in paths:
        assert (ROOT / path).exists() or path == "sweeps/sandwich.yaml", path
