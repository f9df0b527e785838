"""Commands that ask: list, check, run, plan, verify, reproduce."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.launch.question import ROOT, BadInput, read

from .options import BAD, Only, Out, Questions, Recipe, Seeds, Set, asked, folder, from_words, group_of, names
from .reading import print_tables, write_page


def list_questions(out: Out = None) -> None:
    """The questions: claim, choices, arms × seeds, recipe, runs done, time that is left."""
    from experiments.answer.overview import overview

    print(overview([read(name) for name in names(None)], folder(out)))


def check(questions: Questions = None, recipe: Recipe = None, only: Only = None, set: Set = None) -> None:
    """Binds every key and value to the real parser, model and data. Exit status 2 at the first that does not fit."""
    for name in names(questions):
        question = asked(name, recipe, None, only, set)
        from experiments.launch.check import check as check_question

        print(f"{question.name}: {check_question(question)} arms fit {question.recipe}")


def run(
    questions: Annotated[
        list[str], typer.Argument(help="names in sweeps/ or paths of sweep files", metavar="QUESTION…")
    ],
    recipe: Recipe = None,
    seeds: Seeds = None,
    only: Only = None,
    set: Set = None,
    jobs: Annotated[
        int | None, typer.Option(help="runs at a time (default: as many as there are GPUs for, else one a core)", min=1)
    ] = None,
    gpus_per_run: Annotated[int | None, typer.Option(help="GPUs that each run has for itself", min=1)] = None,
    engine: Annotated[str, typer.Option(help="local: processes on this machine; slurm: an array job")] = "local",
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            help="of the cluster, several times: partition, account, qos, constraint, time (minutes), gpus, cpus, "
            "memory, at_once, grace; or a YAML file of these",
            metavar="KEY=VALUE|FILE",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would be run, and run nothing")] = False,
    out: Out = None,
) -> None:
    """Asks: runs what is missing, then prints the table. Ctrl-C, or a crash, and the same command goes on."""
    from experiments.launch.ask import ask, dry
    from experiments.launch.engines import engine_of

    start = engine_of(engine, jobs, gpus_per_run, slurm or [])
    failed = 0
    for name in questions:
        question = asked(name, recipe, seeds, only, set)
        if dry_run:
            dry(question, folder(out), start)
            continue
        try:
            ended = ask(question, folder(out), start)
        except KeyboardInterrupt:
            print("stopped; nothing finished is lost: the same command goes on", file=sys.stderr)
            if engine == "slurm":
                print("what is in the queue goes on without this launcher; `scancel JOB` stops it", file=sys.stderr)
            raise typer.Exit(130) from None
        if not ended:
            print(f"nothing to do: all {len(question.runs())} runs of {question.name} are finished")
        bad = [job for job in ended if job.outcome in BAD]
        failed += len(bad)
        for job in bad:
            print(f"{job.outcome}: {job.run.folder.name} {job.run.arm}: {job.reason} (log: {job.log})", file=sys.stderr)
        print_tables(question, folder(out), "terminal", of=question)
        page = folder(out) / question.name / "dashboard.html"
        if ended or not page.exists():
            write_page([question], folder(out), page)
        print(f"dashboard: {page}")
    raise typer.Exit(1 if failed else 0)


def plan(
    question: Annotated[str, typer.Argument(help="a name in sweeps/ or the path of a sweep file")],
    effect: Annotated[
        float | None, typer.Option(help="the difference that shall be found (default: what the pilot shows)", min=0)
    ] = None,
    budget: Annotated[str | None, typer.Option(help="wall time: 30m, 2h, 90s", metavar="TIME")] = None,
    recipe: Recipe = None,
    only: Only = None,
    set: Set = None,
    jobs: Annotated[int, typer.Option(help="runs at a time", min=1)] = 2,
    out: Out = None,
) -> None:
    """How many seeds a question needs, and how long they take: from the seconds and the noise of runs that are there.

    The plan is kept; `ablate plan` says later what was promised and what happened.
    """
    import shlex

    from experiments.answer.plan import held_against, keep
    from experiments.answer.plan import plan as planned

    group = group_of(asked(question, recipe, None, only, set), folder(out))
    options = [("--recipe", [recipe] if recipe else []), ("--only", only or []), ("--set", set or [])]
    words = shlex.join([question, *(word for flag, values in options for value in values for word in (flag, value))])
    seconds = seconds_of(budget) if budget else None
    if effect == 0:
        raise BadInput("--effect 0: no number of seeds finds nothing; write the difference that would matter to you")
    told = held_against(group, folder(out))
    promise, text = planned(group, effect=effect, budget=seconds, jobs=jobs, words=words)
    print(*([told, ""] if told else []), text, sep="\n")
    if promise and not told:  # a plan that has come true stays as it was
        keep(promise, folder(out))


def seconds_of(text: str) -> float:
    import re

    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match:
        raise BadInput(f"--budget {text}: write a number and s, m or h, 30m for instance")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def verify(
    question: Annotated[str, typer.Argument(help="a name in sweeps/")],
    cell: Annotated[
        str | None, typer.Option(help="which one (default: the first arm's first seed)", metavar="ARM/SEED")
    ] = None,
    recipe: Recipe = None,
    only: Only = None,
    set: Set = None,
    out: Out = None,
) -> None:
    """Runs one committed cell again and says whether it lies where its arm's seeds expect it. Exit status 1 if not.

    An arm's only seed expects nothing but its own figure.
    """
    from experiments.answer.verify import verify as verified

    found = verified(group_of(asked(question, recipe, None, only, set), folder(out), True), cell, folder(out))
    print(found)
    raise typer.Exit(0 if found.holds else 1)


def reproduce(
    page: Annotated[Path, typer.Argument(help="a Markdown file with markers: <!-- table norm --> … <!-- end -->")] = (
        ROOT / "README.md"
    ),
    tables_only: Annotated[bool, typer.Option("--tables-only", help="run nothing: from what is committed")] = False,
    jobs: Annotated[int | None, typer.Option(help="runs at a time (default: one a GPU or core)", min=1)] = None,
    out: Out = None,
) -> None:
    """Runs every question of a page in order, commits the results, and writes the page's tables between its markers."""
    from experiments.answer import figures, results
    from experiments.launch.ask import ask
    from experiments.launch.engines import engine_of

    if not page.is_file():
        raise BadInput(f"no page {page}")
    text = page.read_text()
    figures.check(text, page)
    for words in [] if tables_only else figures.asked(text):
        question = from_words(words)
        print("ablate run", *words, file=sys.stderr)
        ended = ask(question, folder(out), engine_of("local", jobs, None, []))
        if bad := [job for job in ended if job.outcome in BAD]:
            told = f"{len(bad)} runs of {question.name} {bad[0].outcome} (log: {bad[0].log})"
            raise BadInput(f"{told}: none of them is committed, and {page} stays as it is")
        for group in results.as_asked(results.groups(question, folder(out)), question):
            if not group.committed:
                results.commit(group)
    page.write_text(figures.rewrite(text, from_words))
    print(f"{page}: {len(figures.MARK.findall(text))} tables written")
