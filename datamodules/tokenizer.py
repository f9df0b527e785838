"""Text to token ids and back: trained on the training split, cached by content."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

PAD, BOS, EOS, UNK = range(4)
CHUNK = 10_000  # texts that are encoded at once: an encoding holds far more than its ids
SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]
CLS, SEP, MASK = BOS, EOS, 4  # in BERT's vocabulary, where what begins and ends a row has names of its own
BERT_SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]

Kind = Literal["bpe", "bpe-lower", "word", "wordpiece", "wordpiece-cased"]
BUILD = {
    "bpe": lambda: byte_level(normalizers.NFC()),
    "bpe-lower": lambda: byte_level(normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])),
    # words between spaces: the toy language
    "word": lambda: (
        normalizers.NFC(),
        models.WordLevel(unk_token=SPECIALS[UNK]),
        pre_tokenizers.WhitespaceSplit(),
        None,
        lambda size: trainers.WordLevelTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False),
    ),
    # BERT's: words and punctuation marks, cut greedily into the longest known pieces, those within a word with ##
    "wordpiece": lambda: wordpiece(lowercase=True),
    "wordpiece-cased": lambda: wordpiece(lowercase=False),
}  # fmt: skip


def byte_level(normalizer: normalizers.Normalizer):
    """Every text comes back as the normaliser leaves it."""
    return (
        normalizer,
        models.BPE(),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
        lambda size: trainers.BpeTrainer(
            vocab_size=size, special_tokens=SPECIALS, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )  # fmt: skip


def wordpiece(lowercase: bool):
    return (
        normalizers.BertNormalizer(lowercase=lowercase),
        models.WordPiece(unk_token=BERT_SPECIALS[UNK]),
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(),
        lambda size: trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=BERT_SPECIALS, show_progress=False, min_frequency=2
        ),
    )


def cache_folder() -> Path:
    """Where tokenisers are kept: $ABLATE_CACHE, else the user's cache."""
    return Path(os.environ.get("ABLATE_CACHE", Path.home() / ".cache" / "transformer-ablations"))


def train_tokenizer(texts: Iterable[str], *, kind: Kind, vocab_size: int) -> Tokenizer:
    """One tokeniser for all of `texts`; the same texts and arguments are trained once a machine."""
    texts = list(texts)
    digest = hashlib.sha256(json.dumps([kind, vocab_size]).encode() + Path(__file__).read_bytes())
    for text in texts:
        digest.update(text.encode() + b"\n")
    path = cache_folder() / f"tokenizer-{digest.hexdigest()[:24]}.json"
    if path.exists():
        return Tokenizer.from_file(str(path))
    normalizer, model, pre_tokenizer, decoder, trainer = BUILD[kind]()
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.train_from_iterator(texts, trainer(vocab_size), length=len(texts))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    tokenizer.save(str(draft))
    draft.replace(path)  # whole or not at all: several runs may do this at once
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str], *, max_length: int, bos: bool) -> list[np.ndarray]:
    """Ids of each text with EOS at its end, and BOS before it for targets, at most `max_length` in all.

    A text that is too long loses its end, never its EOS.
    """
    start = [BOS] if bos else []
    room = max_length - len(start) - 1
    return [np.array([*start, *ids[:room], EOS], dtype=np.int32) for ids in encode_plain(tokenizer, texts)]


def encode_plain(tokenizer: Tokenizer, texts: list[str]) -> Iterator[np.ndarray]:
    """Ids of each text, nothing added and nothing cut."""
    for first in range(0, len(texts), CHUNK):
        for encoding in tokenizer.encode_batch(texts[first : first + CHUNK], add_special_tokens=False):
            yield np.array(encoding.ids, dtype=np.int32)


def pieces(tokenizer: Tokenizer, ids: torch.Tensor) -> list[str]:
    """Each token as it reads alone, or by its name where it does not."""
    return [tokenizer.decode([i], skip_special_tokens=False).strip() or tokenizer.id_to_token(i) for i in ids.tolist()]


def decode(tokenizer: Tokenizer, ids: torch.Tensor) -> list[str]:
    """Detokenised lines, cut at the first EOS."""
    rows = [row[: row.index(EOS)] if EOS in row else row for row in ids.tolist()]
    return tokenizer.decode_batch([[i for i in row if i != PAD] for row in rows], skip_special_tokens=True)
