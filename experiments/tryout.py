"""`ablate try`: what a trained model does with your own input. A checkpoint is all that it needs."""

import dataclasses
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from datamodules.batching import padded
from datamodules.tokenizer import BOS, PAD, UNK, decode, encode
from experiments.launch.keys import load as load_class
from experiments.launch.keys import parameters_of
from experiments.launch.question import BadInput
from lit_modules.base import AblationModule
from lit_modules.components.attention import attention_weights
from lit_modules.generation import Decoding
from lit_modules.translation import Translation

BATCH = 32
LONGEST = 512  # tokens of an input line where the model sets no limit of its own


def main(checkpoint: Path, beam: int, length_penalty: float, picture: Path | None) -> None:
    model, tokenizer = restored(checkpoint)
    if not isinstance(model, Translation):
        raise BadInput(f"{checkpoint} holds a {type(model).__name__}; `ablate try` knows translation models")
    if picture and picture.suffix not in (".html", ".svg", ".png"):
        raise BadInput(f"--picture {picture}: write a name that ends with .html, .svg or .png")
    decoding = Decoding(method="beam" if beam > 1 else "greedy", beam_width=beam, length_penalty=length_penalty)
    if sys.stdin.isatty():
        print("write a sentence a line; Ctrl-D ends", file=sys.stderr)
    for lines in batches(sys.stdin):
        source, translations = translated(model, tokenizer, lines, decoding)
        for text in decode(tokenizer, translations):
            print(text, flush=True)
        if picture:
            from experiments.pictures import attention_chart, save

            try:
                save(attention_chart(*cross_attention(model, tokenizer, source, translations)), picture)
            except OSError as error:
                raise BadInput(f"cannot write {picture}: {error.strerror}") from error
            print(f"cross-attention of the first sentence: {picture}", file=sys.stderr)
            picture = None


def restored(checkpoint: Path) -> tuple[AblationModule, Tokenizer]:
    """The model, in evaluation mode, and its tokeniser.

    Raises:
        BadInput: no such file, or not a checkpoint of this version of the project.
    """
    path = checkpoint / "checkpoints" / "best.ckpt" if checkpoint.is_dir() else checkpoint
    if not path.is_file():
        raise BadInput(f"no checkpoint {path}: give a run's folder (runs/QUESTION/RECIPE/ARM/seed-…) or a .ckpt file")
    try:
        kept = torch.load(path, weights_only=True, map_location="cpu")
        kind, settings, weights = load_class(kept["class_path"], "model"), kept["hyper_parameters"], kept["state_dict"]
        (tokenizer,) = [v["tokenizer"] for v in kept.values() if isinstance(v, dict) and "tokenizer" in v]
        types = parameters_of(kind)
        pages = {n: types[n](**v) if dataclasses.is_dataclass(types[n]) else v for n, v in settings.items()}
        model = kind(**pages)
        model.load_state_dict(weights)
    except Exception as error:  # whatever is wrong with a file that is none of ours, or older than this code
        raise BadInput(f"{path} is no checkpoint of this version of the project ({type(error).__name__})") from error
    return model.eval(), Tokenizer.from_str(tokenizer)


def batches(stream) -> Iterator[list[str]]:
    """Lines without their ends, one at a time from a keyboard; empty ones stay, so that line i answers line i."""
    size = 1 if stream.isatty() else BATCH
    while lines := [line.rstrip("\n") for line in islice(stream, size)]:
        yield lines


@torch.no_grad()
def translated(model: Translation, tokenizer: Tokenizer, lines: list[str], decoding: Decoding) -> tuple[Tensor, Tensor]:
    """(batch, source) and (batch, length) ids; says on standard error which words the model does not know."""
    limit = model.network.source_position.longest or LONGEST
    encoded = encode(tokenizer, lines, max_length=limit, bos=False)
    for line, ids in zip(lines, encoded, strict=True):
        if UNK in ids:
            known = tokenizer.get_vocab()
            unknown = [word for word in line.split() if word not in known]
            print(f"not in the vocabulary of {len(known)}: {', '.join(unknown)}", file=sys.stderr)
        if len(tokenizer.encode(line).ids) + 1 > limit:
            print(f"cut to {limit} tokens: {line[:60]}…", file=sys.stderr)
    source = padded(tuple(encoded))
    return source, model.translate(source, decoding)


@torch.no_grad()
def cross_attention(model: Translation, tokenizer: Tokenizer, source: Tensor, translations: Tensor):
    """Source tokens, translated tokens, and for each layer the weights (target, source), mean over heads.

    Row i is what the decoder looked at when it wrote token i.
    """
    source, written = source[0][source[0] != PAD], translations[0][translations[0] != PAD]
    target = torch.cat([torch.tensor([BOS]), written[:-1]])
    with attention_weights(model.network) as seen:
        model.network(source[None], target[None])
    weights = {
        f"layer {name.split('.')[2]}": attended.weights[0].mean(0)
        for name, attended in seen.items()
        if name.endswith("cross_attention")
    }
    if not weights:
        raise BadInput("this model has no cross-attention to draw")
    return words(tokenizer, source), words(tokenizer, written), weights


def words(tokenizer: Tokenizer, ids: Tensor) -> list[str]:
    return [tokenizer.decode([i], skip_special_tokens=False).strip() or tokenizer.id_to_token(i) for i in ids.tolist()]
