"""The dashboard's charts, drawn by altair as SVG. Colours are the page's own variables, so that one drawing serves a
light page, a dark one and paper."""

from statistics import fmean
from typing import Any

import altair as alt
from markupsafe import escape
from scipy import stats

from experiments.launch.question import short
from experiments.pictures import named

from .history import history, inside
from .results import Arm, Group
from .statistics import mean_sd
from .table import Row, choices_of, diverged, finished, in_order, insides

WIDTH = 330  # of a single panel: what a telephone shows without shrinking
INK, LINE = "var(--ink)", "var(--line)"
SERIES = [f"var(--series-{i})" for i in range(1, 9)]
CONFIG = {
    "background": "transparent",
    "padding": {"left": 24, "right": 16, "top": 4, "bottom": 4},  # a browser's letters may be wider than the drawer's
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {"labelColor": INK, "titleColor": INK, "domainColor": LINE, "tickColor": LINE, "gridColor": LINE,
             "gridOpacity": 0.5, "labelLimit": 190, "titleFontWeight": "normal", "labelFontSize": 11,
             "titleFontSize": 11},
    "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11},
    "legend": {"labelColor": INK, "titleColor": INK, "orient": "top", "labelLimit": 160, "columns": 3},
}  # fmt: skip


def svg(chart: alt.TopLevelMixin, alt_text: str) -> str:
    """Inline SVG that scales with its place and says what it is."""
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(chart.configure(**CONFIG).to_dict())
    width = float(drawn.split('width="', 1)[1].split('"', 1)[0])
    head, _, rest = drawn.partition(">")
    about = f'style="max-width:{1.3 * width:.0f}px" role="img" aria-label="{escape(alt_text)}"'
    head = head.replace('class="marks"', f'class="chart" {about}')
    head = " ".join(word for word in head.split(" ") if not word.startswith(('width="', 'height="')))
    return f"{head}>{rest}"


def label(choices: dict[str, Any]) -> str:
    """An arm in a few words: the contrast's value, then its stratum."""
    *strata, contrast = choices.items()
    return str(contrast[1]) + "".join(f", {name} {value}" for name, value in strata)


def colours(group: Group, legend: bool = True) -> alt.Color | dict:
    """A colour for each value of the contrast; one for all where they are too many to be told apart."""
    names = [str(value) for value in group.question.varied[group.question.contrast]]
    if len(names) > len(SERIES):
        return alt.value(SERIES[0])
    scale, shown = alt.Scale(domain=names, range=SERIES[: len(names)]), alt.Legend(symbolOpacity=1) if legend else None
    return alt.Color("contrast:N", scale=scale, sort=names, title=None, legend=shown)


def dots(group: Group, rows: list[Row]) -> alt.TopLevelMixin | None:
    """Every seed of every arm, and the mean with its 95 % t-interval."""
    seeds, means, order = [], [], []
    for row, arm in zip(rows, in_order(group.question), strict=True):
        values = finished(group.results.get(arm, {}), group.question.metric)
        about = {"arm": label(row.choices) + lost(group, arm), "contrast": str(arm[0])}
        order.append(about["arm"])
        seeds += [{**about, "value": value, "seed": seed} for seed, value in values.items()]
        if values:
            mean, sd = mean_sd(list(values.values()))
            half = stats.t.ppf(0.975, len(values) - 1) * sd / len(values) ** 0.5 if sd else 0.0
            means.append({**about, "value": mean, "low": mean - half, "high": mean + half})
    if not seeds:
        return None
    y = alt.Y("arm:N", sort=order, scale=alt.Scale(domain=order), title=None)
    title = f"{group.question.metric}: seeds, mean, 95 % interval of the mean"
    x = {"scale": alt.Scale(zero=False), "axis": alt.Axis(tickCount=8), "title": title}
    colour = colours(group, legend=False)
    of_means, of_seeds = alt.Chart(alt.Data(values=means)), alt.Chart(alt.Data(values=seeds))
    at, point = {"y": y, "x": alt.X("value:Q", **x), "color": colour}, {"filled": True, "opacity": 1}
    return alt.layer(
        of_means.mark_rule(strokeWidth=2).encode(y=y, x=alt.X("low:Q", **x), x2="high:Q", color=colour),
        of_seeds.mark_circle(size=36, opacity=0.45).encode(**at, tooltip=["arm:N", "seed:Q", "value:Q"]),
        of_means.mark_point(shape="diamond", size=70, **point).encode(**at),
    ).properties(width=WIDTH, height=alt.Step(20))  # fmt: skip


def curves(group: Group, metric: str) -> alt.TopLevelMixin | None:
    """The mean over the finished seeds against the optimiser step, between its lowest and its highest seed; a panel a
    stratum."""
    points = []
    for arm in in_order(group.question, group.results):
        for step, seeds in course(group, arm, metric).items():
            values = list(seeds.values())
            about = {"contrast": str(arm[0]), "stratum": stratum(group, arm), "step": step}
            points.append({**about, "mean": fmean(values), "low": min(values), "high": max(values)})
    if len({point["step"] for point in points}) < 2:
        return None
    strata = list(dict.fromkeys(point["stratum"] for point in points))
    base = alt.Chart().encode(x=alt.X("step:Q", title="optimiser step"), color=colours(group), detail="contrast:N")
    scale = alt.Scale(zero=False)
    lines = alt.layer(
        base.mark_area(opacity=0.18, strokeWidth=0).encode(y=alt.Y("low:Q", title=metric, scale=scale), y2="high:Q"),
        base.mark_line(strokeWidth=1.8).encode(y=alt.Y("mean:Q", title=metric, scale=scale)),
        data=alt.Data(values=points),
    )
    if len(strata) == 1:
        return lines.properties(width=WIDTH, height=190)
    return lines.properties(width=WIDTH // 2 - 10, height=130).facet(
        facet=alt.Facet("stratum:N", sort=strata, title=None), columns=2
    )


def course(group: Group, arm: Arm, metric: str) -> dict[int, dict[int, float]]:
    """step → seed → value, of the finished seeds, at the steps that all have: a mean is always one of the same runs."""
    done = {seed: result for seed, result in group.results[arm].items() if result["status"] == "finished"}
    logged = {seed: dict(history(group.folders[r["key"]])[0].get(metric, [])) for seed, r in done.items()}
    steps = set.intersection(*map(set, logged.values())) if logged else set()
    return {step: {seed: values[step] for seed, values in logged.items()} for step in sorted(steps)}


def lost(group: Group, arm: Arm) -> str:
    """How many of an arm's seeds have diverged, for its label."""
    seeds = group.results.get(arm, {})
    return f" ({len(gone)} of {len(seeds)} diverged)" if (gone := diverged(seeds)) else ""


def stratum(group: Group, arm: Arm) -> str:
    *strata, _ = choices_of(group.question, arm).items()
    return ", ".join(f"{name} {value}" for name, value in strata)


def cost(group: Group, rows: list[Row]) -> alt.TopLevelMixin | None:
    """Quality against the FLOPs of a training; nothing where all arms cost alike."""
    points = [
        {"arm": label(row.choices) + lost(group, arm), "contrast": str(arm[0]), "flops": row.flops, "value": row.mean}
        for row, arm in zip(rows, in_order(group.question), strict=True)
        if row.mean is not None and row.flops
    ]
    if not points or max(p["flops"] for p in points) < 1.02 * min(p["flops"] for p in points):
        return None
    axes = {
        "x": alt.X(
            "flops:Q",
            title="FLOPs of a training",
            scale=alt.Scale(type="log", nice=False, padding=24),
            axis=alt.Axis(format="~e", tickCount=4),
        ),
        "y": alt.Y("value:Q", title=group.question.metric, scale=alt.Scale(zero=False)),
    }  # fmt: skip
    chart = alt.Chart(alt.Data(values=points))
    return alt.layer(
        chart.mark_point(filled=True, size=70, opacity=0.9).encode(**axes, color=colours(group)),
        chart.mark_text(align="left", dx=7, fontSize=10, color=INK).encode(**axes, text="arm:N"),
    ).properties(width=WIDTH, height=210)


def insides_of(group: Group, most: int = 6) -> list[tuple[str, alt.TopLevelMixin]]:
    """Attention and positions of each arm of the first stratum, lowest seed: (title, chart)."""
    drawn = []
    arms = in_order(group.question, group.results)
    for arm in [arm for arm in arms if arm[1:] == arms[0][1:]][:most]:
        if found := inside(group.first_folder(arm)):
            drawn.append((label(choices_of(group.question, arm)), matrices(found)))
    return drawn


def matrices(found: dict[str, Any]) -> alt.TopLevelMixin:
    """A small heat map each: row i is where position i looked. Each is shaded by its own largest weight."""
    panels = []
    for title, matrix in found.items():
        weights = matrix["weights"]
        largest = max(map(max, weights)) or 1.0
        cells = [
            {"row": i, "column": j, "weight": w, "shade": max(w, 0) / largest}
            for i, row in enumerate(weights)
            for j, w in enumerate(row)
        ]
        panels.append(
            alt.Chart(alt.Data(values=cells), title=alt.Title(title, fontSize=10, color=INK, fontWeight="normal"))
            .mark_rect()
            .encode(
                x=alt.X("column:O", title=None, axis=tokens(matrix["columns"], labelAngle=-60)),
                y=alt.Y("row:O", title=None, axis=tokens(matrix["rows"])),
                opacity=alt.Opacity("shade:Q", scale=alt.Scale(domain=[0, 1], range=[0.03, 1]), legend=None),
                color=alt.value(SERIES[0]),
            )
            .properties(width=150, height=150)
        )
    return alt.concat(*panels, columns=2)


def tokens(names: list[str] | None, **more: Any) -> alt.Axis | None:
    """Positions as their tokens; none where there are none, or too many to be read."""
    if names is None or len(names) > 24:
        return None
    return named(names, labelFontSize=8, ticks=False, **more)


def why(group: Group) -> alt.TopLevelMixin | None:
    """What the model looked like inside at the start and at the end of training, a panel a statistic."""
    ends = []
    *strata, contrast = [short(key) for key in (*list(group.question.varied)[1:], group.question.contrast)]
    for row in insides(group):  # an arm of which nothing was recorded has none
        about = {"contrast": str(row[contrast]), "arm": ", ".join(f"{name} {row[name]}" for name in strata)}
        for name, value in row.items():
            statistic, _, when = name.rpartition(" ")
            if when in ("start", "end") and name not in (contrast, *strata):
                ends.append({**about, "when": when, "value": value, "statistic": statistic})
    if not ends:
        return None
    return (
        alt.Chart(alt.Data(values=ends))
        .mark_line(point=alt.OverlayMarkDef(size=28), strokeWidth=1.5, opacity=0.85)
        .encode(
            x=alt.X("when:N", sort=["start", "end"], title=None, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
            color=colours(group),
            detail=["arm:N", "contrast:N"],
        )
        .properties(width=120, height=110)
        .facet(facet=alt.Facet("statistic:N", title=None), columns=3)
        .resolve_scale(y="independent")
    )
