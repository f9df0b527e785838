"""BERT's runs: every recipe under smoke, every choice bites, tasks after pre-training, resume, `ablate try` and export."""

import inspect
import io
import json
import typing

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer

from datamodules.tokenizer import CLS
from experiments import train as program
from experiments.cli import app
from experiments.downstream import Downstream, tasks_of
from experiments.launch.check import check_arguments, check_tasks
from experiments.launch.keys import hint_of
from experiments.launch.question import ROOT, BadInput
from experiments.record.identity import identify, merged
from experiments.record.result import read_result
from experiments.tryout import main as try_out
from experiments.tryout import restored
from lit_modules.bert import Bert
from lit_modules.choices import Arch
from lit_modules.optimization import Optim

TOY, SMOKE = "experiments/recipes/bert/toy.yaml", "experiments/recipes/smoke.yaml"
TASKS = sorted((ROOT / "experiments/recipes/tasks").glob("*.yaml"))
SMALL = ["--data.train_documents=60", "--data.held_out=10"]


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Folders of the form that the real data sets have, for $ABLATE_DATA."""
    folder = tmp_path_factory.mktemp("shelf")
    story = "The dog runs home .\nIt is red and old .\nThe cat sleeps .\nA bird sings in the garden ."
    words = ["The", "dog", "runs", "home", "."]
    rows = {
        "english_documents": {"text": [story] * 12},
        "wikipedia": {"text": [story] * 12},
        "sentence_polarity": {"text": ["the dog runs", "the cat sleeps"] * 12, "label": [0, 1] * 12},
        "trec": {"text": ["who runs ?", "where is it ?"] * 12, "label": [0, 1] * 12},
        "rte": {"sentence1": ["the dog runs home"] * 24, "sentence2": ["it runs", "it sleeps"] * 12, "label": [1, 0] * 12},
        "conll2000": {"tokens": [words] * 24, "chunk_tags": [["B-NP", "I-NP", "B-VP", "B-NP", "O"]] * 24},
        "xquad_en": {"context": [story] * 24, "question": ["Who sings ?"] * 24,
                     "answers": [{"text": ["A bird"], "answer_start": [story.index("A bird")]}] * 24},
    }  # fmt: skip
    for name, columns in rows.items():
        for split in ("train", "validation", "test"):
            Dataset.from_dict(columns).to_parquet(folder / name / f"{split}.parquet")
    return folder


def toy(*flags):
    return ["fit", "--config", TOY, "--config", SMOKE, *SMALL, *flags]


def done(arguments):
    assert program.train(arguments) == 0
    return read_result(identify(arguments).folder / "result.json")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, shelf):
    """A run's folder on the embedded stories, without tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        patch.setenv("ABLATE_OUT", str(tmp_path_factory.mktemp("pretrained")))
        arguments = toy("--downstream.tasks=none", "--model.max_length=128")
        done(arguments)
        return identify(arguments).folder


def test_pre_training_with_its_tasks_leaves_one_result_and_is_not_repeated(capsys):
    result = done(toy())
    names = set(result["metrics"])
    assert {"test/nll", "test/perplexity", "test/accuracy", "valid/pair_accuracy", "pairs/accuracy"} <= names
    assert {"toy_agents/accuracy", "toy_agents/chance", "toy_statements/accuracy", "toy_roles/f1", "toy_questions/exact",
            "downstream/average"} <= names  # fmt: skip
    assert any(name.startswith("end/encoder.1.self_attention/") for name in names)
    assert set(result["downstream"]) == {"toy_agents", "toy_statements", "toy_roles", "toy_questions"}
    scores = [result["metrics"][f"{task}/{metric}"] for task, metric in
              (("toy_agents", "accuracy"), ("toy_statements", "accuracy"), ("toy_roles", "f1"), ("toy_questions", "f1"))]  # fmt: skip
    assert result["metrics"]["downstream/average"] == pytest.approx(sum(scores) / 4)
    folder = identify(toy()).folder
    assert len(list(folder.glob("downstream/*/*/*/*/result.json"))) == 4
    assert not list(folder.glob("downstream/*/*/*/*/wandb")), "one W&B run a run"
    assert "read" in (folder / "samples.txt").read_text()
    assert program.train(toy()) == 0 and "finished already" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", ["documents", "wikipedia"])
def test_every_recipe_of_documents_runs_under_smoke(recipe, shelf, monkeypatch):
    monkeypatch.setenv("ABLATE_DATA", str(shelf))
    arguments = ["fit", "--config", f"experiments/recipes/bert/{recipe}.yaml", "--config", SMOKE, "--data.vocab_size=80"]
    result = done([*arguments, "--trainer.precision=32-true"] if recipe == "wikipedia" else arguments)
    assert result["status"] == "finished" and "conll2000/f1" in result["metrics"]


TRIED = {
    "toy_agents": ("the old king sees a dog .", "adult"),
    "toy_statements": ("the old king sees a dog .\tthe dog sees the old king .", "not so"),
    "toy_roles": ("the old king sees a dog .", "king/"),
    "toy_questions": ("whom does the king see ?\tthe old king sees a dog .", ""),
}


@pytest.mark.parametrize("task", TRIED)
def test_every_task_runs_alone_under_smoke_and_can_be_tried(task, pretrained, capsys, monkeypatch):
    recipe, overlay = f"experiments/recipes/tasks/{task}.yaml", "experiments/recipes/smoke_task.yaml"
    arguments = ["fit", "--config", recipe, "--config", overlay, f"--model.checkpoint={pretrained}"]
    result = done(arguments)
    assert result["status"] == "finished" and "test/nll" in result["metrics"]
    capsys.readouterr()
    text, wanted = TRIED[task]
    out = said(capsys, monkeypatch, identify(arguments).folder, text + "\n").out
    assert out.strip() and wanted in out
    if task == "toy_questions":
        assert out.strip() in "the old king sees a dog ."


def test_the_key_of_a_task_is_the_checkpoints_content_not_its_path(pretrained, tmp_path):
    def key(checkpoint):
        return identify(["fit", "--config", str(TASKS[-1]), f"--model.checkpoint={checkpoint}"]).key

    original = pretrained / "checkpoints/best.ckpt"
    copy = tmp_path / "best.ckpt"
    copy.write_bytes(original.read_bytes())
    assert key(copy) == key(original) == key(pretrained)
    (pretrained / "something.txt").write_text("written later")
    assert key(pretrained) == key(original)
    copy.write_bytes(b"another")
    assert key(copy) != key(original)


def test_a_change_in_a_tasks_recipe_makes_another_run(tmp_path):
    recipe = tmp_path / "mine.yaml"
    text = (ROOT / "experiments/recipes/tasks/toy_roles.yaml").read_text()
    keys = []
    for changed in (text, "# a comment\n" + text, text.replace("lr: 5.0e-4", "lr: 5.0e-3")):
        recipe.write_text(changed)
        keys.append(identify(toy(f"--downstream.recipes=[{recipe}]")).key)
    assert keys[0] == keys[1] != keys[2]
    assert identify(toy()).key != identify(toy("--downstream.tasks=none")).key


def test_a_run_that_was_killed_among_its_tasks_goes_on_with_the_next(monkeypatch):
    calls = []
    real = program.carry_out

    def dies_at_the_third(run, arguments, tasks, below=False):
        if below:
            calls.append(run.recipe)
            if len(calls) == 3:
                raise KeyboardInterrupt
        return real(run, arguments, tasks, below)

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(program, "carry_out", dies_at_the_third)
        program.train(toy())
    folder = identify(toy()).folder
    assert not (folder / "result.json").exists()
    before = {path: path.stat().st_mtime_ns for path in folder.glob("downstream/*/*/*/*/result.json")}
    assert len(before) == 2
    result = done(toy())
    assert all(path.stat().st_mtime_ns == time for path, time in before.items()), "nothing finished is run again"
    monkeypatch.setenv("ABLATE_OUT", str(folder.parents[3] / "whole"))
    whole = done(toy())
    assert result["metrics"] == whole["metrics"]


def test_a_run_killed_in_a_later_epoch_goes_on_as_if_it_had_not_been(monkeypatch, tmp_path):
    """Rows are drawn anew at each epoch, and not every epoch has as many batches."""
    small = ["--downstream.tasks=none", "--data.train_documents=40", "--trainer.max_steps=40", "--data.batch_tokens=512",
             "--trainer.val_check_interval=7"]  # fmt: skip
    whole = done(toy(*small))
    real = Bert.training_loss
    calls = []

    def dies(self, batch):
        calls.append(1)
        if len(calls) == 33:
            raise KeyboardInterrupt
        return real(self, batch)

    monkeypatch.setenv("ABLATE_OUT", str(tmp_path / "killed"))
    with monkeypatch.context() as broken, pytest.raises((KeyboardInterrupt, SystemExit)):
        broken.setattr(Bert, "training_loss", dies)
        program.train(toy(*small))
    assert (identify(toy(*small)).folder / "checkpoints/last.ckpt").exists()
    assert done(toy(*small))["metrics"] == whole["metrics"]


def test_a_siblings_scores_of_tasks_are_not_taken_over(monkeypatch, tmp_path):
    """Arms that differ in their tasks alone share one pre-training."""
    sweep = tmp_path / "mine.yaml"
    text = (ROOT / "sweeps/nsp.yaml").read_text().replace("--question\n  - nsp", "--question\n  - mine")
    sweep.write_text(text.replace("model.objective: {values: [mlm+nsp, mlm, mlm+sop]}", "downstream.tasks: {values: [all, none]}"))
    first, second = (done(toy(f"--question={sweep}", f"--downstream.tasks={tasks}")) for tasks in ("all", "none"))
    assert second["trained_by"] == first["key"]
    assert "downstream/average" in first["metrics"]
    assert not [name for name in second["metrics"] if name.startswith(("toy_", "downstream/"))]
    assert second["metrics"]["test/nll"] == first["metrics"]["test/nll"]


# ---- every choice bites

CHOICES = {
    "model.objective": None, "model.direction": None, "model.position": None, "model.masking": None,
    "model.mask_rate": [0.15, 0.4], "model.mask_unit": None, "data.input_format": None, "data.vocab_size": [120, 400],
    "data.train_documents": [40, 60], "data.batch_tokens": [512, 1024], "data.max_length": [32, 64],
}  # fmt: skip
ELSEWHERE = {"model.arch", "model.optim", "model.vocab_size", "model.max_length", "model.samples", "data.held_out",
             "data.num_workers", "data.objective"}  # fmt: skip


def test_every_argument_of_the_model_and_the_data_is_walked():
    from datamodules.documents import ToyDocuments

    known = {f"{head}.{name}" for head, kind in (("model", Bert), ("data", ToyDocuments))
             for name in inspect.signature(kind.__init__).parameters if name != "self"}  # fmt: skip
    assert known == set(CHOICES) | ELSEWHERE


@pytest.mark.parametrize("key", CHOICES)
def test_every_value_of_every_choice_changes_what_is_trained(key):
    seen = {}
    with_pairs = key in ("model.objective",)
    base = ["--downstream.tasks=none", "--model.optim.warmup_steps=1", "--trainer.limit_val_batches=0"]
    base += [] if with_pairs else ["--model.objective=mlm"]
    base += ["--data.vocab_size=90"] if key == "model.mask_unit" else []  # words of several pieces
    for value in CHOICES[key] or typing.get_args(hint_of(key, merged(toy()))):
        cli = program.AblationCLI(None, toy(*base, f"--{key}={value}"))
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
        weights = torch.cat([p.detach().flatten() for p in cli.model.network.encoder.parameters()])
        seen[value] = float(weights.double().abs().sum())
    assert len(set(seen.values())) == len(seen), seen


# ---- bad input


@pytest.mark.parametrize("flag, message", [
    ("--model.objective=nsp", r"model.objective: 'nsp' is not known; it takes mlm\+nsp \| mlm \| mlm\+sop"),
    ("--data.objective=mlm", "data.objective is no choice: it is the model's: give model.objective"),
    ("--model.direction=causal", "objective mlm.nsp needs direction bidirectional"),
    ("--data.input_format=full_sentences", "data.input_format must be pairs"),
    ("--model.max_length=32", "only 32 learned positions: raise model.max_length to 64"),
    ("--downstream.recipes=[nowhere.yaml]", "no recipe 'nowhere.yaml'"),
    ("--downstream.task=none", "did you mean downstream.tasks"),
])  # fmt: skip
def test_bad_input_is_one_message(flag, message):
    with pytest.raises(BadInput, match=message):
        program.train(toy(flag))


def test_a_bad_task_is_found_before_anything_is_trained(tmp_path):
    task = tmp_path / "mine.yaml"
    text = (ROOT / "experiments/recipes/tasks/toy_roles.yaml").read_text()
    task.write_text(text.replace("max_length: 64", "max_length: 64\n    tags: labels"))
    cli = check_arguments(toy(f"--downstream.recipes=[{task}]"))
    with pytest.raises(BadInput, match="task mine: .*no column 'labels'; it has tokens, tags"):
        check_tasks(cli)
    task.write_text(text.replace("max_length: 64", "max_lenght: 64"))
    with pytest.raises(BadInput, match="did you mean data.max_length"):
        tasks_of(Downstream(recipes=[str(task)]))
    with pytest.raises(BadInput, match="two tasks are called toy_roles"):
        tasks_of(Downstream(recipes=["experiments/recipes/tasks/toy_roles.yaml"] * 2))


def test_what_the_data_has_to_say_is_heard(shelf, tmp_path, capsys):
    folder = tmp_path / "gaps"
    for split in ("train", "validation", "test"):
        Dataset.from_dict({"text": ["the dog runs .\nit is red ."] * 9 + [""]}).to_parquet(folder / f"{split}.parquet")
    arguments = ["fit", "--config", "experiments/recipes/bert/documents.yaml", "--config", SMOKE, f"--data.dataset={folder}"]
    check_arguments([*arguments, "--data.vocab_size=60", "--downstream.tasks=none"])
    assert "1 of 10 documents of 'train' are empty" in capsys.readouterr().err


def test_a_checkpoint_that_is_none_is_one_message():
    with pytest.raises(BadInput, match="no checkpoint 'nowhere'"):
        program.train(["fit", "--config", str(TASKS[-1]), "--model.checkpoint=nowhere"])


# ---- try and export


def said(capsys, monkeypatch, folder, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    try_out(folder, [], 1, 0.6, None)
    return capsys.readouterr()


def test_try_fills_a_mask_from_our_checkpoint_and_from_hugging_faces_folder(pretrained, tmp_path, capsys, monkeypatch):
    text = "the old [MASK] sees a dog .\tit [MASK] .\nno mask here\nxylophone [MASK]\n"
    ours = said(capsys, monkeypatch, pretrained, text)
    lines = ours.out.splitlines()
    assert len(lines) == 3 and all(len(line.split("  ")) == 5 for line in lines)
    assert "nothing is missing" in ours.err and "not in the vocabulary" in ours.err
    from typer.testing import CliRunner

    folder = tmp_path / "folder"
    assert CliRunner().invoke(app, ["export", str(pretrained), str(folder)]).exit_code == 0
    assert json.loads((folder / "config.json").read_text())["model_type"] == "bert"
    assert said(capsys, monkeypatch, folder, text).out == ours.out
    with pytest.raises(BadInput, match="is not empty"):
        CliRunner().invoke(app, ["export", str(pretrained), str(folder)], catch_exceptions=False)


def test_a_left_to_right_model_goes_on_where_the_text_ends(capsys, monkeypatch):
    arguments = toy("--downstream.tasks=none", "--model.objective=mlm", "--model.direction=causal")
    done(arguments)
    folder = identify(arguments).folder
    capsys.readouterr()
    ours = said(capsys, monkeypatch, folder, "the old king sees\nthe [MASK]\n")
    assert len(ours.out.splitlines()) == 2 and "fills no masks" in ours.err
    model, data = restored(folder)
    tokenizer = Tokenizer.from_str(data["tokenizer"])
    ids = torch.tensor([[CLS, *tokenizer.encode("the old king sees", add_special_tokens=False).ids]])
    best = model.head(model.network(ids, torch.zeros_like(ids)))[0, -1].argmax()
    assert ours.out.split()[0] == tokenizer.id_to_token(int(best))


def test_the_checkpoint_of_a_task_needs_no_other_file(pretrained, tmp_path, capsys, monkeypatch):
    recipe = "experiments/recipes/tasks/toy_agents.yaml"
    copy = tmp_path / "copy.ckpt"
    copy.write_bytes((pretrained / "checkpoints/best.ckpt").read_bytes())
    arguments = ["fit", "--config", recipe, "--config", "experiments/recipes/smoke_task.yaml", f"--model.checkpoint={copy}"]
    done(arguments)
    folder = identify(arguments).folder
    copy.unlink()
    assert "adult" in said(capsys, monkeypatch, folder, "the king sleeps .\n").out


def test_a_model_built_by_hand_trains_on_the_stories_for_a_step():
    """Without any of the machinery: what a notebook would do."""
    from datamodules.documents import ToyDocuments

    data = ToyDocuments(objective="mlm+nsp", train_documents=20, held_out=5)
    data.load()
    model = Bert(arch=Arch(d_model=16, n_heads=2, n_layers=1, d_ff=16), optim=Optim(lr=1e-3, warmup_steps=1),
                 vocab_size=data.vocab_size, max_length=64)  # fmt: skip
    loss = model.training_loss(next(iter(data.train_dataloader())))
    (loss.smoothed / loss.tokens).backward()
    assert torch.isfinite(loss.nll) and 3 < loss.nll / loss.tokens < 10
