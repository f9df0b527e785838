"""BERT: our pre-training step beside Hugging Face's of the same size.

The peers are `BertForPreTraining` as it comes, and the same with its head for masked tokens on masked positions only,
each with both of its attentions. All sides share batches, masks, dropout rates, both losses and optimiser.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from datamodules.documents import TextDocuments, ToyDocuments
from datamodules.local import local_folder
from datamodules.tokenizer import PAD
from lit_modules.bert import Bert
from lit_modules.choices import Arch
from lit_modules.components.masking import mask_tokens

from .turns import OPTIM, Batch, Family, Loss

SIZES = {"d_model": 256, "n_heads": 4, "n_layers": 4, "d_ff": 1024, "dropout": 0.1, "activation": "gelu"}
ROWS, LENGTH = 32, 128


def prepare(count: int) -> tuple[list[Batch], int]:
    """The recipe's own batches, masked beforehand."""
    folder = local_folder("english_documents")
    sizes = {"objective": "mlm+nsp", "max_length": LENGTH, "batch_tokens": ROWS * LENGTH}
    data = TextDocuments(dataset=str(folder), **sizes) if folder else ToyDocuments(**sizes)
    data.load()
    chosen = list(data.batches("train"))[:count]
    examples, found = data.examples["train"], []
    for indices in chosen:
        batch = data.collate([examples[i] for i in indices])
        masked = mask_tokens(
            batch["ids"], batch["continues"], torch.rand(*batch["ids"].shape, 2), rate=0.15, masking="paper",
            unit="token", vocab_size=data.vocab_size,
        )  # fmt: skip
        found.append(batch | {"read": masked.ids, "chosen": masked.chosen, "heard": (batch["ids"] != PAD).long()})
    return found, data.vocab_size


def ours(vocab_size: int) -> tuple[nn.Module, Loss]:
    model = Bert(arch=Arch(**SIZES), optim=OPTIM, vocab_size=vocab_size, max_length=LENGTH)
    model.predicts = lambda batch, noise, how: (batch["read"], batch["chosen"], batch["ids"])  # masked beforehand

    def loss(batch: Batch) -> Tensor:
        found = model.loss(batch, batch["ids"])
        return found.smoothed / found.tokens

    return model, loss


def theirs(attention: str, masked_only: bool) -> Callable[[int], tuple[nn.Module, Loss]]:
    def make(vocab_size: int) -> tuple[nn.Module, Loss]:
        from transformers import BertConfig, BertForPreTraining

        model = BertForPreTraining(BertConfig(
            vocab_size=vocab_size, hidden_size=SIZES["d_model"], num_hidden_layers=SIZES["n_layers"],
            num_attention_heads=SIZES["n_heads"], intermediate_size=SIZES["d_ff"], max_position_embeddings=LENGTH,
            hidden_dropout_prob=SIZES["dropout"], attention_probs_dropout_prob=SIZES["dropout"],
            attn_implementation=attention,
        )).train()  # fmt: skip

        def whole(batch: Batch) -> Tensor:
            labels = batch["ids"].masked_fill(~batch["chosen"], -100)
            return model(
                batch["read"], token_type_ids=batch["segments"], attention_mask=batch["heard"], labels=labels,
                next_sentence_label=batch["pair"],
            ).loss  # fmt: skip

        def masked(batch: Batch) -> Tensor:
            found = model.bert(batch["read"], token_type_ids=batch["segments"], attention_mask=batch["heard"])
            logits, pair = model.cls(found.last_hidden_state[batch["chosen"]], found.pooler_output)
            return F.cross_entropy(logits, batch["ids"][batch["chosen"]]) + F.cross_entropy(pair, batch["pair"])

        return model, masked if masked_only else whole

    return make


def family() -> Family:
    real = local_folder("english_documents") is not None
    return Family(
        unit="tokens",
        about=f"{'English documents' if real else 'embedded stories'}, d_model 256, 4 layers, {ROWS} rows of {LENGTH}",
        steps=4,
        sides={
            "ours": ours,
            "Hugging Face, sdpa": theirs("sdpa", False),
            "Hugging Face, eager": theirs("eager", False),
            "Hugging Face, sdpa, masked positions": theirs("sdpa", True),
            "Hugging Face, eager, masked positions": theirs("eager", True),
        },
        tuned=("Hugging Face, sdpa, masked positions", "Hugging Face, eager, masked positions"),
        prepare=prepare, count=lambda batch: int(batch["heard"].sum()),
    )  # fmt: skip
