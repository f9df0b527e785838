"""Our encoder-decoder beside torch.nn.Transformer of the same size: one process, the same batches, turn about.

Both sides share embeddings, output map, label smoothing, dropout rate and optimiser, and are timed over whole training
steps: forward, loss, backward, optimiser. The peer's own feed-forward has a dropout of its own, which the paper's
model has not; nothing else differs.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from datamodules.batching import collate
from datamodules.tokenizer import PAD
from datamodules.translation import ParallelText, ToyTranslation
from experiments.answer.render import as_terminal
from experiments.record import facts
from lit_modules.choices import Arch
from lit_modules.components.loss import token_loss
from lit_modules.translation import EncoderDecoder

from .turns import compare, side

SIZES = {"d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 512, "dropout": 0.1}
STEPS = 6  # a stretch of one side before the other has its turn
PEER = "torch.nn.Transformer"
RESULTS = Path(__file__).parent / "results" / "translation.json"


class TorchTransformer(EncoderDecoder):
    """Our embeddings and output around torch.nn.Transformer, called as its documentation does."""

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        del self.encoder, self.decoder
        self.stacks = nn.Transformer(
            SIZES["d_model"], SIZES["n_heads"], SIZES["n_layers"], SIZES["n_layers"], SIZES["d_ff"], SIZES["dropout"],
            batch_first=True,
        )  # fmt: skip

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        pad = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=source.device)
        x = self.stacks(
            self.dropout(self.source_position(self.source_embedding(source))),
            self.dropout(self.target_position(self.target_embedding(target))),
            tgt_mask=causal, tgt_is_causal=True, src_key_padding_mask=pad, memory_key_padding_mask=pad,
        )  # fmt: skip
        return self.output(x)


def our_loss(logits: Tensor, target: Tensor) -> Tensor:
    loss = token_loss(logits, target, pad_id=PAD, smoothing=0.1)
    return loss.smoothed / loss.tokens


def torchs_loss(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1)


def trained(kind: type[EncoderDecoder], loss_of: Callable, vocab_size: int, bf16: bool) -> Callable:
    torch.manual_seed(0)
    model = kind(
        arch=Arch(**SIZES), vocab_size=vocab_size, position="sinusoidal", look_ahead="masked", weight_tying="all",
        cross_attention="present", max_length=256,
    )  # fmt: skip

    def loss(batch: dict[str, Tensor]) -> Tensor:
        return loss_of(model(batch["source"], batch["target"][:, :-1]), batch["target"][:, 1:])

    return side(model, loss, tokens, bf16)


def tokens(batch: dict[str, Tensor]) -> int:
    """Real source and target tokens."""
    return int((batch["source"] != PAD).sum() + (batch["target"][:, 1:] != PAD).sum())


def measure(data, rounds: int, bf16: bool) -> dict[str, float]:
    """Medians over the rounds; the ratio is the median of the rounds' own ratios."""
    examples, chosen = data.examples["train"], list(data.batches("train"))[: STEPS * (rounds + 1)]
    batches = [collate([examples[i] for i in indices]) for indices in chosen]
    stretches = [batches[i : i + STEPS] for i in range(0, len(batches), STEPS)]
    kinds = {"ours": (EncoderDecoder, our_loss), PEER: (TorchTransformer, torchs_loss)}
    sides = {name: trained(*kind, data.vocab_size, bf16) for name, kind in kinds.items()}
    found = compare(sides, stretches, "bf16" if bf16 else "fp32")
    ratio = found["ratio"][PEER]
    spread = {"ratio": ratio["median"], "lowest": ratio["lowest"], "highest": ratio["highest"]}
    return found["tokens_per_second"] | spread


def main(dataset: str | None, rounds: int) -> None:
    """Prints the table and keeps it under results/."""
    torch.set_num_threads(1)
    data = ParallelText(dataset=dataset, batch_tokens=4096) if dataset else ToyTranslation(batch_tokens=4096)
    data.load()
    measured = {name: measure(data, rounds, bf16) for name, bf16 in (("fp32", False), ("bf16", True))}
    heads = ["precision", "ours, tokens/s", "torch.nn.Transformer, tokens/s", "ratio", "lowest … highest"]
    lines = []
    for name, m in measured.items():
        speeds = [f"{m['ours']:,.0f}", f"{m[PEER]:,.0f}"]
        lines.append([name, *speeds, f"{m['ratio']:.2f}", f"{m['lowest']:.2f} … {m['highest']:.2f}"])
    print(as_terminal(heads, lines))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({
        "sizes": SIZES, "data": "Multi30k" if dataset else "toy language", "batch_tokens": 4096, "rounds": rounds,
        "steps_per_stretch": STEPS, "threads": 1, "measured": measured, "hardware": facts.hardware(on_gpu=False),
        "versions": facts.versions(), "commit": facts.commit(), "date": time.strftime("%F"),
    }, indent=1) + "\n")  # fmt: skip
    print(f"kept in {RESULTS.name}; one thread, both sides in one process with one allocator")
