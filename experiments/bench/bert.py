"""Our BERT's pre-training step beside Hugging Face's of the same size: one process, the same batches, turn about.

The peers are `BertForPreTraining` as it comes, and the same with its head for masked tokens on masked positions only,
each with both of its attentions. All sides share batches, masks, dropout rate and optimiser, and are timed over whole
steps: forward, both losses, backward, optimiser.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from datamodules.documents import TextDocuments, ToyDocuments
from datamodules.tokenizer import PAD
from lit_modules.bert import Bert
from lit_modules.choices import Arch
from lit_modules.components.masking import mask_tokens

from .turns import OPTIM, compare, keep, side

SIZES = {"d_model": 256, "n_heads": 4, "n_layers": 4, "d_ff": 1024, "dropout": 0.1, "activation": "gelu"}
STEPS, ROWS, LENGTH = 4, 32, 128
RESULTS = Path(__file__).parent / "results" / "bert.json"
Loss = Callable[[dict[str, Tensor]], Tensor]


def ours(vocab_size: int) -> tuple[torch.nn.Module, Loss]:
    model = Bert(arch=Arch(**SIZES), optim=OPTIM, vocab_size=vocab_size, max_length=LENGTH)
    model.predicts = lambda batch, noise, how: (batch["read"], batch["chosen"], batch["ids"])  # masked beforehand

    def loss(batch: dict[str, Tensor]) -> Tensor:
        found = model.loss(batch, batch["ids"])
        return found.smoothed / found.tokens

    return model, loss


def theirs(vocab_size: int, attention: str, masked_only: bool) -> tuple[torch.nn.Module, Loss]:
    import transformers

    config = transformers.BertConfig(
        vocab_size=vocab_size, hidden_size=SIZES["d_model"], num_hidden_layers=SIZES["n_layers"],
        num_attention_heads=SIZES["n_heads"], intermediate_size=SIZES["d_ff"], max_position_embeddings=LENGTH,
        hidden_dropout_prob=SIZES["dropout"], attention_probs_dropout_prob=SIZES["dropout"],
        attn_implementation=attention,
    )  # fmt: skip
    model = transformers.BertForPreTraining(config)

    def whole(batch: dict[str, Tensor]) -> Tensor:
        labels = batch["ids"].masked_fill(~batch["chosen"], -100)
        return model(
            batch["read"], token_type_ids=batch["segments"], attention_mask=batch["heard"], labels=labels,
            next_sentence_label=batch["pair"],
        ).loss  # fmt: skip

    def masked(batch: dict[str, Tensor]) -> Tensor:
        states, pooled = model.bert(
            batch["read"], token_type_ids=batch["segments"], attention_mask=batch["heard"]
        )[:2]  # fmt: skip
        logits, pair = model.cls(states[batch["chosen"]], pooled)
        return F.cross_entropy(logits, batch["ids"][batch["chosen"]]) + F.cross_entropy(pair, batch["pair"])

    return model, masked if masked_only else whole


def batches_of(data, count: int) -> list[dict[str, Tensor]]:
    """The recipe's own batches, masked once for all sides."""
    chosen = list(data.batches("train"))[:count]
    examples, found = data.examples["train"], []
    for indices in chosen:
        batch = data.collate([examples[i] for i in indices])
        masked = mask_tokens(
            batch["ids"], batch["continues"], torch.rand(*batch["ids"].shape, 2), rate=0.15, masking="paper",
            unit="token", vocab_size=data.vocab_size,
        )  # fmt: skip
        heard = (batch["ids"] != PAD).long()
        found.append(batch | {"read": masked.ids, "chosen": masked.chosen, "heard": heard})
    return found


def heard(batch: dict[str, Tensor]) -> int:
    """Real tokens."""
    return int(batch["heard"].sum())


def measure(data, rounds: int, bf16: bool) -> dict:
    torch.manual_seed(0)
    peers = {f"{a}, {'masked positions' if m else 'as it comes'}": partial(theirs, attention=a, masked_only=m)
             for m in (False, True) for a in ("sdpa", "eager")}  # fmt: skip
    sides = {name: side(*make(data.vocab_size), heard, bf16) for name, make in {"ours": ours, **peers}.items()}
    batches = batches_of(data, STEPS * (rounds + 1))
    stretches = [batches[i : i + STEPS] for i in range(0, len(batches), STEPS)]
    return compare(sides, stretches, "bf16" if bf16 else "fp32")


def main(dataset: str | None, rounds: int) -> None:
    """Prints the table and keeps it under results/."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"objective": "mlm+nsp", "max_length": LENGTH, "batch_tokens": ROWS * LENGTH}
    data = TextDocuments(dataset=dataset, **sizes) if dataset else ToyDocuments(**sizes)
    data.load()
    measured = {name: measure(data, rounds, bf16) for name, bf16 in (("fp32", False), ("bf16", True))}
    keep(
        measured, RESULTS, sizes=SIZES, data="English documents" if dataset else "embedded stories", rows=ROWS,
        length=LENGTH, vocabulary=data.vocab_size, rounds=rounds, steps_per_stretch=STEPS,
    )  # fmt: skip
