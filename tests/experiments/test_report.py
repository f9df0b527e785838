"""The W&B report and workspace of a question: built and validated without a network, saved where somebody is logged in."""

import json

import pytest
from typer.testing import CliRunner

from experiments.answer import report, results
from experiments.cli import app
from experiments.launch.question import ROOT, BadInput, read


@pytest.fixture(scope="module")
def group():
    return results.groups(read("score_divisor"), ROOT / "nothing here")[-1]


def texts(found):
    """Every string of a nested specification."""
    if isinstance(found, dict):
        return [text for value in found.values() for text in texts(value)]
    if isinstance(found, list):
        return [text for value in found for text in texts(value)]
    return [found] if isinstance(found, str) else []


def of_type(found, kind):
    """Every panel of a kind in a nested specification."""
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, list) else []
    own = [found] if isinstance(found, dict) and found.get("viewType") == kind else []
    return own + [panel for value in inside for panel in of_type(value, kind)]


def test_the_report_holds_claim_table_bars_curves_and_the_questions_runs(group, tmp_path):
    paths = report.specifications(report.views(group, "lab", "transformer-ablations"), tmp_path)
    built, workspace = (json.loads(path.read_text()) for path in paths)
    said = "\n".join(texts(built))
    for words in ("the softmax saturates", "若不除以", "Britz et al. 2017", "| 16 | sqrt_d_k |", "confirmed"):
        assert words in said, words
    (bars,) = of_type(built, "Bar Chart")
    config = bars["config"]
    assert config["metrics"] == ["test/bleu"] and config["groupBy"] == "arm.value"
    assert (config["groupAgg"], config["groupArea"]) == ("mean", "stddev"), "mean and error bars"
    curves = [panel["config"]["metrics"] for panel in of_type(built, "Run History Line Plot")]
    assert ["valid/bleu"] in curves and ["valid/nll"] in curves
    for spec in (built, workspace):
        filters = [f["filters"] for f in find(spec, "filters") if isinstance(f, dict)]
        assert {(f["key"]["name"], f["value"]) for f in filters[0]} == {
            ("jobType", "score_divisor"), ("recipe", group.recipe), ("variant", group.variant),
        }  # fmt: skip
    assert of_type(workspace, "Media Browser")


def find(found, key):
    if isinstance(found, dict):
        return [value for name, value in found.items() if name == key] + [v for x in found.values() for v in find(x, key)]
    return [v for x in found for v in find(x, key)] if isinstance(found, list) else []


def test_every_committed_question_has_a_report_that_the_library_takes():
    for path in sorted((ROOT / "sweeps").glob("*.yaml")):
        for group in results.groups(read(path.stem), ROOT / "nothing here")[-1:]:
            built = report.views(group, "lab", "transformer-ablations")
            assert built.report._to_model().spec.blocks and built.workspace._to_model().spec.section


def test_without_an_account_it_is_built_and_said(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    done = CliRunner().invoke(app, ["wandb", "report", "score_divisor", "--out", str(tmp_path)])
    assert done.exit_code == 0 and "report.json" in done.stdout and "workspace.json" in done.stdout
    assert "not logged in to W&B: nothing was saved there" in done.output


def test_logged_in_it_is_saved_and_what_the_server_says_is_said(group, monkeypatch):
    built, asked = report.views(group, "lab", "transformer-ablations"), []
    monkeypatch.setattr(type(built.report), "save", lambda self: asked.append("report"))
    monkeypatch.setattr(type(built.workspace), "save", lambda self: asked.append("workspace"))
    monkeypatch.setattr(type(built.report), "url", "https://report")
    monkeypatch.setattr(type(built.workspace), "url", "https://workspace")
    assert report.save(built) == ["https://report", "https://workspace"] and asked == ["report", "workspace"]

    def refused(self):
        raise RuntimeError("403 Forbidden")

    monkeypatch.setattr(type(built.report), "save", refused)
    with pytest.raises(BadInput, match="W&B did not take the report: 403 Forbidden"):
        report.save(built)
