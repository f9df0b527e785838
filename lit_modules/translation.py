"""The encoder-decoder Transformer in translation (Vaswani et al. 2017)."""

from dataclasses import asdict
from typing import Literal

import lightning as L
import sacrebleu
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torchmetrics.classification import BinaryCalibrationError

from datamodules.tokenizer import BOS, EOS, PAD

from .base import SHOWN, AblationModule, Picture, of_positions
from .choices import Arch
from .components import masks
from .components.attention import attention_weights
from .components.diagnostics import attention_statistics, leak, position_similarity
from .components.embeddings import OutputProjection, TokenEmbedding, tie
from .components.fast import Dropout
from .components.loss import TokenLoss, output_loss, token_loss
from .components.positions import POSITION
from .components.stack import Decoder, Encoder
from .generation import Decoding, search
from .optimization import Optim

LOOK_AHEAD = {"masked": lambda target: masks.causal(), "open": lambda target: masks.padding(target, PAD)}
LENGTHS = ((1, 8), (9, 16), (17, 24), (25, 32), (33, 40))  # words of a source: BLEU is reported for each bin


class EncoderDecoder(nn.Module):
    """Figure 1: logits of every next target token, given the source and the target so far.

    Args:
        arch: the shared choices.
        vocab_size: entries of the vocabulary that source and target share.
        position: how order enters (section 3.5): sinusoidal, learned, or none.
        look_ahead: masked: a target position sees itself and its past (section 3.2.3); open: the future as well.
        weight_tying: matrices shared (section 3.4): all three, output (target embedding and output map), or none.
        cross_attention: present, or absent: the decoder never hears the source (section 3.2.3, first item, taken out).
        max_length: the most tokens of a sequence that learned positions are made for.
    """

    def __init__(
        self, *, arch: Arch, vocab_size: int, position: str, look_ahead: str, weight_tying: str, cross_attention: str,
        max_length: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.source_embedding = TokenEmbedding(vocab_size, arch.d_model)
        self.target_embedding = TokenEmbedding(vocab_size, arch.d_model)
        self.output = OutputProjection(vocab_size, arch.d_model)
        tie(weight_tying, self.source_embedding, self.target_embedding, self.output)
        self.source_position = POSITION[position](arch.d_model, max_length)
        self.target_position = POSITION[position](arch.d_model, max_length)
        self.dropout = Dropout(arch.dropout_of("embeddings"))
        self.encoder, self.decoder = Encoder(arch), Decoder(arch, cross_attention)
        self.target_mask = LOOK_AHEAD[look_ahead]
        if cross_attention == "absent":  # nothing is asked of the encoder; DDP wants a gradient for what can learn
            self.encoder.requires_grad_(False)
            self.source_position.requires_grad_(False)
            self.source_embedding.requires_grad_(weight_tying == "all")

    def forward(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocabulary"]:
        return self.output(self.states(source, target))

    def states(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target d_model"]:
        """What the decoder hands to the output map."""
        memory, memory_mask = self.encode(source)
        x = self.dropout(self.target_position(self.target_embedding(target)))
        return self.decoder(x, memory, self.target_mask(target), memory_mask)

    def encode(self, source: Int[Tensor, "batch source"]) -> tuple[Float[Tensor, "batch source d_model"], masks.Mask]:
        """The memory, and the mask that hides its padding."""
        mask = masks.padding(source, PAD)
        x = self.dropout(self.source_position(self.source_embedding(source)))
        return self.encoder(x, mask), mask


class Continuation:
    """Incremental decoding of a batch: the `Step` that searches take. Each past stands in the decoder's caches.

    Args:
        source: is encoded once.
        rows: hypotheses of a sentence, side by side; they share its memory.
    """

    def __init__(self, network: EncoderDecoder, source: Int[Tensor, "batch source"], rows: int = 1) -> None:
        self.network, self.caches = network, network.decoder.new_caches()
        memory, mask = network.encode(source)
        self.memory, self.mask = memory.repeat_interleave(rows, 0), mask.rows(lambda x: x.repeat_interleave(rows, 0))

    def __call__(self, token: Int[Tensor, "row 1"], position: int) -> Float[Tensor, "row vocabulary"]:
        network = self.network
        x = network.dropout(network.target_position(network.target_embedding(token), start=position))
        x = network.decoder(x, self.memory, masks.everything(), self.mask, self.caches)
        return network.output(x[:, -1])

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.memory, self.mask = self.memory.index_select(0, rows), self.mask.rows(lambda x: x.index_select(0, rows))
        for cache in self.caches:
            cache.keep(rows)

    def reorder(self, rows: Int[Tensor, " row"]) -> None:
        for cache in self.caches:
            cache.reorder(rows)


class Translation(AblationModule):
    """Teacher forcing with label smoothing; translations and sacreBLEU in validation (greedy) and test.

    Args:
        arch, position, look_ahead, weight_tying, cross_attention, max_length: the network's, see `EncoderDecoder`.
        optim: optimiser and schedule.
        decoding: how the test splits are translated.
        vocab_size: from the datamodule.
        label_smoothing: ε of section 5.4, in training only; validation and test report the unsmoothed nll.
        extra_length: a translation stops at its source's length + this many tokens (section 6.1).
        samples: translations shown at each validation.

    Logged at validation and test, under the split's name: nll (nats per target token, EOS included), perplexity
    (its exponential), calibration_error (of the teacher-forced predictions: the mean over tokens of |confidence -
    accuracy| in 15 equal bins of confidence; Guo et al. 2017, equation 3), bleu (sacreBLEU's corpus BLEU on detokenised
    text), bleu_words_A_B (of the sentences whose source has A to B words). At test, where the data says which language
    the targets are in: bleu_moses, BLEU of text that Moses' tokeniser has cut (fairseq's), and bleu_moses_lc, of the
    same in small letters. Both depend on that tokeniser: compare them with their like alone.
    """

    def __init__(
        self,
        arch: Arch,
        optim: Optim,
        vocab_size: int,
        decoding: Decoding = Decoding(),  # noqa: B008  frozen
        position: Literal["sinusoidal", "learned", "none"] = "sinusoidal",
        look_ahead: Literal["masked", "open"] = "masked",
        weight_tying: Literal["none", "output", "all"] = "all",
        cross_attention: Literal["present", "absent"] = "present",
        label_smoothing: float = 0.1,
        max_length: int = 256,
        extra_length: int = 50,
        samples: int = 4,
    ) -> None:
        super().__init__(optim)
        network = {
            "vocab_size": vocab_size, "position": position, "look_ahead": look_ahead,
            "weight_tying": weight_tying, "cross_attention": cross_attention, "max_length": max_length,
        }  # fmt: skip
        self.decoding, self.ignored = decoding, PAD
        self.label_smoothing, self.extra_length, self.samples = label_smoothing, extra_length, samples
        self.save_hyperparameters(
            {"arch": asdict(arch), "optim": asdict(optim), "decoding": asdict(decoding), **network,
             "label_smoothing": label_smoothing, "extra_length": extra_length, "samples": samples},
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
        names = []
        for split in ("valid", *data.test_splits):
            words = [len(line.split()) for line in data.sources(split)]
            bins = [f"bleu_words_{a}_{b}" for a, b in LENGTHS if any(a <= n <= b for n in words)]
            names += [f"{split}/{name}" for name in ("nll", "perplexity", "calibration_error", "bleu", *bins)]
            if split != "valid" and data.language:
                names += [f"{split}/bleu_moses", f"{split}/bleu_moses_lc"]
        return names

    # ---- training

    def training_loss(self, batch: dict[str, Tensor]) -> TokenLoss:
        return self.loss(batch, self.label_smoothing)

    def loss(self, batch: dict[str, Tensor], smoothing: float) -> TokenLoss:
        inputs, labels = self.shift(batch["target"])
        states, output = self.network.states(batch["source"], inputs), self.network.output
        return output_loss(states, output.weight, None, labels, pad_id=self.ignored, smoothing=smoothing)

    def shift(self, target: Int[Tensor, "batch target"]) -> tuple[Tensor, Tensor]:
        """What goes into the decoder, BOS …, and what is to come out, … EOS: shifted right by one (figure 1)."""
        return target[:, :-1], target[:, 1:]

    def layers(self) -> dict[str, nn.Module]:
        stacks = {"encoder": self.network.encoder, "decoder": self.network.decoder}
        return {f"{name}.{i}": layer for name, stack in stacks.items() for i, layer in enumerate(stack.layers)}

    def batch_tokens(self, batch: dict[str, Tensor]) -> Tensor:
        return (batch["source"] != PAD).sum() + (batch["target"][:, 1:] != PAD).sum()

    # ---- validation and test

    def nothing_found(self) -> "Evaluation":
        return Evaluation(self.device)

    def evaluate(self, batch: dict[str, Tensor], split: str) -> None:
        decoding = Decoding() if split == "valid" else self.decoding
        inputs, labels = self.shift(batch["target"])
        logits = self.network(batch["source"], inputs)
        loss = token_loss(logits, labels, pad_id=self.ignored)
        translations = self.trainer.datamodule.texts(self.translate(batch["source"], decoding))
        self.found[split].add(loss, logits, labels, batch["index"].tolist(), translations)

    def translate(self, source: Int[Tensor, "batch source"], decoding: Decoding) -> Int[Tensor, "batch length"]:
        """Translations without BOS; each at most its own source's length + extra_length tokens long."""
        limits = (source != PAD).sum(dim=1) + self.extra_length
        return search(decoding)(
            Continuation(self.network, source, decoding.rows),
            bos_id=BOS,
            eos_id=EOS,
            pad_id=PAD,
            limits=limits.clamp_max(self.network.target_position.longest or 10**9),
        )

    def report(self) -> None:
        """Metrics of the whole split from sums and texts of all ranks: each sentence counts once."""
        for split, evaluation in self.found.items():
            nll, tokens, translations = evaluation.gather(self)
            if not translations:
                continue
            calibration_error = float(evaluation.calibration.compute())  # of all ranks
            mean = torch.tensor(nll / max(tokens, 1), dtype=torch.float64)
            metrics = {"nll": float(mean), "perplexity": float(mean.exp()), "calibration_error": calibration_error}
            metrics |= self.bleu(split, translations)
            self.log_evaluation({f"{split}/{name}": value for name, value in metrics.items()})
            sources, references = self.trainer.datamodule.sources(split), self.trainer.datamodule.references(split)
            if split != "valid":
                order = sorted(translations)
                self.log_translations(split, [references[i] for i in order], [translations[i] for i in order])
            rows = [[sources[i], references[i], translations[i]] for i in sorted(translations)[: self.samples]]
            self.log_samples(f"{split}/samples", ["source", "reference", "translation"], rows)

    def bleu(self, split: str, translations: dict[int, str]) -> dict[str, float]:
        """Corpus BLEU of all sentences, and of those of each length that occurs."""
        sources, references = self.trainer.datamodule.sources(split), self.trainer.datamodule.references(split)
        lowercase = self.trainer.datamodule.lowercase  # the signature says so
        bleu = sacrebleu.metrics.BLEU(lowercase=lowercase, force=True)  # the toy's full stops stand apart, no mistake
        words = {i: len(sources[i].split()) for i in sorted(translations)}
        chosen = {"bleu": list(words)}
        chosen |= {f"bleu_words_{a}_{b}": [i for i in words if a <= words[i] <= b] for a, b in LENGTHS}
        scores = {
            name: bleu.corpus_score([translations[i] for i in some], [[references[i] for i in some]]).score
            for name, some in chosen.items()
            if some
        }
        self.bleu_signature = str(bleu.get_signature())
        if split != "valid" and (language := self.trainer.datamodule.language):
            scores |= moses_bleu([translations[i] for i in words], [references[i] for i in words], language)
        return scores

    # ---- why

    def diagnose(self, batch: dict[str, Tensor]) -> dict[str, float]:
        """`attention_statistics` of every attention module, padding left out; the decoder's `leak`."""
        source, (target, _) = batch["source"], self.shift(batch["target"])
        real = {"encoder": source != PAD, "decoder": target != PAD}
        with attention_weights(self.network) as seen:
            self.network(source, target)
        found = {
            f"{name.replace('layers.', '')}/{statistic}": value
            for name, attended in seen.items()
            for statistic, value in attention_statistics(attended, real[name.split(".")[0]]).items()
        }
        sizes = {"vocab_size": self.hparams.vocab_size, "pad_id": PAD}
        return found | {"leak": leak(lambda target: self.network(source, target), target, **sizes)}

    def pictures(self, batch: dict[str, Tensor]) -> list[Picture]:
        """Every attention module's weights, mean over heads, and the similarity of the source's positions."""
        source, (target, _) = batch["source"], self.shift(batch["target"])
        with attention_weights(self.network) as seen:
            self.network(source, target)
        of_stack, drawn = {"encoder": source[0], "decoder": target[0]}, []
        for name, attended in seen.items():
            rows = of_stack[name.split(".")[0]]
            columns = source[0] if name.endswith("cross_attention") else rows
            drawn.append(Picture(name.replace("layers.", ""), attended.weights[0].float().mean(0), rows, columns))
        position = self.network.source_position
        places = min(SHOWN, position.longest or SHOWN)
        similar = position_similarity(position, torch.zeros(places, self.hparams.arch["d_model"], device=self.device))
        return drawn + of_positions(similar)


class Evaluation:
    """Sums, predictions and translations of one split on one rank."""

    def __init__(self, device: torch.device) -> None:
        self.nll, self.tokens, self.translations = 0.0, 0, {}
        self.calibration = BinaryCalibrationError(n_bins=15, norm="l1", validate_args=False).to(device)

    def add(self, loss: TokenLoss, logits: Tensor, labels: Tensor, index: list[int], translations: list[str]) -> None:
        self.nll += float(loss.nll)
        self.tokens += int(loss.tokens)
        real = labels != PAD
        confidence, predicted = logits[real].float().softmax(dim=-1).max(dim=-1)
        self.calibration.update(confidence, (predicted == labels[real]).long())
        self.translations |= dict(zip(index, translations, strict=True))

    def gather(self, module: AblationModule) -> tuple[float, int, dict[int, str]]:
        """The same of all ranks together."""
        parts = module.of_all_ranks((self.nll, self.tokens, self.translations))
        nll, tokens, translations = zip(*parts, strict=True)
        return sum(nll), sum(tokens), {i: text for part in translations for i, text in part.items()}


def moses_bleu(translations: list[str], references: list[str], language: str) -> dict[str, float]:
    """Corpus BLEU of tokens, without smoothing and without a tokeniser of sacreBLEU's own; and in small letters."""
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(language)
    ours, theirs = ([tokenizer.tokenize(line, return_str=True) for line in text] for text in (translations, references))
    bleu = {
        name: sacrebleu.metrics.BLEU(tokenize="none", smooth_method="none", lowercase=small, force=True)
        for name, small in (("bleu_moses", False), ("bleu_moses_lc", True))
    }
    return {name: metric.corpus_score(ours, [theirs]).score for name, metric in bleu.items()}
