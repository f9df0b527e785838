"""From a result back to the command that makes it again."""

import shlex
from functools import lru_cache
from typing import Any

from experiments.launch.question import ROOT, SEED, Value
from experiments.record.identity import merged, portable, recipe_name

from .results import Group


def command_of(group: Group, arm: dict[str, Value], seed: int) -> str:
    """One run, from the project's folder: the recipe, what the settings add to it, arm and seed."""
    files = [recipe_files().get(name, f"{name}.yaml") for name in group.recipe.split("+")]
    known = settings_of(tuple(files)) if all((ROOT / file).exists() for file in files) else {}
    added = {key: value for key, value in group.settings.items() if known.get(key) != value}
    if isinstance(identity := added.get("data.dataset"), str) and identity.startswith("folder "):
        added["data.dataset"] = identity.split()[1]  # a folder is known by its name and content, not by its place
    if group.question.path.parent == ROOT / "sweeps":
        asked = group.question.name
    else:
        asked = str(group.question.path)
    flags = {key: value for key, value in {**added, **arm, SEED: seed}.items() if key != "downstream.recipes"}
    words = ["python", "-m", "experiments.train", "fit", "--question", asked]
    words += [word for file in files for word in ("--config", file)]
    return shlex.join([*words, *(f"--{key}={value}" for key, value in flags.items())])


@lru_cache
def recipe_files() -> dict[str, str]:
    """translation-toy → experiments/recipes/translation/toy.yaml."""
    found = sorted((ROOT / "experiments/recipes").rglob("*.yaml"))
    return {recipe_name([str(path)]): path.relative_to(ROOT).as_posix() for path in found}


@lru_cache
def settings_of(files: tuple[str, ...]) -> dict[str, Any]:
    return portable(merged([f"--config={file}" for file in files]))
