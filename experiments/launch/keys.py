"""Unknown keys and words, named before anything runs, with what is known in their place."""

import dataclasses
import difflib
import importlib
import inspect
import types
import typing
from typing import Any

from .question import BadInput

TOP = ("model", "data", "trainer", "selection", "downstream", "seed_everything", "question", "config")
FROM_DATA = ("vocab_size", "n_labels", "image_size", "channels")  # arguments of a model that the data know
FROM_MODEL = ("objective", "checkpoint")  # arguments of the data that are the model's own
LINKED = {f"model.{given}": "it comes from the data" for given in FROM_DATA}
LINKED |= {f"data.{given}": f"it is the model's: give model.{given}" for given in FROM_MODEL}


def check_keys(settings: dict[str, Any]) -> None:
    """Holds every dotted key and word against the classes that will take them.

    Args:
        settings: recipe and arguments merged and flattened, `model.class_path` among them.

    Raises:
        BadInput: the first key or word that is not known, and those that are.
    """
    for key, value in settings.items():
        try:
            hint = hint_of(key, settings)
        except KeyError as unknown:
            place, known = unknown.args
            near = difflib.get_close_matches(key.rsplit(".", 1)[-1], known, n=1)
            advice = f"did you mean {place}{near[0]}? " if near else ""
            raise BadInput(f"unknown key {key}: {advice}known {place or 'keys'}: {', '.join(known)}") from None
        if key in LINKED:
            raise BadInput(f"{key} is no choice: {LINKED[key]}")
        if not accepts(hint, value):
            raise BadInput(f"{key}: {value!r} is not known; it takes {words(hint)}")
    check_pages(settings)


def check_pages(settings: dict[str, Any]) -> None:
    """Fills in each page of the model (Arch, Optim): what cannot go together is said by the page itself."""
    pages = {key.rsplit(".", 1)[0] for key in settings if key.startswith("model.") and key.count(".") == 2}
    for page in sorted(pages):
        values = {key.removeprefix(f"{page}."): value for key, value in settings.items() if key.startswith(f"{page}.")}
        try:
            hint_of(page, settings)(**values)
        except ValueError as error:
            raise BadInput(f"{page}: {error}") from error


def hint_of(key: str, settings: dict[str, Any]) -> Any:
    """The type of a key's value; Any where only the parser can tell."""
    head, *path = key.split(".")
    if head not in TOP:
        raise KeyError("", list(TOP))
    if head in ("model", "data"):
        if path == ["class_path"]:
            return str
        if not (class_path := settings.get(f"{head}.class_path")):
            raise BadInput(f"{head}.class_path is missing: the recipe names the {head}'s class")
        here = load(class_path, head)
    elif head == "trainer":
        here = load("lightning.Trainer", head)
    elif head == "selection":
        here = load("experiments.train.Selection", head)
    elif head == "downstream":
        here = load("experiments.downstream.Downstream", head)
    else:
        return Any
    place = f"{head}."
    for word in path:
        if not inspect.isclass(here):
            return Any
        parameters = parameters_of(here)
        if word not in parameters:
            raise KeyError(place, list(parameters))
        here = parameters[word]
        place += f"{word}."
        if not dataclasses.is_dataclass(here):
            return here
    return here


def parameters_of(kind: type) -> dict[str, Any]:
    """name → type of what a class takes, its parents' too where it hands **kwargs on."""
    parameters: dict[str, Any] = {}
    for parent in kind.__mro__:
        taken = inspect.signature(parent.__init__).parameters
        hints = typing.get_type_hints(parent.__init__)
        parameters |= {
            name: hints.get(name, Any)
            for name, parameter in taken.items()
            if name != "self" and parameter.kind is not parameter.VAR_KEYWORD and name not in parameters
        }
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in taken.values()):
            break
    return parameters


def load(class_path: str, head: str) -> type:
    module, _, name = class_path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"{head}.class_path: there is no {class_path} ({error})") from error


def accepts(hint: Any, value: Any) -> bool:
    """Whether a plain value fits; what is no word, number or union of them is left to the parser."""
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint) and not isinstance(value, bool)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(accepts(option, value) for option in typing.get_args(hint))
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return True


def words(hint: Any) -> str:
    """post | pre, int, …"""
    if typing.get_origin(hint) is typing.Literal:
        return " | ".join(map(str, typing.get_args(hint)))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " | ".join(words(option) for option in typing.get_args(hint))
    return getattr(hint, "__name__", str(hint))
