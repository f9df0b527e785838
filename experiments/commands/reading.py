"""Commands that read results: table, claims, dashboard, show."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.launch.question import BadInput, Question, canonical, read

from .options import Format, Only, Out, Questions, Recipe, Set, asked, folder, names, pair


def table(
    questions: Questions = None,
    recipe: Recipe = None,
    only: Only = None,
    set: Set = None,
    format: Format = "terminal",
    out: Out = None,
    commit: Annotated[bool, typer.Option(help="copy the results into the project's committed answers")] = False,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="with sacreBLEU's paired bootstrap over the test's sentences, each seed")
    ] = False,
) -> None:
    """The answer from result files alone: your own, or those that the project ships."""
    for name in names(questions):
        question = asked(name, None, None, only, None)
        print_tables(question, folder(out), format, recipe=recipe, settings=dict(map(pair, set or ())), commit=commit,
                     sentences=sentences)  # fmt: skip


def print_tables(
    question: Question,
    out: Path,
    format: str,
    *,
    of: Question | None = None,
    recipe: str | None = None,
    settings: dict[str, str] | None = None,
    commit: bool = False,
    sentences: bool = False,
) -> None:
    """Prints a table for each group of results: of one exact asking (`of`), or all, narrowed by recipe and settings."""
    from experiments.answer import results
    from experiments.answer.render import FORMATS, render
    from experiments.record.identity import data_identity

    if format not in FORMATS:
        raise BadInput(f"--format {format}: known are {', '.join(FORMATS)}")
    groups = results.groups(question, out)
    own = results.as_asked(groups, of or question)
    if of is not None:
        groups = [g for g in own if not g.committed]
    groups = [*(g for g in groups if g in own), *(results.narrowed(g) for g in groups if g not in own)]
    if recipe:
        wanted = question.with_recipe(recipe).recipe
        groups = [g for g in groups if g.recipe == wanted or g.recipe.split("-")[-1] == wanted]
    for key, value in (settings or {}).items():
        wanted = data_identity(value) if key == "data.dataset" else canonical(value)
        groups = [g for g in groups if g.settings.get(key) == wanted]
    if len(groups) > 1 and format in ("csv", "latex", "json"):
        known = ", ".join(f"{g.recipe} ({g.variant})" for g in groups)
        raise BadInput(f"{question.name} has results of several settings; choose with --recipe or --set: {known}")
    if not groups:
        told = f" with {recipe or 'any recipe'} and {settings or 'any settings'}" if recipe or settings else ""
        print(f"{question.name}: no results{told}; `ablate run {question.name}` with the same options makes them")
    from experiments.record.facts import code_fingerprint

    code = code_fingerprint()
    for group in groups:
        print(render(group, format, code, sentences), end="\n\n")
        if commit and not group.committed:
            print(f"committed to {results.commit(group)}")
    if of is not None and groups:
        print(f"results: {out / question.name}")


def claims(
    questions: Questions = None,
    out: Out = None,
) -> None:
    """The table of claims, in Markdown: claim, our figures, published figures, verdict."""
    from experiments.answer.overview import table_of_claims

    print(table_of_claims([read(name) for name in names(questions)], folder(out)))


def dashboard(
    questions: Questions = None,
    out: Out = None,
    file: Annotated[Path | None, typer.Option(help="the page (default: dashboard.html in the results' folder)")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="write it anew until nothing is running")] = False,
    picture: Annotated[Path | None, typer.Option(help="a PNG of the page too, by Chromium", metavar="FILE")] = None,
) -> None:
    """One static page with every answer: verdicts, tables, charts, samples, runs. It opens without a network."""
    import time

    from experiments.answer.dashboard import photograph

    target = file.absolute() if file else folder(out) / "dashboard.html"
    while True:
        running = write_page([read(name) for name in names(questions)], folder(out), target)
        print(f"{target}{f': {running} running' if running else ''}")
        if not (watch and running):
            break
        time.sleep(10)
    if picture:
        print(photograph(target, picture.absolute()))


def write_page(questions: list[Question], out: Path, page: Path) -> int:
    from experiments.answer.dashboard import write
    from experiments.record.facts import code_fingerprint

    return write(questions, out, page, code_fingerprint())


def show(run: Annotated[Path, typer.Argument(help="a run's folder", metavar="RUN_FOLDER")]) -> None:
    """A run at a glance: state, curves, figures, samples, files."""
    from experiments.answer.glance import glance

    print(glance(run))
