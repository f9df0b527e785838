"""W&B's own agents instead of an engine of ours: the sweep on the server, and the lines that start agents."""

from typing import Any

from experiments.record.wandb_run import logged_in

from .question import SEED, BadInput, Question

PLACES = """\
one GPU, or a laptop   wandb agent {path}
eight GPUs             for gpu in 0 1 2 3 4 5 6 7; do CUDA_VISIBLE_DEVICES=$gpu wandb agent {path} & done; wait
SLURM                  sbatch --array=0-7 --ntasks=1 --gpus=1 --time=240 --wrap "wandb agent {path}"
"""


def sweep_config(question: Question) -> dict[str, Any]:
    """The question in W&B's format, as it was put: another recipe, fewer values, more settings."""
    parameters = {key: {"values": list(values)} for key, values in question.varied.items()}
    parameters |= {key: {"value": value} for key, value in question.fixed.items()}
    parameters[SEED] = {"values": list(question.seeds)}
    return {
        "name": question.name, "program": "experiments/train.py", "method": "grid",
        "metric": {"name": question.metric, "goal": question.goal}, "parameters": parameters,
        "command": list(question.command),
    }  # fmt: skip


def create_sweep(question: Question, project: str, entity: str | None) -> str:
    """Creates the sweep and returns the lines that start agents.

    Raises:
        BadInput: nobody is logged in, or the server refuses.
    """
    if not logged_in():
        raise BadInput("not logged in to W&B: `wandb login`, or WANDB_API_KEY; without it `ablate run` does the same")
    import wandb

    try:
        sweep = wandb.sweep(sweep_config(question), project=project, entity=entity)
    except wandb.errors.Error as error:
        raise BadInput(f"W&B refuses the sweep: {error}") from error
    path = "/".join(filter(None, (entity, project, sweep)))
    return (
        f"Start agents with this environment active, in any folder, as many as you like. All write to one results "
        f"folder ($ABLATE_OUT), where `ablate table {question.name}` finds them:\n\n{PLACES.format(path=path)}"
    )
