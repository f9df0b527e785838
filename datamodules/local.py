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
    result = path / "result.json"
    averaged = json.loads(result.read_text())["metrics"].get("averaged") if result.is_file() else None
    tested = path / "checkpoints" / (f"average-{averaged}.ckpt" if averaged else "best.ckpt")
    return tested if tested.is_file() else path


def local_folder(dataset: str) -> Path | None:
    """The folder of that name: from the working directory, from the project, in $ABLATE_DATA; None for a hub name."""
    shelf = [Path(os.environ["ABLATE_DATA"]) / Path(dataset).name] if os.environ.get("ABLATE_DATA") else []
    return next((path for path in (Path(dataset), ROOT / dataset, *shelf) if path.is_dir()), None)
