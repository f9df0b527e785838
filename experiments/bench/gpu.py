"""What should be known of a GPU before its numbers are believed: one script, `ablate bench gpu`.

Parity of fused and explicit attention and of the compiled model, which kernels attend, whether two runs see GPUs of
their own, and how much the three families train in a second, beside the matrix products that the same GPU reaches.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from datamodules.tokenizer import BOS
from experiments.answer.render import as_terminal
from experiments.launch.pool import Job, Pool
from experiments.launch.question import BadInput
from lit_modules.bert import Bert
from lit_modules.choices import Arch
from lit_modules.components.attention import attention_weights
from lit_modules.translation import Translation
from lit_modules.vit import Vit

from .training import about
from .turns import OPTIM

RESULTS = Path(__file__).parent / "results" / "gpu.json"
BASE = {"d_model": 512, "n_heads": 8, "n_layers": 6, "d_ff": 2048}
SMALL = {"d_model": 32, "n_heads": 2, "n_layers": 2, "d_ff": 64}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}  # of logits, whose size is about one
KERNELS = ("flash", "fmha", "efficient", "cudnn")


@dataclass(frozen=True)
class Family:
    """A model, a batch for it, and how many tokens (images) that holds."""

    model: nn.Module
    batch: dict[str, Tensor]
    count: int
    logits: Callable[[], Tensor]


def families(sizes: dict[str, int], device: str, rows: int) -> dict[str, Family]:
    """The three, in evaluation mode without dropout, on made-up batches of equal lengths."""
    arch, length, words = Arch(**sizes, dropout=0.0), 128, 1000
    torch.manual_seed(0)
    ids = torch.randint(5, words, (rows, length), device=device)
    translation = Translation(arch=arch, optim=OPTIM, vocab_size=words).to(device).eval()
    pair = {"source": ids, "target": torch.cat([torch.full_like(ids[:, :1], BOS), ids], dim=1)}
    bert = Bert(arch=Arch(**sizes, dropout=0.0, activation="gelu"), optim=OPTIM, vocab_size=words).to(device).eval()
    row = {"ids": ids, "segments": torch.zeros_like(ids)}
    vit = Vit(Arch(**sizes, norm="pre", dropout=0.0), OPTIM, n_labels=10, image_size=64, channels=3, patch_size=4)
    image = {"image": torch.randn(rows, 3, 64, 64, device=device)}
    vit = vit.to(device).eval()
    return {
        "translation": Family(
            translation, pair, 2 * ids.numel(), lambda: translation.network(pair["source"], pair["target"][:, :-1])
        ),
        "bert": Family(bert, row, ids.numel(), lambda: bert.network(row["ids"], row["segments"])),
        "vit": Family(vit, image, rows, lambda: vit(image["image"])),
    }


def autocast(device: str, dtype: torch.dtype):
    return torch.autocast(device, dtype) if dtype != torch.float32 else nullcontext()


@torch.no_grad()
def parity(device: str, compiled: bool) -> list[dict]:
    """Fused against explicit attention, and the compiled model against the plain one, in fp32 and bf16."""
    found = []
    for name, family in families(SMALL, device, rows=4).items():
        for dtype, limit in TOLERANCE.items():
            with autocast(device, dtype):
                plain = family.logits().float()
                with attention_weights(family.model):
                    explicit = family.logits().float()
                others = {"explicit attention": explicit}
                if compiled:
                    family.model.network.compile()
                    others["compiled"] = family.logits().float()
            for other, logits in others.items():
                apart = float((logits - plain).abs().max() / plain.abs().max())
                found.append({"check": f"{name}, {str(dtype)[6:]}: as {other}", "found": f"{apart:.1e} apart",
                              "holds": apart < limit})  # fmt: skip
    return found


def kernels(device: str) -> list[dict]:
    """Which kernels attend in a bf16 pass: on a GPU they should be fused ones."""
    found = []
    for name, family in families(SMALL, device, rows=4).items():
        with torch.profiler.profile() as seen, torch.no_grad(), autocast(device, torch.bfloat16):
            family.logits()
        ran = {event.key.split("(")[0][:60] for event in seen.key_averages()}
        fused = sorted(kernel for kernel in ran if any(word in kernel.lower() for word in KERNELS))
        found.append({"check": f"{name}: attention is a fused kernel", "found": ", ".join(fused[:2]) or "none",
                      "holds": bool(fused)})  # fmt: skip
    return found


def isolation() -> list[dict]:
    """Two runs of a launch see one GPU each, and not the same; with a single GPU there is nothing to see."""
    runs = [Job(SimpleNamespace(out=Path(".")), ["python"], slot=slot) for slot in range(2)]
    pool = Pool([], jobs=2)
    if len(pool.gpus) < 2:
        return [{"check": "two runs see GPUs of their own", "found": f"not tried: {len(pool.gpus)} GPU", "holds": None}]
    asks = "import torch; print(torch.cuda.device_count(), torch.cuda.get_device_properties(0).uuid)"
    said = [
        subprocess.run([sys.executable, "-c", asks], env=pool.environment(job), capture_output=True, text=True).stdout
        for job in runs
    ]
    alone = all(line.startswith("1 ") for line in said) and said[0] != said[1]
    return [{"check": "two runs see GPUs of their own", "found": " | ".join(map(str.strip, said)), "holds": alone}]


def ceiling(device: str, size: int) -> float:
    """FLOP/s of one large matrix product in bf16."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / per_call(lambda: a @ b, device)


def per_call(call: Callable[[], object], device: str, times: int = 10) -> float:
    """Seconds, after three calls that do not count."""
    for _ in range(3):
        call()
    wait(device)
    began = time.perf_counter()
    for _ in range(times):
        call()
    wait(device)
    return (time.perf_counter() - began) / times


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def speed(device: str, sizes: dict[str, int], rows: int, peak: float) -> dict[str, dict[str, float]]:
    """Tokens (images) a second of forward and backward in bf16, and the share of the peak that their FLOPs are."""
    found = {}
    for name, family in families(sizes, device, rows).items():

        def step(family: Family = family) -> None:
            with autocast(device, torch.bfloat16):
                family.logits().float().square().mean().backward()

        with FlopCounterMode(display=False) as counter, attention_weights(family.model):
            step()
        seconds = per_call(step, device)
        flops = counter.get_total_flops()
        found[name] = {"per_second": family.count / seconds, "share_of_peak": flops / seconds / peak}
    return found


def main(device: str = "cuda", sizes: dict[str, int] = BASE, rows: int = 128, results: Path = RESULTS) -> bool:
    """Prints both tables, keeps them under results/ with the GPU's name, and says whether every check holds."""
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("`ablate bench gpu` needs a GPU, and torch sees none here")
    checks = [*parity(device, compiled=device == "cuda"), *kernels(device), *isolation()]
    marks = {True: "holds", False: "DOES NOT HOLD", None: "not tried"}
    print(as_terminal(["check", "found", ""], [[c["check"], c["found"], marks[c["holds"]]] for c in checks]))
    peak = ceiling(device, 8192 if device == "cuda" else 256)
    speeds = speed(device, sizes, rows, peak)
    lines = [[name, f"{s['per_second']:,.0f}", f"{s['share_of_peak']:.0%}"] for name, s in speeds.items()]
    print(as_terminal(["family", "tokens (images)/s", f"share of {peak / 1e12:,.1f} TFLOP/s"], lines))
    found = {"checks": checks, "speed": speeds, "sizes": sizes, "rows": rows, "peak_flops": peak}
    results.write_text(json.dumps(found | about(on_gpu=device == "cuda"), indent=1) + "\n")
    return all(check["holds"] is not False for check in checks)
