"""A question on W&B: a report to read and a workspace to look around in, built from the claim and our table."""

from dataclasses import dataclass
from pathlib import Path

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from experiments.launch.question import BadInput

from .claims import claim_lines, claim_of
from .dashboard import followed
from .history import inside
from .render import as_markdown, columns, header
from .results import Group
from .table import rows_of
from .tuning import tuned
from .verdicts import verdicts

ARM = "arm"  # each run's configuration names its arm and its recipe
AVERAGE = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}


@dataclass(frozen=True)
class Views:
    report: wr.Report
    workspace: ws.Workspace


def views(group: Group, entity: str, project: str) -> Views:
    """Both, not yet saved; whatever the library refuses, it refuses here, without a network."""
    group = tuned(group)
    return Views(report(group, entity, project), workspace(group, entity, project))


def ours(group: Group) -> list[expr.FilterExpr]:
    """The runs of this question, recipe and variant."""
    named = {"recipe": group.recipe, "variant": group.variant}
    return [expr.Metric("JobType") == group.question.name, *(expr.Config(key) == name for key, name in named.items())]


def bars(group: Group) -> list[wr.BarPlot]:
    """The table's metric, and those that the claim names beside it: mean and sd of each arm."""
    named = [metric for metric in claim_of(group.question).get("also", ()) if "/" in metric]
    return [
        wr.BarPlot(
            title=f"{metric}: mean and sd over seeds",
            metrics=[metric],
            groupby=wr.Config(ARM),
            **AVERAGE,
        )
        for metric in (group.question.metric, *named)
    ]


def lines(group: Group) -> list[wr.LinePlot]:
    return [
        wr.LinePlot(title=metric, x="Step", y=[wr.Metric(metric)], groupby=wr.Config(ARM), **AVERAGE)
        for metric in followed(group)
    ]


def report(group: Group, entity: str, project: str) -> wr.Report:
    claim, question = claim_of(group.question), group.question
    runs = wr.Runset(name=question.name, filters=ours(group), groupby=[f"config.{ARM}"])  # of the report's own project
    judged = [f"{verdict.says}: {verdict.words}" for verdict in verdicts(group)]
    table = as_markdown(*columns(group, rows_of(group)))
    return wr.Report(
        entity=entity,
        project=project,
        title=f"{question.name}: {group.recipe}",
        description=claim.get("english", f"Asked by {question.path.name}"),
        blocks=[
            *(wr.P(text=line) for line in claim_lines(question)),
            wr.H2(text="The answer"),
            wr.P(text=header(group)),
            *([wr.UnorderedList(items=judged)] if judged else []),
            wr.MarkdownBlock(text=table),
            wr.H2(text="The runs"),
            wr.PanelGrid(runsets=[runs], panels=[*bars(group), *lines(group)]),
        ],
    )


def workspace(group: Group, entity: str, project: str) -> ws.Workspace:
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"{group.question.name} {group.recipe}".replace("+", " with "),  # a plus counts as an emoji there
        sections=[
            ws.Section(name="The answer", panels=bars(group), is_open=True),
            ws.Section(name="Learning curves", panels=lines(group), is_open=True),
            ws.Section(name="Pictures and samples", panels=[wr.MediaBrowser(media_keys=media(group))], is_open=True),
        ],
        settings=ws.WorkspaceSettings(max_runs=100),
        runset_settings=ws.RunsetSettings(filters=ours(group), groupby=[expr.Config(ARM)]),
    )


def media(group: Group) -> list[str]:
    """The keys under which runs log their samples and the pictures of their insides."""
    titles = {title for folder in group.folders.values() for title in inside(folder)}
    return ["valid/samples", *(f"inside/{title}" for title in sorted(titles))]


def specifications(built: Views, folder: Path) -> list[Path]:
    """What would be sent, as JSON: report.json and workspace.json."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, view in (("report", built.report), ("workspace", built.workspace)):
        paths.append(folder / f"{name}.json")
        paths[-1].write_text(view._to_model().model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n")
    return paths


def save(built: Views) -> list[str]:
    """Onto W&B's server; the addresses of both.

    Raises:
        BadInput: what the server says against it.
    """
    try:
        built.report.save()
        built.workspace.save()
    except Exception as error:  # the library raises what its transport raises
        raise BadInput(f"W&B did not take the report: {error}") from error
    return [built.report.url, built.workspace.url]
