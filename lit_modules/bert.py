"""BERT: an encoder that is pre-trained to fill in what is missing (Devlin et al. 2019)."""

from dataclasses import asdict, dataclass, field
from typing import Literal

import lightning as L
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from datamodules.tokenizer import PAD

from .base import SHOWN, AblationModule, Picture, of_positions
from .choices import Arch
from .components import masks
from .components.attention import attention_weights, projection
from .components.diagnostics import attention_statistics, position_similarity
from .components.embeddings import TokenEmbedding
from .components.fast import Dropout
from .components.loss import TokenLoss, output_loss, token_loss
from .components.masking import Masked, fixed_noise, mask_tokens
from .components.positions import POSITION, SinusoidalPosition
from .components.stack import Encoder
from .optimization import Optim

Ids = Int[Tensor, "batch position"]
States = Float[Tensor, "batch position d_model"]

BERT_POSITION = POSITION | {  # beside embeddings without the factor √d_model
    "sinusoidal": lambda d_model, max_length: SinusoidalPosition(d_model, max_length, size=d_model**-0.5)
}
SEES = {"bidirectional": lambda ids: masks.padding(ids, PAD), "causal": lambda ids: masks.causal()}
SUMMARY = {  # the position whose state stands for the whole row: it must have seen it
    "bidirectional": lambda ids: torch.zeros_like(ids[:, 0]),
    "causal": lambda ids: (ids != PAD).sum(1) - 1,
}
EPS = 1e-12  # of BERT's layer norms, in the authors' code


class BertEmbedding(nn.Module):
    """Dropout(LayerNorm(E[token] + S[segment] + P[position])) (figure 2)."""

    def __init__(self, *, d_model: int, vocab_size: int, position: str, max_length: int, dropout: float) -> None:
        super().__init__()
        self.token, self.segment = TokenEmbedding(vocab_size, d_model), TokenEmbedding(2, d_model)
        self.token.factor = self.segment.factor = 1.0
        self.position = BERT_POSITION[position](d_model, max_length)
        self.norm, self.dropout = nn.LayerNorm(d_model), Dropout(dropout)

    def forward(self, ids: Ids, segments: Ids) -> States:
        return self.dropout(self.norm(self.position(self.token(ids) + self.segment(segments))))


class BertNetwork(nn.Module):
    """The encoder alone: a state for every token, given all tokens.

    Args:
        arch: the shared choices.
        vocab_size: word pieces.
        position: how order enters: learned (the paper's), sinusoidal, or none.
        direction: bidirectional: every token sees all; causal: itself and what comes before.
        max_length: the most tokens of a row that learned positions are made for.
    """

    def __init__(self, *, arch: Arch, vocab_size: int, position: str, direction: str, max_length: int) -> None:
        super().__init__()
        self.embedding = BertEmbedding(
            d_model=arch.d_model, vocab_size=vocab_size, position=position, max_length=max_length,
            dropout=arch.dropout_of("embeddings"),
        )  # fmt: skip
        self.encoder = Encoder(arch)
        self.sees, self.summary_at = SEES[direction], SUMMARY[direction]
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = EPS

    def forward(self, ids: Ids, segments: Ids) -> States:
        return self.encoder(self.embedding(ids, segments), self.sees(ids))

    def summary(self, states: States, ids: Ids) -> Float[Tensor, "batch d_model"]:
        """The state of [CLS], or, where [CLS] has seen nothing, of the last token."""
        return states[torch.arange(len(ids), device=ids.device), self.summary_at(ids)]


class TokenHead(nn.Module):
    """logits = LayerNorm(GELU(x W + b)) Eᵀ + c, with the embedding's E (the authors' code; appendix A.2)."""

    def __init__(self, embedding: TokenEmbedding) -> None:
        super().__init__()
        vocab_size, d_model = embedding.weight.shape
        self.transform, self.norm = projection(d_model, d_model), nn.LayerNorm(d_model, eps=EPS)
        self.weight, self.bias = embedding.weight, nn.Parameter(torch.zeros(vocab_size))

    def forward(self, x: Float[Tensor, "*position d_model"]) -> Float[Tensor, "*position vocabulary"]:
        return F.linear(self.states(x), self.weight, self.bias)

    def states(self, x: Float[Tensor, "*position d_model"]) -> Float[Tensor, "*position d_model"]:
        """What the output map reads."""
        return self.norm(F.gelu(self.transform(x)))

    def loss(self, x: Float[Tensor, "position d_model"], labels: Int[Tensor, " position"]) -> TokenLoss:
        """`token_loss` of the logits."""
        return output_loss(self.states(x)[None], self.weight, self.bias, labels[None], pad_id=PAD)


class Pooler(nn.Module):
    """tanh(x W + b) of the summary (the authors' code)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.map = projection(d_model, d_model)

    def forward(self, summary: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch d_model"]:
        return self.map(summary).tanh()


class PairTask(nn.Module):
    """Does B follow A? Next-sentence prediction, or sentence order, by what the data does to B."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.pooler, self.output = Pooler(d_model), projection(d_model, 2)

    def forward(self, summary: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch 2"]:
        return self.output(self.pooler(summary))

    def loss(self, summary: Tensor, pair: Int[Tensor, " batch"], weight: Tensor) -> Float[Tensor, ""]:
        """Σ weight · cross-entropy."""
        return (F.cross_entropy(self(summary).float(), pair, reduction="none") * weight).sum()


class NoPairTask(nn.Module):
    """Pairs are read and nothing is asked about them."""

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, summary: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch 0"]:
        return summary[:, :0]

    def loss(self, summary: Tensor, pair: Int[Tensor, " batch"], weight: Tensor) -> Float[Tensor, ""]:
        return summary.new_zeros(())


@dataclass
class Found:
    """Of one split on one rank.

    Attributes:
        sums: nll, predicted tokens, those predicted right, pairs judged right, pairs.
        shown: the first rows: read, wanted, predicted.
    """

    sums: list[float] = field(default_factory=lambda: [0.0] * 5)
    shown: list[list[str]] = field(default_factory=list)


PAIR_TASK = {"mlm": NoPairTask, "mlm+nsp": PairTask, "mlm+sop": PairTask}


class Bert(AblationModule):
    """Pre-training: masked tokens are predicted and, by `objective`, whether the second segment follows the first.

    The loss is the mean over the predicted tokens of the whole step, plus that of the pairs, each pair weighing as much
    as it has predicted tokens: so both are the same however the step is cut into micro-batches and ranks.

    Args:
        arch, position, direction, max_length: the network's, see `BertNetwork`.
        optim: optimiser and schedule.
        vocab_size: from the datamodule.
        objective: mlm+nsp: masked tokens and next-sentence prediction (section 3.1); mlm: masked tokens alone;
            mlm+sop: and sentence order (Lan et al. 2020, section 3.1).
        direction: with causal each token is predicted from those before it, in place of masked ones: a left-to-right
            language model (Table 5, "LTR").
        masking: what chosen tokens become (appendix C.2). paper: 80 % [MASK], 10 % a random token, 10 % stay;
            all_masked; masked_or_kept: 80 % and 20 %; masked_or_random: 80 % and 20 %; kept_or_random: 20 % and 80 %;
            all_random.
        mask_rate: share of the real tokens that are chosen in training. Validation and test always take 15 % and the
            paper's masking, the same tokens in every run.
        mask_unit: token, or word: all pieces of a word together.
        samples: rows shown at each validation.

    Logged at validation and test, under the split's name: nll (nats per predicted token), perplexity, accuracy
    (percent of the tokens whose prediction is right); valid/pair_accuracy and pairs/accuracy of the second task.

    Raises:
        ValueError: for a causal model with a second task: its [CLS] sees nothing.
    """

    def __init__(
        self,
        arch: Arch,
        optim: Optim,
        vocab_size: int,
        objective: Literal["mlm+nsp", "mlm", "mlm+sop"] = "mlm+nsp",
        direction: Literal["bidirectional", "causal"] = "bidirectional",
        position: Literal["learned", "sinusoidal", "none"] = "learned",
        masking: Literal[
            "paper", "all_masked", "masked_or_kept", "masked_or_random", "kept_or_random", "all_random"
        ] = "paper",
        mask_rate: float = 0.15,
        mask_unit: Literal["token", "word"] = "token",
        max_length: int = 512,
        samples: int = 4,
    ) -> None:
        super().__init__(optim)
        if direction == "causal" and objective != "mlm":
            raise ValueError(f"objective {objective} needs direction bidirectional: a causal [CLS] sees nothing")
        if not 0 < mask_rate < 1:
            raise ValueError(f"mask_rate {mask_rate} must lie between 0 and 1")
        network = {"vocab_size": vocab_size, "position": position, "direction": direction, "max_length": max_length}
        self.save_hyperparameters(
            {"arch": asdict(arch), "optim": asdict(optim), **network, "objective": objective, "masking": masking,
             "mask_rate": mask_rate, "mask_unit": mask_unit, "samples": samples},
            logger=False,
        )  # fmt: skip
        self.network = BertNetwork(arch=arch, **network)
        self.head = TokenHead(self.network.embedding.token)
        self.pair = PAIR_TASK[objective](arch.d_model)
        self.predicts, self.samples = PREDICTS[direction], samples
        self.how = {"rate": mask_rate, "masking": masking, "unit": mask_unit, "vocab_size": vocab_size}
        self.test_how = self.how | {"rate": 0.15, "masking": "paper", "unit": "token"}

    def setup(self, stage: str) -> None:
        self.check_data(self.trainer.datamodule)

    def check_data(self, data: L.LightningDataModule) -> None:
        """Refuses data that this model cannot read.

        Raises:
            ValueError: where a row is longer than the learned positions, naming both lengths.
        """
        limit = self.network.embedding.position.longest
        if limit is not None and data.longest > limit:
            raise ValueError(
                f"rows have up to {data.longest} tokens, but there are only {limit} learned positions: raise "
                f"model.max_length to {data.longest} or lower data.max_length"
            )

    @staticmethod
    def metric_names(data: L.LightningDataModule) -> list[str]:
        """What validation and test report, for the checkpoint rule and the table."""
        names = [f"{split}/{name}" for split in ("valid", "test") for name in ("nll", "perplexity", "accuracy")]
        return names + (["valid/pair_accuracy", "pairs/accuracy"] if "pairs" in data.test_splits else [])

    # ---- training

    def training_loss(self, batch: dict[str, Tensor]) -> TokenLoss:
        noise = torch.rand(*batch["ids"].shape, 2, dtype=torch.float32, device=batch["ids"].device)
        return self.loss(batch, noise)

    def loss(self, batch: dict[str, Tensor], noise: Tensor) -> TokenLoss:
        inputs, chosen, labels = self.predicts(batch, noise, self.how)
        states = self.network(inputs, batch["segments"])
        tokens = self.head.loss(states[chosen], labels[chosen])
        pairs = self.pair.loss(self.network.summary(states, inputs), batch["pair"], chosen.sum(1))
        return TokenLoss(tokens.smoothed + pairs, tokens.nll, tokens.tokens)

    def layers(self) -> dict[str, nn.Module]:
        return {f"encoder.{i}": layer for i, layer in enumerate(self.network.encoder.layers)}

    def batch_tokens(self, batch: dict[str, Tensor]) -> Tensor:
        return (batch["ids"] != PAD).sum()

    # ---- validation and test

    def nothing_found(self) -> "Found":
        return Found()

    def evaluate(self, batch: dict[str, Tensor], split: str) -> None:
        noise = fixed_noise(batch["index"], batch["ids"].shape[1])
        inputs, chosen, labels = self.predicts(batch, noise, self.test_how)
        states = self.network(inputs, batch["segments"])
        logits, wanted = self.head(states[chosen]), labels[chosen]
        loss = token_loss(logits[None], wanted[None], pad_id=PAD)
        pair = self.pair(self.network.summary(states, inputs))
        right = (pair.argmax(1) == batch["pair"]).sum() if pair.shape[1] else 0
        of_batch = [loss.nll, loss.tokens, (logits.argmax(1) == wanted).sum(), right, len(pair)]
        found = self.found[split]
        found.sums = [total + float(value) for total, value in zip(found.sums, of_batch, strict=True)]
        self.show(found.shown, inputs, chosen, wanted, logits.argmax(1))

    def show(self, shown: list[list[str]], inputs: Ids, chosen: Tensor, wanted: Tensor, predicted: Tensor) -> None:
        """The first rows as read, with what was to be predicted and what was."""
        tokenizer, start = self.trainer.datamodule.tokenizer, 0
        for ids, row in zip(inputs[: self.samples - len(shown)], chosen, strict=False):
            end = start + int(row.sum())
            texts = [ids[ids != PAD], wanted[start:end], predicted[start:end]]
            shown.append([" ".join(map(tokenizer.id_to_token, text.tolist())) for text in texts])
            start = end

    def report(self) -> None:
        """Metrics of the whole split from sums over all ranks: each token and each pair counts once."""
        for split, found in self.found.items():
            self.log_samples(f"{split}/samples", ["read", "wanted", "predicted"], found.shown)
            nll, tokens, right, pairs_right, pairs = map(sum, zip(*self.of_all_ranks(found.sums), strict=True))
            if not pairs:
                continue
            mean = nll / max(tokens, 1)
            perplexity = float(torch.tensor(mean, dtype=torch.float64).exp())
            of_tokens = {"nll": mean, "perplexity": perplexity, "accuracy": 100 * right / max(tokens, 1)}
            of_pairs = 100 * pairs_right / pairs
            known = {f"{split}/{name}": value for name, value in of_tokens.items()}
            known |= {"valid/pair_accuracy": of_pairs} if split == "valid" else {}
            named = {"pairs/accuracy": of_pairs} if split == "pairs" else known
            self.log_evaluation({k: v for k, v in named.items() if k in self.metric_names(self.trainer.datamodule)})

    # ---- why

    def diagnose(self, batch: dict[str, Tensor]) -> dict[str, float]:
        """`attention_statistics` of every layer, padding left out."""
        with attention_weights(self.network) as seen:
            self.network(batch["ids"], batch["segments"])
        return {
            f"{name.replace('layers.', '')}/{statistic}": value
            for name, attended in seen.items()
            for statistic, value in attention_statistics(attended, batch["ids"] != PAD).items()
        }

    def pictures(self, batch: dict[str, Tensor]) -> list[Picture]:
        """Every layer's attention weights, mean over heads, and the similarity of the positions."""
        ids = batch["ids"][0, :SHOWN]
        with attention_weights(self.network) as seen:
            self.network(batch["ids"], batch["segments"])
        drawn = [
            Picture(name.replace("layers.", ""), attended.weights[0].float().mean(0)[:SHOWN, :SHOWN], ids, ids)
            for name, attended in seen.items()
        ]
        position = self.network.embedding.position
        places = min(SHOWN, position.longest or SHOWN)
        similar = position_similarity(position, torch.zeros(places, self.hparams.arch["d_model"], device=self.device))
        return drawn + of_positions(similar)


def masked_prediction(batch: dict[str, Tensor], noise: Tensor, how: dict) -> tuple[Ids, Tensor, Ids]:
    """What is read, which positions are predicted, and the labels of all."""
    masked: Masked = mask_tokens(batch["ids"], batch["continues"], noise, **how)
    return masked.ids, masked.chosen, batch["ids"]


def next_prediction(batch: dict[str, Tensor], noise: Tensor, how: dict) -> tuple[Ids, Tensor, Ids]:
    """Every token from those before it; nothing is masked."""
    following = F.pad(batch["ids"][:, 1:], (0, 1), value=PAD)
    return batch["ids"], following != PAD, following


PREDICTS = {"bidirectional": masked_prediction, "causal": next_prediction}
