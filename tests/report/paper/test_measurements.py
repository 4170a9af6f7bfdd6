from __future__ import annotations

import pytest

from metaxlm.report.paper.measurements import TASKS, Measurements, is_learned
from metaxlm.tasks.registry import TASKS as REGISTRY

from .synthetic import FINAL, SPREAD, make_paper_rows, make_row


def test_the_tasks_are_the_registrys() -> None:
    finetuned = {facts.name: facts for facts in TASKS if facts.kind != "features"}
    assert list(finetuned) == list(REGISTRY)
    for name, task in REGISTRY.items():
        facts = finetuned[name]
        assert (facts.kind, facts.metric) == (task.kind, task.metric)
        assert facts.trained_in_each == (len(task.sources) > 1)


def test_checkpoints_do_not_reach_the_tables() -> None:
    rows = [make_row("xlm", "xnli", "accuracy", "de", 0.6)]
    rows.append(make_row("xlm", "xnli", "accuracy", "de", 0.1, step=FINAL // 2))
    # A variant of which only a checkpoint has this task has no finished score of it.
    rows.append(make_row("metaxlm", "xnli", "accuracy", "de", 0.9, step=FINAL // 2))
    rows.append(make_row("metaxlm", "pawsx", "accuracy", "de", 0.9))
    found = Measurements(rows)
    section = found.sections(["xlm", "metaxlm"], ["xnli"])["xnli"]
    assert found.cell(section, "xlm").value == pytest.approx(0.6)
    assert found.cell(section, "metaxlm").value is None
    assert found.steps == {"xlm": FINAL, "metaxlm": FINAL}


def test_a_cell_says_where_it_comes_from() -> None:
    found = Measurements(make_paper_rows(tasks=["xquad", "amazon-dvd"]))
    sections = found.sections(["xlm", "metaxlm"], ["xquad", "amazon-dvd"])
    cell = found.cell(sections["xquad"], "metaxlm", ["de", "zh"])
    assert cell.deviation == pytest.approx(SPREAD)
    first, second = cell.traces
    assert (first.metric, second.metric) == ("f1", "em")
    assert (first.variant, first.task, first.scenario) == ("metaxlm", "xquad", "transfer")
    assert (first.languages, first.sources, first.seeds) == (("de", "zh"), ("en",), (0, 1, 2))
    assert first.step == FINAL and first.splits == ("test",)
    assert first.origins == tuple(f"metaxlm-xquad-en-{seed}" for seed in range(3))
    assert "variant: metaxlm" in first.describe() and "language: de zh" in first.describe()
    review = found.cell(sections["amazon-dvd-supervised"], "xlm", ["fr"]).traces[0]
    assert (review.sources, review.languages) == (("fr",), ("fr",))
    assert review.origins == tuple(f"xlm-amazon-dvd-fr-{seed}" for seed in range(3))


def test_variants_come_in_the_papers_order_then_the_others() -> None:
    names = ("mine", "freeze", "metaxlm", "xlm")
    rows = [make_row(name, "xnli", "accuracy", "en", 0.5) for name in names]
    assert Measurements(rows).variants == ["xlm", "metaxlm", "freeze", "mine"]


@pytest.mark.parametrize(("value", "learned"), [(0.6, True), (0.51, False), (0.4, False)])
def test_a_task_at_the_majority_level_is_not_learned(value: float, learned: bool) -> None:
    rows = [
        make_row("xlm", "pawsx", "accuracy", "de", value),
        make_row(None, "pawsx", "majority", "de", 0.5),
    ]
    section = Measurements(rows).sections(["xlm"], ["pawsx"])["pawsx"]
    assert is_learned(section) is learned


def test_an_average_needs_all_seven_tasks() -> None:
    rows = make_paper_rows()
    found = Measurements(rows)
    sections = found.sections(["xlm"], [facts.name for facts in TASKS])
    assert found.average_cell(sections, "xlm").value == pytest.approx(0.492, abs=0.001)
    fewer = Measurements([row for row in rows if row["task"] != "udpos"])
    sections = fewer.sections(["xlm"], [facts.name for facts in TASKS])
    assert fewer.average_cell(sections, "xlm").value is None
