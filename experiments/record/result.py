"""The result: the one JSON file that a run leaves, written whole or not at all."""

import fcntl
import json
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.launch.question import BadInput

INSIDE = "inside.json"  # beside it: matrices of the trained model's insides, see inside.py
TRANSLATIONS = "translations-test.tsv"  # and: every test sentence's reference and translation
STATUS = ("finished", "diverged", "failed")
REQUIRED = (
    "question", "recipe", "arm", "seed", "key", "variant", "settings", "status", "metrics", "selection", "parameters",
    "flops", "tokens", "seconds", "tokens_per_second", "peak_memory_bytes", "config", "data_fingerprint",
    "code_fingerprint", "versions", "hardware", "started", "ended",
)  # fmt: skip


class CorruptResult(BadInput):
    """A result file that cannot be believed."""


def read_result(path: Path) -> dict[str, Any]:
    """A result, checked.

    Raises:
        CorruptResult: not JSON, a field missing, an unknown status, or a metric that is no number.
    """
    advice = "move it away and ask again: only this run will be repeated"
    try:
        result = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CorruptResult(f"{path} is no JSON ({error}); {advice}") from error
    missing = [key for key in REQUIRED if not isinstance(result, dict) or key not in result]
    if missing:
        raise CorruptResult(f"{path} lacks {', '.join(missing)}; {advice}")
    if result["status"] not in STATUS:
        raise CorruptResult(f"{path}: status {result['status']!r} is none of {', '.join(STATUS)}; {advice}")
    for name, value in result["metrics"].items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise CorruptResult(f"{path}: metric {name} is {value!r}, no number; {advice}")
    return result


def finished(folder: Path) -> bool:
    """Whether the run in this folder has its answer, diverged or not. A failed run may be tried again."""
    path = folder / "result.json"
    return path.exists() and read_result(path)["status"] != "failed"


def write_result(folder: Path, result: dict[str, Any]) -> Path:
    """Atomically. An answer that stands is never overwritten; a failed attempt is kept beside its successor.

    Raises:
        FileExistsError: if the folder holds a finished or diverged result.
    """
    path = folder / "result.json"
    if path.exists():
        if finished(folder):
            raise FileExistsError(f"{path} stands already")
        path.rename(folder / f"result-failed-{int(path.stat().st_mtime)}.json")
    draft = folder / f".result.{os.getpid()}"
    try:
        draft.write_text(json.dumps(numbers(result), indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n")
        with draft.open() as file:
            os.fsync(file.fileno())
        draft.rename(path)
    finally:  # a full disk leaves no half a result
        draft.unlink(missing_ok=True)
    return path


def numbers(value: Any) -> Any:
    """JSON knows no NaN and no infinity: such a number is left out of a mapping, and a word elsewhere."""
    if isinstance(value, dict):
        finite = {k: v for k, v in value.items() if not (isinstance(v, float) and not math.isfinite(v))}
        return {str(k): numbers(v) for k, v in finite.items()}
    if isinstance(value, list | tuple):
        return [numbers(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def lock(folder: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Holds `folder` for this process until it ends, however it ends; with `wait`, after whoever holds it now.

    Raises:
        BadInput: another process holds it, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a+")
    except OSError as error:
        raise BadInput(
            f"cannot write to {folder}: {error.strerror}; choose another folder with --out or $ABLATE_OUT"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.seek(0)
            raise BadInput(
                f"{what} is already at work in {folder} ({file.read().strip() or 'starting'}); wait for it or stop it"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}\n")
        file.flush()
        yield
