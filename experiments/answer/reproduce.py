"""From a result back to the command that makes it again."""

import shlex
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments.launch.question import ROOT, SEED, BadInput, Value
from experiments.record.identity import find_file, merged, portable, recipe_name

from .results import Group


def command_of(group: Group, arm: dict[str, Value], seed: int) -> str:
    """One run, from the project's folder: the recipe, what the settings add to it, arm and seed."""
    files = recipes(group)
    known = settings_of(tuple(files))
    added = {key: value for key, value in group.settings.items() if known.get(key) != value}
    for key in ("data.dataset", "model.checkpoint"):  # known by name and content, not by place
        kind, _, rest = str(added.get(key)).partition(" ")
        if kind in ("folder", "file"):
            added[key] = rest.rpartition(" ")[0]
    asked = group.question.command[group.question.command.index("--question") + 1]  # a name, or a path from anywhere
    flags = {key: value for key, value in {**added, **arm, SEED: seed}.items() if key != "downstream.recipes"}
    words = ["python", "-m", "experiments.train", "fit", "--question", asked]
    words += [word for file in files for word in ("--config", file)]
    return shlex.join([*words, *(f"--{key}={value}" for key, value in flags.items())])


def recipes(group: Group) -> list[str]:
    """The files behind the recipe's name: the question's own, or those of the project.

    Raises:
        BadInput: a recipe that lies elsewhere, of results that were asked for by --recipe.
    """
    if group.question.recipe == group.recipe:
        return [placed(find_file(file).resolve()) for file in group.question.configs]
    if missing := [name for name in group.recipe.split("+") if name not in recipe_files()]:
        raise BadInput(f"the recipe {missing[0]} is none of the project's: give it by --recipe")
    return [recipe_files()[name] for name in group.recipe.split("+")]


def placed(path: Path) -> str:
    """From the project's folder, where it lies below."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


@lru_cache
def recipe_files() -> dict[str, str]:
    """translation-toy → experiments/recipes/translation/toy.yaml."""
    found = sorted((ROOT / "experiments/recipes").rglob("*.yaml"))
    return {recipe_name([str(path)]): path.relative_to(ROOT).as_posix() for path in found}


@lru_cache
def settings_of(files: tuple[str, ...]) -> dict[str, Any]:
    return portable(merged([f"--config={file}" for file in files]))
