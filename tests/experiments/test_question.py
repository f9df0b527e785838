"""Sweep files: what is read, what is refused, and that wandb's rendering and ours are one."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from experiments.launch import grid
from experiments.launch.check import check, check_arguments
from experiments.launch.question import ROOT, SEED, BadInput, canonical, read
from experiments.record.identity import identify

SWEEPS = sorted((ROOT / "sweeps").glob("*.yaml"))


@pytest.fixture(autouse=True)
def data_of_the_hub(shelf, monkeypatch):
    """Some recipes name a data set that is not embedded."""
    monkeypatch.setenv("ABLATE_DATA", str(shelf))


def sweep(**changes) -> dict:
    base = yaml.safe_load((ROOT / "sweeps/score_divisor.yaml").read_text())
    return {**base, **changes}


@pytest.fixture
def written(tmp_path):
    """Writes a changed copy of a question somewhere else and reads it."""

    def write(name="mine", **changes):
        content = sweep(**changes)
        if "command" not in changes:
            content["command"] = [name if token == "score_divisor" else token for token in content["command"]]
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        return path

    return write


def test_arms_seeds_contrast_and_strata():
    question = read("score_divisor")
    assert question.contrast == "model.arch.score_divisor" and question.varied[question.contrast][0] == "sqrt_d_k"
    assert len(question.arms()) == 6 and len(question.runs()) == 30
    assert question.seeds == (0, 1, 2, 3, 4) and question.fixed == {"model.arch.n_heads": "split"}
    assert question.with_seeds(2).seeds == (0, 1)
    assert len(question.only({"model.arch.d_k": ["16", "128"]}).arms()) == 4


@pytest.mark.parametrize("recipe", sorted({read(str(path)).recipe for path in SWEEPS}))
def test_every_question_fits_the_real_parser_model_and_data(recipe):
    """Those of one recipe one after the other: its data are made once."""
    for question in (read(str(path)) for path in SWEEPS):
        if question.recipe == recipe:
            assert check(question) == len(question.arms())


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.stem)
def test_wandbs_own_command_lines_are_parsed_from_another_folder(path, tmp_path, monkeypatch):
    """What an agent would run for every arm: rendered by wandb, parsed by the program's parser, elsewhere."""
    monkeypatch.chdir(tmp_path)
    question = read(str(path))
    for arm in question.arms():
        command = grid.command(question, arm, question.seeds[-1])
        assert command[1:] == grid.arguments(question, arm, question.seeds[-1]), "one rendering"
        run = identify(command[4:])
        assert run.arm == arm and run.seed == question.seeds[-1] and run.question == question.name
    check_arguments(command[1:])  # the others are bound by the test above, from the same words


def test_the_agents_interpreter_runs_the_command_from_another_folder(tmp_path):
    """The macros as wandb's agent fills them, with ${interpreter} the word python, in a process of its own."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    question = read("score_divisor")
    chosen = {key: {"value": value} for key, value in question.parameters(question.arms()[1], 3).items()}
    flags = create_sweep_command_args({"args": chosen})["args"]
    fill = {"${env}": ["/usr/bin/env"], "${interpreter}": [sys.executable], "${args}": flags}
    words = [w for token in create_sweep_command(list(question.command)) for w in fill.get(token, [token])]
    done = subprocess.run([*words, "--model.arch.norm=past"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "it takes post | pre" in done.stderr


def test_a_path_anywhere_is_a_question(written):
    question = read(str(written()))
    assert question.name == "mine" and str(question.path) in question.command


@pytest.mark.parametrize("changes, message", [
    ({"method": "bayes"}, r"mine.yaml:\d+: method: 'bayes' cannot be expanded here; write grid"),
    ({"metod": "grid"}, r"mine.yaml:\d+: metod: unknown; the keys of a sweep file are command"),
    ({"metric": "bleu"}, "metric: needs a name"),
    ({"parameters": {SEED: {"values": [0, 1]}}}, "nothing varies"),
    ({"parameters": {"a.b": {"values": [1, 2]}}}, "seed_everything needs a list of whole numbers"),
    ({"parameters": {"a.b": {"values": [True]}, SEED: {"value": 0}}}, "a.b: True does not survive the command line"),
    ({"parameters": {"a.b": {"values": [None]}, SEED: {"value": 0}}}, "a.b: None does not survive the command line"),
    ({"parameters": {"a.b": {"values": [1, 1.0]}, SEED: {"value": 0}}}, "a value stands twice"),
    ({"parameters": {"a": {"parameters": {"b": {"values": [1]}}}, SEED: {"value": 0}}}, "write flat dotted keys"),
    ({"command": ["${env}", "--question", "mine", "--config", "x", "${agrs}", "${args}"]}, r"\$\{agrs\}: W&B expands this to nothing"),
    ({"command": ["--question", "mine", "--config", "x", "${args}", "--late"]}, r"must end with \$\{args\}"),
    ({"command": ["--config", "x", "${args}"]}, "needs --question"),
    ({"command": ["--question", "other", "--config", "x", "${args}"]}, "--question other in a file called mine.yaml"),
])  # fmt: skip
def test_what_wandb_would_let_pass_is_refused(written, changes, message):
    with pytest.raises(BadInput, match=message):
        read(str(written(**changes)))


def test_an_unknown_question_names_the_known():
    with pytest.raises(BadInput, match="no question 'score_divisr'.*score_divisor"):
        read("score_divisr")


def test_an_empty_file(tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(BadInput, match="is empty"):
        read(str(tmp_path / "empty.yaml"))


@pytest.mark.parametrize("key, values, message", [
    ("model.arch.nrom", ["post", "pre"], r"mine.yaml:\d+: unknown key model.arch.nrom: did you mean model.arch.norm\?.*known.*score_divisor"),
    ("model.arch.norm", ["post", "past"], r"mine.yaml:\d+: model.arch.norm: 'past' is not known; it takes post \| pre"),
    ("trainer.max_step", [5], r"unknown key trainer.max_step: did you mean trainer.max_steps\?"),
    ("model.arch.n_heads", [3], "n_heads 3.*3 does not divide d_model 128"),
    ("model.vocab_size", [3], "it comes from the data"),
])  # fmt: skip
def test_check_names_file_line_key_and_known_words(written, key, values, message):
    question = read(str(written(parameters={key: {"values": values}, SEED: {"value": 0}})))
    with pytest.raises(BadInput, match=message):
        check(question)


def test_learned_positions_that_are_too_few_are_found_before_anything_runs(written):
    parameters = {
        "model.position": {"values": ["sinusoidal", "learned"]},
        "model.max_length": {"value": 8},
        SEED: {"value": 0},
    }
    with pytest.raises(BadInput, match="longest sequence has .* only 8 learned positions"):
        check(read(str(written(parameters=parameters))))


def test_set_refuses_what_the_question_varies():
    for key in ("model.arch.d_k", "model.init_args.arch.d_k", SEED):
        with pytest.raises(BadInput, match="varies it"):
            read("score_divisor").with_settings({key: 3})


def test_only_keeps_the_baseline():
    with pytest.raises(BadInput, match="without sqrt_d_k, the baseline"):
        read("score_divisor").only({"model.arch.score_divisor": ["one"]})


def test_an_unknown_metric_is_found_before_anything_runs(written):
    with pytest.raises(
        BadInput, match=r"mine.yaml:\d+: metric.name 'test/blue' is not known; it takes test/nll \| .*long/bleu"
    ):
        check(read(str(written(metric={"name": "test/blue"}))))


def test_numbers_are_numbers_however_they_are_written():
    assert [canonical(v) for v in ("1e-3", "1e-05", "3", "0.5", "post", 2)] == [1e-3, 1e-5, 3, 0.5, "post", 2]


def test_no_python_stands_in_sweeps():
    assert {p.suffix for p in Path(ROOT / "sweeps").iterdir()} == {".yaml"}
