"""`ablate`: from a question to its answer. Heavy imports stand inside the commands, so that --help answers at once."""

import sys

import typer

from experiments.commands import asking, models, reading, wandb
from experiments.launch.question import BadInput

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A lab bench for questions about the Transformer. A QUESTION is a name in sweeps/ or the path of a W&B sweep "
    "file. Start with `ablate list`, then `ablate run score_divisor --seeds 2`.",
)
app.command("list")(asking.list_questions)
for command in (asking.check, asking.run, reading.table, reading.claims, reading.dashboard, reading.show, asking.plan):
    app.command()(command)
app.command("try")(models.try_out)
for command in (models.export, asking.verify, asking.reproduce, models.bench):
    app.command()(command)

of_wandb = typer.Typer(no_args_is_help=True, help="W&B: sweeps for its agents, reports, and results made without it.")
for name, command in (("sweep", wandb.wandb_sweep), ("report", wandb.wandb_report), ("sync", wandb.wandb_sync)):
    of_wandb.command(name)(command)
app.add_typer(of_wandb, name="wandb")


def main() -> None:
    try:
        app()
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
