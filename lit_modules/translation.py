"""The encoder-decoder Transformer in translation (Vaswani et al. 2017)."""

from dataclasses import asdict
from typing import Literal

import lightning as L
import sacrebleu
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from datamodules.tokenizer import BOS, EOS, PAD

from .base import AblationModule
from .choices import Arch
from .components import masks
from .components.attention import KVCache, attention_weights
from .components.decoding import greedy
from .components.diagnostics import attention_statistics
from .components.embeddings import OutputProjection, TokenEmbedding, tie
from .components.loss import TokenLoss, token_loss
from .components.positions import POSITION
from .components.stack import Decoder, Encoder
from .optimization import Optim

LOOK_AHEAD = {"masked": lambda target: masks.causal(), "open": lambda target: masks.padding(target, PAD)}


class EncoderDecoder(nn.Module):
    """Figure 1: logits of every next target token, given the source and the target so far.

    Args:
        arch: the shared choices.
        vocab_size: entries of the vocabulary that source and target share.
        position: how order enters (section 3.5): sinusoidal, learned, or none.
        look_ahead: masked: a target position sees itself and its past (section 3.2.3); open: the future as well.
        weight_tying: matrices shared (section 3.4): all three, output (target embedding and output map), or none.
        max_length: the most tokens of a sequence that learned positions are made for.
    """

    def __init__(
        self, *, arch: Arch, vocab_size: int, position: str, look_ahead: str, weight_tying: str, max_length: int
    ) -> None:
        super().__init__()
        self.source_embedding = TokenEmbedding(vocab_size, arch.d_model)
        self.target_embedding = TokenEmbedding(vocab_size, arch.d_model)
        self.output = OutputProjection(vocab_size, arch.d_model)
        tie(weight_tying, self.source_embedding, self.target_embedding, self.output)
        self.source_position = POSITION[position](arch.d_model, max_length)
        self.target_position = POSITION[position](arch.d_model, max_length)
        self.dropout = nn.Dropout(arch.dropout)
        self.encoder, self.decoder = Encoder(arch), Decoder(arch)
        self.target_mask = LOOK_AHEAD[look_ahead]

    def forward(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocabulary"]:
        memory, memory_mask = self.encode(source)
        x = self.dropout(self.target_position(self.target_embedding(target)))
        return self.output(self.decoder(x, memory, self.target_mask(target), memory_mask))

    def encode(self, source: Int[Tensor, "batch source"]) -> tuple[Float[Tensor, "batch source d_model"], masks.Mask]:
        """The memory, and the mask that hides its padding."""
        mask = masks.padding(source, PAD)
        x = self.dropout(self.source_position(self.source_embedding(source)))
        return self.encoder(x, mask), mask

    def next_token(
        self,
        token: Int[Tensor, "batch 1"],
        position: int,
        memory: Tensor,
        memory_mask: masks.Mask,
        caches: list[KVCache],
    ) -> Float[Tensor, "batch vocabulary"]:
        """One step of decoding: the logits after the newest token, whose past stands in the caches."""
        x = self.dropout(self.target_position(self.target_embedding(token), start=position))
        return self.output(self.decoder(x, memory, masks.everything(), memory_mask, caches)[:, -1])


class Translation(AblationModule):
    """Teacher forcing with label smoothing; greedy decoding and sacreBLEU in validation and test.

    Args:
        arch, position, look_ahead, weight_tying, max_length: the network's, see `EncoderDecoder`.
        optim: optimiser and schedule.
        vocab_size: from the datamodule.
        label_smoothing: ε of section 5.4, in training only; validation and test report the unsmoothed nll.
        extra_length: a translation stops at its source's length + this many tokens (section 6.1).
        samples: translations shown at each validation.

    Logged at validation and test, under the split's name: nll (nats per target token, EOS included), perplexity
    (its exponential), bleu (sacreBLEU's corpus BLEU on detokenised text, greedy decoding).
    """

    def __init__(
        self,
        arch: Arch,
        optim: Optim,
        vocab_size: int,
        position: Literal["sinusoidal", "learned", "none"] = "sinusoidal",
        look_ahead: Literal["masked", "open"] = "masked",
        weight_tying: Literal["none", "output", "all"] = "all",
        label_smoothing: float = 0.1,
        max_length: int = 256,
        extra_length: int = 50,
        samples: int = 4,
    ) -> None:
        super().__init__(optim)
        network = {
            "vocab_size": vocab_size, "position": position, "look_ahead": look_ahead,
            "weight_tying": weight_tying, "max_length": max_length,
        }  # fmt: skip
        self.label_smoothing, self.extra_length, self.samples = label_smoothing, extra_length, samples
        self.save_hyperparameters(
            {"arch": asdict(arch), "optim": asdict(optim), **network, "label_smoothing": label_smoothing,
             "extra_length": extra_length, "samples": samples},
            logger=False,
        )  # fmt: skip
        self.network = EncoderDecoder(arch=arch, **network)

    def setup(self, stage: str) -> None:
        self.check_data(self.trainer.datamodule)

    def check_data(self, data: L.LightningDataModule) -> None:
        """Refuses data that this model cannot read.

        Raises:
            ValueError: where a sequence is longer than the learned positions, naming both lengths.
        """
        longest, limit = data.longest, self.network.target_position.longest
        if limit is not None and longest > limit:
            raise ValueError(
                f"the data's longest sequence has {longest} tokens, but there are only {limit} learned positions: "
                f"raise model.max_length to {longest} or lower data.max_length"
            )

    @staticmethod
    def metric_names(data: L.LightningDataModule) -> list[str]:
        """What validation and test report, for the checkpoint rule and the table."""
        return [f"{split}/{name}" for split in ("valid", *data.test_splits) for name in ("nll", "perplexity", "bleu")]

    # ---- training

    def training_loss(self, batch: dict[str, Tensor]) -> TokenLoss:
        return self.loss(batch, self.label_smoothing)

    def loss(self, batch: dict[str, Tensor], smoothing: float) -> TokenLoss:
        """Right-shifted targets: BOS … goes in, … EOS is to come out."""
        logits = self.network(batch["source"], batch["target"][:, :-1])
        return token_loss(logits, batch["target"][:, 1:], pad_id=PAD, smoothing=smoothing)

    def batch_tokens(self, batch: dict[str, Tensor]) -> Tensor:
        return (batch["source"] != PAD).sum() + (batch["target"][:, 1:] != PAD).sum()

    # ---- validation and test

    def on_validation_epoch_start(self) -> None:
        self.evaluations = {"valid": Evaluation()}

    def on_test_epoch_start(self) -> None:
        self.evaluations = {name: Evaluation() for name in self.trainer.datamodule.test_splits}

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.evaluate(batch, "valid")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        self.evaluate(batch, self.trainer.datamodule.test_splits[dataloader_idx])

    def evaluate(self, batch: dict[str, Tensor], split: str) -> None:
        loss = self.loss(batch, smoothing=0.0)
        translations = self.trainer.datamodule.texts(self.translate(batch["source"]))
        self.evaluations[split].add(loss, batch["index"].tolist(), translations)

    def translate(self, source: Int[Tensor, "batch source"]) -> Int[Tensor, "batch length"]:
        """Greedy translations, without BOS; each at most its own source's length + extra_length tokens long."""
        memory, memory_mask = self.network.encode(source)
        caches = self.network.decoder.new_caches()
        limits = (source != PAD).sum(dim=1) + self.extra_length
        return greedy(
            lambda token, position: self.network.next_token(token, position, memory, memory_mask, caches),
            bos_id=BOS,
            eos_id=EOS,
            pad_id=PAD,
            limits=limits.clamp_max(self.network.target_position.longest or 10**9),
        )

    def on_validation_epoch_end(self) -> None:
        self.report()

    def on_test_epoch_end(self) -> None:
        self.report()

    def report(self) -> None:
        """Metrics of the whole split from sums and texts of all ranks: each sentence counts once."""
        for split, evaluation in self.evaluations.items():
            nll, tokens, translations = evaluation.gather(self)
            if not translations:
                continue
            references = self.trainer.datamodule.references(split)
            hypotheses = [translations[i] for i in sorted(translations)]
            bleu = sacrebleu.metrics.BLEU(force=True)  # the toy's full stops stand apart, and that is no mistake
            score = bleu.corpus_score(hypotheses, [[references[i] for i in sorted(translations)]]).score
            self.bleu_signature = str(bleu.get_signature())
            mean = torch.tensor(nll / max(tokens, 1), dtype=torch.float64)
            metrics = {"nll": float(mean), "perplexity": float(mean.exp()), "bleu": score}
            self.log_evaluation({f"{split}/{name}": value for name, value in metrics.items()})
            sources = self.trainer.datamodule.sources(split)
            rows = [[sources[i], references[i], translations[i]] for i in sorted(translations)[: self.samples]]
            self.log_samples(f"{split}/samples", ["source", "reference", "translation"], rows)

    # ---- why

    def diagnose(self, batch: dict[str, Tensor]) -> dict[str, float]:
        """`attention_statistics` of every attention module, padding left out."""
        source, target = batch["source"], batch["target"][:, :-1]
        real = {"encoder": source != PAD, "decoder": target != PAD}
        with attention_weights(self.network) as seen:
            self.network(source, target)
        return {
            f"{name.replace('layers.', '')}/{statistic}": value
            for name, attended in seen.items()
            for statistic, value in attention_statistics(attended, real[name.split(".")[0]]).items()
        }


class Evaluation:
    """Sums and translations of one split on one rank."""

    def __init__(self) -> None:
        self.nll, self.tokens, self.translations = 0.0, 0, {}

    def add(self, loss: TokenLoss, index: list[int], translations: list[str]) -> None:
        self.nll += float(loss.nll)
        self.tokens += int(loss.tokens)
        self.translations |= dict(zip(index, translations, strict=True))

    def gather(self, module: AblationModule) -> tuple[float, int, dict[int, str]]:
        """The same of all ranks together."""
        parts = [(self.nll, self.tokens, self.translations)]
        if module.trainer.world_size > 1:
            parts = [None] * module.trainer.world_size
            torch.distributed.all_gather_object(parts, (self.nll, self.tokens, self.translations))
        nll, tokens, translations = zip(*parts, strict=True)
        return sum(nll), sum(tokens), {i: text for part in translations for i, text in part.items()}
