"""A question: a W&B sweep file, read as W&B reads it and expanded into runs (no imports of torch or wandb)."""

import itertools
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SEED = "seed_everything"
MACROS = {"${env}", "${interpreter}", "${args}"}
KNOWN_KEYS = {"name", "description", "project", "entity", "program", "method", "metric", "parameters", "command"}
Value = str | int | float


class BadInput(Exception):
    """Something that the user can put right; shown as one message, exit status 2."""


def canonical(value: Any) -> Any:
    """Numbers as numbers however they were written: `1e-3` is a string to PyYAML, every flag is one to the shell; so is
    a list."""
    if isinstance(value, str) and value.startswith("["):
        value = yaml.safe_load(value)
    if isinstance(value, str):
        for number in (int, float):
            try:
                return number(value)
            except ValueError:
                pass
    if isinstance(value, list):
        return [canonical(v) for v in value]
    return value


def without_init_args(key: str) -> str:
    """The sweep files' spelling of a key, which the parser takes as well as the long one."""
    return key.replace(".init_args.", ".")


def short(key: str) -> str:
    """The last word of a dotted key, as the tables show it."""
    return key.rsplit(".", 1)[-1]


def recipe_name(files: list[str]) -> str:
    """As folders show it: experiments/recipes/translation/toy.yaml is translation-toy; + joins an overlay's."""
    names = []
    for file in files:
        parts = Path(file).with_suffix("").parts
        names.append("-".join(parts[parts.index("recipes") + 1 :] if "recipes" in parts else parts[-1:]))
    return "+".join(names)


@dataclass(frozen=True)
class Question:
    """One sweep file.

    Attributes:
        name: the file's stem.
        varied: the choices and their values in the file's order; the first is the contrast, the others strata.
        fixed: parameters with one `value`, and what `--set` says.
        seeds: the values of seed_everything.
        command: the file's tokens, macros and all.
    """

    name: str
    path: Path
    varied: dict[str, tuple[Value, ...]]
    fixed: dict[str, Value]
    seeds: tuple[int, ...]
    metric: str
    goal: str
    command: tuple[str, ...]

    @property
    def contrast(self) -> str:
        return next(iter(self.varied))

    @property
    def configs(self) -> list[str]:
        """The recipe's files: itself, then its overlays."""
        follows = zip(self.command, self.command[1:], strict=False)
        return [value for flag, value in follows if flag == "--config"]

    @property
    def recipe(self) -> str:
        """The recipe's name, see `recipe_name`."""
        return recipe_name(self.configs)

    def arms(self) -> list[dict[str, Value]]:
        """Every combination of the varied choices, in the file's order."""
        return [dict(zip(self.varied, values, strict=True)) for values in itertools.product(*self.varied.values())]

    def runs(self) -> list[tuple[dict[str, Value], int]]:
        """(arm, seed), seed by seed, so that an interrupted sweep has whole rows."""
        return [(arm, seed) for seed in self.seeds for arm in self.arms()]

    def parameters(self, arm: dict[str, Value], seed: int) -> dict[str, Value]:
        """What W&B would choose for this run: every parameter of the file."""
        return {**arm, **self.fixed, SEED: seed}

    # ---- the same question otherwise asked

    def with_recipe(self, recipe: str) -> "Question":
        command = list(self.command)
        command[command.index("--config") + 1] = recipe
        return replace(self, command=tuple(command))

    def with_settings(self, settings: dict[str, str]) -> "Question":
        settings = {without_init_args(key): value for key, value in settings.items()}
        for key in settings:
            if key in self.varied or key == SEED:
                raise BadInput(f"--set {key}: the question {self.name} varies it ({self.path})")
        return replace(self, fixed={**self.fixed, **settings})

    def with_seeds(self, count: int) -> "Question":
        return replace(self, seeds=tuple(range(count)))

    def only(self, wanted: dict[str, list[str]]) -> "Question":
        """Fewer values of varied choices, the baseline first as in the file."""
        varied = dict(self.varied)
        for key, values in wanted.items():
            if key not in varied:
                raise BadInput(f"--only {key}: {self.name} varies {', '.join(self.varied)}")
            known, chosen = varied[key], [canonical(v) for v in values]
            if unknown := [v for v in chosen if v not in known]:
                more = "; another key takes an --only of its own" if "=" in str(unknown[0]) else ""
                raise BadInput(f"--only {key}={unknown[0]}: the values are {', '.join(map(str, known))}{more}")
            varied[key] = tuple(v for v in known if v in chosen)
            if key == self.contrast and known[0] not in chosen:
                raise BadInput(f"--only {key}: without {known[0]}, the baseline, there is nothing to compare with")
        return replace(self, varied=varied)


def known() -> list[str]:
    """The names of the project's questions."""
    return sorted(path.stem for path in (ROOT / "sweeps").glob("*.yaml"))


def find(name: str) -> Path:
    """The sweep file of a name in `sweeps/`, or of a path anywhere."""
    for path in (Path(name), ROOT / name, ROOT / "sweeps" / f"{name}.yaml"):
        if path.is_file():
            return path
    close = get_close_matches(name, known(), 1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise BadInput(f"no question {name!r}: {meant}neither a file nor one of {', '.join(known())}")


def read(name: str) -> Question:
    """Reads and checks a sweep file.

    Raises:
        BadInput: names the file, the line and what would be right.
    """
    path = find(name)
    return parsed(path, path.stat().st_mtime_ns)


@lru_cache
def parsed(path: Path, changed: int) -> Question:
    """Once for each state of a file: every run of a question asks what it varies."""
    text = path.read_text()
    try:
        sweep = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is no YAML: {error}") from error

    def wrong(key: str, message: str) -> BadInput:
        return BadInput(f"{path}:{line_of(text, key)}: {key}: {message}")

    if not isinstance(sweep, dict):
        raise BadInput(f"{path} is empty: a question needs program, method, metric, parameters and command")
    for key in sweep:
        if key not in KNOWN_KEYS:
            raise wrong(key, f"unknown; the keys of a sweep file are {', '.join(sorted(KNOWN_KEYS))}")
    for key in ("program", "method", "metric", "parameters", "command"):
        if key not in sweep:
            raise BadInput(f"{path}: {key} is missing")
    if sweep["method"] != "grid":
        raise wrong("method", f"{sweep['method']!r} cannot be expanded here; write grid")
    if not isinstance(sweep["metric"], dict) or "name" not in sweep["metric"]:
        raise wrong("metric", "needs a name, the metric of the table")
    varied, fixed = {}, {}
    for key, parameter in sweep["parameters"].items():
        if not isinstance(parameter, dict) or not {"value", "values"} & set(parameter):
            raise wrong(key, "needs `values: [...]` or `value: ...` (nested parameters: write flat dotted keys)")
        values = parameter.get("values", [parameter.get("value")])
        if not isinstance(values, list) or not values:
            raise wrong(key, "needs a list with at least one value")
        for value in values:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise wrong(key, f"{value!r} does not survive the command line: use lower-case words and numbers")
        values = tuple(canonical(v) for v in values)
        if len(set(values)) < len(values):
            raise wrong(key, f"a value stands twice in {list(values)}")
        if "values" in parameter:
            varied[key] = values
        else:
            fixed[key] = values[0]
    seeds = varied.pop(SEED, None) or ((fixed.pop(SEED),) if SEED in fixed else None)
    if seeds is None or not all(isinstance(seed, int) for seed in seeds):
        raise wrong("parameters", f"{SEED} needs a list of whole numbers, the seeds")
    if not varied:
        raise wrong("parameters", "nothing varies: the first parameter with `values` is the contrast")
    return Question(
        name=path.stem, path=path, varied=varied, fixed=fixed, seeds=seeds, metric=sweep["metric"]["name"],
        goal=sweep["metric"].get("goal", "minimize"),
        command=command_of(sweep["command"], path, wrong),
    )  # fmt: skip


def command_of(command: Any, path: Path, wrong) -> tuple[str, ...]:
    """The tokens, checked for what W&B would let pass in silence; --question names this very file."""
    if not isinstance(command, list):
        raise wrong("command", "needs a list of words")
    tokens = tuple(str(token) for token in command)
    for token in tokens:
        if "${" in token and token not in MACROS and not re.fullmatch(r"\$\{envvar:\w+\}", token):
            raise wrong(
                token,
                "W&B expands this to nothing, and every arm would train the baseline; "
                f"known: {', '.join(sorted(MACROS))}",
            )
    if tokens[-1:] != ("${args}",):
        raise wrong("command", "must end with ${args}: what stands later wins over the arm's values")
    for flag in ("--config", "--question"):
        if flag not in tokens:
            raise wrong("command", f"needs {flag}")
    at = tokens.index("--question") + 1
    if (asked := Path(tokens[at]).stem) != path.stem:
        raise wrong("command", f"--question {asked} in a file called {path.name}")
    here = path.stem if path.resolve().parent == ROOT / "sweeps" else str(path.resolve())
    return (*tokens[:at], here, *tokens[at + 1 :])


def line_of(text: str, key: str) -> int:
    """The first line that holds the key, counted from 1."""
    return next((i for i, line in enumerate(text.splitlines(), 1) if key in line), 1)
