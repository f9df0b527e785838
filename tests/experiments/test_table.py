"""From result files to tables: the figures agree in every format, and nothing is hidden."""

import csv
import io
import json
import re

import pytest

from experiments.answer import results
from experiments.answer.render import FORMATS, counted, render
from experiments.answer.table import rows_of
from experiments.commands.options import from_words
from experiments.launch.grid import arguments
from experiments.launch.question import read
from experiments.record.identity import identify
from experiments.record.result import REQUIRED, TRANSLATIONS, CorruptResult, read_result, write_result

DIVISOR, D_K = "model.arch.score_divisor", "model.arch.d_k"
BLEU = {
    ("sqrt_d_k", 16): [70, 72, 74],
    ("one", 16): [69, 70, 74],
    ("sqrt_d_k", 128): [60, 66, 63],
    ("one", 128): [5, 3, 1],
}


def result(arm, seed, **more):
    base = dict.fromkeys(REQUIRED, 0) | {
        "question": "score_divisor", "recipe": "translation-toy", "arm": {DIVISOR: arm[0], D_K: arm[1]}, "seed": seed,
        "key": f"{arm[0]}{arm[1]}{seed}", "variant": "v1", "settings": {"trainer.max_steps": 10}, "status": "finished",
        "metrics": {"test/bleu": float(BLEU[arm][seed]), "start/encoder.0/entropy": 1.0, "end/encoder.0/entropy": 0.5},
        "parameters": 1000, "flops": 2e12, "tokens": 500, "tokens_per_second": 100.0, "peak_memory_bytes": 2**30,
        "seconds": 5.0, "data_fingerprint": "d", "code_fingerprint": "c", "commit": "abc",
        "hardware": {"cpu": "test", "cores": 2, "gpus": []}, "started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:00:09Z",
    }  # fmt: skip
    return {**base, **more}


def put(out, **more):
    folder = out / more["question"] / more["recipe"] / "arm" / f"seed-{more['seed']}-{more['key']}"
    folder.mkdir(parents=True)
    return write_result(folder, more)


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "committed")
    for arm, values in BLEU.items():
        for seed in range(len(values)):
            put(tmp_path / "out", **result(arm, seed))
    return tmp_path / "out"


def question():
    return read("score_divisor").with_seeds(3)


def only_group(out):
    (group,) = results.groups(question(), out)
    return group


def test_rows_by_hand(out):
    rows = {(r.choices["score_divisor"], r.choices["d_k"]): r for r in rows_of(only_group(out))}
    base, arm = rows["sqrt_d_k", 16], rows["one", 16]
    assert (base.mean, base.sd, base.n, base.is_baseline) == (72, 2, 3, True) and base.difference is None
    assert (arm.difference.mean, arm.difference.n) == (-1, 3)  # -1, -2, 0
    assert arm.difference.low == pytest.approx(-1 - 4.302653 / 3**0.5, rel=1e-6)
    far = rows["one", 128].difference
    assert far.mean == -60 and far.p < 0.01, "against the baseline of its own stratum: -55, -63, -62"
    assert rows["one", 128].p == pytest.approx(min(1, 2 * far.p)), "Holm over the two comparisons"
    assert rows["one", 16].p == pytest.approx(arm.difference.p), "the larger p is not multiplied"
    assert rows["one", 64].note == rows["sqrt_d_k", 64].note == "missing" and rows["one", 64].mean is None


def cells_of(text, format):
    if format == "csv":
        return list(csv.reader(io.StringIO(text)))
    if format == "latex":
        plain = text
        for written, sign in {r"$\pm$": "±", r"\_": "_", r"\%": "%", "$<$": "<", r"$\times$": "×", "--": "–"}.items():
            plain = plain.replace(written, sign)
        lines = [line.removesuffix(r" \\") for line in plain.splitlines() if line.endswith(r"\\")]
        return [[cell.strip() for cell in line.split(" & ")] for line in lines]
    lines = [line for line in text.split("Inside")[0].splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_markdown_csv_and_latex_hold_the_same_figures(out):
    tables = {format: cells_of(render(only_group(out), format), format) for format in ("markdown", "csv", "latex")}
    assert [[c.strip() for c in line] for line in tables["markdown"]] == tables["csv"] == tables["latex"]
    line = next(line for line in tables["csv"] if line[:2] == ["16", "one"])
    assert line[2:6] == ["71.00 ± 2.65", "3", "-1.00", "[-3.48, +1.48]"]


def test_json_agrees_with_the_others_to_the_digit(out):
    """Its unrounded figures, rounded as the others round, are the others' figures."""
    rows = json.loads(render(only_group(out), "json"))["rows"]
    heads, *lines = cells_of(render(only_group(out), "csv"), "csv")
    for row, line in zip(rows, lines, strict=True):
        cell = dict(zip(heads, line, strict=True))
        assert {name: str(value) for name, value in row["choices"].items()} == {n: cell[n] for n in row["choices"]}
        if row["mean"] is None:
            assert cell["test/bleu"] == "–" and cell["note"] == "missing"
            continue
        assert cell["test/bleu"] == f"{row['mean']:.2f} ± {row['sd']:.2f}" and cell["n"] == str(row["n"])
        if found := row["difference"]:
            assert cell["difference"] == f"{found['mean']:+.2f}"
            assert cell["95 % interval"] == f"[{found['low']:+.2f}, {found['high']:+.2f}]"
            assert cell["detectable"] == f"{row['detectable']:.2f}" and cell["noise"] == f"{row['noise']:.2f}"
            assert float(cell["p (Holm)"].replace("<.001", "0")) == pytest.approx(row["p"], abs=0.0006)


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_a_figure_is_never_cut_in_two(out, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = render(only_group(out), "terminal")
    assert all(figure in text for figure in ("71.00 ± 2.65", "[-3.48, +1.48]", "95 % interval", "sqrt_d_k", "baseline"))


def test_json_is_unrounded_and_terminal_shows_all_rows(out):
    table = json.loads(render(only_group(out), "json"))
    assert [r["mean"] for r in table["rows"] if r["choices"] == {"d_k": 128, "score_divisor": "one"}] == [3.0]
    text = render(only_group(out), "terminal")
    assert "71.00 ± 2.65" in text and "Britz et al. 2017" in text and "entropy end" in text
    assert set(FORMATS) == {"terminal", "markdown", "csv", "latex", "json"}


def change(out, arm, seed, **more):
    path = next(p for p in out.rglob("result.json") if read_result(p)["key"] == f"{arm[0]}{arm[1]}{seed}")
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    return path


def test_a_diverged_seed_is_counted_and_no_mean_difference_is_shown(out):
    change(out, ("one", 128), 1, status="diverged", metrics={})
    row = next(r for r in rows_of(only_group(out)) if r.choices == {"d_k": 128, "score_divisor": "one"})
    assert (row.n, row.mean) == (2, 3.0) and row.difference is None
    assert row.note == "diverged 1 of 3 (seed 1); the baseline diverged 0 of 3: Fisher p 1, uncorrected"


def test_an_arm_without_an_end_leaves_its_cells_empty(out):
    for seed in range(3):
        change(out, ("one", 16), seed, status="diverged", metrics={"start/encoder.0/entropy": 7.0})
    lines = [
        line for line in render(only_group(out), "markdown").split("Inside")[1].splitlines() if line.startswith("| 16")
    ]
    assert lines == ["| 16 | sqrt_d_k | 1 | 0.5 |", "| 16 | one | 7 | – |"]


def test_a_crashed_seed_is_missing_not_evidence(out):
    change(out, ("one", 128), 1, status="failed", metrics={})
    row = next(r for r in rows_of(only_group(out)) if r.choices == {"d_k": 128, "score_divisor": "one"})
    assert row.n == 2 and row.difference.n == 2 and row.note == "failed 1 of 3 (seed 1), to be run again"


def test_a_result_without_the_metric_is_said(out):
    change(out, ("one", 128), 1, metrics={"test/nll": 1.0})
    row = next(r for r in rows_of(only_group(out)) if r.choices == {"d_k": 128, "score_divisor": "one"})
    assert row.n == 2 and row.note == "no test/bleu in seed 1"


def test_fewer_arms_than_there_are_results_of(out):
    fewer = question().only({D_K: ["16"]})
    (group,) = results.groups(fewer, out)
    assert len(rows_of(group)) == 2 and len(group.results) == 2
    assert "70.00" not in render(group, "csv") and render(group, "markdown")


def test_what_is_not_comparable_is_said(out):
    for seed in range(3):
        change(out, ("one", 16), seed, parameters=1500, tokens=1000)
    notes = {(r.choices["score_divisor"], r.choices["d_k"]): r.note for r in rows_of(only_group(out))}
    assert notes["one", 16] == "parameters ×1.50; tokens ×2.00" and notes["one", 128] == ""


def test_other_code_and_other_numbers_of_devices_are_said(out):
    assert "earlier code" not in render(only_group(out), "markdown", code="c")
    assert "12 of 12 results were made by earlier code" in render(only_group(out), "markdown", code="new")
    change(out, ("sqrt_d_k", 16), 0, code_fingerprint="x")
    change(out, ("one", 128), 0, world_size=2)
    group = only_group(out)
    notes = {(r.choices["score_divisor"], r.choices["d_k"]): r.note for r in rows_of(group)}
    assert notes["sqrt_d_k", 16] == "code c, x" and notes["one", 128] == "code c; 1 and 2 devices a run"
    assert "1 of 12 results were made by earlier code" in render(group, "markdown", code="c") and "code c, x" in render(
        group, "csv"
    )


def test_a_missing_seed_is_said(out):
    next(p for p in out.rglob("result.json") if read_result(p)["key"] == "one162").unlink()
    row = next(r for r in rows_of(only_group(out)) if r.choices == {"d_k": 16, "score_divisor": "one"})
    assert row.n == 2 and row.note == "missing seed 2" and row.difference.n == 2


def test_other_settings_never_stand_in_the_same_table(out):
    put(out, **result(("one", 16), 0, variant="v2", key="other", settings={"trainer.max_steps": 99}))
    groups = {group.variant: group for group in results.groups(question(), out)}
    assert set(groups) == {"v1", "v2"} and sum(len(s) for s in groups["v2"].results.values()) == 1


def test_own_results_come_before_the_committed_of_the_same_settings(out):
    results.commit(only_group(out))
    assert len(list(results.COMMITTED.rglob("result.json"))) == 12
    assert not only_group(out).committed
    assert only_group(out / "nothing here").committed


@pytest.mark.parametrize("text, message", [
    ("", "is no JSON"), ("{", "is no JSON"), ("[]", "lacks question"), ('{"question": 1}', "lacks recipe"),
])  # fmt: skip
def test_a_corrupt_result_is_named_not_passed_over(out, text, message):
    path = next(out.rglob("result.json"))
    path.write_text(text)
    with pytest.raises(CorruptResult, match=rf"{re.escape(str(path))}.*{message}.*move it away"):
        only_group(out)


def test_a_metric_that_is_no_number_is_refused(out):
    path = change(out, ("one", 16), 0, metrics={"test/bleu": "high"})
    with pytest.raises(CorruptResult, match="metric test/bleu is 'high', no number"):
        read_result(path)
    path = change(out, ("sqrt_d_k", 16), 0, status="good")
    with pytest.raises(CorruptResult, match="status 'good' is none of finished, diverged, failed"):
        read_result(path)


def test_a_finished_result_is_never_overwritten(out):
    path = next(out.rglob("result.json"))
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        write_result(path.parent, result(("one", 16), 0))
    assert path.read_bytes() == before


def test_a_failed_result_gives_way_and_is_kept(tmp_path):
    write_result(tmp_path, result(("one", 16), 0, status="failed"))
    write_result(tmp_path, result(("one", 16), 0))
    assert read_result(tmp_path / "result.json")["status"] == "finished"
    assert len(list(tmp_path.glob("result-failed-*.json"))) == 1


def test_infinity_is_left_out_of_the_metrics(tmp_path):
    path = write_result(tmp_path, result(("one", 16), 0, metrics={"test/bleu": 0.0, "test/perplexity": float("inf")}))
    assert read_result(path)["metrics"] == {"test/bleu": 0.0}


def test_sentences_are_compared_by_sacrebleus_own_paired_bootstrap(out):
    """Seed 0 says the same, seed 1 translates half of the sentences wrongly; other seeds have kept nothing."""
    from experiments.answer.sentences import bootstrap, sentence_tests

    right = [(f"das ist der kleine Satz Nummer {i} .", f"das ist der kleine Satz Nummer {i} .") for i in range(60)]
    half = [(reference, text if i % 2 else "nein") for i, (reference, text) in enumerate(right)]
    group = only_group(out)
    for seed, said in ((0, right), (1, half)):
        for arm, pairs in ((("sqrt_d_k", 16), right), (("one", 16), said)):
            path = group.folders[group.results[arm][seed]["key"]] / TRANSLATIONS
            path.write_text("".join(f"{reference}\t{text}\n" for reference, text in pairs))
    (row,) = sentence_tests(group)
    assert row["score_divisor"] == "one" and row["d_k"] == 16 and row["sentences differ"] == "1 of 2 seeds"
    assert row["p"] == "1.000, 0.001", "the least that a thousand resamples can give"
    assert bootstrap(right, right) == 1.0
    assert "sacreBLEU's paired bootstrap" in render(group, "markdown", sentences=True)
    assert "sacreBLEU's paired bootstrap" not in render(group, "markdown")


def test_committed_answers_stay_until_ones_own_are_as_many(out, monkeypatch, tmp_path):
    """As after `make demo`: a few own runs stand beside the whole answer, not in its place."""
    (whole,) = results.groups(question(), out)
    assert not whole.shipped
    monkeypatch.setattr(results, "COMMITTED", out)
    few = tmp_path / "few"
    for arm in (("sqrt_d_k", 16), ("one", 16)):
        put(few, **result(arm, 0))
    own, committed = results.groups(question(), few)
    assert (len(own.every), own.committed) == (2, False) and (len(committed.every), committed.committed) == (12, True)
    assert own.shipped and committed.shipped
    for arm, values in BLEU.items():
        for seed in range(len(values)):
            if not (arm[1] == 16 and seed == 0):
                put(few, **result(arm, seed))
    (own,) = results.groups(question(), few)
    assert (len(own.every), own.committed, own.shipped) == (12, False, True)


def test_committed_answers_are_known_where_their_data_are_not(tmp_path, monkeypatch):
    """By the names of the data and of the tasks; what was asked otherwise stays unknown."""
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    words = "nsp --recipe experiments/recipes/bert/documents.yaml --only model.objective=mlm+nsp,mlm".split()
    (found,) = results.as_asked(results.groups(asked := from_words(words), None), asked)
    assert found.recipe == "bert-documents" and found.settings["data.dataset"].startswith("folder english_documents ")
    for more in ("data.vocab_size=7", "downstream.tasks=none", "downstream.overlay=experiments/recipes/smoke_task.yaml"):
        asked = from_words([*words, "--set", more])
        assert not results.as_asked(results.groups(asked, None), asked)


def test_a_task_is_known_by_its_content_where_its_data_are_here(tmp_path, monkeypatch):
    """And by its name where they are not, whether or not the main data are."""
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    for name in ("english_documents", "trec"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.parquet").write_text(name)
    asked = from_words("nsp --recipe experiments/recipes/bert/documents.yaml --only model.objective=mlm+nsp,mlm".split())
    run = identify(arguments(asked, *asked.runs()[0]))
    made = results.Group(asked, asked.recipe, run.variant, run.settings, {}, {}, False, False)
    assert results.as_asked([made], asked)
    (tmp_path / "trec/train.parquet").write_text("other")
    assert not results.as_asked([made], asked)
    (tmp_path / "trec/train.parquet").unlink()
    (tmp_path / "trec").rmdir()
    assert results.as_asked([made], asked)


def test_each_bleu_says_how_it_was_counted(out):
    """As sacreBLEU names the three counters of `lit_modules.translation`; nothing where the tables show no BLEU."""
    from dataclasses import replace

    from sacrebleu.metrics import BLEU as Counter

    plain, tokens, small = Counter(force=True), *(Counter(tokenize="none", smooth_method="none", lowercase=x) for x in (False, True))
    for counter in (plain, tokens, small):
        counter.corpus_score(["a b c d"], [["a b c d"]])
    group = only_group(out)
    assert "Counted" not in render(group, "markdown") and json.loads(render(group, "json"))["counted"] == ""
    for result in group.every:
        result["bleu_signature"] = str(plain.get_signature())
    assert render(group, "markdown").count(f"Counted by sacreBLEU, bleu: {plain.get_signature()}\n") == 1
    assert json.loads(render(group, "json"))["counted"] == f"bleu: {plain.get_signature()}"
    assert counted(replace(group, question=replace(question(), metric="test/nll"))) == ""
    averaging = f"bleu: {plain.get_signature()}; bleu_moses: {tokens.get_signature()}; bleu_moses_lc: {small.get_signature()}"
    assert counted(replace(group, question=read("averaging"))) == averaging
    (lower := Counter(lowercase=True, force=True)).corpus_score(["a b c d"], [["a b c d"]])
    for result in group.every:  # of a run in small letters
        result["bleu_signature"] = str(lower.get_signature())
    assert counted(replace(group, question=read("averaging"))) == averaging.replace(str(plain.get_signature()), str(lower.get_signature()))
