from __future__ import annotations

from metaxlm.experiments.claims import Evidence, judge_claims, list_claims
from metaxlm.experiments.score_table import find_metric
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
    assert headline.support == (
        "Tested over 3 seeds (p < 0.05). "
        "MetaXLM against XLM: +6.5 (p = 0.001) on average, better on 6 (6 after Holm), worse on 0, "
        "undecided on 1 of 7 tasks. MetaXLM+Dict against MetaXLM: +3.6 (p = 0.011) on average, "
        "better on 5 (4 after Holm), worse on 0, undecided on 2 of 7 tasks."
    )
    assert sum(count for _, count in headline.counts) == len(list_claims())


def test_tests_that_a_correction_over_the_tasks_leaves_are_counted_too() -> None:
    gains = {"udpos": 0.1, "mlqa": -0.1, "xnli": -0.027, "pawsx": -0.026}
    rows = [
        make_row(variant, task, metric, code, 0.5 + 0.01 * seed + gain, seed=seed)
        for task, by in gains.items()
        for metric in (("f1", "em") if task == "mlqa" else (find_metric(task),))
        for variant, gain in (("xlm", 0.0), ("metaxlm", by))
        for code in ("de", "fr")
        for seed in range(3)
    ]
    headline = find_headline(Measurements(rows), [], [])
    # XNLI's p of 0.03 and PAWS-X's are significant only as long as each stands alone.
    assert (
        "MetaXLM against XLM: -1.3 (p = 0.180) on average, better on 1 (1 after Holm), "
        "worse on 3 (1 after Holm), undecided on 0 of 4 tasks"
    ) in headline.support
    assert headline.counts == ()
    alone = find_headline(Measurements([r for r in rows if r["task"] == "xnli"]), [], [])
    assert "XLM: better on 0, worse on 1 (1 after Holm), undecided on 0 of 1 task" in alone.support


def test_examples_add_to_what_seeds_tell() -> None:
    rows = [
        make_row(variant, "xnli", "accuracy", code, value + 0.001 * seed, seed=seed)
        for variant, value in (("xlm", 0.5), ("metaxlm", 0.51))
        for code in ("de", "fr")
        for seed in range(3)
    ]
    tests = [make_comparison("xnli", {("xlm", "metaxlm"): (-0.01, 0.2)})]  # wide intervals
    support = find_headline(Measurements(rows), tests, []).support
    assert support.startswith("Tested over examples and seeds (p < 0.05).")
    assert "better on 0, worse on 0, undecided on 1 of 1 task" in support
    assert "better on 1" in find_headline(Measurements(rows), [], []).support
    other_sign = [make_comparison("xnli", {("xlm", "metaxlm"): (0.05, 0.2)})]
    higher = [r | {"value": r["value"] + 0.2} if r["variant"] == "metaxlm" else r for r in rows]
    assert "undecided on 1" in find_headline(Measurements(higher), other_sign, []).support
    assert "better on 1" in find_headline(Measurements(higher), tests, []).support


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
    assert headline.support == (
        "There are no tests of these differences yet. "
        "On PAWS-X no model is clearly above the most frequent answer."
    )


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
