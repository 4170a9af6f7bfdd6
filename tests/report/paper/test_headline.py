from __future__ import annotations

from metaxlm.experiments.claims import Evidence, judge_claims, list_claims
from metaxlm.report.paper.headline import find_headline
from metaxlm.report.paper.measurements import Measurements

from .synthetic import make_comparison, make_paper_rows, make_row


def test_the_headline_is_the_papers_average() -> None:
    rows = make_paper_rows()
    headline = find_headline(Measurements(rows), [], judge_claims(Evidence(rows, [])))
    assert headline.sentence == (
        "MetaXLM scores 6.5 points above XLM, and MetaXLM+Dict scores 3.6 points above MetaXLM."
    )
    assert [number.variant for number in headline.numbers] == ["xlm", "metaxlm", "metaxlm+dict"]
    for number in headline.numbers:
        assert number.paper is not None
        assert f"{100 * number.score.mean:.1f}" == f"{100 * number.paper:.1f}"
    assert headline.measure.startswith("Average over the paper's seven XTREME tasks")
    assert headline.support == "There are no paired tests of these differences yet."
    assert sum(count for _, count in headline.counts) == len(list_claims())


def test_tests_are_corrected_over_the_tasks() -> None:
    rows = make_paper_rows(tasks=["udpos", "mlqa", "xnli", "pawsx"])
    pair = ("xlm", "metaxlm")
    tests = [
        make_comparison("udpos", {pair: (0.05, 0.001)}),
        make_comparison("mlqa", {pair: (-0.05, 0.001)}),
        make_comparison("xnli", {pair: (-0.05, 0.03)}),  # significant only if it stood alone
        make_comparison("pawsx", {pair: (-0.05, 0.04)}),
    ]
    headline = find_headline(Measurements(rows), tests, [])
    assert "MetaXLM against XLM: better on 1, worse on 1, undecided on 2 of 4 tasks" in (
        headline.support
    )
    assert headline.counts == ()


def test_fewer_tasks_are_named_and_have_no_number_of_the_paper() -> None:
    rows = make_paper_rows(["xlm", "metaxlm+dict"], ["xnli", "mlqa"])
    # A task that only one of them has cannot be averaged.
    rows += make_paper_rows(["xlm"], ["pawsx"])
    headline = find_headline(Measurements(rows), [], [])
    assert "2 tasks measured so far (MLQA, XNLI)" in headline.measure
    assert [number.paper for number in headline.numbers] == [None, None]
    assert headline.sentence == "On 2 of seven tasks, MetaXLM+Dict scores 12.6 points above XLM."


def test_a_loss_a_tie_and_a_task_that_nobody_learned_are_told() -> None:
    rows = [
        make_row("xlm", "pawsx", "accuracy", "de", 0.55),
        make_row("metaxlm", "pawsx", "accuracy", "de", 0.54),
        make_row("metaxlm+dict", "pawsx", "accuracy", "de", 0.54),
        make_row(None, "pawsx", "majority", "de", 0.55),
    ]
    headline = find_headline(Measurements(rows), [], [])
    assert headline.sentence == (
        "On PAWS-X, MetaXLM scores 1.0 points below XLM, and MetaXLM+Dict scores the same as "
        "MetaXLM, in one seed: too little to tell."
    )
    assert "On PAWS-X no model is clearly above the most frequent answer." in headline.support


def test_one_model_alone_or_none_is_no_finding() -> None:
    alone = find_headline(Measurements(make_paper_rows(["metaxlm"])), [], [])
    assert alone.sentence.startswith("Only MetaXLM has been measured")
    assert alone.support == "" and len(alone.numbers) == 1
    rows = [make_row("xlm", "tatoeba", "accuracy", "de", 0.3, layer=1, scenario="features")]
    nothing = find_headline(Measurements(rows), [], [])
    assert nothing.sentence == "No finetuned task has been measured yet." and not nothing.numbers


def test_a_collapsed_finetuning_is_named() -> None:
    rows = make_paper_rows(tasks=["xnli"])
    mine = [r for r in rows if r["variant"] == "metaxlm+dict" and r["seed"] == 1]
    collapsed = [r | {"value": 0.333} if r in mine else r for r in rows]
    collapsed.append(make_row(None, "xnli", "majority", "en", 0.333))
    support = find_headline(Measurements(collapsed), [], []).support
    assert "XNLI: 1 of 3 finetunings of MetaXLM+Dict learned nothing (seed 1: 33.3 in" in support
    assert "learned nothing" not in find_headline(Measurements(rows), [], []).support
