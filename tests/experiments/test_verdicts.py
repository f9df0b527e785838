"""Claims held against results: tuned rates, further metrics, verdicts, the table of claims."""

import importlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_table import put, result

from experiments.answer import claims, results
from experiments.answer.overview import table_of_claims
from experiments.answer.render import render
from experiments.answer.results import Group
from experiments.answer.statistics import equivalent
from experiments.answer.table import layers, other_metrics, rows_of
from experiments.answer.tuning import tuned
from experiments.answer.verdicts import answers, verdicts
from experiments.launch.ask import runs, siblings_last
from experiments.launch.question import ROOT, BadInput, read, short

LR, NORM = "model.optim.lr", "model.arch.norm"


def one(arm, seed, bleu, valid=1.0, status="finished", **metrics):
    metrics = {"test/bleu": float(bleu), **metrics} if status == "finished" else {}
    more = {"metrics": metrics, "status": status, "selection": {"metric": "valid/nll", "mode": "min", "best": valid}}
    return {**result(("one", 16), 0), "arm": arm, "seed": seed, "key": f"{sorted(arm.items())}{seed}"[:60].replace("/", ""), **more}


def question(name="score_divisor", seeds=3):
    return read(name).with_seeds(seeds)


def group(question, table):
    """arm → seed → result."""
    return Group(question, "translation-toy", "v", {}, table, {}, False, False)


# ---- equivalence


@pytest.mark.parametrize("margin", [0.5, 1.0, 3.0])
def test_equivalence_equals_statsmodels(margin):
    from statsmodels.stats.weightstats import ttost_paired

    a, b = [30.1, 31.0, 29.5, 30.7], [30.0, 30.2, 29.9, 30.3]
    expected = ttost_paired(*map(__import__("numpy").array, (a, b)), -margin, margin)[0]
    assert equivalent(dict(enumerate(a)), dict(enumerate(b)), margin) == pytest.approx(expected, rel=1e-9)


def test_equivalence_needs_two_seeds_that_both_have():
    assert equivalent({0: 1.0, 1: 2.0}, {0: 1.0, 2: 2.0}, 1.0) is None


# ---- tuning


def tuned_question(monkeypatch):
    asked = question("norm")
    keep = {NORM: ("post", "pre"), LR: (0.003, 0.001)}
    check = {"says": "pre is better", "arm": {"norm": "pre"}, "direction": "higher"}
    monkeypatch.setitem(claims.claims(), "norm", {"tune": LR, "checks": [check], "section": "", "english": "", "chinese": "", "published": []})
    return type(asked)(**{**vars(asked), "varied": keep})


def test_the_rate_is_chosen_by_validation_for_each_arm_and_the_test_has_no_say(monkeypatch):
    asked = tuned_question(monkeypatch)
    bleu = {("post", 0.003): 90, ("post", 0.001): 50, ("pre", 0.003): 60, ("pre", 0.001): 99}
    valid = {("post", 0.003): 2.0, ("post", 0.001): 1.0, ("pre", 0.003): 1.5, ("pre", 0.001): 1.6}
    table = {arm: {s: one({NORM: arm[0], LR: arm[1]}, s, bleu[arm] + s, valid[arm]) for s in range(3)} for arm in bleu}
    chosen = tuned(group(asked, table))
    assert list(chosen.question.varied) == [NORM]
    rows = {r.choices["norm"]: r for r in rows_of(chosen)}
    assert rows["post"].mean == 51 and rows["pre"].mean == 61, "the worse test scores, since validation preferred them"
    assert rows["post"].note.startswith("lr 0.001, best of 2 by valid/nll")
    assert rows["pre"].note.startswith("lr 0.003, best of 2 by valid/nll")
    text = render(group(asked, table), "markdown")
    assert "| pre | 61.00" in text and "0.003" in text


def test_a_rate_that_loses_seeds_is_not_chosen_and_a_missing_one_is_said(monkeypatch):
    asked = tuned_question(monkeypatch)
    asked.varied[LR] = (0.003, 0.001, 0.0005)
    table = {
        ("post", 0.0005): {0: one({NORM: "post", LR: 0.0005}, 0, 80, 0.1)},
        ("post", 0.003): {s: one({NORM: "post", LR: 0.003}, s, 80, 0.1, "diverged" if s == 1 else "finished") for s in range(3)},
        ("post", 0.001): {s: one({NORM: "post", LR: 0.001}, s, 70, 0.9) for s in range(3)},
        ("pre", 0.001): {s: one({NORM: "pre", LR: 0.001}, s, 75, 0.9) for s in range(3)},
    }
    chosen = tuned(group(asked, table))
    assert chosen.tuned[("post",)] == "lr 0.001, best of 3 by valid/nll"
    assert chosen.tuned[("pre",)] == "lr 0.001, best of 1 by valid/nll (3 wanted)"


# ---- verdicts


def judged(monkeypatch, check, arm, base, **more):
    """One check on the question look_ahead: open against masked."""
    key = "model.look_ahead"
    monkeypatch.setitem(claims.claims(), "look_ahead", {"checks": [{"says": "it", "arm": {"look_ahead": "open"}, **check}]})
    table = {
        (word,): {s: one({key: word}, s, v, status=more.get(word, {}).get(s, "finished")) for s, v in enumerate(values)}
        for word, values in (("masked", base), ("open", arm))
    }
    (verdict,) = verdicts(group(question("look_ahead"), table))
    return verdict


def test_verdicts_by_hand(monkeypatch):
    lower, higher = {"direction": "lower"}, {"direction": "higher"}
    fallen = judged(monkeypatch, lower, [10, 11, 12], [50, 52, 51])
    assert fallen.verdict == "confirmed" and fallen.ours.startswith("51.00 ± 1.00 → 11.00 ± 1.00, n 3, 95 % [")
    assert judged(monkeypatch, higher, [10, 11, 12], [50, 52, 51]).verdict == "refuted"
    assert judged(monkeypatch, lower, [50, 51, 53], [50, 52, 51]).verdict == "not detectable here"
    same = {"direction": "equal", "margin": 2}
    assert judged(monkeypatch, same, [50.1, 51.9, 51.1], [50, 52, 51]).verdict == "equal within ±2"
    assert judged(monkeypatch, same, [60.1, 61.9, 61.1], [50, 52, 51]).verdict == "refuted"
    assert judged(monkeypatch, same, [40, 62, 51], [50, 52, 51]).verdict == "not detectable here"


def test_no_verdict_is_given_where_the_seeds_cannot_carry_one(monkeypatch):
    lower = {"direction": "lower"}
    assert judged(monkeypatch, lower, [10], [50]).verdict == "no answer yet"
    assert judged(monkeypatch, lower, [], [50, 51]).words == "no answer yet (no results)"
    lost = judged(monkeypatch, lower, [10, 11, 12], [50, 52, 51], open={1: "diverged"})
    assert lost.words == "no answer yet (diverged 0 of 3 → 1 of 3, Fisher p 1, uncorrected)"
    assert judged(monkeypatch, lower, [10, 11], [50, 52, 51]).ours.startswith("51.00 ± 1.41 → 10.50 ± 0.71, n 2"), "of the seeds that both have"


def test_a_check_may_name_a_figure_of_theory(monkeypatch):
    than = {"than": 4.0, "direction": "lower"}
    assert judged(monkeypatch, than, [3.0, 3.1, 2.9], [9, 9, 9]).verdict == "confirmed"
    assert judged(monkeypatch, than, [5.0, 5.1, 4.9], [9, 9, 9]).verdict == "refuted", "lower than the baseline does not count"
    assert judged(monkeypatch, {**than, "direction": "equal", "margin": 0.5}, [4.1, 4.0, 3.9], [9, 9, 9]).verdict == "equal within ±0.5"


def test_exactly_equal_arms_are_equal(monkeypatch):
    same = {"direction": "equal", "margin": 1}
    assert judged(monkeypatch, same, [50, 52, 51], [50, 52, 51]).verdict == "equal within ±1"
    assert judged(monkeypatch, same, [52, 54, 53], [50, 52, 51]).verdict == "refuted"


def test_a_narrowed_question_keeps_what_its_checks_mean():
    """`--only` takes checks away; it never moves their words to other numbers."""
    whole = [v.says for v in verdicts(tuned(group(read("norm"), {})))]
    some = [v.says for v in verdicts(tuned(group(read("norm").only({"model.optim.warmup_steps": ["0"], "model.arch.n_layers": ["6"]}), {})))]
    assert len(whole) == 5 and some == ["pre-norm is better with six layers without one"]


def test_a_check_of_a_choice_that_does_not_vary_is_named(monkeypatch):
    monkeypatch.setitem(claims.claims(), "look_ahead", {"checks": [{"says": "", "arm": {"heads": 1}, "direction": "lower"}]})
    with pytest.raises(BadInput, match="look_ahead: heads is none of look_ahead"):
        verdicts(group(question("look_ahead"), {}))


def test_siblings_wait_at_the_end():
    asked = read("decoding").with_seeds(2)
    order = [(arm["model.decoding.method"], seed) for arm, seed, _ in siblings_last(runs(asked, ROOT))]
    assert order == [("greedy", 0), ("greedy", 1), ("beam", 0), ("sample", 0), ("beam", 1), ("sample", 1)]


def test_holms_correction_is_over_the_claims_checks(monkeypatch):
    key = "model.look_ahead"
    checks = [{"says": str(i), "arm": {"look_ahead": "open"}, "direction": "lower", "metric": m} for i, m in enumerate(("test/bleu", "test/nll"))]
    monkeypatch.setitem(claims.claims(), "look_ahead", {"checks": checks})
    table = {
        (word,): {s: one({key: word}, s, bleu[s], **{"test/nll": nll[s]}) for s in range(3)}
        for word, bleu, nll in (("masked", [50, 52, 51], [1.0, 1.1, 1.2]), ("open", [40, 41, 42], [1.0, 1.0, 1.3]))
    }
    first, second = verdicts(group(question("look_ahead"), table))
    assert first.p == pytest.approx(2 * __import__("scipy").stats.ttest_rel([40, 41, 42], [50, 52, 51]).pvalue)
    assert second.p == pytest.approx(__import__("scipy").stats.ttest_rel([1.0, 1.0, 1.3], [1.0, 1.1, 1.2]).pvalue) or second.p >= first.p


# ---- the shipped claims


@pytest.mark.parametrize("path", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_question_has_a_claim_whose_checks_name_its_arms_and_metrics(path):
    asked = read(path.stem)
    claim = claims.claim_of(asked)
    assert {"english", "chinese", "section", "checks", "published"} <= set(claim)
    assert set(claim) <= {"english", "chinese", "section", "checks", "published", "tune", "also", "layers", "failed"}
    choices = {short(key): values for key, values in asked.varied.items()}
    for check in claim["checks"]:
        assert set(check) <= {"says", "arm", "against", "beside", "than", "metric", "direction", "margin"}
        assert check["direction"] in ("lower", "higher", "equal") and ("margin" in check) == (check["direction"] == "equal")
        for wanted in (check["arm"], check.get("against", {}), check.get("beside", {})):
            assert all(value in choices[name] for name, value in wanted.items()), wanted
        contrast = short(asked.contrast)
        assert check["arm"].get(contrast, choices[contrast][0]) != choices[contrast][0] or {"against", "than"} & set(check)
    assert claim.get("tune", LR) in asked.varied or "tune" not in claim
    assert re.search("[a-z]", claim["english"]) and re.search("[\u4e00-\u9fff]", claim["chinese"])
    assert len(claim["published"]) <= 3
    for table in claim["published"]:
        assert {"source", "where", "metric", "rows"} <= set(table) <= {"source", "where", "metric", "rows", "note"}
        assert re.search(r"(19|20)\d\d|README|readme|hw\d", table["source"] + table["where"]) and table["rows"]
        assert all(set(row) <= {"arm", "value", "sd"} and {"arm", "value"} <= set(row) for row in table["rows"])


def metrics_of_bert() -> set[str]:
    """Of the model with its second task, and of the toy recipe's tasks."""
    from datamodules.documents import ToyDocuments
    from experiments.record.identity import load_recipe
    from lit_modules.bert import Bert

    data = ToyDocuments(objective="mlm+nsp", train_documents=20, held_out=5)
    names = set(Bert.metric_names(data)) | {"downstream/average"}
    for path in load_recipe("experiments/recipes/bert/toy.yaml")["downstream.recipes"]:
        module, _, kind = load_recipe(path)["data.class_path"].rpartition(".")
        scores = getattr(importlib.import_module(module), kind).scores
        names |= {f"{Path(path).stem}/{score}" for score in ("nll", *scores)}
    return names


def test_every_metric_that_a_claim_names_is_one_that_the_model_reports(monkeypatch):
    from datamodules.images import Digits
    from datamodules.translation import ToyTranslation
    from lit_modules.translation import Translation
    from lit_modules.vit import Vit

    monkeypatch.setattr(ToyTranslation, "language", "de")  # as Multi30k's is
    data = ToyTranslation(train_pairs=50, eval_pairs=300)
    data.load()
    of_all = {"train/nll", "train/loss", "attention_share"}
    known_to = {
        "translation": {*Translation.metric_names(data), "end/leak"},
        "bert": metrics_of_bert(),
        "vit": {*Vit.metric_names(Digits()), "tokens_per_image"},
    }
    for name, claim in claims.claims().items():
        known = known_to[read(name).recipe.split("-")[0]] | of_all
        named = {*claim.get("also", ()), *(c["metric"] for c in claim["checks"] if "metric" in c)}
        named |= {claim["failed"]["metric"]} if "failed" in claim else set()
        assert named <= known, (name, named - known)


def test_an_interaction_by_hand(monkeypatch):
    """Losses of 1, 2, 3 at d_k 16 and of 11, 14, 14 at 64: 10, 12, 11 more."""
    divisor, size = "model.arch.score_divisor", "model.arch.d_k"
    check = {"says": "more at 64", "arm": {"score_divisor": "one", "d_k": 64}, "beside": {"d_k": 16}, "direction": "lower"}
    monkeypatch.setitem(claims.claims(), "score_divisor", {"checks": [check]})
    scores = {("sqrt_d_k", 16): [50, 60, 70], ("one", 16): [49, 58, 67], ("sqrt_d_k", 64): [80, 80, 90], ("one", 64): [69, 66, 76]}
    table = {arm: {s: one({divisor: arm[0], size: arm[1]}, s, v) for s, v in enumerate(values)} for arm, values in scores.items()}
    (verdict,) = verdicts(group(question(), table))
    assert verdict.verdict == "confirmed" and verdict.ours.startswith("-2.00 ± 1.00 → -13.00 ± 1.73, n 3, 95 % [-13.48, -8.52]")
    assert verdicts(group(question().only({size: ["64"]}), table)) == [], "without the other stratum there is none"


# ---- what stands below the table


def test_the_tasks_scores_stand_among_the_other_metrics(monkeypatch):
    """Whichever tasks were fine-tuned; not their losses, nor a metric that no arm has."""
    monkeypatch.setitem(claims.claims(), "nsp", {"also": ["test/nll", "pairs/accuracy", "toy_roles/f1"]})
    asked = question("nsp").only({"model.objective": ["mlm+nsp", "mlm"]})
    scores = {"test/nll": 6.0, "trec/accuracy": 80.0, "trec/chance": 27.0, "xquad_en/exact": 3.0, "xquad_en/f1": 7.0, "xquad_en/nll": 1.0}
    tasks = {"downstream": {"trec": {}, "xquad_en": {}}}
    table = {("mlm+nsp",): {0: one({"model.objective": "mlm+nsp"}, 0, 1, **scores, **{"pairs/accuracy": 60.0}) | tasks},
             ("mlm",): {0: one({"model.objective": "mlm"}, 0, 1, **scores) | tasks}}  # fmt: skip
    said = other_metrics(group(asked, table))
    assert list(said[0]) == ["objective", "test/nll", "pairs/accuracy", "trec/accuracy", "xquad_en/exact", "xquad_en/f1"]
    assert said[0]["trec/accuracy"][0] == 80.0 and said[0]["pairs/accuracy"][0] == 60.0 and said[1]["pairs/accuracy"] is None


def test_other_metrics_layers_and_failures(monkeypatch):
    monkeypatch.setitem(claims.claims(), "look_ahead", {"also": ["test/nll"], "layers": True, "failed": {"metric": "test/bleu", "below": 10},
                                                        "checks": [], "published": [], "english": "", "chinese": "", "section": ""})  # fmt: skip
    gradients = {"start/encoder.0/layer_gradient": 1.0, "end/encoder.0/layer_gradient": 3.0, "start/decoder.1/layer_gradient": 2.0}
    table = {
        ("masked",): {s: one({"model.look_ahead": "masked"}, s, 50, **{"test/nll": 1.0 + s, **gradients}) for s in range(3)},
        ("open",): {s: one({"model.look_ahead": "open"}, s, [1, 20, 2][s], **{"test/nll": 0.5}) for s in range(3)},
    }
    whole = group(question("look_ahead"), table)
    assert other_metrics(whole)[0] == {"look_ahead": "masked", "test/nll": (2.0, 1.0)}
    assert layers(whole)[0] == {"look_ahead": "masked", "step": "first", "encoder.0": 1.0, "decoder.1": 2.0}
    assert list(layers(whole)[0]) == ["look_ahead", "step", "encoder.0", "decoder.1"]
    open_row = rows_of(whole)[1]
    assert "did not learn: 2 of 3 (test/bleu below 10)" in open_row.note and open_row.n == 3
    text = render(whole, "markdown")
    assert "| masked | 2.000 ± 1.000 |" in text and "| masked | first | 1 | 2 |" in text
    data = json.loads(render(whole, "json"))
    assert data["also"][0]["test/nll"] == [2.0, 1.0] and not any(map(math.isnan, data["also"][0]["test/nll"]))


def test_the_table_of_claims(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "committed")
    variant = runs(read("look_ahead"), tmp_path)[0][2].variant
    for word, values in (("masked", [50, 52, 51]), ("open", [1, 2, 3])):
        for seed, value in enumerate(values):
            more = {"question": "look_ahead", "key": f"{word}{seed}", "variant": variant}
            metrics = {"train/nll": value / 10, "valid/nll": 1.0 + seed / 9 - value / 99}
            put(tmp_path / "out", **{**one({"model.look_ahead": word}, seed, value, **metrics), **more})
            other = {"key": f"{word}{seed}o", "variant": "other", "ended": "2030-01-01T00:00:00Z"}
            put(tmp_path / "out", **{**one({"model.look_ahead": word}, seed, 7.0, **metrics), **more, **other})
    text = table_of_claims([read("look_ahead"), read("heads")], tmp_path / "out")
    assert "51.00 ± 1.00 → 2.00 ± 1.00, n 3" in text and text.count("look_ahead") == 1 and "heads" not in text
    assert "Raschka 2024, ch06/02 README, rows 1 and 17: masked 95.0, open 95.33" in text


# ---- embedded and real data in one overview

DIVISOR, SIZE = "model.arch.score_divisor", "model.arch.d_k"


def on(data, asked, table, variant="v", shipped=True):
    """A group that was trained on `data`; None for the sweep file as it stands."""
    own = results.identify(results.arguments(asked, *asked.runs()[0]))
    settings = own.settings if data is None else own.settings | {"data.dataset": f"folder {data} 1f"}
    return Group(asked, asked.recipe, own.variant if data is None else variant, settings, table, {}, False, shipped)


def drop(sizes, lost, seeds=3, status="finished"):
    """80 BLEU with the divisor, `lost` fewer without, at each of the sizes."""
    arms = [(divisor, d) for d in sizes for divisor in ("sqrt_d_k", "one")]
    bleu = {arm: 80 if arm[0] == "sqrt_d_k" else 80 - lost for arm in arms}
    return {
        arm: {s: one({DIVISOR: arm[0], SIZE: arm[1]}, s, v + s * (1.1 if v < 80 else 1), status=status if v < 80 else "finished") for s in range(seeds)}
        for arm, v in bleu.items()
    }  # fmt: skip


@pytest.fixture
def two_checks(monkeypatch):
    """No divisor is worse, at d_k 16 and at 64."""
    checks = [{"says": f"worse at {d}", "arm": {"score_divisor": "one", "d_k": d}, "direction": "lower"} for d in (16, 64)]
    monkeypatch.setitem(claims.claims(), "score_divisor", {"checks": checks})


def test_real_data_has_the_word_where_it_has_one(two_checks):
    """d_k 64 alone on captions: there it answers; at 16 the embedded data do. A lone seed answers nothing."""
    asked = question()
    embedded, captions = on(None, asked, drop((16, 64), 40)), on("my captions", asked, drop((64,), 60))
    said = {v.says: v for v in answers(asked, [captions, embedded])}
    assert {name: (v.data, v.runs) for name, v in said.items()} == {"worse at 16": ("embedded", 12), "worse at 64": ("my captions", 6)}
    assert "→ 21.10" in said["worse at 64"].ours and "→ 41.10" in said["worse at 16"].ours
    captions = on("my captions", asked, drop((64,), 60, seeds=1))
    assert [v.data for v in answers(asked, [captions, embedded])] == ["embedded", "embedded"]
    captions = on("my captions", asked, drop((64,), 60, status="diverged"))
    assert "diverged 0 of 3 → 3 of 3" in {v.says: v for v in answers(asked, [captions, embedded])}["worse at 64"].ours


def test_a_trial_does_not_take_the_place_of_an_answer(two_checks):
    asked = question()
    embedded, captions = on(None, asked, drop((16, 64), 40)), on("captions", asked, drop((64,), 60))
    trial = on("captions", asked, drop((16, 64), 1, seeds=3), variant="of ten steps", shipped=False)
    assert [v.data for v in answers(asked, [captions, trial, embedded])] == ["embedded", "captions"]
    larger = replace(trial, shipped=True)
    assert [v.ours for v in answers(asked, [captions, larger, embedded])] == [v.ours for v in verdicts(larger)], "the larger of two"
    fewer = on("captions", asked, drop((64,), 5, seeds=2))
    assert "→ 21.10" in answers(asked, [fewer, captions, embedded])[1].ours, "own results of the same settings, but fewer"


def test_the_asking_of_real_data_is_its_own_answer():
    """Where the sweep file's own recipe has real data, no other settings speak for it, however many."""
    asked, position = read("position_multi30k"), "model.position"
    arms = {("sinusoidal",): 30, ("learned",): 30, ("none",): 20}

    def table(seeds, worse):
        return {arm: {s: one({position: arm[0]}, s, bleu - worse * (bleu == 20) + s * bleu / 20) for s in range(seeds)} for arm, bleu in arms.items()}

    alone, other = on(None, asked, table(2, 0)), on("captions", asked, table(4, 10))
    assert alone.data == "multi30k"
    assert "→ 20.50" in answers(asked, [other, alone])[0].ours
    assert "→ 11.50" in answers(asked, [other])[0].ours
    single = on(None, asked, table(1, 0))
    assert "→ 20.00" in answers(asked, [other, single])[0].ours, "a lone seed of its own, which carries no verdict"


def test_holms_correction_is_over_the_rows_that_are_shown(two_checks):
    """Two checks from two data sets: the smaller p counts twice, the larger once."""
    asked = question()
    embedded, captions = on(None, asked, drop((16, 64), 40)), on("captions", asked, drop((64,), 60))
    raw = [verdicts(on(None, asked.only({SIZE: ["16"]}), drop((16,), 40)))[0].p, verdicts(on(None, asked.only({SIZE: ["64"]}), drop((64,), 60)))[0].p]
    small, large = sorted(raw)
    assert sorted(v.p for v in answers(asked, [captions, embedded])) == pytest.approx(sorted([2 * small, max(large, 2 * small)]))
