"""Facts about a run that no metric tells: code, versions, hardware, memory, FLOPs."""

import ast
import contextlib
import hashlib
import importlib.metadata
import os
import platform
import resource
import subprocess
from pathlib import Path
from typing import Any

from experiments.launch.question import ROOT

PACKAGES = ("torch", "lightning", "jsonargparse", "sacrebleu", "tokenizers", "datasets", "numpy", "wandb",
            "torchvision", "timm", "pillow", "scikit-learn")  # fmt: skip


RESULTS = (":(exclude)experiments/bench/results", ":(exclude)experiments/answer/committed")


def code_fingerprint() -> str:
    """Hash of what decides a number: the models, the data and the program, without comments and docstrings."""
    digest = hashlib.sha256()
    files = [
        *(ROOT / "lit_modules").rglob("*.py"),
        *(ROOT / "datamodules").rglob("*.py"),
        ROOT / "experiments/train.py",
        ROOT / "experiments/downstream.py",
        ROOT / "experiments/record/averaging.py",
    ]
    for path in sorted(files):
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(bare(path.read_text()).encode())
    return digest.hexdigest()[:12]


def bare(source: str) -> str:
    """The code without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0].value = ast.Constant("")
    return ast.dump(tree)


def versions() -> dict[str, str]:
    known = {"python": platform.python_version()}
    for package in PACKAGES:
        known[package] = importlib.metadata.version(package)
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # a peer, which is optional
        known["transformers"] = importlib.metadata.version("transformers")
    return known


def commit() -> str:
    """The commit that stands checked out, `+` where files differ from it (results apart); empty outside a checkout."""
    try:
        named, differs = (
            subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=5)
            for words in (["rev-parse", "--short=12", "HEAD"], ["diff", "--quiet", "HEAD", "--", ".", *RESULTS])
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return named.stdout.strip() + ("+" if differs.returncode else "") if named.returncode == 0 else ""


def hardware(on_gpu: bool) -> dict[str, Any]:
    """Where the run was; `gpus` is empty for a run on the CPU of a machine that has some."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if on_gpu else []
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "gpus": gpus}


def cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def peak_memory_bytes(on_gpu: bool) -> int:
    """Of the GPU, or of this process (VmHWM: getrusage would start from what the launcher held at the fork)."""
    if on_gpu:
        import torch

        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)
