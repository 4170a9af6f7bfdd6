from __future__ import annotations

from dataclasses import replace

import pytest

from metaxlm.experiments.curves import Lag, Onset
from metaxlm.report.cells import format_cell
from metaxlm.report.palette import assign_looks
from metaxlm.report.paper.courses import (
    describe_courses,
    describe_lag,
    find_courses,
    format_steps,
    make_course_table,
)
from metaxlm.report.paper.figures import (
    draw_curves,
    draw_directions,
    draw_overview,
    list_task_scores,
)
from metaxlm.report.paper.gains import Gain, draw_gains, list_gains
from metaxlm.report.paper.measurements import MAIN_VARIANTS, Measurements
from metaxlm.report.paper.plates import describe_gains

from .synthetic import (
    AMAZON,
    make_comparison,
    make_curve_rows,
    make_direction_rows,
    make_layer_rows,
    make_paper_rows,
    make_row,
)

LOOKS = assign_looks(MAIN_VARIANTS)


def test_the_figure_on_top_names_a_collapsed_finetuning() -> None:
    rows = make_paper_rows(tasks=["xnli"])
    assert "learned nothing" not in describe_gains(Measurements(rows))
    rows += [make_row("metaxlm", "xnli", "accuracy", "en", 0.33, seed=3)]
    rows += [make_row(None, "xnli", "majority", "en", 0.33)]
    assert "XNLI: 1 of 4 finetunings of MetaXLM learned nothing (seed 3" in describe_gains(
        Measurements(rows)
    )


def test_gains_are_over_xlm_and_less_error_is_a_gain() -> None:
    rows = make_paper_rows(tasks=["xnli", *AMAZON]) + make_layer_rows()
    rows += make_direction_rows({"xlm": 0.6, "metaxlm": 0.5})
    tests = [make_comparison("xnli", {("xlm", "metaxlm"): (-0.07, 0.01)})]
    gains = {(g.label, g.variant): g for g in list_gains(Measurements(rows), tests)}
    xnli = gains["XNLI", "metaxlm"]
    assert xnli.value == pytest.approx(0.067, abs=0.001)
    assert xnli.interval is not None  # moved onto the point, as wide as the test's
    assert xnli.interval[1] - xnli.interval[0] == pytest.approx(0.03)
    assert xnli.interval[0] == pytest.approx(xnli.value - 0.01)
    assert gains["XNLI", "metaxlm+dict"].interval is None
    assert gains["Word alignment", "metaxlm"].value == pytest.approx(0.1)
    assert gains["Amazon Books", "metaxlm"].value > 0  # supervised, not the directions
    figure = draw_gains(list(gains.values()), LOOKS)
    assert figure is not None
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["XNLI", "Amazon Books", "Amazon DVD", "Amazon Music", "Tatoeba",
                      "Word alignment"]  # fmt: skip
    assert figure.axes[0].get_title(loc="left") == "Points gained over XLM, by task"
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == [
        "XLM", "MetaXLM", "MetaXLM+Dict", "95 %, other examples", "and other seeds",
    ]  # fmt: skip
    # Two means of three seeds a point apart from each other, with four degrees of freedom.
    over_seeds = gains["XNLI", "metaxlm+dict"].half_width
    assert over_seeds == pytest.approx(2.776 * 0.01 * (2 / 3) ** 0.5, rel=1e-3)
    assert xnli.half_width == over_seeds  # the invented test is of fewer languages
    assert gains["Word alignment", "metaxlm"].half_width is None
    one_seed = [row for row in rows if row["seed"] == 0]
    untested = draw_gains(list_gains(Measurements(one_seed), []), LOOKS)
    assert untested is not None
    assert [text.get_text() for text in untested.legends[0].get_texts()] == shown[:3]
    assert draw_gains([], LOOKS) is None


@pytest.mark.parametrize(("half_width", "cut"), [(0.02, []), (0.5, ["<", ">"])])
def test_a_whisker_that_goes_far_ends_in_arrows(half_width: float, cut: list[str]) -> None:
    gains = [
        Gain("XNLI", "metaxlm", 0.04, (0.03, 0.05), half_width),
        Gain("POS", "metaxlm", 0.10, None),
    ]
    figure = draw_gains(gains, LOOKS)
    assert figure is not None
    [axis] = figure.axes
    arrows = [line for line in axis.lines if line.get_marker() in ("<", ">")]
    assert [line.get_marker() for line in arrows] == cut
    low, high = axis.get_xlim()
    assert low < 0 and 10 < high < 15  # points and what is between them fill the figure
    assert [line.get_xdata()[0] for line in arrows] == ([low, high] if cut else [])


def test_the_overview_has_one_line_a_task() -> None:
    found = Measurements(make_paper_rows() + make_paper_rows(tasks=AMAZON) + make_layer_rows())
    scores = {row.label: row for row in list_task_scores(found, MAIN_VARIANTS)}
    assert len(scores) == 10
    assert scores["Amazon"].scores["xlm"].mean == pytest.approx(0.812, abs=0.001)
    assert scores["XQuAD"].scores["metaxlm"].mean == pytest.approx(0.579, abs=0.001)
    assert scores["Alignment, 100 − AER"].scores["xlm"].mean == pytest.approx(0.14)
    assert scores["XNLI"].level == pytest.approx(0.1)
    figure = draw_overview(found, LOOKS)
    assert figure is not None and len(figure.axes[0].get_yticklabels()) == 10
    assert draw_overview(Measurements([]), LOOKS) is None


def test_curves_mark_where_xlm_starts_to_rise() -> None:
    curves = find_courses(make_curve_rows(), MAIN_VARIANTS)
    assert list(curves) == ["xlm", "metaxlm"]
    figure = draw_curves(curves, LOOKS)
    assert figure is not None
    others, english, gap = figure.axes
    onsets = [
        [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axis.patches]
        for axis in (others, english, gap)
    ]
    assert onsets == [[(10_000, 11_000)], [(7_000, 8_000)], []]
    assert figure.legends[0].get_texts()[-1].get_text() == "starts to rise"
    assert describe_courses(curves) == (
        "XLM, English: rise between steps 7,000 and 8,000; other languages: rise between steps "
        "10,000 and 11,000. The others start 2K to 4K steps after English. MetaXLM, English: rise "
        "from the start, clearly by step 2,000; other languages: rise from the start, clearly by "
        "step 2,000."
    )
    flat = {step: {0: 0.3} for step in (1_000, 2_000, 3_000)}
    level = {"mine": {"source": flat, "others": flat, "gap": flat}}
    assert describe_courses(level) == "mine, English: no rise; other languages: no rise."
    alone = draw_curves({"metaxlm": curves["metaxlm"]}, LOOKS)
    assert alone is not None and len(alone.legends[0].get_texts()) == 1


def test_a_lag_is_told_with_what_is_known_of_it() -> None:
    early, late = Onset(4_500.0, 4_000, 5_000), Onset(7_500.0, 7_000, 8_000)
    lag = Lag(-3_000.0, 1_000, (-2_000.0, 1_000.0), 2, late, early)
    assert describe_lag(lag) == (
        "The others start 2K to 4K steps before English, on which the seeds do not agree."
    )
    agreed = replace(lag, by_seed=(-2_000.0, -3_000.0))
    assert describe_lag(agreed) == "The others start 2K to 4K steps before English."
    single = replace(lag, by_seed=(-3_000.0,), num_seeds=1)
    assert describe_lag(single).endswith("before English, in one seed.")
    none = replace(lag, steps=1e-12)
    assert describe_lag(none) == "They rise together, within 1K steps."


def test_curves_are_a_table_too() -> None:
    table = make_course_table(find_courses(make_curve_rows(), MAIN_VARIANTS))
    assert table is not None
    assert [column.label for column in table.columns][:3] == ["1K", "2K", "3K"]
    others, english, gap = table.groups
    assert [line.label for line in others.lines] == ["XLM", "MetaXLM"]
    # At step 8,000 XLM's English has risen by 0.4 * 2,000 / 20,000, its others not yet.
    shown = [format_cell(group.lines[0].cells[7]) for group in (others, english, gap)]
    assert shown == ["10.0 ± 0.1", "14.0 ± 0.1", "4.0 ± 0.0"]
    assert others.lines[1].cells[7].best and not gap.lines[1].cells[7].best
    assert make_course_table({}) is None


def test_single_checkpoints_make_no_curve() -> None:
    rows = [row for row in make_curve_rows() if row["step"] == 5_000]
    assert find_courses(rows, MAIN_VARIANTS) == {} and draw_curves({}, LOOKS) is None


def test_directions_have_a_panel_for_each_training_language() -> None:
    rows = make_direction_rows({"xlm": 0.6, "metaxlm": 0.7}) + make_paper_rows(tasks=AMAZON)
    figure = draw_directions(Measurements(rows), LOOKS)
    assert figure is not None
    assert [axis.get_title(loc="left") for axis in figure.axes] == [
        "English →", "German →", "French →", "Japanese →",
    ]  # fmt: skip
    shown = [line.get_ydata()[0] for line in figure.axes[0].lines if line.get_marker() == "s"]
    assert shown == pytest.approx([100 * (0.898 + 0.881 + 0.882) / 3, 71, 71, 71])
    assert draw_directions(Measurements([]), LOOKS) is None


@pytest.mark.parametrize(("step", "text"), [(14_000, "14K"), (1_500, "1.5K"), (800, "800")])
def test_steps_are_written_short(step: int, text: str) -> None:
    assert format_steps(step) == text
