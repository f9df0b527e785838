"""`ablate try`: what a trained model does with your own input. A checkpoint is all that it needs."""

import dataclasses
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from datamodules.batching import padded
from datamodules.local import checkpoint_path
from datamodules.tokenizer import BOS, PAD, UNK, decode, encode, pieces
from experiments.launch.keys import load as load_class
from experiments.launch.keys import parameters_of
from experiments.launch.question import BadInput
from lit_modules import pretrained
from lit_modules.base import AblationModule
from lit_modules.bert import Bert
from lit_modules.components.attention import attention_weights
from lit_modules.generation import Decoding
from lit_modules.optimization import Optim
from lit_modules.translation import Translation
from lit_modules.vit import Vit

from .tryout_bert import READS, say
from .tryout_vit import look_at

BATCH = 32
LONGEST = 512  # tokens of an input line where the model sets no limit of its own


def main(checkpoint: Path, images: list[Path], beam: int, length_penalty: float, picture: Path | None) -> None:
    model, data = restored(checkpoint)
    if picture and picture.suffix not in (".html", ".svg", ".png"):
        raise BadInput(f"--picture {picture}: write a name that ends with .html, .svg or .png")
    if isinstance(model, Vit):
        return look_at(model, data, images, picture)
    if images:
        raise BadInput(f"a {type(model).__name__} reads lines of text from standard input, not files: {images[0]}")
    if picture and not isinstance(model, Translation):
        raise BadInput(f"--picture draws translation models and ViT, not a {type(model).__name__}")
    tokenizer, labels = Tokenizer.from_str(data["tokenizer"]), data.get("labels", [])
    if isinstance(model, Translation):
        decoding = Decoding(method="beam" if beam > 1 else "greedy", beam_width=beam, length_penalty=length_penalty)
        return translate_lines(model, tokenizer, decoding, picture)
    kind = next((kind for kind in READS if isinstance(model, kind)), None)
    if kind is None:
        raise BadInput(f"{checkpoint} holds a {type(model).__name__}, which `ablate try` does not know")
    if sys.stdin.isatty():
        print(f"{READS[kind]}; Ctrl-D ends", file=sys.stderr)
    for line in sys.stdin:
        if line.strip():
            say(model, tokenizer, labels, line.rstrip("\n"))


def translate_lines(model: Translation, tokenizer: Tokenizer, decoding: Decoding, picture: Path | None) -> None:
    if sys.stdin.isatty():
        print("write a sentence a line; Ctrl-D ends", file=sys.stderr)
    for lines in batches(sys.stdin):
        source, translations = translated(model, tokenizer, lines, decoding)
        for text in decode(tokenizer, translations):
            print(text, flush=True)
        if picture:
            from experiments.pictures import attention_chart, save

            save(attention_chart(*cross_attention(model, tokenizer, source, translations)), picture)
            print(f"cross-attention of the first sentence: {picture}", file=sys.stderr)
            picture = None


def restored(checkpoint: Path) -> tuple[AblationModule, dict[str, Any]]:
    """The model, in evaluation mode, and what its data left in the checkpoint: the tokeniser, the names of the classes.

    Raises:
        BadInput: no such file, or not a checkpoint of this version of the project.
    """
    if (checkpoint / "config.json").is_file():
        return of_hugging_face(checkpoint)
    path = checkpoint_path(str(checkpoint))
    if not path.is_file():
        raise BadInput(f"no checkpoint {path}: give a run's folder (runs/QUESTION/RECIPE/ARM/seed-…) or a .ckpt file")
    try:
        kept = torch.load(path, weights_only=True, map_location="cpu")
        kind, settings, weights = load_class(kept["class_path"], "model"), kept["hyper_parameters"], kept["state_dict"]
        data = pretrained.data_of(kept)
        types = parameters_of(kind)
        if "checkpoint" in types:  # it holds the encoder that it was made of
            settings = {name: value for name, value in settings.items() if name in types} | {"checkpoint": str(path)}
        pages = {n: types[n](**v) if dataclasses.is_dataclass(types[n]) else v for n, v in settings.items()}
        model = kind(**pages)
        model.load_state_dict(weights)
    except Exception as error:  # whatever is wrong with a file that is none of ours, or older than this code
        raise BadInput(f"{path} is no checkpoint of this version of the project ({type(error).__name__})") from error
    return model.eval(), data


def of_hugging_face(folder: Path) -> tuple[AblationModule, dict[str, Any]]:
    """A BERT from a folder of their form. Without a trained head for masks it has nothing to say."""
    try:
        found = pretrained.read(str(folder))
    except (ValueError, KeyError) as error:
        raise BadInput(f"{folder}: {error}") from error
    if not found.of("head"):
        raise BadInput(f"{folder} is an encoder without the head that fills masks: fine-tune it first")
    objective = "mlm+nsp" if found.of("pair") else "mlm"
    model = Bert(arch=found.arch, optim=Optim(lr=1.0, warmup_steps=0), objective=objective, **found.network)
    model.load_state_dict(found.weights)
    return model.eval(), {"tokenizer": found.tokenizer.to_str()}


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
    return pieces(tokenizer, source), pieces(tokenizer, written), weights
