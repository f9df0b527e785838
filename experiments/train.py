"""The program behind every question: one run, from the command line that a sweep's agent passes to its result.

    python -m experiments.train fit --config experiments/recipes/translation/toy.yaml --model.arch.norm=pre
    python -m experiments.train fit --question score_divisor --config … --model.arch.score_divisor=one …

Recipes name no logger, checkpoint or folder: they are added here. A finished run is not run again; a killed one
goes on from its last checkpoint.
"""

import contextlib
import io
import json
import os
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.plugins.environments import LightningEnvironment, SLURMEnvironment

from datamodules.local import tested_path
from experiments.downstream import Downstream, Task, fine_tune, tasks_of
from experiments.launch.allocator import hint
from experiments.launch.keys import FROM_DATA, FROM_MODEL, check_keys
from experiments.launch.question import BadInput
from experiments.record import facts
from experiments.record.averaging import count_of, forget, keep_weights, kept_weights, selected
from experiments.record.callbacks import Belonging, BestInSummary, Progress, RandomState, WholeCheckpoints
from experiments.record.identity import Run, digest, find_file, flatten, identify, merged
from experiments.record.inside import images, look_inside, write
from experiments.record.metrics_file import read_metrics
from experiments.record.metrics_log import MetricsLog
from experiments.record.outcome import cost_per_token, record
from experiments.record.result import finished, lock, read_result
from experiments.record.wandb_run import relog, wandb_logger, wandb_loggers
from lit_modules.base import Diverged
from lit_modules.sharding import sharded

AVERAGE = "selection.average"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which checkpoint is tested: the one with the best `metric` on validation, or the mean of the last ones.

    Args:
        metric: a logged validation metric, valid/bleu for instance.
        mode: max or min.
        average: 0: the best; n: the mean of the weights after the last n validations, which then is validated, too.

    Raises:
        ValueError: at a negative number.
    """

    metric: str
    mode: Literal["min", "max"]
    average: int = 0

    def __post_init__(self) -> None:
        if self.average < 0:
            raise ValueError(f"average {self.average} must be 0 (the best checkpoint) or more")


class AblationCLI(LightningCLI):
    """LightningCLI for one run: strict flags, our loggers and callbacks, resume."""

    def __init__(self, run: Run | None, arguments: list[str], below: bool = False) -> None:
        self.run, self.below = run, below  # a task's run below its pre-training's has no W&B run, and one device
        strict = {"allow_abbrev": False}
        super().__init__(
            L.LightningModule,
            L.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            args=found_configs(arguments),
            save_config_callback=None,
            auto_configure_optimizers=False,
            parser_kwargs={**strict, "fit": strict},
            trainer_defaults={"num_sanity_val_steps": 0, "use_distributed_sampler": False},
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        # ckpt_path is no flag: a checkpoint's hyperparameters would silently win over the arm's
        return {"fit": {"model", "train_dataloaders", "val_dataloaders", "datamodule", "ckpt_path", "weights_only"}}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--question", type=str, default=None, help="name or path of the sweep file that asks")
        parser.add_argument("--selection", type=Selection, help="the checkpoint rule")
        parser.add_argument("--downstream", type=Downstream, default=Downstream(), help="tasks after pre-training")
        for given in FROM_DATA:  # a link is passed over where a class does not take the argument
            parser.link_arguments(f"data.{given}", f"model.init_args.{given}", apply_on="instantiate")
        for given in FROM_MODEL:
            parser.link_arguments(f"model.init_args.{given}", f"data.init_args.{given}")

    @property
    def flat(self) -> dict[str, Any]:
        """The resolved configuration under the sweep file's own keys."""
        config = self._parser(self.subcommand).dump(self.config[self.subcommand], format="json", skip_unset=False)
        return flatten(json.loads(config))

    def before_instantiate_classes(self) -> None:
        if self.run is None or not self.run.folder.exists():
            return
        parser, config = self._parser(self.subcommand), self.config[self.subcommand]
        parser.save(config, self.run.folder / "config.yaml", skip_unset=False, overwrite=True, multifile=False)

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        if self.run is None:
            return super().instantiate_trainer(logger=False, enable_checkpointing=False, **kwargs)
        config = self.config_init[self.subcommand]
        # after a validation, never at an epoch's end: Lightning resumes from there one epoch too far
        always = {
            "dirpath": self.run.folder / "checkpoints",
            "enable_version_counter": False,
            "save_on_train_epoch_end": False,
        }
        self.best = ModelCheckpoint(
            filename="best", monitor=config.selection.metric, mode=config.selection.mode, **always
        )
        last = ModelCheckpoint(filename="last", **always)
        self.progress = Progress(self.run.folder)
        self.code = {"code_fingerprint": facts.code_fingerprint(), "commit": facts.commit()}  # as the run starts
        belonging = Belonging(self.run.training, self.code["code_fingerprint"], digest(self.flat))
        best = BestInSummary(config.selection.metric, config.selection.mode)
        # the last one after the others: whatever goes on from it finds what they wrote
        weights = [keep_weights(always["dirpath"], config.selection.average)] if config.selection.average else []
        ours = [belonging, RandomState(), self.progress, best, self.best, *weights, last]
        loggers, here = [MetricsLog(self.run.folder)], [LightningEnvironment()]
        if not self.below:
            loggers = [*loggers, wandb_logger(self.run, self.flat)]
            # a run goes on from its own checkpoint when it is started again: whoever submitted it sees to that
            here = [SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else []
        return super().instantiate_trainer(
            logger=loggers,
            callbacks=[*(config.trainer.callbacks or []), *ours],
            plugins=[*(config.trainer.plugins or []), WholeCheckpoints(), *here],
            default_root_dir=str(self.run.folder),
            enable_progress_bar=sys.stdout.isatty(),
            enable_model_summary=False,
            **kwargs,
        )

    def _run_subcommand(self, subcommand: str) -> None:
        """Nothing yet: `train` goes on when the arm has been compared with what the model holds."""


def built(run: Run | None, arguments: list[str], below: bool = False) -> AblationCLI:
    """Parser, model, data and trainer, bound to one another.

    Raises:
        BadInput: whatever the parser, the model or the data refuse, in their own words.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            cli = AblationCLI(run, arguments, below)
        print(said.getvalue(), file=sys.stderr, end="")  # what the data had to say
        cli.datamodule.setup("fit")
        cli.model.check_data(cli.datamodule)
        check_strategy(cli)
        check_validation(cli)
    except SystemExit:
        raise BadInput(said.getvalue().strip().splitlines()[-1]) from None
    except (ValueError, FileNotFoundError) as error:
        raise BadInput(str(error)) from error
    return cli


def check_strategy(cli: AblationCLI) -> None:
    """A model is divided by whole layers' rows, and its checkpoint is one file.

    Raises:
        BadInput: a strategy that says otherwise.
    """
    settings = cli.flat
    if str(settings.get("trainer.strategy.class_path", "")).endswith("ModelParallelStrategy"):
        for key, value in {"tensor_parallel_size": 1, "save_distributed_checkpoint": False}.items():
            if (found := settings.get(f"trainer.strategy.{key}")) != value:
                told = f"{found!r} is not supported; write {value!r}".lower()
                raise BadInput(f"trainer.strategy.init_args.{key}: {told}")


def check_validation(cli: AblationCLI) -> None:
    """There will be a checkpoint to test: a known metric chooses it, and a validation takes place in time.

    Raises:
        BadInput: naming the metric and the known ones, or the interval and the steps.
    """
    config = cli.config[cli.subcommand]
    known = [name for name in cli.model.metric_names(cli.datamodule) if name.startswith("valid/")]
    if config.selection.metric not in known:
        raise BadInput(f"selection.metric: {config.selection.metric!r} is not known; it takes {' | '.join(known)}")
    interval, steps, micro = (config.trainer[k] for k in ("val_check_interval", "max_steps", "accumulate_grad_batches"))
    if config.trainer.check_val_every_n_epoch is None and isinstance(interval, int) and 0 < steps * micro < interval:
        raise BadInput(
            f"trainer.max_steps {steps}: no validation would take place, and no checkpoint be tested; "
            f"lower trainer.val_check_interval {interval}"
        )
    if isinstance(interval, int) and interval % micro:
        raise BadInput(
            f"trainer.val_check_interval {interval} is no multiple of accumulate_grad_batches {micro}: "
            "a checkpoint would fall into the middle of a step"
        )


def found_configs(arguments: list[str]) -> list[str]:
    """--config is tried in the working directory, then at the project's root."""
    found = list(arguments)
    for i, argument in enumerate(found):
        if argument.startswith("--config="):
            found[i] = f"--config={find_file(argument.removeprefix('--config='))}"
        elif argument == "--config" and i + 1 < len(found):
            found[i + 1] = str(find_file(found[i + 1]))
    return found


def check_in_use(cli: AblationCLI, run: Run) -> None:
    """The values that the model was built with are the arm's own: else the run would answer another question."""
    built = flatten({"model": dict(cli.model.hparams)})
    for key, value in run.arm.items():
        used = built.get(key, cli.flat.get(key))
        if used != value:
            raise BadInput(f"{key}: the arm says {value!r}, but {used!r} is in use")


def fit_and_test(cli: AblationCLI, run: Run) -> tuple[dict[str, float], Path]:
    """Trains, or goes on training, then tests the checkpoint that the rule selects."""
    trainer, model, data = cli.trainer, cli.model, cli.datamodule
    last = run.folder / "checkpoints" / "last.ckpt"
    with contextlib.suppress(FileNotFoundError):  # another rank was first
        if last.exists() and not fits(last, cli):
            aside = last.with_name(f"other-code-{int(last.stat().st_mtime)}.ckpt")
            last.rename(aside)
            forget(last.parent)
            print(f"the code has changed since the checkpoint: kept as {aside.name}, training starts anew")
    trainer.fit(model, datamodule=data, ckpt_path=str(last) if last.exists() else None)
    if not cli.best.best_model_path:
        raise BadInput(
            f"no validation took place in {trainer.global_step} steps, so there is no checkpoint to test: "
            f"lower trainer.val_check_interval (now {trainer.val_check_interval}) or train longer"
        )
    cli.peak_memory_bytes = facts.peak_memory_bytes(on_gpu=trainer.strategy.root_device.type == "cuda")
    model.record("end", data.val_dataloader())  # a run that was killed after its last step has none yet
    checkpoints = run.folder / "checkpoints"
    count = min(average_of(cli), len(kept_weights(checkpoints)))  # a short training has fewer validations
    checkpoint = chosen(cli, checkpoints, count)
    tested = test(cli, checkpoint)
    draw(cli, run)
    logged = read_metrics(run.folder / "metrics.csv")
    best_step = torch.load(cli.best.best_model_path, weights_only=True, map_location="cpu")["global_step"]
    metrics = {name: steps[best_step] for name, steps in logged.items() if name.startswith("valid/")}
    of_checkpoint = metrics | {"best_step": best_step}
    if count:
        of_checkpoint = validated(cli, checkpoint) | {"averaged": count}
    of_training = {name: logged[name][max(logged[name])] for name in ("train/loss", "train/nll")}
    return {**of_checkpoint, **of_training, **tested, **model.findings}, checkpoint


def chosen(cli: AblationCLI, checkpoints: Path, count: int) -> Path:
    """The checkpoint to test; of several ranks, one makes it."""
    if cli.trainer.is_global_zero:
        selected(checkpoints, count)
    cli.trainer.strategy.barrier()
    return tested_path(checkpoints, count)


def average_of(cli: AblationCLI) -> int:
    return cli.config_init[cli.subcommand].selection.average


def draw(cli: AblationCLI, run: Run) -> None:
    """Pictures of the tested checkpoint, for the dashboard and for W&B; a model that is divided has none."""
    if cli.trainer.is_global_zero and not sharded(cli.model):
        found = look_inside(cli.model, cli.datamodule)
        write(found, run.folder)
        for logger in wandb_loggers(cli.trainer):
            for title, image in images(found).items():
                logger.log_image(f"inside/{title}", [image], step=cli.trainer.global_step)


def validated(cli: AblationCLI, checkpoint: Path) -> dict[str, float]:
    """The validation metrics of a checkpoint that training did not pass through: in W&B's summary, but in no curve."""
    loggers, cli.trainer.loggers = cli.trainer.loggers, []
    cli.trainer.validate(cli.model, datamodule=cli.datamodule, ckpt_path=str(checkpoint), verbose=False)
    cli.trainer.loggers = loggers
    metrics = {k: float(value) for k, value in cli.trainer.callback_metrics.items() if k.startswith("valid/")}
    for logger in wandb_loggers(cli.trainer):
        logger.experiment.summary.update(metrics)
    return metrics


def test(cli: AblationCLI, checkpoint: Path) -> dict[str, float]:
    """The metrics of the test splits."""
    cli.trainer.test(cli.model, datamodule=cli.datamodule, ckpt_path=str(checkpoint), verbose=False)
    return {
        name: float(value)
        for name, value in cli.trainer.callback_metrics.items()
        if name.split("/")[0] in cli.datamodule.test_splits
    }


def trained_sibling(run: Run, cli: AblationCLI) -> tuple[dict[str, Any], Path] | None:
    """The result and the checkpoint of a run that was trained exactly alike, where there is one."""
    for path in sorted(run.folder.parents[1].glob(f"*/seed-{run.seed}-*/result.json")):
        result = read_result(path)
        alike = result.get("training") == run.training and result["code_fingerprint"] == cli.code["code_fingerprint"]
        if alike and result["status"] == "finished":
            checkpoints = path.parent / "checkpoints"
            kept, wanted = len(kept_weights(checkpoints)), (result["settings"] | result["arm"]).get(AVERAGE, 0)
            if average_of(cli) <= wanted or kept < wanted:  # else it kept fewer than there were
                with contextlib.suppress(FileNotFoundError):
                    return result, selected(checkpoints, min(average_of(cli), kept))
    return None


def answer(cli: AblationCLI, run: Run, tasks: list[Task]) -> dict[str, Any]:
    """What the result says: of a training, or of a sibling's checkpoint tested in another way; and of its tasks."""
    if found := shares_training(cli, run) and trained_sibling(run, cli):
        sibling, checkpoint = found
        print(f"trained already as run {sibling['key']}: its checkpoint is tested")
        tested = (*cli.datamodule.test_splits, "downstream", *sibling.get("downstream", ()))
        of_tests = tuple(f"{split}/" for split in tested)
        kept = {name: value for name, value in sibling["metrics"].items() if not name.startswith(of_tests)}
        if (count := count_of(checkpoint)) != kept.get("averaged", 0):
            for name in ("best_step", "averaged"):
                kept.pop(name, None)
            kept |= validated(cli, checkpoint) | ({"averaged": count} if count else {})
        found = {"metrics": {**kept, **test(cli, checkpoint)}, "sibling": sibling}
    else:
        metrics, checkpoint = fit_and_test(cli, run)
        found = {"metrics": metrics}
    return tasks_added(found, cli, run, tasks, checkpoint) if tasks else found


def tasks_added(
    found: dict[str, Any], cli: AblationCLI, run: Run, tasks: list[Task], checkpoint: Path
) -> dict[str, Any]:
    """Fine-tunes on rank zero alone; the other ranks have done their part."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if not cli.trainer.is_global_zero:
        return found

    def carry_out_below(below: Run, arguments: list[str]) -> Path:
        cli.progress.write(cli.trainer, below.recipe)
        return carry_out(below, arguments, [], below=True)

    metrics, runs = fine_tune(tasks, run, checkpoint, carry_out_below)
    for logger in cli.trainer.loggers:
        logger.log_metrics(metrics, step=cli.trainer.global_step)
    return {**found, "metrics": found["metrics"] | metrics, "downstream": runs}


def shares_training(cli: AblationCLI, run: Run) -> bool:
    """Several ranks train for themselves: those that a cluster starts could not agree on who waits for a sibling."""
    return run.has_siblings and cli.trainer.world_size == 1


def fits(checkpoint: Path, cli: AblationCLI) -> bool:
    """Whether the checkpoint was written by the code that stands now: half a training each is no result."""
    callbacks = torch.load(checkpoint, weights_only=True, map_location="cpu")["callbacks"]
    return callbacks["Belonging"]["code"] == cli.code["code_fingerprint"]


def train(arguments: list[str]) -> int:
    """One run. Returns the exit status: 0 also where it diverged, which is an answer."""
    if arguments[:1] == ["fit"] and not {"--help", "-h"} & set(arguments):
        check_keys(settings := merged(arguments))
    else:  # the parser explains itself
        AblationCLI(None, arguments)
    run = identify(arguments)
    if finished(run.folder):
        print(f"finished already: {run.folder / 'result.json'}")
        relog(run)
        return 0
    page = {key.split(".")[1]: value for key, value in settings.items() if key.startswith("downstream.")}
    print(carry_out(run, arguments, tasks_of(Downstream(**page))))
    return 0


def carry_out(run: Run, arguments: list[str], tasks: list[Task], below: bool = False) -> Path:
    """Trains and tests, or goes on with it, and leaves the result.

    Args:
        below: a task's run, after the pre-training that it belongs to.
    """
    started = time.time()
    main_rank = below or int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_PROCID") or 0) == 0
    with contextlib.ExitStack() as held:
        if main_rank:
            held.enter_context(lock(run.folder, "a run"))
        if finished(run.folder):  # by another process, while this one came
            return run.folder / "result.json"
        torch.set_flush_denormal(True)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        cli = built(run, arguments, below)
        if shares_training(cli, run):  # the first trains, the others wait for its checkpoint
            held.enter_context(lock(run.folder.parents[1] / f".training-{run.training}", "a training", wait=True))
        keep = record if cli.trainer.is_global_zero else lambda run, *_, **__: run.folder
        try:
            check_in_use(cli, run)
            cli.flops_per_token, share = cost_per_token(cli.model, cli.datamodule)
            cli.model.findings["attention_share"] = share
            path = keep(run, cli, "finished", started, **answer(cli, run, tasks))
        except Diverged as reason:
            path = keep(run, cli, "diverged", started, metrics=dict(cli.model.findings), reason=str(reason))
        except Exception as error:
            if hasattr(cli, "flops_per_token"):
                reason = f"{type(error).__name__}: {error}"
                keep(run, cli, "failed", started, reason=reason, traceback=traceback.format_exc())
            raise
    for logger in cli.trainer.loggers:
        logger.finalize("success")
    return path


def main() -> None:
    if sys.stderr.isatty() and (said := hint()):
        print(said, file=sys.stderr)
    warnings.filterwarnings("ignore", message="LightningCLI's args parameter")
    warnings.filterwarnings("ignore", message=".*LeafSpec")
    warnings.filterwarnings("ignore", message="It is recommended to use .*sync_dist")  # they are gathered before
    warnings.filterwarnings("ignore", message=".*does not have many workers")
    try:
        sys.exit(train(sys.argv[1:]))
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
