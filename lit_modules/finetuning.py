"""Fine-tuning of a pre-trained BERT: sentences, tags, questions (Devlin et al. 2019, section 4)."""

from abc import abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import lightning as L
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from datamodules.tasks import IGNORED
from datamodules.tokenizer import PAD

from .base import AblationModule
from .bert import BertNetwork, Pooler
from .components.attention import projection
from .components.fast import Dropout
from .components.loss import TokenLoss
from .optimization import Optim
from .pretrained import read

LONGEST_ANSWER = 30  # tokens (the authors' code)


@dataclass
class Found:
    """Sums and predictions of one split on one rank."""

    nll: float = 0.0
    labels: int = 0
    predictions: dict[int, Any] = field(default_factory=dict)


class FineTuning(AblationModule):
    """A pre-trained encoder with a new head. A subclass says what the head is.

    Args:
        optim: optimiser and schedule.
        checkpoint: the pre-trained model: a run's folder, a .ckpt file, or a folder of Hugging Face's form.
        n_labels: from the datamodule.
        weights: pretrained, or fresh: the same architecture without what it has learned, the trivial arm.
        features: trained: all weights are; frozen: the encoder stays as it is, without dropout, only the head learns.
        dropout: of the head.

    Logged at validation and test: nll (nats per labelled position) and the task's scores, see datamodules/tasks.py.
    """

    def __init__(
        self,
        optim: Optim,
        checkpoint: str,
        n_labels: int,
        weights: Literal["pretrained", "fresh"] = "pretrained",
        features: Literal["trained", "frozen"] = "trained",
        dropout: float = 0.1,
    ) -> None:
        super().__init__(optim)
        before = read(checkpoint)
        self.save_hyperparameters(
            {"optim": asdict(optim), "checkpoint": checkpoint, "n_labels": n_labels, "weights": weights,
             "features": features, "dropout": dropout, "arch": before.settings["arch"], **before.network},
            logger=False,
        )  # fmt: skip
        self.network = BertNetwork(arch=before.arch, **before.network)
        self.head = self.new_head(before.arch.d_model, n_labels)
        self.dropout, self.still = Dropout(dropout), STILL[features]
        if weights == "pretrained":
            self.network.load_state_dict(before.of("network"))
            if isinstance(self.head, SummaryHead) and (pooler := before.of("pair.pooler")):
                self.head.pooler.load_state_dict(pooler)
        for module in self.still(self):
            module.requires_grad_(False)

    @abstractmethod
    def new_head(self, d_model: int, n_labels: int) -> nn.Module: ...

    @abstractmethod
    def logits(self, batch: dict[str, Tensor]) -> Tensor: ...

    @abstractmethod
    def loss_of(self, logits: Tensor, label: Tensor) -> TokenLoss: ...

    @abstractmethod
    def predicted(self, logits: Tensor, batch: dict[str, Tensor]) -> list[Any]:
        """What the datamodule's `score` takes, one a row."""

    def setup(self, stage: str) -> None:
        self.check_data(self.trainer.datamodule)

    def check_data(self, data: L.LightningDataModule) -> None:
        """Refuses rows that are longer than the learned positions.

        Raises:
            ValueError: naming both lengths.
        """
        limit = self.network.embedding.position.longest
        if limit is not None and data.longest > limit:
            raise ValueError(
                f"rows have up to {data.longest} tokens, but the checkpoint has only {limit} learned positions: lower "
                f"data.max_length to {limit}"
            )

    @staticmethod
    def metric_names(data: L.LightningDataModule) -> list[str]:
        return [f"{split}/{name}" for split in ("valid", "test") for name in ("nll", *data.scores)]

    def train(self, mode: bool = True) -> "FineTuning":
        super().train(mode)
        for module in self.still(self):
            module.eval()
        return self

    def states(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch position d_model"]:
        return self.dropout(self.network(batch["ids"], batch["segments"]))

    def training_loss(self, batch: dict[str, Tensor]) -> TokenLoss:
        return self.loss_of(self.logits(batch), batch["label"])

    def layers(self) -> dict[str, nn.Module]:
        return {f"encoder.{i}": layer for i, layer in enumerate(self.network.encoder.layers)}

    def batch_tokens(self, batch: dict[str, Tensor]) -> Tensor:
        return (batch["ids"] != PAD).sum()

    # ---- validation and test

    def nothing_found(self) -> Found:
        return Found()

    def evaluate(self, batch: dict[str, Tensor], split: str) -> None:
        logits = self.logits(batch)
        loss = self.loss_of(logits, batch["label"])
        found = self.found[split]
        found.nll += float(loss.nll)
        found.labels += int(loss.tokens)
        found.predictions |= dict(zip(batch["index"].tolist(), self.predicted(logits, batch), strict=True))

    def report(self) -> None:
        """Scores of the whole split over all ranks: each example counts once."""
        for split, own in self.found.items():
            parts = self.of_all_ranks(own)
            every = {i: part.predictions[i] for part in parts for i in part.predictions}
            if every:
                scores = self.trainer.datamodule.score(split, dict(sorted(every.items())))
                known = {"nll": sum(part.nll for part in parts) / max(sum(part.labels for part in parts), 1)} | scores
                self.log_evaluation({f"{split}/{name}": value for name, value in known.items()})


STILL = {"trained": lambda model: (), "frozen": lambda model: (model.network,)}


class SummaryHead(nn.Module):
    """Softmax over classes of the pooled summary (section 4.1, with the authors' pooler)."""

    def __init__(self, d_model: int, n_labels: int) -> None:
        super().__init__()
        self.pooler, self.output = Pooler(d_model), projection(d_model, n_labels)

    def forward(self, summary: Float[Tensor, "batch d_model"], dropout: nn.Module) -> Float[Tensor, "batch labels"]:
        return self.output(dropout(self.pooler(summary)))


class Classification(FineTuning):
    """One class a sentence or pair of sentences: the summary, pooled (section 4.1)."""

    def new_head(self, d_model: int, n_labels: int) -> nn.Module:
        return SummaryHead(d_model, n_labels)

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch labels"]:
        states = self.network(batch["ids"], batch["segments"])
        return self.head(self.network.summary(states, batch["ids"]), self.dropout)

    def loss_of(self, logits: Float[Tensor, "batch labels"], label: Int[Tensor, "batch 1"]) -> TokenLoss:
        return cross_entropy(logits, label[:, 0])

    def predicted(self, logits: Float[Tensor, "batch labels"], batch: dict[str, Tensor]) -> list[int]:
        return logits.argmax(1).tolist()


class Tagging(FineTuning):
    """A tag for each word, from the state of its first piece (section 5.3)."""

    def new_head(self, d_model: int, n_labels: int) -> nn.Module:
        return projection(d_model, n_labels)

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch position labels"]:
        return self.head(self.states(batch))

    def loss_of(
        self, logits: Float[Tensor, "batch position labels"], label: Int[Tensor, "batch position"]
    ) -> TokenLoss:
        return cross_entropy(logits.flatten(0, 1), label.flatten())

    def predicted(self, logits: Float[Tensor, "batch position labels"], batch: dict[str, Tensor]) -> list[list[int]]:
        return [tags[known].tolist() for tags, known in zip(logits.argmax(2), batch["label"] != IGNORED, strict=True)]


class QuestionAnswering(FineTuning):
    """Start and end of the answer: a softmax over the positions for each (section 4.2)."""

    def new_head(self, d_model: int, n_labels: int) -> nn.Module:
        return projection(d_model, n_labels)

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch position 2"]:
        padded = (batch["ids"] == PAD)[..., None]
        return self.head(self.states(batch)).float().masked_fill(padded, torch.finfo(torch.float32).min)

    def loss_of(self, logits: Float[Tensor, "batch position 2"], label: Int[Tensor, "batch 2"]) -> TokenLoss:
        """The mean of both cross-entropies."""
        start, end = (cross_entropy(part, label[:, i]) for i, part in enumerate(logits.unbind(2)))
        return TokenLoss((start.smoothed + end.smoothed) / 2, (start.nll + end.nll) / 2, start.tokens)

    def predicted(self, logits: Float[Tensor, "batch position 2"], batch: dict[str, Tensor]) -> list[tuple]:
        """(score, first, last) of the best span within the context: the sum of its logits."""
        in_context = (batch["segments"] == 1) & (batch["ids"] != PAD)
        in_context &= in_context.roll(-1, dims=1)  # the last one is [SEP]
        start, end = logits.float().masked_fill(~in_context[..., None], -1e9).unbind(2)
        length = start.shape[1]
        ones = torch.ones(length, length, dtype=torch.bool, device=start.device)
        possible = ones.triu() & ones.tril(LONGEST_ANSWER - 1)
        scores = (start[:, :, None] + end[:, None, :]).masked_fill(~possible, -3e9).flatten(1)
        best = scores.max(dim=1)
        return [(s, i // length, i % length) for s, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]


def cross_entropy(logits: Float[Tensor, "example labels"], label: Int[Tensor, " example"]) -> TokenLoss:
    """Sum over the examples with a known label."""
    known = label.clamp_min(IGNORED)
    loss = F.cross_entropy(logits.float(), known, ignore_index=IGNORED, reduction="sum")
    return TokenLoss(loss, loss.detach(), (known != IGNORED).sum())
