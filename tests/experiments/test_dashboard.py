"""The dashboard in a real browser: no errors, charts, sorting, filtering, telephone, keyboard, contrast, speed."""

import os
import re
import shutil
import time
from urllib.parse import unquote

import pytest
from test_table import put, result
from typer.testing import CliRunner

from experiments.answer import charts, dashboard, results
from experiments.answer.history import POINTS, history
from experiments.answer.table import rows_of
from experiments.cli import app
from experiments.launch.question import read

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="Chromium is not installed: apt-get install chromium chromium-driver"
)
SHOWN = ("score_divisor", "norm", "patch_size", "cross_attention", "look_ahead")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of committed answers, as right after the install."""
    out = tmp_path_factory.mktemp("out")
    target = out / "dashboard.html"
    assert dashboard.write([read(name) for name in SHOWN], out, target, "code") == 0
    return target


def browser(width):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return driver


def visit(driver, page):
    """Until its script has run: asked for the same page again, the driver may answer with the old one."""
    driver.get("about:blank")
    driver.get(f"file://{page}")
    ready = "return document.readyState === 'complete' && !!document.querySelector('#claims thead button')"
    for _ in range(100):
        if driver.execute_script(ready):
            return
        time.sleep(0.1)
    raise AssertionError("the page's script did not run")


@pytest.fixture(scope="module")
def chromium():
    driver = browser(1200)
    yield driver
    driver.quit()


def test_every_figure_of_the_table_and_every_command_stands_on_the_page(page):
    text = page.read_text()
    for figure in ("89.93 ± 2.29", "-54.60", "[-61.51, -47.69]", "Britz et al. 2017", "若不除以", "722,560"):
        assert figure in text, figure
    assert text.count("<svg") > 15 and text.count("<svg") == text.count('role="img"')
    assert "python -m experiments.train fit --question score_divisor" in text
    assert not re.search(r'(src|href)="(https?:)?//', text), "nothing from a network"
    assert "die roten Könige geben dem Hund" in text or "dieser stille Lehrer kann im Garten lachen" in text
    assert 'http-equiv="refresh"' not in text, "nothing is running"


@needs_browser
def test_it_opens_without_an_error_and_draws(page, chromium):
    visit(chromium, page)
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
    sizes = chromium.execute_script("return [...document.querySelectorAll('svg.chart')].map(e => e.getBoundingClientRect().width)")
    assert len(sizes) > 15 and min(sizes) > 150
    colours = chromium.execute_script(
        "return [...new Set([...document.querySelectorAll('svg.chart path[stroke], svg.chart path[fill]')].map(e => getComputedStyle(e).stroke))]"
    )
    assert len([c for c in colours if c.startswith("rgb(")]) >= 2, "the page's own colours reach the drawings"


@needs_browser
def test_claims_are_sorted_and_filtered(page, chromium):
    visit(chromium, page)

    def column(index):
        script = f"return [...document.querySelectorAll('#claims tbody tr:not([hidden])')].map(r => r.cells[{index}].innerText.trim())"
        return chromium.execute_script(script)

    heads = chromium.find_elements("css selector", "#claims thead button")
    heads[0].click()
    assert column(0) == sorted(column(0))
    heads[0].click()
    assert column(0) == sorted(column(0), reverse=True) and len(set(column(0))) == len(SHOWN)
    find = chromium.find_element("id", "find")
    find.send_keys("patch")
    assert set(column(0)) == {"patch_size"} and "shown" in chromium.find_element("id", "shown").text
    find.clear()
    find.send_keys(" ")
    chromium.find_element("css selector", "input.kind[value=confirmed]").click()
    assert column(1) and not any("confirmed" in verdict for verdict in column(1))


@needs_browser
def test_a_table_of_numbers_is_sorted_by_number(page, chromium):
    visit(chromium, page)
    table = "#score_divisor table.figures"
    heads = chromium.find_elements("css selector", f"{table} thead button")
    place = [head.text for head in heads].index("test/bleu")
    heads[place].click()
    shown = chromium.execute_script(
        f"return [...document.querySelector('{table}').tBodies[0].rows].map(r => parseFloat(r.cells[{place}].innerText))"
    )
    assert shown == sorted(shown) and shown[0] < 4 < 80 < shown[-1]


@needs_browser
def test_language_theme_and_keyboard(page, chromium):
    from selenium.webdriver.common.keys import Keys

    visit(chromium, page)
    claim = chromium.find_element("css selector", "#score_divisor .claim[lang=zh]")
    assert not claim.is_displayed()
    chromium.find_element("id", "language").click()
    assert claim.is_displayed()
    chromium.find_element("id", "language").click()
    before = chromium.execute_script("return getComputedStyle(document.body).backgroundColor")
    chromium.find_element("id", "theme").send_keys(Keys.ENTER)
    assert chromium.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    chromium.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached, body = set(), chromium.find_element("css selector", "body")
    body.send_keys(Keys.TAB)
    for _ in range(40):
        reached.add(chromium.execute_script("const e = document.activeElement; return e.id || e.tagName"))
        chromium.switch_to.active_element.send_keys(Keys.TAB)
    assert {"language", "find", "INPUT", "A", "BUTTON"} & reached >= {"find", "A", "BUTTON"}, reached


CONTRAST = """
const luminance = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const paper = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
  if (!c.startsWith('rgba(0, 0, 0, 0')) return c; } return 'rgb(255, 255, 255)'; };
return [...document.querySelectorAll('h1, h2, p, td, th, a, .badge, button, summary, figcaption, svg text')]
  .filter(e => e.getClientRects().length).map(e => { const s = getComputedStyle(e);
    const [a, b] = [luminance(e.tagName === 'text' ? s.fill : s.color), luminance(paper(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 30)]; })
  .sort((a, b) => a[0] - b[0])[0]"""


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_is_at_least_four_and_a_half(page, chromium, theme):
    visit(chromium, page)
    chromium.execute_script(f"theme('{theme}')")
    least, what = chromium.execute_script(CONTRAST)
    assert least >= 4.5, (least, what)


@needs_browser
def test_a_telephone_need_not_scroll_sideways(page):
    driver = browser(380)
    try:
        driver.get(f"file://{page}")
        for detail in driver.find_elements("css selector", "details"):
            driver.execute_script("arguments[0].open = true", detail)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 380
    finally:
        driver.quit()


@needs_browser
def test_three_hundred_runs_load_within_two_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "none")
    question, divisor, d_k = read("score_divisor").with_seeds(50), "model.arch.score_divisor", "model.arch.d_k"
    for arm in question.arms():
        for seed in question.seeds:
            metrics = {"test/bleu": 50.0 + seed % 7, "start/a/entropy": 1.0, "end/a/entropy": 0.5}
            put(tmp_path / "out", **{**result(("one", 16), 0), "arm": arm, "seed": seed, "metrics": metrics,
                                     "config": arm, "key": f"{arm[divisor]}{arm[d_k]}{seed}"})  # fmt: skip
    page = tmp_path / "out" / "dashboard.html"
    dashboard.write([question], tmp_path / "out", page, "code")
    assert page.read_text().count('class="copy"') == 300
    driver = browser(1200)
    try:
        driver.get(f"file://{page}")
        spent = driver.execute_script("return performance.timing.loadEventEnd - performance.timing.navigationStart")
        assert spent < 2000, spent
    finally:
        driver.quit()


def test_while_a_run_is_going_on_the_page_loads_itself_again(tmp_path, monkeypatch):
    from experiments.launch.ask import runs

    monkeypatch.setattr(results, "COMMITTED", tmp_path / "none")
    question = read("cross_attention").with_seeds(1)
    folder = runs(question, tmp_path)[0][2].folder
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text('{"step": 1, "total": 2}')
    page = tmp_path / "dashboard.html"
    assert dashboard.write([question], tmp_path, page, "code") == 1
    assert '<meta http-equiv="refresh"' in page.read_text() and "1 running" in page.read_text()
    old = time.time() - dashboard.LIVE - 1
    os.utime(folder / "progress.json", (old, old))
    assert dashboard.write([question], tmp_path, page, "code") == 0, "a run that died is none"
    assert "No results yet" in page.read_text()


def results_of(question, tmp_path, metrics_of):
    """One result an arm and seed: (metrics, status) by metrics_of; None leaves it out."""
    for arm in question.arms():
        for seed in question.seeds:
            if (found := metrics_of(arm, seed)) is None:
                continue
            metrics, status = found
            key = f"{'-'.join(map(str, arm.values()))}-{seed}"
            more = {"arm": arm, "seed": seed, "metrics": metrics, "status": status, "key": key, "config": arm}
            put(tmp_path, **{**result(("one", 16), 0), **more, "question": question.name})
    return results.groups(question, tmp_path)[-1]


def test_an_arm_without_diagnostics_lends_no_other_its_values(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "none")

    def metrics_of(arm, seed):
        divisor, size = arm.values()
        if (divisor, size) == ("sqrt_d_k", 16):
            return {}, "failed"
        return {"test/bleu": 1.0, "end/a/entropy": 1.0 if divisor == "sqrt_d_k" else 0.1}, "finished"

    group = results_of(read("score_divisor").with_seeds(2), tmp_path, metrics_of)
    drawn = charts.why(group).to_dict()["data"]["values"]
    assert {(point["contrast"], point["value"]) for point in drawn} == {("sqrt_d_k", 1.0), ("one", 0.1)}
    assert sum(point["contrast"] == "sqrt_d_k" for point in drawn) == 2


def test_a_learning_curve_is_a_mean_of_the_same_seeds_everywhere(tmp_path, monkeypatch):
    """The seed that diverged is left out, and named in the arm's label."""
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "none")
    group = results_of(
        read("cross_attention").with_seeds(3), tmp_path,
        lambda arm, seed: ({}, "diverged") if seed == 2 else ({"test/bleu": 5.0}, "finished"),
    )  # fmt: skip
    for arm, seeds in group.results.items():
        for seed, found in seeds.items():
            steps = range(10, 50 if seed == 2 else 100, 10 if seed else 20)
            rows = [f"0,{step},train/loss,{1000 if seed == 2 else step + seed}" for step in steps]
            (group.folders[found["key"]] / "metrics.csv").write_text("\n".join(["time,step,metric,value", *rows]))
        assert charts.course(group, arm, "train/loss") == {step: {0: step, 1: step + 1} for step in (10, 30, 50, 70, 90)}
    dots = charts.dots(group, rows_of(group)).to_dict()
    named = {point["arm"] for layer in dots["layer"] for point in layer["data"]["values"]}
    assert named == {"present (1 of 3 diverged)", "absent (1 of 3 diverged)"}


def test_what_a_sweep_file_says_is_text_on_the_page(tmp_path):
    drawn = charts.svg(charts.matrices({"x": {"rows": None, "columns": None, "weights": [[1.0]]}}), 'a" onload="alert(1)')
    assert "onload=" not in drawn.replace("onload=&", "") and "&#34;" in drawn


def test_logs_are_found_from_the_page_wherever_it_lies(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "none")
    out = tmp_path / "my runs"
    group = results_of(read("cross_attention").with_seeds(1), out, lambda arm, seed: ({"test/bleu": 5.0}, "finished"))
    for folder in group.folders.values():
        (folder / "log.txt").write_text("said")
    for page in (out / "dashboard.html", out / "cross_attention" / "dashboard.html", tmp_path / "elsewhere" / "page.html"):
        dashboard.write([group.question], out, page, "code")
        links = re.findall(r'<a href="([^"#]+)">log</a>', page.read_text())
        assert len(links) == 2 and all((page.parent / unquote(link)).read_text() == "said" for link in links)


def test_the_history_of_a_run(tmp_path):
    lines = ["time,step,metric,value", *(f"0,{step},train/loss,{step / 7}" for step in range(1, 101)), "0,50,valid/nll,1.234567"]
    (tmp_path / "metrics.csv").write_text("\n".join([*lines, "0,100,test/bleu,3", "0,10"]))
    (tmp_path / "samples.txt").write_text(
        "--- valid/samples at step 50\n      source  old\n translation  alt\n"
        "--- valid/samples at step 100\n      source  a b\n translation  x y\n      source  c --- d\n translation  z\n"
    )
    curves, said = history(tmp_path)
    assert set(curves) == {"train/loss", "valid/nll"} and curves["valid/nll"] == [(50, 1.2346)]
    assert len(curves["train/loss"]) <= POINTS and curves["train/loss"][-1] == (100, 14.286)
    assert said == [{"source": "a b", "translation": "x y"}, {"source": "c --- d", "translation": "z"}]


def test_the_command(tmp_path):
    done = CliRunner().invoke(app, ["dashboard", "cross_attention", "--out", str(tmp_path)])
    assert done.exit_code == 0 and done.stdout.strip() == str(tmp_path / "dashboard.html"), done.output
