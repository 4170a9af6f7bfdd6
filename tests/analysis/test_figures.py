"""Figures show what the tables have, in the variants' own colors."""

from __future__ import annotations

from typing import Any

import pytest

from metaxlm.analysis.figures import (
    draw_coverage,
    draw_curves,
    draw_directions,
    draw_improvements,
    draw_layers,
    draw_loss,
    draw_overview,
    draw_transfer,
    list_improvements,
    thin_log,
)
from metaxlm.analysis.learning_curves import find_curves
from metaxlm.analysis.results import load_results
from metaxlm.analysis.score_tables import list_transfer
from metaxlm.analysis.scores import Results
from metaxlm.analysis.style import GRID, assign_looks, embed_svg, render_svg, write_css_variables
from tests.analysis.fake_run import aer_value, make_coverage, make_run
from tests.analysis.paper_rows import (
    AMAZON,
    make_curve_rows,
    make_direction_rows,
    make_layer_rows,
    make_paper_rows,
)
from tests.analysis.rows import make_comparison, make_results

VARIANTS = ("xlm", "metaxlm", "metaxlm+dict")
LOOKS = assign_looks(VARIANTS)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(load_results(make_run(tmp_path_factory.mktemp("figures") / "run", seeds=3)))


def test_layers_show_means_and_languages(results: Results) -> None:
    figure = draw_layers(results, LOOKS, "alignment", "error")
    assert figure is not None
    [axis] = figure.axes
    thick = [line for line in axis.lines if line.get_linewidth() > 2]
    assert [line.get_color() for line in thick] == [LOOKS[v].color for v in VARIANTS]
    expected = [100 * sum(aer_value("xlm", k, code, 2) for code in ("de", "ru", "zh", "ar")) / 4
                for k in range(5)]  # fmt: skip
    drawn: Any = thick[0].get_ydata()
    assert list(drawn) == pytest.approx(expected)
    assert len(axis.lines) == 3 + 3 * 4
    assert draw_layers(make_results(make_paper_rows()), LOOKS, "tatoeba", "x") is None


def test_bars_have_whiskers_and_the_majority(results: Results) -> None:
    figure = draw_transfer(list_transfer(results, VARIANTS), LOOKS)
    assert figure is not None
    [axis] = figure.axes
    assert len(axis.patches) == 3 * 5
    first: Any = axis.patches[0]
    assert first.get_height() == pytest.approx(87.0)
    assert axis.get_xticklabels()[0].get_text() == "en"
    assert len(axis.collections) == 3 + 1  # whiskers of each variant, and the baseline
    assert draw_transfer([], LOOKS) is None


def test_a_long_log_is_averaged() -> None:
    log = [{"step": step, "loss": float(step)} for step in range(1, 1001)]
    steps, losses = thin_log(log)
    assert len(steps) == 250 and steps == losses and steps[0] == 2.5
    assert draw_loss([], {}, LOOKS) is None
    assert len(draw_loss(log, {"xlm": log}, LOOKS).axes) == 2  # type: ignore[union-attr]
    assert len(draw_loss([], {"xlm": log}, LOOKS).axes) == 1  # type: ignore[union-attr]


def test_coverage_is_of_those_that_copy() -> None:
    figure = draw_coverage({"metaxlm": make_coverage(False)}, LOOKS)
    assert figure is not None
    rules, languages = figure.axes
    bars: list[Any] = [*rules.patches]
    assert sum(bar.get_width() for bar in bars) == pytest.approx(100)
    assert len(languages.patches) == 5
    assert draw_coverage({}, LOOKS) is None


@pytest.fixture(scope="module")
def paper() -> Results:
    rows = [*make_paper_rows(), *make_paper_rows(tasks=AMAZON), *make_layer_rows(),
            *make_curve_rows(), *make_direction_rows({"xlm": 0.6, "metaxlm": 0.7})]  # fmt: skip
    units = {("en", row["language"]): -0.05 for row in rows if row["task"] == "xnli"}
    return make_results(rows, [make_comparison("xnli", ("xlm", "metaxlm"), units)])


def test_improvements_have_both_intervals(paper: Results) -> None:
    gains = {(gain.label, gain.variant): gain for gain in list_improvements(paper)}
    xnli = gains["XNLI", "metaxlm"]
    assert xnli.value == pytest.approx(0.067, abs=0.001)
    assert xnli.interval == pytest.approx((xnli.value - 0.01, xnli.value + 0.01))
    assert xnli.half_width is not None and xnli.half_width > 0.02
    assert gains["Word alignment", "metaxlm"].value == pytest.approx(0.1)
    assert gains["Tatoeba", "metaxlm"].half_width is None
    assert ("Amazon DVD", "metaxlm") in gains
    figure = draw_improvements(list(gains.values()), LOOKS)
    assert figure is not None and len(figure.axes[0].get_yticks()) == 12
    assert draw_improvements([], LOOKS) is None


def test_curves_directions_and_overview(paper: Results) -> None:
    curves = find_curves(paper)
    assert list(curves) == ["xlm", "metaxlm"]
    figure = draw_curves(curves, LOOKS)
    assert figure is not None and len(figure.axes) == 3
    shaded: list[list[Any]] = [[*axis.patches] for axis in figure.axes]
    assert [len(patches) for patches in shaded] == [1, 1, 0]  # of XLM
    assert shaded[0][0].get_x() == 10_000
    figure = draw_directions(paper, LOOKS)
    assert figure is not None and len(figure.axes) == 4
    overview = draw_overview(paper, LOOKS)
    assert overview is not None and len(overview.axes[0].get_yticks()) == 10
    empty = make_results([{"task": "own", "metric": "accuracy", "value": 0.5, "variant": "x"}])
    assert draw_curves({}, LOOKS) is draw_directions(empty, LOOKS) is draw_overview(empty, LOOKS)


def test_looks_are_fixed_and_different() -> None:
    assert assign_looks(["own", *VARIANTS])["xlm"] == LOOKS["xlm"]
    many = assign_looks([*VARIANTS, *(f"v{k}" for k in range(8))])
    seen = {(look.color, look.dash, look.marker) for look in many.values()}
    assert len(seen) == len(many)


def test_pages_use_css_colors(results: Results) -> None:
    figure = draw_layers(results, LOOKS, "tatoeba", "accuracy")
    assert figure is not None
    svg = render_svg(figure)
    assert "<text" in svg and "accuracy" in svg and "DejaVu" not in svg
    element = embed_svg(svg, "a", "A & B")
    assert 'aria-label="A &amp; B"' in element and 'id="a-' in element
    assert f"var({GRID.variable})" in element and GRID.light not in element
    assert GRID.light in write_css_variables() and GRID.dark in write_css_variables()
