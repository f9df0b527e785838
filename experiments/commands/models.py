"""Commands about a trained model and its speed: try, export, bench."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.launch.question import BadInput


def try_out(
    checkpoint: Annotated[Path, typer.Argument(help="a run's folder, or a checkpoint in it")],
    images: Annotated[list[Path] | None, typer.Argument(help="image files, for a ViT")] = None,
    beam: Annotated[int, typer.Option(help="hypotheses of a beam; 1 is greedy", min=1)] = 1,
    length_penalty: Annotated[float, typer.Option(help="of the beam: log p / ((5 + n) / 6)^α", min=0)] = 0.6,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="what a translation's first sentence, or the first image, is attended to: .html, .svg or .png",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """A trained model on the lines of standard input: translates, fills [MASK], classifies, tags, answers. A ViT looks
    at image files and draws its attention, its positions and its filters.

    echo "the old man sees a dog ." | ablate try RUN_FOLDER --beam 4

    ablate try RUN_FOLDER cat.png --picture cat.html

    A tab parts two segments, two sentences, or a question from its text.
    """
    from experiments.tryout import main

    sys.stdin.reconfigure(errors="replace")
    main(checkpoint, images or [], beam, length_penalty, picture)


def export(
    checkpoint: Annotated[Path, typer.Argument(help="a pre-trained BERT: a run's folder, or a checkpoint in it")],
    folder: Annotated[Path, typer.Argument(help="where config.json, model.safetensors and vocab.txt go")],
) -> None:
    """Writes a BERT as Hugging Face's transformers open it. The way back: --model.checkpoint=FOLDER."""
    from lit_modules.pretrained import read, write_hugging_face

    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty: nothing is overwritten")
    try:
        print(write_hugging_face(read(str(checkpoint)), folder))
    except ValueError as error:
        raise BadInput(str(error)) from error


def bench(
    family: Annotated[str, typer.Argument(help="translation, decoding, bert, vit or gpu")] = "translation",
    dataset: Annotated[
        str | None, typer.Option(help="Multi30k; documents for bert; CIFAR-10 for vit (default: embedded data)")
    ] = None,
    rounds: Annotated[int, typer.Option(help="stretches of steps for each side", min=1)] = 5,
) -> None:
    """translation, bert, vit: our training step beside the peers' of the same size, turn about in one process, fp32 and
    bf16; decoding: time per token with and without the cache; gpu: what should hold on a GPU, and its speed."""
    if family == "translation":
        from experiments.bench import translation

        translation.main(dataset, rounds)
    elif family == "decoding":
        from experiments.bench import decoding

        decoding.main(rounds)
    elif family == "bert":
        from experiments.bench import bert

        bert.main(dataset, rounds)
    elif family == "vit":
        from experiments.bench import vit

        vit.main(dataset, rounds)
    elif family == "gpu":
        from experiments.bench import gpu

        raise typer.Exit(0 if gpu.main() else 1)
    else:
        raise BadInput(f"no benchmark {family!r}; known: translation, decoding, bert, vit, gpu")
