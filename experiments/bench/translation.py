"""Translation: our encoder-decoder beside torch.nn.Transformer and Hugging Face's Marian of the same size.

All share batches, vocabulary, tied matrices, label smoothing, dropout after sub-layers and embeddings, and optimiser.
The peers do as their users do: Marian drops no attention weights, torch's feed-forward has a dropout of its own.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from datamodules.batching import collate
from datamodules.local import local_folder
from datamodules.tokenizer import BOS, EOS, PAD
from datamodules.translation import ParallelText, ToyTranslation
from lit_modules.choices import Arch
from lit_modules.translation import EncoderDecoder, Translation

from .turns import OPTIM, Batch, Family, Loss

SIZES = {"d_model": 128, "n_heads": 4, "n_layers": 4, "d_ff": 512, "dropout": 0.1}
BATCH_TOKENS = 4096


def prepare(count: int) -> tuple[list[Batch], int]:
    folder = local_folder("multi30k")
    data = ParallelText(str(folder), batch_tokens=BATCH_TOKENS) if folder else ToyTranslation(batch_tokens=BATCH_TOKENS)
    data.load()
    examples = data.examples["train"]
    chosen = list(data.batches("train"))[:count]
    return [collate([examples[i] for i in batch]) for batch in chosen], data.vocab_size


def tokens(batch: Batch) -> int:
    """Real source and target tokens."""
    return int((batch["source"] != PAD).sum() + (batch["target"][:, 1:] != PAD).sum())


def mean_loss(logits: Tensor, batch: Batch) -> Tensor:
    target = batch["target"][:, 1:].flatten()
    return F.cross_entropy(logits.flatten(0, 1), target, ignore_index=PAD, label_smoothing=0.1)


def ours(vocab_size: int) -> tuple[nn.Module, Loss]:
    model = Translation(arch=Arch(**SIZES), optim=OPTIM, vocab_size=vocab_size)

    def loss(batch: Batch) -> Tensor:
        found = model.training_loss(batch)
        return found.smoothed / found.tokens

    return model, loss


class TorchTransformer(EncoderDecoder):
    """Our embeddings and output around torch.nn.Transformer, called as its documentation does."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(
            arch=Arch(**SIZES), vocab_size=vocab_size, position="sinusoidal", look_ahead="masked", weight_tying="all",
            cross_attention="present", max_length=256,
        )  # fmt: skip
        del self.encoder, self.decoder
        self.dropout = nn.Dropout(SIZES["dropout"])
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


def torchs(vocab_size: int) -> tuple[nn.Module, Loss]:
    model = TorchTransformer(vocab_size)
    return model, lambda batch: mean_loss(model(batch["source"], batch["target"][:, :-1]), batch)


def marian(vocab_size: int, attention: str) -> nn.Module:
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(MarianConfig(
        vocab_size=vocab_size, d_model=SIZES["d_model"], encoder_layers=SIZES["n_layers"],
        decoder_layers=SIZES["n_layers"], encoder_attention_heads=SIZES["n_heads"],
        decoder_attention_heads=SIZES["n_heads"], encoder_ffn_dim=SIZES["d_ff"], decoder_ffn_dim=SIZES["d_ff"],
        dropout=SIZES["dropout"], attention_dropout=0.0, activation_dropout=0.0, activation_function="relu",
        max_position_embeddings=256, scale_embedding=True, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS,
        decoder_start_token_id=BOS, forced_eos_token_id=None, attn_implementation=attention,
    ))  # fmt: skip


def marians(attention: str) -> Callable[[int], tuple[nn.Module, Loss]]:
    def make(vocab_size: int) -> tuple[nn.Module, Loss]:
        model = marian(vocab_size, attention).train()

        def loss(batch: Batch) -> Tensor:
            source = batch["source"]
            found = model(
                input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=batch["target"][:, :-1],
                use_cache=False,
            )  # fmt: skip
            return mean_loss(found.logits, batch)

        return model, loss

    return make


def family() -> Family:
    real = local_folder("multi30k") is not None
    return Family(
        unit="tokens",
        about=f"{'Multi30k' if real else 'toy language'}, d_model 128, 4 + 4 layers, d_ff 512, {BATCH_TOKENS} slots",
        steps=6,
        sides={
            "ours": ours, "torch.nn.Transformer": torchs, "Hugging Face, sdpa": marians("sdpa"),
            "Hugging Face, eager": marians("eager"),
        },
        tuned=("torch.nn.Transformer", "Hugging Face, sdpa", "Hugging Face, eager"),
        prepare=prepare, count=tokens,
    )  # fmt: skip
