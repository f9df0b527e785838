"""`ablate`: from a question to its answer. Heavy imports stand inside the commands, so that --help answers at once."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.launch.question import ROOT, BadInput, Question, canonical, read

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A lab bench for questions about the Transformer. A QUESTION is a name in sweeps/ or the path of a W&B sweep "
    "file. Start with `ablate list`, then `ablate run score_divisor --seeds 2`.",
)
Questions = Annotated[
    list[str] | None, typer.Argument(help="names in sweeps/ or paths of sweep files", metavar="QUESTION…")
]
Recipe = Annotated[str | None, typer.Option(help="another recipe than the sweep file's", metavar="FILE")]
Seeds = Annotated[int | None, typer.Option(help="seeds 0 … N-1 instead of the file's", min=1, metavar="N")]
Only = Annotated[
    list[str] | None,
    typer.Option(help="fewer values of a varied choice, e.g. model.arch.d_k=16,128", metavar="KEY=VALUE,…"),
]
Set = Annotated[
    list[str] | None, typer.Option(help="a setting for every run, e.g. trainer.max_steps=1000", metavar="KEY=VALUE")
]
Out = Annotated[
    Path | None, typer.Option(help="where results go [default: $ABLATE_OUT, else runs/ in the project]", metavar="DIR")
]
BAD = ("failed", "killed", "interrupted")  # how a run may end that is to be run again
Format = Annotated[str, typer.Option(help="terminal, markdown, csv, latex or json")]


def asked(
    name: str, recipe: str | None, seeds: int | None, only: list[str] | None, settings: list[str] | None
) -> Question:
    """The question as the options put it."""
    question = read(name)
    if recipe:
        from experiments.record.identity import find_file

        question = question.with_recipe(str(find_file(recipe).resolve()))
    if seeds:
        question = question.with_seeds(seeds)
    if only:
        question = question.only({key: value.split(",") for key, value in map(pair, only)})
    return question.with_settings({key: canonical(value) for key, value in map(pair, settings or ())})


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"{text!r}: write KEY=VALUE")
    return key, value


def names(questions: list[str] | None) -> list[str]:
    return questions or sorted(path.stem for path in (ROOT / "sweeps").glob("*.yaml"))


def folder(out: Path | None) -> Path:
    from experiments.record.identity import results_folder

    return out.absolute() if out else results_folder()


@app.command("list")
def list_questions(out: Out = None) -> None:
    """The questions: claim, choices, arms × seeds, recipe, runs done, time that is left."""
    from experiments.answer.overview import overview

    print(overview([read(name) for name in names(None)], folder(out)))


@app.command()
def check(questions: Questions = None, recipe: Recipe = None, only: Only = None, set: Set = None) -> None:
    """Binds every key and value to the real parser, model and data. Exit status 2 at the first that does not fit."""
    for name in names(questions):
        question = asked(name, recipe, None, only, set)
        from experiments.launch.check import check as check_question

        print(f"{question.name}: {check_question(question)} arms fit {question.recipe}")


@app.command()
def run(
    questions: Annotated[
        list[str], typer.Argument(help="names in sweeps/ or paths of sweep files", metavar="QUESTION…")
    ],
    recipe: Recipe = None,
    seeds: Seeds = None,
    only: Only = None,
    set: Set = None,
    jobs: Annotated[
        int | None, typer.Option(help="runs at a time [default: as many as there are GPUs for, else one a core]", min=1)
    ] = None,
    gpus_per_run: Annotated[int | None, typer.Option(help="GPUs that each run has for itself", min=1)] = None,
    engine: Annotated[str, typer.Option(help="local: processes on this machine; slurm: an array job")] = "local",
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            help="of the cluster, several times: partition, account, qos, constraint, time (minutes), gpus, cpus, "
            "memory, at_once, grace; or a YAML file of these",
            metavar="KEY=VALUE|FILE",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would be run, and run nothing")] = False,
    out: Out = None,
) -> None:
    """Asks: runs what is missing, then prints the table. Ctrl-C, or a crash, and the same command goes on."""
    from experiments.launch.ask import ask, dry
    from experiments.launch.engines import engine_of

    start = engine_of(engine, jobs, gpus_per_run, slurm or [])
    failed = 0
    for name in questions:
        question = asked(name, recipe, seeds, only, set)
        if dry_run:
            dry(question, folder(out), start)
            continue
        try:
            ended = ask(question, folder(out), start)
        except KeyboardInterrupt:
            print("stopped; nothing finished is lost: the same command goes on", file=sys.stderr)
            if engine == "slurm":
                print("what is in the queue goes on without this launcher; `scancel JOB` stops it", file=sys.stderr)
            raise typer.Exit(130) from None
        if not ended:
            print(f"nothing to do: all {len(question.runs())} runs of {question.name} are finished")
        bad = [job for job in ended if job.outcome in BAD]
        failed += len(bad)
        for job in bad:
            print(f"{job.outcome}: {job.run.folder.name} {job.run.arm}: {job.reason} (log: {job.log})", file=sys.stderr)
        print_tables(question, folder(out), "terminal", of=question)
        page = folder(out) / question.name / "dashboard.html"
        if ended or not page.exists():
            write_page([question], folder(out), page)
        print(f"dashboard: {page}")
    raise typer.Exit(1 if failed else 0)


@app.command()
def table(
    questions: Questions = None,
    recipe: Recipe = None,
    only: Only = None,
    set: Set = None,
    format: Format = "terminal",
    out: Out = None,
    commit: Annotated[bool, typer.Option(help="copy the results into the project's committed answers")] = False,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="with sacreBLEU's paired bootstrap over the test's sentences, each seed")
    ] = False,
) -> None:
    """The answer from result files alone: your own, or those that the project ships."""
    for name in names(questions):
        question = asked(name, None, None, only, None)
        print_tables(question, folder(out), format, recipe=recipe, settings=dict(map(pair, set or ())), commit=commit,
                     sentences=sentences)  # fmt: skip


def print_tables(
    question: Question,
    out: Path,
    format: str,
    *,
    of: Question | None = None,
    recipe: str | None = None,
    settings: dict[str, str] | None = None,
    commit: bool = False,
    sentences: bool = False,
) -> None:
    """Prints a table for each group of results: of one exact asking (`of`), or all, narrowed by recipe and settings."""
    from experiments.answer import results
    from experiments.answer.render import FORMATS, render
    from experiments.record.identity import data_identity

    if format not in FORMATS:
        raise BadInput(f"--format {format}: known are {', '.join(FORMATS)}")
    groups = results.groups(question, out)
    if of is not None:
        groups = [g for g in results.as_asked(groups, of, out) if not g.committed]
    if recipe:
        wanted = question.with_recipe(recipe).recipe
        groups = [g for g in groups if g.recipe == wanted or g.recipe.split("-")[-1] == wanted]
    for key, value in (settings or {}).items():
        wanted = data_identity(value) if key == "data.dataset" else canonical(value)
        groups = [g for g in groups if g.settings.get(key) == wanted]
    if len(groups) > 1 and format in ("csv", "latex", "json"):
        known = ", ".join(f"{g.recipe} ({g.variant})" for g in groups)
        raise BadInput(f"{question.name} has results of several settings; choose with --recipe or --set: {known}")
    if not groups:
        print(f"{question.name}: no results yet; `ablate run {question.name}` makes them")
    from experiments.record.facts import code_fingerprint

    code = code_fingerprint()
    for group in groups:
        print(render(group, format, code, sentences), end="\n\n")
        if commit and not group.committed:
            print(f"committed to {results.commit(group)}")
    if of is not None and groups:
        print(f"results: {out / question.name}")


@app.command()
def show(run: Annotated[Path, typer.Argument(help="a run's folder", metavar="RUN_FOLDER")]) -> None:
    """A run at a glance: state, curves, figures, samples, files."""
    from experiments.answer.glance import glance

    print(glance(run))


@app.command()
def plan(
    question: Annotated[str, typer.Argument(help="a name in sweeps/ or the path of a sweep file")],
    effect: Annotated[
        float | None, typer.Option(help="the difference that shall be found [default: what the pilot shows]", min=0)
    ] = None,
    budget: Annotated[str | None, typer.Option(help="wall time: 30m, 2h, 90s", metavar="TIME")] = None,
    recipe: Recipe = None,
    only: Only = None,
    set: Set = None,
    jobs: Annotated[int, typer.Option(help="runs at a time", min=1)] = 2,
    out: Out = None,
) -> None:
    """How many seeds a question needs, and how long they take: from the seconds and the noise of runs that are there.

    The plan is kept; `ablate plan` says later what was promised and what happened.
    """
    import shlex

    from experiments.answer.plan import held_against, keep
    from experiments.answer.plan import plan as planned

    group = group_of(asked(question, recipe, None, only, set), folder(out))
    options = [("--recipe", [recipe] if recipe else []), ("--only", only or []), ("--set", set or [])]
    words = shlex.join([question, *(word for flag, values in options for value in values for word in (flag, value))])
    seconds = seconds_of(budget) if budget else None
    told = held_against(group, folder(out))
    promise, text = planned(group, effect=effect, budget=seconds, jobs=jobs, words=words)
    print(*([told, ""] if told else []), text, sep="\n")
    if promise and not told:  # a plan that has come true stays as it was
        keep(promise, folder(out))


def seconds_of(text: str) -> float:
    import re

    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match:
        raise BadInput(f"--budget {text}: write a number and s, m or h, 30m for instance")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def group_of(question: Question, out: Path, committed_only: bool = False):
    """The results of this asking as they were run, your own before the project's.

    Raises:
        BadInput: where there are none.
    """
    from experiments.answer.results import as_asked, groups

    found = as_asked(groups(question, out / "none" if committed_only else out), question, out)
    if not found:
        raise BadInput(f"no results of {question.name} with {question.recipe} as asked: `ablate run` makes them")
    return found[-1]


@app.command()
def verify(
    question: Annotated[str, typer.Argument(help="a name in sweeps/")],
    cell: Annotated[str | None, typer.Option(help="[default: the first]", metavar="ARM/SEED")] = None,
    recipe: Recipe = None,
    out: Out = None,
) -> None:
    """Runs one committed cell again and says whether it lies where its arm's seeds expect it. Exit status 1 if not."""
    from experiments.answer.verify import verify as verified

    found = verified(group_of(asked(question, recipe, None, None, None), folder(out), True), cell, folder(out))
    print(found)
    raise typer.Exit(0 if found.holds else 1)


@app.command()
def reproduce(
    page: Annotated[Path, typer.Argument(help="a Markdown file with markers")] = ROOT / "README.md",
    tables_only: Annotated[bool, typer.Option("--tables-only", help="run nothing: from what is committed")] = False,
    jobs: Annotated[int | None, typer.Option(help="runs at a time [default: one a GPU or core]", min=1)] = None,
    out: Out = None,
) -> None:
    """Runs every question of a page in order, commits the results, and writes the page's tables between its markers."""
    from experiments.answer import figures, results
    from experiments.launch.ask import ask
    from experiments.launch.engines import engine_of

    text = page.read_text()
    for words in [] if tables_only else figures.asked(text):
        question = from_words(words)
        print("ablate run", *words, file=sys.stderr)
        ended = ask(question, folder(out), engine_of("local", jobs, None, []))
        if bad := [job for job in ended if job.outcome in BAD]:
            told = f"{len(bad)} runs of {question.name} {bad[0].outcome} (log: {bad[0].log})"
            raise BadInput(f"{told}: none of them is committed, and {page} stays as it is")
        for group in results.as_asked(results.groups(question, folder(out)), question, folder(out)):
            if not group.committed:
                results.commit(group)
    page.write_text(figures.rewrite(text, from_words))


def from_words(words: list[str]) -> Question:
    """The question that `ablate run` with these words would ask."""
    import argparse

    parser = argparse.ArgumentParser(prog="ablate run", exit_on_error=False, allow_abbrev=False)
    parser.add_argument("question")
    parser.add_argument("--recipe")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--only", action="append")
    parser.add_argument("--set", action="append")
    try:
        given = parser.parse_args(words)
    except (argparse.ArgumentError, SystemExit) as error:
        raise BadInput(f"a marker says {' '.join(words)!r}: {error}") from error
    return asked(given.question, given.recipe, given.seeds, given.only, given.set)


@app.command()
def dashboard(
    questions: Questions = None,
    out: Out = None,
    file: Annotated[Path | None, typer.Option(help="the page [default: dashboard.html in the results' folder]")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="write it anew until nothing is running")] = False,
    picture: Annotated[Path | None, typer.Option(help="a PNG of the page too, by Chromium", metavar="FILE")] = None,
) -> None:
    """One static page with every answer: verdicts, tables, charts, samples, runs. It opens without a network."""
    import time

    from experiments.answer.dashboard import photograph

    target = file.absolute() if file else folder(out) / "dashboard.html"
    while True:
        running = write_page([read(name) for name in names(questions)], folder(out), target)
        print(f"{target}{f': {running} running' if running else ''}")
        if not (watch and running):
            break
        time.sleep(10)
    if picture:
        print(photograph(target, picture.absolute()))


def write_page(questions: list[Question], out: Path, page: Path) -> int:
    from experiments.answer.dashboard import write
    from experiments.record.facts import code_fingerprint

    return write(questions, out, page, code_fingerprint())


@app.command("try")
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


@app.command()
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


@app.command()
def claims(
    questions: Questions = None,
    out: Out = None,
) -> None:
    """The table of claims, in Markdown: claim, our figures, published figures, verdict."""
    from experiments.answer.overview import table_of_claims

    print(table_of_claims([read(name) for name in names(questions)], folder(out)))


wandb = typer.Typer(no_args_is_help=True, help="W&B: sweeps for its own agents, and results that were made without it.")
app.add_typer(wandb, name="wandb")


@wandb.command("sweep")
def wandb_sweep(
    question: Annotated[str, typer.Argument(help="a name in sweeps/ or the path of a sweep file")],
    recipe: Recipe = None,
    seeds: Seeds = None,
    only: Only = None,
    set: Set = None,
    project: Annotated[str, typer.Option(envvar="WANDB_PROJECT")] = "transformer-ablations",
    entity: Annotated[str | None, typer.Option(help="[default: your own]", envvar="WANDB_ENTITY")] = None,
) -> None:
    """Creates the sweep on W&B's server and prints the lines that start agents: one GPU, eight, SLURM."""
    from experiments.launch.agents import create_sweep
    from experiments.launch.check import check as check_question

    whole = asked(question, recipe, seeds, only, set)
    check_question(whole)
    print(create_sweep(whole, project, entity))


@wandb.command("report")
def wandb_report(
    question: Annotated[str, typer.Argument(help="a name in sweeps/ or the path of a sweep file")],
    recipe: Recipe = None,
    only: Only = None,
    set: Set = None,
    project: Annotated[str, typer.Option(envvar="WANDB_PROJECT")] = "transformer-ablations",
    entity: Annotated[str | None, typer.Option(help="user or team", envvar="WANDB_ENTITY")] = None,
    out: Out = None,
) -> None:
    """A report (claim, table, grouped bars with error bars, curves by arm, the runs) and a workspace of the question.

    Logged in, both are saved on W&B. Otherwise they are built and checked, and their specifications kept as JSON.
    """
    from experiments.answer.report import save, specifications, views
    from experiments.record.wandb_run import logged_in

    group = group_of(asked(question, recipe, None, only, set), folder(out))
    if logged_in():
        print(*save(views(group, entity or "", project)), sep="\n")
        return
    for path in specifications(views(group, entity or "you", project), folder(out) / group.question.name):
        print(path)
    print("not logged in to W&B: nothing was saved there; `wandb login`, then the same command", file=sys.stderr)


@wandb.command("sync")
def wandb_sync(questions: Questions = None, out: Out = None) -> None:
    """Writes every result that W&B does not have yet as one run, from the run's own files; never twice."""
    from experiments.record.sync import sync

    written, there = sync(folder(out), [read(name).name for name in names(questions)])
    print(f"{written} runs written, {there} were there already")


@app.command()
def bench(
    family: Annotated[str, typer.Argument(help="translation, decoding, bert or vit")] = "translation",
    dataset: Annotated[
        str | None, typer.Option(help="Multi30k; documents for bert; CIFAR-10 for vit [default: embedded data]")
    ] = None,
    rounds: Annotated[int, typer.Option(help="stretches of steps for each side", min=1)] = 5,
) -> None:
    """translation, bert, vit: our training step beside the peers' of the same size, turn about in one process, fp32 and
    bf16; decoding: time per token with and without the cache."""
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
    else:
        raise BadInput(f"no benchmark {family!r}; known: translation, decoding, bert, vit")


def main() -> None:
    try:
        app()
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
