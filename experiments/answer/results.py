"""Finds the results of a question and sorts them into groups that may stand in one table."""

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from datamodules.local import local_folder
from experiments.launch.grid import arguments
from experiments.launch.question import Question, canonical
from experiments.record.identity import arm_name, digest, identify, merged
from experiments.record.result import read_result

from .history import commit_history

COMMITTED = Path(__file__).parent / "committed"
EMBEDDED = "embedded"  # the data that the project brings with it
TASKS = "downstream.recipes"
Arm = tuple[Any, ...]  # values of the question's choices, in its order


@dataclass(frozen=True)
class Group:
    """Results of one question, one recipe and one variant: the same settings but for arm and seed.

    Attributes:
        results: arm → seed → result.
        folders: a run's key → where its files lie.
        committed: shipped with the project rather than found in the results folder.
        shipped: the project ships results of this recipe and variant, these or others.
        tuned: arm → which swept value was chosen for it, see `tuning`.
    """

    question: Question
    recipe: str
    variant: str
    settings: dict[str, Any]
    results: dict[Arm, dict[int, dict[str, Any]]]
    folders: dict[str, Path]
    committed: bool
    shipped: bool
    tuned: dict[Arm, str] = field(default_factory=dict)

    @property
    def every(self) -> list[dict[str, Any]]:
        """All results."""
        return [result for seeds in self.results.values() for result in seeds.values()]

    @property
    def data(self) -> str:
        """The data set's name; EMBEDDED for what the project brings with it."""
        dataset = str(self.settings.get("data.dataset", EMBEDDED))
        local = dataset.startswith("folder ")
        return dataset.removeprefix("folder ").rpartition(" ")[0] if local else dataset.rpartition("/")[2]

    def baseline_of(self, arm: Arm) -> Arm:
        """The arm of the same stratum with the contrast's first value."""
        return self.question.varied[self.question.contrast][0], *arm[1:]

    def first_folder(self, arm: Arm) -> Path:
        """Where the files of its lowest seed lie."""
        seeds = self.results[arm]
        return self.folders[seeds[min(seeds)]["key"]]


def groups(question: Question, out: Path | None) -> list[Group]:
    """One group a recipe and variant, newest last; own results stand in place of the committed ones of the same variant
    once they are as many.

    Args:
        out: where own results lie; None for the committed ones alone.

    Raises:
        CorruptResult: at a file that cannot be believed; it is not passed over.
    """
    found: dict[tuple[str, str], list[Group]] = {}
    wanted = {tuple(arm.values()) for arm in question.arms()}
    for folder, committed in ((COMMITTED, True), *([(out, False)] if out else [])):
        paths = sorted((folder / question.name).glob("*/*/seed-*/result.json"))
        read = [read_result(path) for path in paths]
        folders = {result["key"]: path.parent for result, path in zip(read, paths, strict=True)}
        read.sort(key=lambda result: result["ended"])
        parts: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for result in read:
            if set(result["arm"]) == set(question.varied):
                parts[result["recipe"], result["variant"]].append(result)
        for (recipe, variant), results in parts.items():
            table: dict[Arm, dict[int, dict[str, Any]]] = defaultdict(dict)
            for result in results:
                arm = tuple(canonical(result["arm"][key]) for key in question.varied)
                if arm in wanted:
                    table[arm][result["seed"]] = result
            if not table:
                continue
            here = {r["key"]: folders[r["key"]] for seeds in table.values() for r in seeds.values()}
            settings = results[0]["settings"]
            before = found.pop((recipe, variant), [])
            shipped = committed or bool(before)
            group = Group(question, recipe, variant, settings, dict(table), here, committed, shipped)
            found[recipe, variant] = [*before, group]
    return [group for one in found.values() for group in whole_answers(one)]


def whole_answers(found: list[Group]) -> list[Group]:
    """Of committed and own results of one variant: the own alone once they are as many, else both, the larger last."""
    *committed, own = found
    return found[::-1] if committed and len(own.every) < len(committed[0].every) else [own]


def narrowed(group: Group) -> Group:
    """Only the arms and seeds that somebody asked for, where results are not of the sweep file as it stands."""
    arms = list(group.results)
    asked = {
        key: tuple(value for value in values if any(arm[i] == value for arm in arms))
        for i, (key, values) in enumerate(group.question.varied.items())
    }
    first = group.question.varied[group.question.contrast][0]
    if first not in asked[group.question.contrast]:  # no baseline: it shows as missing
        asked[group.question.contrast] = (first, *asked[group.question.contrast])
    seeds = sorted({seed for found in group.results.values() for seed in found})
    return replace(group, question=replace(group.question, varied=asked, seeds=tuple(seeds)))


def as_asked(found: list[Group], question: Question) -> list[Group]:
    """Those of this very asking: the same settings. Data that is not on this machine is known by its folder's name, and
    a task whose data is not by its recipe's."""
    words = arguments(question, *question.runs()[0])
    run, given = identify(words), merged(words)
    name, tasks = str(run.settings.get("data.dataset")), run.settings.get(TASKS, [])
    here = [given.get("downstream.overlay") or has_data(recipe) for recipe in given.get(TASKS) or []]

    def alike(group: Group) -> bool:
        data, theirs, elsewhere = str(group.settings.get("data.dataset")), group.settings.get(TASKS, []), {}
        if not name.startswith("folder ") and data.startswith(f"folder {name.rpartition('/')[2]} "):
            elsewhere["data.dataset"] = data
        if tasks and group.data != EMBEDDED and named(tasks) == named(theirs):
            elsewhere[TASKS] = [one if kept else other for one, other, kept in zip(tasks, theirs, here, strict=True)]
        return group.variant == digest(run.settings | elsewhere)

    return [group for group in found if group.recipe == question.recipe and alike(group)]


def named(tasks: list[str]) -> list[str]:
    """Without the hashes behind their names."""
    return [task.split()[0] for task in tasks]


def has_data(recipe: str) -> bool:
    """Whether the data that a recipe names lie on this machine."""
    return local_folder(str(merged([f"--config={recipe}"]).get("data.dataset"))) is not None


def commit(group: Group) -> Path:
    """Copies a group's result files into the project, without tracebacks, and thinned curves and samples beside them:
    small JSON that tables and pictures can be made of."""
    for seeds in group.results.values():
        for result in seeds.values():
            run_folder = f"seed-{result['seed']}-{result['key']}"
            path = COMMITTED / group.question.name / group.recipe / arm_name(result["arm"]) / run_folder / "result.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = {key: value for key, value in result.items() if key != "traceback"}
            path.write_text(json.dumps(kept, indent=None, ensure_ascii=False) + "\n")
            commit_history(group.folders[result["key"]], path.parent, with_pictures=result["seed"] == min(seeds))
    return COMMITTED / group.question.name / group.recipe
