"""metrics.csv read back: no heavy imports, for tables and pictures of thousands of runs."""

import csv
from pathlib import Path

COLUMNS = ["time", "step", "metric", "value"]


def read_metrics(path: Path) -> dict[str, dict[int, float]]:
    """metric → step → value. Half-written lines of a killed run are passed over; the last writer of a step wins."""
    table: dict[str, dict[int, float]] = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                try:
                    table.setdefault(row["metric"], {})[int(row["step"])] = float(row["value"])
                except (TypeError, ValueError):
                    continue
    return table
