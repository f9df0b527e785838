"""Where a data set lies on this machine, if it does (no heavy imports: the launcher asks as well)."""

import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def checkpoint_path(checkpoint: str) -> Path:
    """A run's folder stands for the checkpoint it tested; a file, and a folder with config.json, for themselves."""
    path = Path(checkpoint)
    if (path / "config.json").is_file():
        return path
    try:
        result = json.loads((path / "result.json").read_text())
    except (OSError, ValueError):  # still running, or no result
        result = {}
    averaged, sibling = result.get("metrics", {}).get("averaged"), result.get("trained_by")
    trained = next(path.parent.parent.glob(f"*/seed-*-{sibling}"), path) if sibling else path
    tested = tested_path(trained / "checkpoints", averaged or 0)
    return tested if tested.is_file() else path


def tested_path(checkpoints: Path, count: int) -> Path:
    """Where the mean of `count` weights stands, or the best checkpoint."""
    return checkpoints / (f"average-{count}.ckpt" if count else "best.ckpt")


def local_folder(dataset: str) -> Path | None:
    """The folder of that name: from the working directory, from the project, in $ABLATE_DATA; None for a hub name."""
    shelf = [Path(os.environ["ABLATE_DATA"]) / Path(dataset).name] if os.environ.get("ABLATE_DATA") else []
    return next((path for path in (Path(dataset), ROOT / dataset, *shelf) if path.is_dir()), None)
