"""Where a data set lies on this machine, if it does (no heavy imports: the launcher asks as well)."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def local_folder(dataset: str) -> Path | None:
    """The folder of that name, from the working directory, then from the project; None for a hub name."""
    return next((path for path in (Path(dataset), ROOT / dataset) if path.is_dir()), None)
