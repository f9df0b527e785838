"""metrics.csv and samples.txt: every logged scalar and sentence, appended and flushed as it goes.

Lightning's CSVLogger deletes the old file when a run is resumed, and W&B's offline file loses what a killed run
logged last; these lines are the truth, W&B's a copy.
"""

import csv
import time
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only

from .metrics_file import COLUMNS


class MetricsLog(Logger):
    """Long format, one scalar a line. A resumed run appends; for each step and metric the last line wins."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.path = folder / "metrics.csv"

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    @rank_zero_experiment
    def experiment(self) -> None:
        return None

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        pass

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        new = not self.path.exists() or self.path.stat().st_size == 0
        with self.path.open("a", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            if new:
                rows.writerow(COLUMNS)
            rows.writerows(
                [f"{time.time():.2f}", step, name, float(value)] for name, value in metrics.items() if name != "epoch"
            )

    @rank_zero_only
    def log_text(self, key: str, columns: list[str], data: list[list[str]], step: int | None = None) -> None:
        with (self.folder / "samples.txt").open("a") as file:
            print(f"--- {key} at step {step}", file=file)
            for row in data:
                print(
                    *(f"{column:>12}  {text}" for column, text in zip(columns, row, strict=True)), sep="\n", file=file
                )

    @rank_zero_only
    def log_translations(self, split: str, references: list[str], translations: list[str]) -> None:
        """Every sentence of a split, reference and translation, for tests over sentences."""
        pairs = zip(references, translations, strict=True)
        clean = ["\t".join(" ".join(text.split()) for text in pair) for pair in pairs]
        (self.folder / f"translations-{split}.tsv").write_text("\n".join(clean) + "\n")
