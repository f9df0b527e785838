"""Commands about a trained model and its speed: try, export, bench."""

import importlib
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


BENCHES = ("translation", "bert", "vit", "decoding", "launching", "scaling", "gpu")


def bench(
    parts: Annotated[
        list[str] | None, typer.Argument(help=f"any of {', '.join(BENCHES)}; the first five if none", metavar="PART…")
    ] = None,
    rounds: Annotated[int, typer.Option(help="stretches of steps for each side", min=1)] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="ours beside one peer: fails where a kept ratio has fallen by a third")
    ] = False,
    scaling: Annotated[bool, typer.Option("--scaling", help="as `ablate bench scaling`")] = False,
) -> None:
    """How fast are we, beside whom?

    translation, bert, vit: training steps beside each installed peer's (pip install '.[peers]'), turn about, fp32 and
    bf16; decoding: beside Hugging Face's, with and without the cache; launching: what a run costs beside its steps;
    scaling: how time and memory grow; gpu: what should hold on a GPU, and its speed.

    Data: Multi30k, English documents and CIFAR-10 where $ABLATE_DATA has them, else embedded data."""
    from experiments.bench.training import FAMILIES

    if scaling and (parts or quick):
        raise BadInput("--scaling stands alone; beside others write `ablate bench PART… scaling`")
    wanted = parts or (["scaling"] if scaling else list(FAMILIES if quick else BENCHES[:5]))
    if unknown := [part for part in wanted if part not in BENCHES]:
        raise BadInput(f"no benchmark {unknown[0]!r}; known: {', '.join(BENCHES)}")
    families = [part for part in wanted if part in FAMILIES]
    if quick and families != wanted:
        raise BadInput(f"--quick is for {', '.join(FAMILIES)}")
    fine = True
    if families:
        from experiments.bench import training

        fine = training.main(families, rounds, quick)
    for part in wanted:
        if part not in FAMILIES:
            module = importlib.import_module(f"experiments.bench.{part}")
            fine = module.main(*([rounds] if part in ("decoding", "scaling") else [])) and fine
    if not fine:
        raise typer.Exit(1)
