"""Commands for W&B: sweep, report, sync."""

import sys
from typing import Annotated

import typer

from experiments.launch.question import read

from .options import Only, Out, Questions, Recipe, Seeds, Set, asked, folder, group_of, names


def wandb_sweep(
    question: Annotated[str, typer.Argument(help="a name in sweeps/ or the path of a sweep file")],
    recipe: Recipe = None,
    seeds: Seeds = None,
    only: Only = None,
    set: Set = None,
    project: Annotated[str, typer.Option(envvar="WANDB_PROJECT")] = "transformer-ablations",
    entity: Annotated[str | None, typer.Option(help="(default: your own)", envvar="WANDB_ENTITY")] = None,
) -> None:
    """Creates the sweep on W&B's server and prints the lines that start agents: one GPU, eight, SLURM."""
    from experiments.launch.agents import create_sweep
    from experiments.launch.check import check as check_question

    whole = asked(question, recipe, seeds, only, set)
    check_question(whole)
    print(create_sweep(whole, project, entity))


def wandb_report(
    question: Annotated[str, typer.Argument(help="a name in sweeps/ or the path of a sweep file")],
    recipe: Recipe = None,
    only: Only = None,
    set: Set = None,
    project: Annotated[str, typer.Option(envvar="WANDB_PROJECT")] = "transformer-ablations",
    entity: Annotated[str | None, typer.Option(help="user or team", envvar="WANDB_ENTITY")] = None,
    out: Out = None,
) -> None:
    """A report (claim, table, grouped bars with error bars, curves by arm, the runs) and a workspace of the question.

    Logged in, both are saved on W&B. Otherwise they are built and checked, and their specifications kept as JSON.
    """
    from experiments.answer.report import save, specifications, views
    from experiments.record.wandb_run import logged_in

    group = group_of(asked(question, recipe, None, only, set), folder(out))
    if logged_in():
        print(*save(views(group, entity or "", project)), sep="\n")
        return
    for path in specifications(views(group, entity or "you", project), folder(out) / group.question.name):
        print(path)
    print("not logged in to W&B: nothing was saved there; `wandb login`, then the same command", file=sys.stderr)


def wandb_sync(questions: Questions = None, out: Out = None) -> None:
    """Writes every result that W&B does not have yet as one run, from the run's own files; never twice."""
    from experiments.record.sync import sync

    written, there = sync(folder(out), [read(name).name for name in names(questions)])
    print(f"{written} runs written, {there} were there already")
