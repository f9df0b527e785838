"""Which run is this? Its name, key and folder, from its command line alone (plain YAML, no heavy imports).

The launcher and the run itself come to the same answer, because both read the same arguments.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from datamodules.local import checkpoint_path, local_folder
from experiments.launch.question import (
    ROOT,
    SEED,
    BadInput,
    Value,
    canonical,
    read,
    recipe_name,
    short,
    without_init_args,
)

# what may differ between two machines without making another run of it
ELSEWHERE = (
    "trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy", "trainer.logger",
    "trainer.default_root_dir", "trainer.enable_progress_bar", "trainer.use_distributed_sampler", "data.num_workers",
)  # fmt: skip
AFTER_TRAINING = ("model.decoding.", "downstream.", "selection.average", "data.test")  # in play at the test alone


@dataclass(frozen=True)
class Run:
    """One arm with one seed.

    Attributes:
        settings: recipe and arguments merged, dotted and sorted, without arm, seed and what is a machine's own.
        variant: hash of the settings: runs of different variants never stand in one table.
        key: hash of settings, arm and seed.
        training: the same without what comes after training: runs that share it are tested from one checkpoint.
    """

    question: str
    recipe: str
    arm: dict[str, Value]
    seed: int
    settings: dict[str, Any]
    out: Path

    @property
    def variant(self) -> str:
        return digest(self.settings)

    @property
    def key(self) -> str:
        return digest([self.settings, sorted(self.arm.items()), self.seed])

    @property
    def training(self) -> str:
        trained = {k: v for k, v in (self.settings | self.arm).items() if not k.startswith(AFTER_TRAINING)}
        return digest([sorted(trained.items()), self.seed])

    @property
    def has_siblings(self) -> bool:
        """Whether other arms of the question are trained alike."""
        return any(key.startswith(AFTER_TRAINING) for key in self.arm)

    @property
    def folder(self) -> Path:
        return self.out / self.question / self.recipe / arm_name(self.arm) / f"seed-{self.seed}-{self.key}"


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def arm_name(arm: dict[str, Value]) -> str:
    """d_k=16,score_divisor=one: the choices' last words, sorted."""
    return (
        ",".join(f"{short(key)}={value}" for key, value in sorted(arm.items(), key=lambda kv: short(kv[0]))) or "recipe"
    )


def results_folder() -> Path:
    """$ABLATE_OUT, else runs/ at the project's root."""
    return Path(os.environ.get("ABLATE_OUT") or ROOT / "runs").absolute()


def identify(arguments: list[str], out: Path | None = None) -> Run:
    """The run that `python -m experiments.train <arguments>` is.

    Args:
        arguments: `--question NAME --config FILE … --key=value …`, with `=` or a space.

    Raises:
        BadInput: no recipe, or an arm's value is missing.
    """
    flags = pairs_of(arguments)
    question = next((value for flag, value in flags if flag == "question"), None)
    settings = merged(arguments)
    seed = settings.pop(SEED, 0)
    asked = read(question) if question else None
    arm = {}
    for key in asked.varied if asked else ():
        if key not in settings:
            raise BadInput(f"the question {asked.name} varies {key}: give --{key}=…")
        arm[key] = settings.pop(key)
    return Run(
        question=asked.name if asked else "alone",
        recipe=recipe_name([value for flag, value in flags if flag == "config"]),
        arm=arm,
        seed=seed,
        settings=portable(settings),
        out=out or results_folder(),
    )


def portable(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without what is a machine's own; data and files by what they hold, not by where they lie."""
    kept = {k: v for k, v in sorted(settings.items()) if not k.startswith(ELSEWHERE)}
    if "data.dataset" in kept:
        kept["data.dataset"] = data_identity(str(kept["data.dataset"]))
    if "model.checkpoint" in kept:
        kept["model.checkpoint"] = file_identity(checkpoint_path(str(kept["model.checkpoint"])))
    overlay = kept.pop("downstream.overlay", None)
    recipes = kept.pop("downstream.recipes", None) or []
    if kept.get("downstream.tasks") == "none" or not recipes:
        return kept
    asked = {recipe: merged([f"--config={name}" for name in (recipe, overlay) if name]) for recipe in recipes}
    return kept | {"downstream.recipes": [f"{recipe_name([r])} {digest(portable(asked[r]))}" for r in recipes]}


def merged(arguments: list[str]) -> dict[str, Any]:
    """The recipes and flags as one flat mapping, later ones winning as in the parser; --question left out."""
    settings: dict[str, Any] = {}
    recipes = 0
    for flag, value in pairs_of(arguments):
        if flag == "config":
            settings |= load_recipe(value)
            recipes += 1
        elif flag != "question":
            settings[without_init_args(flag)] = canonical(value)
    if not recipes:
        raise BadInput("no recipe: give --config experiments/recipes/….yaml")
    return settings


def pairs_of(arguments: list[str]) -> list[tuple[str, str]]:
    """(flag, value) of `--flag=value` and `--flag value`."""
    pairs, waiting = [], None
    for argument in arguments:
        if waiting is not None:
            pairs.append((waiting, argument))
            waiting = None
        elif argument.startswith("--"):
            flag, equals, value = argument[2:].partition("=")
            if equals:
                pairs.append((flag, value))
            else:
                waiting = flag
    return pairs


def load_recipe(name: str) -> dict[str, Any]:
    path = find_file(name)
    return flat_recipe(path, path.stat().st_mtime_ns)


@lru_cache
def flat_recipe(path: Path, changed: int) -> dict[str, Any]:
    """Dotted keys; once for each state of the file."""
    content = yaml.safe_load(path.read_text())
    if not isinstance(content, dict):
        raise BadInput(f"the recipe {path} is empty")
    return flatten(content)


def find_file(name: str) -> Path:
    """From the working directory, then from the project's root."""
    for path in (Path(name), ROOT / name):
        if path.is_file():
            return path
    raise BadInput(f"no recipe {name!r}, neither here nor in {ROOT}")


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested YAML as dotted keys, in the sweep files' own spelling (without init_args)."""
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[without_init_args(prefix + key)] = canonical(value)
    return flat


def data_identity(dataset: str) -> str:
    """A local folder is its content; a hub name is itself."""
    folder = local_folder(dataset)
    return dataset if folder is None else file_identity(folder)


def file_identity(path: Path) -> str:
    """A file or folder is its content; what is not there is its name."""
    if path.is_file():
        return f"file {path.name} {content_hash(path.parent, (state(path),))}"
    if not path.is_dir():
        return str(path)
    files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    return f"folder {path.name} {content_hash(path, tuple(map(state, files)))}"


def state(path: Path) -> tuple[Path, int, int]:
    return path, path.stat().st_size, path.stat().st_mtime_ns


@lru_cache
def content_hash(folder: Path, states: tuple[tuple[Path, int, int], ...]) -> str:
    """Of names and bytes; once a process for files of the same size and time."""
    content = hashlib.sha256()
    for path, _, _ in states:
        content.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            content.update(hashlib.file_digest(file, "sha256").digest())
    return content.hexdigest()[:12]
