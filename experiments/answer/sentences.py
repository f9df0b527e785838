"""Do the sentences differ? sacreBLEU's paired bootstrap (Koehn 2004) of an arm and its baseline, seed by seed.

It asks whether these two sets of translations differ, not whether the method does: the table's test over seeds asks
that.
"""

from pathlib import Path
from typing import Any

from experiments.record.result import TRANSLATIONS

from .results import Group
from .table import choices_of, in_order

RESAMPLES = 1000


def sentence_tests(group: Group) -> list[dict[str, Any]]:
    """An arm a row: for how many of its seeds the sentences differ from the baseline's at p < .05, and each p."""
    rows = []
    for arm in in_order(group.question, group.results):
        base = group.results.get(group.baseline_of(arm), {})
        pairs = [
            (seed, *(lines(group.folders[found[seed]["key"]]) for found in (base, group.results[arm])))
            for seed in sorted(set(group.results[arm]) & set(base))
        ]
        found = {seed: bootstrap(one, other) for seed, one, other in pairs if one and other}
        if arm != group.baseline_of(arm) and found:
            clear = sum(p < 0.05 for p in found.values())
            values = ", ".join(f"{p:.3f}" for p in found.values())
            told = {"sentences differ": f"{clear} of {len(found)} seeds", "p": values}
            rows.append(choices_of(group.question, arm) | told)
    return rows


def lines(folder: Path) -> list[tuple[str, str]]:
    """(reference, translation) of every test sentence; empty where the run kept none."""
    path = folder / TRANSLATIONS
    if not path.exists():
        return []
    return [tuple(line.split("\t")) for line in path.read_text().splitlines()]


def bootstrap(baseline: list[tuple[str, str]], arm: list[tuple[str, str]]) -> float:
    """The two-sided p of sacreBLEU's paired bootstrap on corpus BLEU."""
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    if baseline == arm:  # sacreBLEU calls that the clearest difference of all, 1 / (resamples + 1)
        return 1.0
    references = [[reference for reference, _ in baseline]]
    systems = [("baseline", [text for _, text in baseline]), ("arm", [text for _, text in arm])]
    metric = {"BLEU": BLEU(references=references, force=True)}
    _, found = PairedTest(systems, metric, references=None, test_type="bs", n_samples=RESAMPLES)()
    return float(found["BLEU"][1].p_value)
