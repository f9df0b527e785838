"""The training program: every recipe under smoke, every choice bites, resume, divergence, failure, bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
import torch
import yaml
from datasets import Dataset

from experiments import train as program
from experiments.launch.keys import accepts, hint_of
from experiments.launch.question import ROOT, BadInput
from experiments.record.identity import identify, load_recipe, merged
from experiments.record.metrics_file import read_metrics
from experiments.record.metrics_log import MetricsLog
from experiments.record.result import REQUIRED, TRANSLATIONS, read_result

RECIPES = sorted((ROOT / "experiments/recipes/translation").glob("*.yaml"))
TOY, SMOKE = "experiments/recipes/translation/toy.yaml", "experiments/recipes/smoke.yaml"
TINY = ["--data.train_pairs=400", "--data.eval_pairs=20"]


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="session")
def parallel_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallel")
    for split in ("train", "validation", "test"):
        rows = {
            "en": ["a man walks", "two dogs run", "a red bird sings"] * 20,
            "de": ["ein Mann geht", "zwei Hunde laufen", "ein roter Vogel singt"] * 20,
        }
        Dataset.from_dict(rows).to_parquet(folder / f"{split}.parquet")
    return folder


@pytest.fixture(scope="session")
def nested_folder(tmp_path_factory, parallel_folder):
    """The same in the form of IWSLT14's and WMT14's hub folders: one column of {de, en}."""
    folder = tmp_path_factory.mktemp("nested")
    for path in parallel_folder.iterdir():
        rows = Dataset.from_parquet(str(path), cache_dir=str(folder / ".cache"))
        Dataset.from_dict({"translation": list(rows)}).to_parquet(folder / path.name)
    return folder


def toy(*flags):
    return ["fit", "--config", TOY, "--config", SMOKE, *TINY, *flags]


def done(arguments):
    assert program.train(arguments) == 0
    return read_result(identify(arguments).folder / "result.json")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_recipe_runs_under_smoke_and_leaves_a_whole_result(recipe, parallel_folder, nested_folder):
    folder = nested_folder if "translation.en" in recipe.read_text() else parallel_folder
    local = [f"--data.dataset={folder}"] if "ParallelText" in recipe.read_text() else TINY
    arguments = ["fit", "--config", str(recipe), "--config", SMOKE, *local]
    result = done(arguments)
    assert set(REQUIRED) <= set(result) and result["status"] == "finished" and result["steps"] == 4
    assert {"test/bleu", "test/nll", "valid/nll", "start/gradient_norm", "end/gradient_norm"} <= set(result["metrics"])
    assert any(name.startswith("end/decoder.1.cross_attention/") for name in result["metrics"])
    assert result["tokens"] > 0 and result["flops"] > 0 and result["parameters"] > 0 and 0 <= result["padding"] < 1
    folder = identify(arguments).folder
    assert {"result.json", "config.yaml", "metrics.csv", "samples.txt", "checkpoints"} <= {
        p.name for p in folder.iterdir()
    }
    assert (
        result["metrics"]["valid/nll"] == pytest.approx(min(read_metrics(folder / "metrics.csv")["valid/nll"].values()))
        or "bleu" in result["selection"]["metric"]
    )


def test_a_finished_run_is_not_run_again_and_the_saved_config_runs_as_it_is(capsys, tmp_path, monkeypatch):
    first = done(toy())
    path = identify(toy()).folder / "result.json"
    before = path.stat().st_mtime_ns
    assert program.train(toy()) == 0 and "finished already" in capsys.readouterr().out
    assert path.stat().st_mtime_ns == before
    monkeypatch.setenv("ABLATE_OUT", str(tmp_path / "again"))
    again = done(["fit", "--config", str(path.parent / "config.yaml")])
    assert again["metrics"] == first["metrics"], "same seed, same machine, same curve"


def test_the_logged_config_is_the_resolved_one_under_the_sweeps_keys():
    result = done(toy("--model.arch.norm=pre"))
    config = result["config"]
    assert (
        config["model.arch.norm"] == "pre"
        and config["model.arch.d_model"] == 16
        and config["model.optim.beta2"] == 0.98
    )
    assert not any("init_args" in key for key in config)
    arch = {key.removeprefix("model.arch."): value for key, value in config.items() if key.startswith("model.arch.")}
    from lit_modules.choices import Arch

    assert Arch(**arch).norm == "pre"


def test_the_checkpoint_rebuilds_the_model():
    from lit_modules.choices import Arch
    from lit_modules.generation import Decoding
    from lit_modules.optimization import Optim
    from lit_modules.translation import Translation

    result = done(toy())
    checkpoint = torch.load(identify(toy()).folder / "checkpoints/best.ckpt", weights_only=True)
    kept = checkpoint["hyper_parameters"]
    pages = {"arch": Arch(**kept["arch"]), "optim": Optim(**kept["optim"]), "decoding": Decoding(**kept["decoding"])}
    model = Translation(**{**kept, **pages})
    model.load_state_dict(checkpoint["state_dict"])
    assert checkpoint["global_step"] == result["metrics"]["best_step"]


# ---- every choice bites

CHOICES = {
    "model.arch.d_model": [16, 24], "model.arch.n_heads": [2, 4], "model.arch.d_k": ["split", 5], "model.arch.d_ff": [32, 40],
    "model.arch.n_layers": [1, 2], "model.arch.norm": None, "model.arch.score_divisor": None, "model.arch.activation": None,
    "model.arch.dropout": [0.0, 0.5], "model.arch.dropout_at": None, "model.cross_attention": None, "model.position": None, "model.look_ahead": None, "model.weight_tying": None,
    "model.label_smoothing": [0.0, 0.1], "model.optim.schedule": None, "model.optim.lr": [0.001, 0.002],
    "model.optim.warmup_steps": [1, 2], "model.optim.beta1": [0.9, 0.8], "model.optim.beta2": [0.9, 0.98],
    "model.optim.eps": [1e-9, 1e-2], "model.optim.weight_decay": [0.0, 0.5], "data.batch_tokens": [200, 400],
    "data.train_pairs": [300, 400], "data.max_words": [20, 24],
}  # fmt: skip
NOT_TRAINING = {
    "model.max_length",
    "model.extra_length",
    "model.samples",
    "model.vocab_size",
    "data.eval_pairs",
    "data.num_workers",
    "model.decoding",  # comes into play at the test alone: see test_decoding.py
}


def values_of(key):
    hint = hint_of(key, merged(toy()))
    return CHOICES[key] or list(__import__("typing").get_args(hint))


def test_every_argument_of_the_model_and_the_data_is_walked():
    known = {f"model.{name}" for name in parameters("lit_modules.translation", "Translation")} | {
        f"data.{n}" for n in parameters("datamodules.translation", "ToyTranslation")
    }
    known |= {f"model.arch.{n}" for n in parameters("lit_modules.choices", "Arch")} | {
        f"model.optim.{n}" for n in parameters("lit_modules.optimization", "Optim")
    }
    assert known - {"model.arch", "model.optim"} == set(CHOICES) | NOT_TRAINING


def parameters(module, name):
    import importlib
    import inspect

    return [
        p for p in inspect.signature(getattr(importlib.import_module(module), name).__init__).parameters if p != "self"
    ]


@pytest.mark.parametrize("key", CHOICES)
def test_every_value_of_every_choice_changes_what_is_trained(key):
    """Loss after a few steps differs between any two values."""
    seen = {}
    dropping = ["--model.arch.dropout=0.3"] if key == "model.arch.dropout_at" else []
    for value in values_of(key):
        cli = program.AblationCLI(
            None, [*toy(*dropping, "--model.optim.warmup_steps=1", f"--{key}={value}"), "--trainer.limit_val_batches=0"]
        )
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
        model = cli.model.eval()
        batch = next(iter(cli.datamodule.val_dataloader()))
        seen[value] = float(model.loss(batch, 0.0).nll)
    assert len(set(seen.values())) == len(seen), seen


# ---- divergence, failure, bad input


def test_a_diverged_run_is_a_result_and_ends_with_status_0():
    result = done(toy("--model.optim.lr=1e30", "--model.optim.warmup_steps=0"))
    assert result["status"] == "diverged" and "at step" in result["reason"]


def test_a_crashed_run_says_why_and_is_tried_again(monkeypatch):
    def crash(*_):
        raise RuntimeError("out of paper")

    with monkeypatch.context() as broken, pytest.raises(RuntimeError):
        broken.setattr("lit_modules.translation.Translation.evaluate", crash)
        program.train(toy())
    folder = identify(toy()).folder
    failed = read_result(folder / "result.json")
    assert (
        failed["status"] == "failed"
        and failed["reason"] == "RuntimeError: out of paper"
        and "crash" in failed["traceback"]
    )
    assert done(toy())["status"] == "finished" and len(list(folder.glob("result-failed-*.json"))) == 1


@pytest.mark.parametrize("flag, message", [
    ("--model.arch.nrom=pre", r"unknown key model.arch.nrom: did you mean model.arch.norm\? known model.arch.: d_model"),
    ("--model.arch.norm=past", r"model.arch.norm: 'past' is not known; it takes post \| pre"),
    ("--model.arch.norm=True", "'True' is not known"),
    ("--trainer.max_step=3", r"did you mean trainer.max_steps\?"),
    ("--seed=7", "unknown key seed: known keys: model, data"),
    ("--ckpt_path=x", "unknown key ckpt_path"),
    ("--model.vocab_size=7", "it comes from the data"),
    ("--model.max_length=2.5", "2.5 is not known; it takes int"),
    ("--trainer.val_check_interval=50", "max_steps 4: no validation would take place.*lower trainer.val_check_interval 50"),
    ("--trainer.accumulate_grad_batches=3", "val_check_interval 2 is no multiple of accumulate_grad_batches 3"),
    ("--selection.metric=valid/bleu_words_33_40", "'valid/bleu_words_33_40' is not known; it takes valid/nll"),
    ("--selection.metric=valid/blue", r"'valid/blue' is not known; it takes valid/nll \| valid/perplexity \| valid/calibration_error \| valid/bleu"),
])  # fmt: skip
def test_bad_input_is_one_message(flag, message):
    with pytest.raises(BadInput, match=message):
        program.train(toy(flag))


@pytest.mark.parametrize("wrong", ["tensor_parallel_size: auto", "save_distributed_checkpoint: true"])
def test_a_model_is_divided_in_one_way_alone(tmp_path, wrong):
    """By rows over all ranks, saved as one file: another mesh would train each rank on its own."""
    right = {"data_parallel_size": "1", "tensor_parallel_size": "1", "save_distributed_checkpoint": "false"}
    settings = {**right, **dict([wrong.split(": ")])}
    inside = ", ".join(f"{key}: {value}" for key, value in settings.items())
    strategy = f"{{class_path: lightning.pytorch.strategies.ModelParallelStrategy, init_args: {{{inside}}}}}"
    (tmp_path / "divided.yaml").write_text(f"trainer: {{strategy: {strategy}}}\n")
    with pytest.raises(BadInput, match=f"trainer.strategy.init_args.{wrong.split(': ')[0]}: .* is not supported; write"):
        program.train(toy("--config", str(tmp_path / "divided.yaml")))


@pytest.mark.parametrize("flag, message", [
    ("--data.target=fr", "no column 'fr'; it has en, de"),
    ("--model.position=learned", "only 4 learned positions: raise model.max_length"),
])  # fmt: skip
def test_bad_data_is_one_message(flag, message, parallel_folder):
    recipe = "experiments/recipes/translation/multi30k.yaml"
    arguments = [
        "fit",
        "--config",
        recipe,
        "--config",
        SMOKE,
        f"--data.dataset={parallel_folder}",
        "--model.max_length=4",
        flag,
    ]
    with pytest.raises(BadInput, match=message):
        program.train(arguments)


def test_a_training_without_a_validation_says_so():
    with pytest.raises(BadInput, match="no validation took place in 4 steps"):
        program.train(toy("--trainer.check_val_every_n_epoch=1", "--trainer.val_check_interval=1.0"))


def test_the_exit_status_of_bad_input_is_2_and_nothing_is_left(tmp_path):
    command = [sys.executable, "-m", "experiments.train", *toy("--model.arch.nrom=pre")]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "ABLATE_OUT": str(tmp_path / "out")}
    )
    assert (
        ended.returncode == 2
        and ended.stderr.startswith("error: unknown key model.arch.nrom")
        and not (tmp_path / "out").exists()
    )


def test_an_arm_that_is_not_in_use_is_refused(monkeypatch):
    cli = program.AblationCLI(None, toy())
    run = identify(toy())
    object.__setattr__(run, "arm", {"model.arch.norm": "pre"})
    with pytest.raises(BadInput, match="the arm says 'pre', but 'post' is in use"):
        program.check_in_use(cli, run)


# ---- killed and resumed


@pytest.mark.parametrize("workers, validation", [
    (0, ["--trainer.val_check_interval=5"]),  # the checkpoint lies within an epoch
    (1, ["--trainer.val_check_interval=5"]),
    (0, ["--trainer.val_check_interval=1.0", "--trainer.check_val_every_n_epoch=1"]),  # at the end of one
    (1, ["--trainer.val_check_interval=1.0", "--trainer.check_val_every_n_epoch=1"]),
])  # fmt: skip
def test_killed_and_resumed_equals_uninterrupted(tmp_path, monkeypatch, workers, validation):
    """SIGKILL in the second epoch, dropout on: every logged number of the two runs is the same to the last digit."""
    flags = [
        "--model.arch.dropout=0.2",
        "--data.batch_tokens=1200",
        "--trainer.max_steps=30",
        *validation,
        f"--data.num_workers={workers}",
    ]
    monkeypatch.setenv("ABLATE_OUT", str(tmp_path / "whole"))
    done(toy(*flags))
    whole = read_metrics(identify(toy(*flags)).folder / "metrics.csv")

    monkeypatch.setenv("ABLATE_OUT", str(tmp_path / "killed"))
    killer = (
        "import os, sys; from experiments import train; keep = train.Progress.on_train_batch_end\n"
        "def die(self, trainer, *a, **k):\n    keep(self, trainer, *a, **k)\n    trainer.global_step == 18 and os.kill(os.getpid(), 9)\n"
        "train.Progress.on_train_batch_end = die; train.train(sys.argv[1:])"
    )
    ended = subprocess.run([sys.executable, "-c", killer, *toy(*flags)], cwd=ROOT, capture_output=True)
    assert ended.returncode == -9
    folder = identify(toy(*flags)).folder
    assert (folder / "checkpoints/last.ckpt").exists() and not (folder / "result.json").exists()
    result = done(toy(*flags))
    assert result["steps"] == 30
    resumed = read_metrics(folder / "metrics.csv")
    assert resumed.keys() == whole.keys()
    for metric, steps in whole.items():
        assert resumed[metric] == steps, metric


def test_a_checkpoint_of_another_run_is_refused():
    import shutil

    done(toy())
    other = identify(toy("--model.label_smoothing=0.2")).folder / "checkpoints"
    shutil.copytree(identify(toy()).folder / "checkpoints", other)
    with pytest.raises(BadInput, match=f"belongs to training {identify(toy()).training}"):
        program.train(toy("--model.label_smoothing=0.2"))


def test_a_checkpoint_of_another_number_of_ranks_is_refused():
    done(toy("--trainer.max_steps=4"))
    folder = identify(toy("--trainer.max_steps=4")).folder
    (folder / "result.json").unlink()
    last = folder / "checkpoints/last.ckpt"
    kept = torch.load(last, weights_only=True)
    kept["callbacks"]["Belonging"]["world"] = 2
    torch.save(kept, last)
    with pytest.raises(BadInput, match="written by 2 ranks, and here are 1: go on with as many"):
        program.train(toy("--trainer.max_steps=4"))


def test_a_checkpoint_of_other_code_is_kept_aside_and_training_starts_anew(monkeypatch, tmp_path):
    first = done(toy())
    folder = identify(toy()).folder
    (folder / "result.json").rename(tmp_path / "away.json")
    monkeypatch.setattr("experiments.record.facts.code_fingerprint", lambda: "other")
    again = done(toy())
    assert (
        again["code_fingerprint"] == "other"
        and again["tokens"] == first["tokens"]
        and again["metrics"] == first["metrics"]
    )
    assert len(list((folder / "checkpoints").glob("other-code-*.ckpt"))) == 1


def test_killed_after_the_last_step_nothing_is_missing(tmp_path):
    first = done(toy())
    folder = identify(toy()).folder
    (folder / "result.json").rename(tmp_path / "away.json")
    checkpoint = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == 4
    again = done(toy())
    assert again["metrics"] == first["metrics"] and again["tokens"] == first["tokens"]


# ---- identity


def test_the_key_ignores_the_machine_and_sees_the_rest(parallel_folder, tmp_path):
    base = identify(toy())
    for same in ("--trainer.accelerator=gpu", "--trainer.devices=4", "--data.num_workers=7", "--trainer.strategy=ddp"):
        assert identify(toy(same)).key == base.key, same
    for other in (
        "--seed_everything=1",
        "--model.arch.norm=pre",
        "--trainer.max_steps=5",
        "--trainer.precision=bf16-mixed",
    ):
        assert identify(toy(other)).key != base.key, other
    assert identify(toy("--model.optim.lr", "1e-3")).key == identify(toy("--model.optim.lr=0.001")).key
    assert identify(toy("--model.init_args.arch.norm=pre")).key == identify(toy("--model.arch.norm=pre")).key
    early = ["--trainer.max_steps=7", "--config", TOY, "--config", SMOKE, *TINY]
    assert identify(early).key == base.key, "a recipe after a flag wins over it, as in the parser"


def test_small_letters_are_trained_written_and_scored(parallel_folder):
    """Against sacreBLEU of the lines that the run kept; `ablate try` reads capitals because the tokeniser lowers them."""
    arguments = ["fit", "--config", "experiments/recipes/translation/multi30k.yaml", "--config", SMOKE, f"--data.dataset={parallel_folder}"]
    arguments += ["--data.tokenizer=bpe-lower", "--model.optim.lr=0.01", "--model.optim.warmup_steps=10"]
    arguments += ["--model.arch.dropout=0.0", "--trainer.max_steps=100", "--trainer.val_check_interval=100"]
    result, folder = done(arguments), identify(arguments).folder
    lines = [line.split("\t") for line in (folder / TRANSLATIONS).read_text().splitlines()]
    assert {reference for reference, _ in lines} == {"ein mann geht", "zwei hunde laufen", "ein roter vogel singt"}
    assert all(text == text.lower() for _, text in lines) and any(text == reference for reference, text in lines)
    bleu = sacrebleu.metrics.BLEU(lowercase=True, force=True)
    score = bleu.corpus_score([text for _, text in lines], [[reference for reference, _ in lines]]).score
    assert result["metrics"]["test/bleu"] == pytest.approx(score, abs=1e-9) and score > 0
    assert result["bleu_signature"] == str(bleu.get_signature()) and "case:lc" in result["bleu_signature"]
    assert result["metrics"]["test/bleu_moses"] == result["metrics"]["test/bleu_moses_lc"]


def test_the_datas_identity_is_its_content_not_its_place(parallel_folder, tmp_path):
    import shutil

    copy = tmp_path / parallel_folder.name
    shutil.copytree(parallel_folder, copy)
    recipe = ["--config", "experiments/recipes/translation/multi30k.yaml"]
    keys = [identify([*recipe, f"--data.dataset={folder}"]).key for folder in (parallel_folder, copy)]
    assert keys[0] == keys[1]
    (copy / "train.parquet").write_bytes(b"other")
    assert identify([*recipe, f"--data.dataset={copy}"]).key != keys[0]


def test_recipes_name_no_logger_checkpoint_or_folder():
    for path in RECIPES:
        keys = load_recipe(str(path))
        assert not {"trainer.logger", "trainer.callbacks", "trainer.default_root_dir"} & set(keys), path
        assert {"model.class_path", "data.class_path", "selection.metric", "selection.mode", "seed_everything"} <= set(
            keys
        ), path
        assert path.read_text().startswith("#"), f"{path} needs a header"
        assert not any(isinstance(v, bool) for k, v in keys.items() if k.startswith(("model.", "data.")))


def test_the_log_tolerates_what_a_killed_run_leaves(tmp_path):
    log = MetricsLog(tmp_path)
    log.log_metrics({"train/loss": 3.0}, step=1)
    log.log_metrics({"train/loss": 2.0}, step=2)
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("17.5,3,train/lo")
    (tmp_path / "metrics.csv").open("a").write("\n")
    log.log_metrics({"train/loss": 1.5}, step=2)
    assert read_metrics(tmp_path / "metrics.csv")["train/loss"] == {1: 3.0, 2: 1.5}


def test_hints_accept_what_the_parser_accepts():
    from lit_modules.choices import Arch

    assert accepts(int | str, "x") and not accepts(int, True) and accepts(float, 3) and not accepts(float, "x")
    assert (
        hint_of("model.arch.norm", {"model.class_path": "lit_modules.translation.Translation"})
        == Arch.__init__.__annotations__["norm"]
    )


def test_wandb_gets_one_run_with_config_group_and_job_type():
    """Offline: one folder, and what its file holds, read by wandb's own reader."""
    question = ROOT / "sweeps/score_divisor.yaml"
    arguments = toy(
        "--question",
        str(question),
        "--model.arch.score_divisor=one",
        "--model.arch.d_k=4",
        "--model.arch.n_heads=split",
    )
    command = [sys.executable, "-m", "experiments.train", *arguments]
    subprocess.run(command, env={**os.environ, "WANDB_MODE": "offline"}, cwd=ROOT, check=True, capture_output=True)
    folders = list((identify(arguments).folder / "wandb").glob("offline-run-*"))
    assert len(folders) == 1
    wandb = Path(sys.executable).parent / "wandb"
    said = subprocess.run(
        [wandb, "leet", "inspect", "--json", folders[0]], capture_output=True, text=True, timeout=60
    ).stdout
    records = [json.loads(line) for line in said.splitlines() if line.strip()]
    text = json.dumps(records)
    assert "score_divisor/translation-toy+smoke/" in text and "d_k=4,score_divisor=one seed 0" in text
    assert "model.arch.score_divisor" in text and "train/loss" in text
    defined = [record["metric"] for record in records if "metric" in record]
    (chosen,) = [metric for metric in defined if metric.get("name") == "valid/nll"]
    assert chosen["step_metric"] == "trainer/global_step" and chosen["summary"] == {"min": True}, "best on validation"
    files = folders[0] / "files/media"
    assert len(list((files / "images/inside").glob("*.png"))) >= 4 and list((files / "table/valid").glob("samples*.json"))


def test_the_saved_config_holds_no_logger():
    done(toy())
    saved = yaml.safe_load((identify(toy()).folder / "config.yaml").read_text())
    assert not saved["trainer"].get("logger") and not saved["trainer"].get("callbacks")


# ---- arms that are trained alike


def decoding(method, *flags):
    arguments = ["fit", "--question", "decoding", "--config", TOY, "--config", SMOKE, *TINY]
    return [*arguments, f"--model.decoding.method={method}", "--trainer.max_steps=4", *flags]


def test_an_arm_that_differs_after_training_alone_is_tested_from_its_siblings_checkpoint(capsys, tmp_path, monkeypatch):
    greedy = done(decoding("greedy"))
    beam = done(decoding("beam"))
    assert f"trained already as run {greedy['key']}" in capsys.readouterr().out
    assert beam["trained_by"] == greedy["key"] and "trained_by" not in greedy
    assert beam["training"] == greedy["training"] and beam["key"] != greedy["key"]
    for key in ("tokens", "steps", "flops", "seconds", "selection", "parameters", "data_fingerprint"):
        assert beam[key] == greedy[key], key
    assert not (identify(decoding("beam")).folder / "checkpoints").exists()
    monkeypatch.setenv("ABLATE_OUT", str(tmp_path / "alone"))
    alone = done(decoding("beam"))
    assert "trained_by" not in alone and alone["metrics"] == beam["metrics"], "as if it had been trained itself"


@pytest.mark.parametrize("other", [["--seed_everything=1"], ["--model.arch.norm=pre"]])
def test_a_run_that_is_trained_otherwise_is_no_sibling(other):
    done(decoding("greedy"))
    assert "trained_by" not in done(decoding("beam", *other))


def test_a_siblings_checkpoint_of_other_code_is_not_used(monkeypatch):
    done(decoding("greedy"))
    monkeypatch.setattr("experiments.record.facts.code_fingerprint", lambda: "other")
    assert "trained_by" not in done(decoding("beam"))


def test_two_siblings_at_once_train_once(tmp_path):
    """The second waits for the first one's checkpoint."""
    environment = {**os.environ, "ABLATE_OUT": str(tmp_path / "runs")}
    both = [
        subprocess.Popen([sys.executable, "-m", "experiments.train", *decoding(m)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for m in ("greedy", "beam")
    ]
    said = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("trained already" in text for text in said) == 1


# ---- what a run measures


def test_calibration_and_bleu_by_length_of_a_run(monkeypatch):
    """Both once more, from the evaluation's own predictions, by hand and by sacreBLEU."""
    from lit_modules.translation import LENGTHS, Evaluation

    kept = []
    add = Evaluation.add

    def keep(self, loss, logits, labels, index, translations):
        kept.append((logits.detach(), labels, index, translations))
        add(self, loss, logits, labels, index, translations)

    monkeypatch.setattr(Evaluation, "add", keep)
    cli = program.AblationCLI(None, [*toy("--model.arch.n_layers=1"), "--trainer.limit_test_batches=1.0"])
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    kept.clear()
    cli.datamodule.test_splits = ["test"]
    cli.trainer.test(cli.model, datamodule=cli.datamodule, verbose=False)
    found = {name: float(value) for name, value in cli.trainer.callback_metrics.items()}

    confidence, correct = [], []
    for logits, labels, _, _ in kept:
        best = logits[labels != 0].softmax(-1).max(-1)
        confidence += best.values.tolist()
        correct += (best.indices == labels[labels != 0]).float().tolist()
    error = 0.0
    for k in range(15):
        inside = [i for i, c in enumerate(confidence) if k / 15 < c <= (k + 1) / 15]
        if inside:
            gap = sum(correct[i] for i in inside) - sum(confidence[i] for i in inside)
            error += abs(gap) / len(confidence)
    assert found["test/calibration_error"] == pytest.approx(error, abs=1e-6)

    sources, references = cli.datamodule.sources("test"), cli.datamodule.references("test")
    written = {i: text for _, _, index, texts in kept for i, text in zip(index, texts, strict=True)}
    assert sorted(written) == list(range(20))
    for low, high in LENGTHS:
        some = [i for i in written if low <= len(sources[i].split()) <= high]
        name = f"test/bleu_words_{low}_{high}"
        assert (name in found) == bool(some)
        if some:
            expected = sacrebleu.corpus_bleu([written[i] for i in some], [[references[i] for i in some]], force=True).score
            assert found[name] == pytest.approx(expected, abs=1e-9)


def test_layer_gradients_together_are_the_whole_stacks_gradient():
    """Post-norm stacks have no norm of their own at the end: the squares add up but for embeddings and output."""
    result = done(toy("--model.weight_tying=none"))
    metrics = result["metrics"]
    squares = sum(v**2 for k, v in metrics.items() if k.startswith("start/") and k.endswith("/layer_gradient"))
    assert 0 < squares < metrics["start/gradient_norm"] ** 2
    assert {k for k in metrics if k.endswith("/layer_gradient") and k.startswith("end/")} == {
        f"end/{stack}.{i}/layer_gradient" for stack in ("encoder", "decoder") for i in (0, 1)
    }
    assert metrics["start/leak"] == metrics["end/leak"] == 0 and metrics["train/nll"] > 0


@pytest.mark.parametrize("more", [[], ["--model.position=learned"], ["--model.weight_tying=none"]])
def test_nothing_reaches_the_source_without_cross_attention(more):
    cli = program.AblationCLI(None, toy("--model.cross_attention=absent", *more))
    cli.datamodule.setup("fit")
    network, batch = cli.model.eval().network, next(iter(cli.datamodule.val_dataloader()))
    other = batch["source"].flip(0)
    assert torch.equal(network(batch["source"], batch["target"]), network(other, batch["target"]))
    cli.model.training_loss(batch).smoothed.backward()
    assert sum(p.requires_grad for p in cli.model.parameters()) > 0
    assert all((p.grad is not None) == p.requires_grad for p in cli.model.parameters()), "DDP needs it so"
