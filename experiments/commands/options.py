"""What several commands share: their options, and the question that the options put."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.launch.question import BadInput, Question, canonical, known, read

Questions = Annotated[
    list[str] | None, typer.Argument(help="names in sweeps/ or paths of sweep files", metavar="QUESTION…")
]
Recipe = Annotated[str | None, typer.Option(help="another recipe than the sweep file's", metavar="FILE")]
Seeds = Annotated[int | None, typer.Option(help="seeds 0 … N-1 instead of the file's", min=1, metavar="N")]
Only = Annotated[
    list[str] | None,
    typer.Option(help="fewer values of a varied choice, e.g. model.arch.d_k=16,128", metavar="KEY=VALUE,…"),
]
Set = Annotated[
    list[str] | None, typer.Option(help="a setting for every run, e.g. trainer.max_steps=1000", metavar="KEY=VALUE")
]
Out = Annotated[
    Path | None, typer.Option(help="where results go (default: $ABLATE_OUT, else runs/ in the project)", metavar="DIR")
]
BAD = ("failed", "killed", "interrupted")  # how a run may end that is to be run again
Format = Annotated[str, typer.Option(help="terminal, markdown, csv, latex or json")]


def asked(
    name: str, recipe: str | None, seeds: int | None, only: list[str] | None, settings: list[str] | None
) -> Question:
    """The question as the options put it."""
    question = read(name)
    if recipe:
        from experiments.record.identity import find_file

        question = question.with_recipe(str(find_file(recipe).resolve()))
    if seeds:
        question = question.with_seeds(seeds)
    if only:
        question = question.only({key: value.split(",") for key, value in map(pair, only)})
    return question.with_settings({key: canonical(value) for key, value in map(pair, settings or ())})


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"{text!r}: write KEY=VALUE")
    return key, value


def names(questions: list[str] | None) -> list[str]:
    return questions or known()


def folder(out: Path | None) -> Path:
    from experiments.record.identity import results_folder

    return out.absolute() if out else results_folder()


def from_words(words: list[str]) -> Question:
    """The question that `ablate run` with these words would ask."""
    import argparse

    parser = argparse.ArgumentParser(prog="ablate run", exit_on_error=False, allow_abbrev=False)
    parser.add_argument("question")
    parser.add_argument("--recipe")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--only", action="append")
    parser.add_argument("--set", action="append")
    try:
        given = parser.parse_args(words)
    except (argparse.ArgumentError, SystemExit) as error:
        raise BadInput(f"a marker says {' '.join(words)!r}: {error}") from error
    return asked(given.question, given.recipe, given.seeds, given.only, given.set)


def group_of(question: Question, out: Path, committed_only: bool = False):
    """The results of this asking as they were run, your own before the project's.

    Raises:
        BadInput: where there are none.
    """
    from experiments.answer.results import as_asked, groups

    found = as_asked(groups(question, None if committed_only else out), question)
    if not found:
        raise BadInput(f"no results of {question.name} with {question.recipe} as asked: `ablate run` makes them")
    return found[-1]
