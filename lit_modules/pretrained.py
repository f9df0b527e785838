"""What a pre-trained BERT consists of, read from a checkpoint of ours or a folder of Hugging Face's form, and back.

    {config.json, model.safetensors, vocab.txt}  ⇄  settings, weights, tokeniser
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from datamodules.local import checkpoint_path
from datamodules.tokenizer import BERT_SPECIALS, PAD, UNK

from .choices import Arch

NETWORK = ("vocab_size", "position", "direction", "max_length")  # what BertNetwork takes beside `arch`


@dataclass(frozen=True)
class Pretrained:
    """A pre-trained encoder.

    Attributes:
        settings: `arch` as a mapping, and vocab_size, position, direction and max_length.
        weights: `network.…`, `head.…` and `pair.…` as in `Bert`.
    """

    settings: dict[str, Any]
    weights: dict[str, Tensor]
    tokenizer: Tokenizer

    @property
    def arch(self) -> Arch:
        return Arch(**self.settings["arch"])

    @property
    def network(self) -> dict[str, Any]:
        """The other arguments of `BertNetwork`."""
        return {name: self.settings[name] for name in NETWORK}

    def of(self, part: str) -> dict[str, Tensor]:
        """The weights of one part, under its own names; empty where it was not trained."""
        return {name.removeprefix(f"{part}."): w for name, w in self.weights.items() if name.startswith(f"{part}.")}


def read(checkpoint: str) -> Pretrained:
    """A .ckpt file, a run's folder with one, or a folder with Hugging Face's config.json.

    Raises:
        ValueError: no such file, or not a pre-trained BERT.
    """
    file = checkpoint_path(checkpoint)
    if (file / "config.json").is_file():
        return read_hugging_face(file)
    if not file.is_file():
        raise ValueError(f"no checkpoint {checkpoint!r}: give a run's folder, a .ckpt file, or one with config.json")
    kept = torch.load(file, weights_only=True, map_location="cpu")
    settings = kept.get("hyper_parameters", {})
    if not {"arch", *NETWORK} <= set(settings):
        raise ValueError(f"{file} holds no pre-trained encoder (class {kept.get('class_path', 'unknown')})")
    return Pretrained(settings, kept["state_dict"], Tokenizer.from_str(data_of(kept)["tokenizer"]))


def data_of(kept: dict[str, Any]) -> dict[str, Any]:
    """What the datamodule left in a checkpoint, whatever its class is called."""
    (data,) = [state for state in kept.values() if isinstance(state, dict) and {"tokenizer", "labels"} & set(state)]
    return data


# ---- Hugging Face

OUTSIDE = {  # ours → theirs, outside the layers
    "network.embedding.token.weight": "bert.embeddings.word_embeddings.weight",
    "network.embedding.segment.weight": "bert.embeddings.token_type_embeddings.weight",
    "network.embedding.position.table": "bert.embeddings.position_embeddings.weight",
    "network.embedding.norm.weight": "bert.embeddings.LayerNorm.weight",
    "network.embedding.norm.bias": "bert.embeddings.LayerNorm.bias",
    "head.transform.weight": "cls.predictions.transform.dense.weight",
    "head.transform.bias": "cls.predictions.transform.dense.bias",
    "head.norm.weight": "cls.predictions.transform.LayerNorm.weight",
    "head.norm.bias": "cls.predictions.transform.LayerNorm.bias",
    "head.bias": "cls.predictions.bias",
    "head.weight": "cls.predictions.decoder.weight",
    "pair.pooler.map.weight": "bert.pooler.dense.weight",
    "pair.pooler.map.bias": "bert.pooler.dense.bias",
    "pair.output.weight": "cls.seq_relationship.weight",
    "pair.output.bias": "cls.seq_relationship.bias",
}
IN_LAYER = {
    "self_attention.output": "attention.output.dense",
    "residuals.0.norm": "attention.output.LayerNorm",
    "feed_forward.inner": "intermediate.dense",
    "feed_forward.outer": "output.dense",
    "residuals.1.norm": "output.LayerNorm",
}
OF_VOCABULARY = ("network.embedding.token.weight", "head.weight", "head.bias")  # a row a word piece


def names(n_layers: int) -> dict[str, str]:
    """Ours → theirs; the fused projection of queries, keys and values is not among them."""
    known = dict(OUTSIDE)
    for i in range(n_layers):
        for ours, theirs in IN_LAYER.items():
            for kind in ("weight", "bias"):
                known[f"network.encoder.layers.{i}.{ours}.{kind}"] = f"bert.encoder.layer.{i}.{theirs}.{kind}"
    return known


def fused(layer: int, kind: str) -> tuple[str, list[str]]:
    """The fused projection, and its three parts there."""
    ours = f"network.encoder.layers.{layer}.self_attention.query_key_value.{kind}"
    return ours, [f"bert.encoder.layer.{layer}.attention.self.{part}.{kind}" for part in ("query", "key", "value")]


def from_hugging_face(theirs: dict[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """Their weights under our names; heads that are not there stay away.

    Raises:
        ValueError: where a layer or an embedding is missing.
    """
    needed = {name for ours, name in names(n_layers).items() if ours.startswith("network.")}
    needed |= {name for i in range(n_layers) for kind in ("weight", "bias") for name in fused(i, kind)[1]}
    if missing := sorted(needed - set(theirs)):
        raise ValueError(f"the weights lack {len(missing)} of {len(needed)}, among them {missing[0]}")
    weights = {ours: theirs[name] for ours, name in names(n_layers).items() if name in theirs}
    weights |= {fused(i, kind)[0]: torch.cat([theirs[name] for name in fused(i, kind)[1]])
                for i in range(n_layers) for kind in ("weight", "bias")}  # fmt: skip
    if "head.bias" in weights:  # they save tied weights once
        weights["head.weight"] = weights["network.embedding.token.weight"]
    return weights


def to_hugging_face(ours: dict[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """Our weights under their names; a fine-tuned head is no head for masked tokens, and stays away."""
    if "head.transform.weight" not in ours:
        ours = {name: weight for name, weight in ours.items() if not name.startswith("head.")}
    weights = {name: ours[key] for key, name in names(n_layers).items() if key in ours}
    for i in range(n_layers):
        for kind in ("weight", "bias"):
            key, parts = fused(i, kind)
            weights |= dict(zip(parts, ours[key].chunk(3), strict=True))
    if "head.bias" in ours:
        weights["cls.predictions.decoder.bias"] = ours["head.bias"]
    return weights


def read_hugging_face(folder: Path) -> Pretrained:
    """A BERT from config.json, model.safetensors (or pytorch_model.bin) and vocab.txt.

    Our special tokens come first in the vocabulary: word pieces, and the rows of what belongs to them, change places.

    Raises:
        ValueError: at a file that is missing, another kind of model, or one that BERT's settings cannot express.
    """
    config = json.loads((folder / "config.json").read_text())
    for key, wanted in (
        ("model_type", "bert"), ("hidden_act", "gelu"), ("type_vocab_size", 2), ("layer_norm_eps", 1e-12),
        ("position_embedding_type", "absolute"), ("is_decoder", False),
        ("attention_probs_dropout_prob", config.get("hidden_dropout_prob", 0.1)),
    ):  # fmt: skip
        if config.get(key, wanted) != wanted:
            raise ValueError(f"{folder}/config.json: {key} {config[key]!r} is not {wanted!r}")
    n_layers = config["num_hidden_layers"]
    weights = from_hugging_face(with_prefix(weights_of(folder)), n_layers)
    pieces, lower = vocabulary(folder)
    if missing := [special for special in BERT_SPECIALS if special not in pieces]:
        raise ValueError(f"{folder}: the vocabulary lacks {', '.join(missing)}")
    order = [pieces.index(special) for special in BERT_SPECIALS]
    order += [i for i in range(len(weights[OF_VOCABULARY[0]])) if i not in set(order)]
    weights |= {name: weights[name][order] for name in OF_VOCABULARY if name in weights}
    arch = Arch(
        d_model=config["hidden_size"], n_heads=config["num_attention_heads"], d_ff=config["intermediate_size"],
        n_layers=n_layers, norm="post", activation="gelu", dropout=config.get("hidden_dropout_prob", 0.1),
    )  # fmt: skip
    settings = {"arch": asdict(arch), "vocab_size": len(order), "position": "learned", "direction": "bidirectional",
                "max_length": config["max_position_embeddings"]}  # fmt: skip
    ordered = [pieces[i] if i < len(pieces) else f"[unused-{i}]" for i in order]
    return Pretrained(settings, weights, wordpiece(ordered, lower))


def weights_of(folder: Path) -> dict[str, Tensor]:
    if (file := folder / "model.safetensors").is_file():
        from safetensors.torch import load_file

        return load_file(file)
    if (file := folder / "pytorch_model.bin").is_file():
        return torch.load(file, weights_only=True, map_location="cpu")
    raise ValueError(f"{folder} has neither model.safetensors nor pytorch_model.bin")


def with_prefix(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """A bare BertModel is saved without `bert.`; old files say gamma and beta."""
    bare = not any(name.startswith("bert.") for name in theirs)
    named = {f"bert.{name}" if bare else name: weight for name, weight in theirs.items()}
    return {name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): weight
            for name, weight in named.items()}  # fmt: skip


def vocabulary(folder: Path) -> tuple[list[str], bool]:
    """Word pieces in order, and whether text is lower-cased first."""
    settings = folder / "tokenizer_config.json"
    said = json.loads(settings.read_text()) if settings.is_file() else {}
    lower = said.get("do_lower_case", True)
    if said.get("strip_accents") not in (None, lower) or not said.get("tokenize_chinese_chars", True):
        raise ValueError(f"{settings}: strip_accents and tokenize_chinese_chars must be as in the published BERT")
    if (file := folder / "vocab.txt").is_file():
        return file.read_text(encoding="utf-8").removesuffix("\n").split("\n"), lower
    if (file := folder / "tokenizer.json").is_file():
        whole = json.loads(file.read_text())
        pieces = whole["model"]["vocab"]
        return sorted(pieces, key=pieces.get), (whole.get("normalizer") or {}).get("lowercase", lower)
    raise ValueError(f"{folder} has neither vocab.txt nor tokenizer.json")


def wordpiece(pieces: list[str], lower: bool) -> Tokenizer:
    """BERT's tokeniser over a vocabulary in this order."""
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=BERT_SPECIALS[UNK], max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    tokenizer.add_special_tokens(BERT_SPECIALS)
    return tokenizer


def write_hugging_face(pretrained: Pretrained, folder: Path) -> Path:
    """A folder that `transformers` opens with `from_pretrained`.

    Raises:
        ValueError: where a choice of the model has no word in their configuration.
    """
    from safetensors.torch import save_file

    arch, settings = pretrained.arch, pretrained.settings
    n_heads, d_k = arch.heads
    for name, value, wanted in (
        ("norm", arch.norm, "post"), ("activation", arch.activation, "gelu"),
        ("score_divisor", arch.score_divisor, "sqrt_d_k"), ("position", settings["position"], "learned"),
        ("direction", settings["direction"], "bidirectional"), ("n_heads · d_k", n_heads * d_k, arch.d_model),
    ):  # fmt: skip
        if value != wanted:
            raise ValueError(f"{name} {value} cannot be said in Hugging Face's configuration of BERT, only {wanted}")
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["BertForPreTraining"], "model_type": "bert", "hidden_size": arch.d_model,
        "num_attention_heads": n_heads, "num_hidden_layers": arch.n_layers, "intermediate_size": arch.inner,
        "hidden_act": "gelu", "hidden_dropout_prob": arch.dropout, "attention_probs_dropout_prob": arch.dropout,
        "max_position_embeddings": settings["max_length"], "type_vocab_size": 2, "vocab_size": settings["vocab_size"],
        "layer_norm_eps": 1e-12, "pad_token_id": PAD,
    }  # fmt: skip
    pieces = pretrained.tokenizer.get_vocab()
    whole = json.loads(pretrained.tokenizer.to_str())
    lower = bool((whole.get("normalizer") or {}).get("lowercase"))
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "vocab.txt").write_text("\n".join(sorted(pieces, key=pieces.get)) + "\n")
    how = {"do_lower_case": lower, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(how))
    weights = {name: w.clone().contiguous() for name, w in to_hugging_face(pretrained.weights, arch.n_layers).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
