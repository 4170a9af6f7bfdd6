"""Tables that compare models: every number can be computed by hand from the rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from metaxlm.experiments.paper_scores import AVERAGED
from metaxlm.experiments.statistics import Difference, PairComparison
from metaxlm.experiments.task_comparison import TaskComparison
from metaxlm.report.cells import Cell, Line, Table, format_cell
from metaxlm.report.comparison import (
    fit_terminal,
    make_language_tables,
    make_seed_table,
    make_task_table,
    make_test_table,
    transpose,
)
from metaxlm.report.rendering import (
    render_csv,
    render_html,
    render_latex,
    render_markdown,
    render_terminal,
)
from metaxlm.report.sections import TaskFacts, describe_tasks, list_notes, make_sections

XNLI = TaskFacts("xnli", "XNLI", "classification", "accuracy")
XQUAD = TaskFacts("xquad", "XQuAD", "span", "f1")
REVIEWS = TaskFacts("amazon-dvd", "Amazon DVD", "classification", "accuracy", True)
TATOEBA = TaskFacts("tatoeba", "Tatoeba", "features", "accuracy")
ALIGNMENT = TaskFacts("alignment", "Word alignment", "features", "aer")
MODELS = ("base", "better")


def make_row(
    model: str | None, task: str, metric: str, value: float, **more: Any
) -> dict[str, Any]:
    usual = {"layer": None, "scenario": "transfer", "source": "en", "language": "de"}
    usual |= {"examples": 100, "seed": 0, "split": "test", "step": None}
    return {"variant": model, "task": task, "metric": metric, "value": value, **usual, **more}


def make_rows(
    facts: TaskFacts, languages: tuple[str, ...] = ("en", "de"), **more: Any
) -> Iterator[dict[str, Any]]:
    """Two models and two seeds: 0.5, +0.1 for the better one, +0.02 for the second seed."""
    for seed in (0, 1):
        for number, language in enumerate(languages):
            place = {"language": language, "seed": seed, **more}
            for bonus, model in enumerate(MODELS):
                value = 0.5 + 0.1 * bonus + 0.02 * seed - 0.2 * number
                yield make_row(model, facts.name, facts.metric, value, **place)
                if facts.second:
                    yield make_row(model, facts.name, facts.second, value / 2, **place)
            yield make_row(None, facts.name, "chance", 0.1 + 0.02 * seed, **place)
            yield make_row(None, facts.name, "majority", 0.2, **place)
            if facts.second:
                yield make_row(None, facts.name, "chance_em", 0.04, **place)
                yield make_row(None, facts.name, "majority_em", 0.05, **place)


def find_line(table: Table, label: str) -> Line:
    [line] = [line for group in table.groups for line in group.lines if line.label == label]
    return line


def find_cell(table: Table, label: str, column: str) -> Cell:
    labels = [f"{c.label} {c.detail}".strip() for c in table.columns]
    return find_line(table, label).cells[labels.index(column)]


def test_means_over_languages_then_over_seeds() -> None:
    sections = make_sections(list(make_rows(XNLI)), [XNLI])
    table = make_task_table(sections, MODELS)
    cell = find_cell(table, "better", "XNLI accuracy")
    assert cell.value == pytest.approx(0.51)
    assert cell.deviation == pytest.approx(0.02 / 2**0.5)
    assert cell.best and not find_cell(table, "base", "XNLI accuracy").best
    assert format_cell(cell) == "51.0 ± 1.4"
    assert "XNLI: test, 2 sets of 100 examples, 2 seeds." in table.notes
    published = find_line(table, "MetaXLM (paper)")
    assert published.reference
    assert published.cells[0].value == pytest.approx((0.828 + 0.689) / 2)
    assert "another size" in table.groups[1].label
    assert len(table.groups[1].lines) == 3  # mBERT has no scores by language


def test_questions_have_two_scores() -> None:
    sections = make_sections(list(make_rows(XQUAD)), [XQUAD])
    table = make_task_table(sections, MODELS)
    assert format_cell(find_cell(table, "better", "XQuAD F1 / EM")) == "51.0 ± 1.4 / 25.5 ± 0.7"
    assert format_cell(find_cell(table, "MetaXLM (paper)", "XQuAD F1 / EM")) == "74.2 / 61.5"
    [languages] = make_language_tables(sections, MODELS)
    assert format_cell(find_cell(languages, "German (de)", "Chance")) == "11.0 / 4.0"
    assert format_cell(find_cell(languages, "Mean", "Majority")) == "20.0 / 5.0"
    assert format_cell(find_cell(languages, "German (de)", "XLM paper")) == "50.7 / 37.1"
    rows = list(csv.reader(StringIO(render_csv(table))))
    assert rows[0][2:] == [
        f"XQuAD (F1 / EM){part}" for part in ("", " deviation", " second", " second deviation")
    ]
    assert [float(text) for text in rows[2][2:]] == pytest.approx([0.51, 0.02 / 2**0.5, 0.255,
                                                                   0.01 / 2**0.5])  # fmt: skip
    assert rows[-2][1:] == ["MetaXLM (paper)", "0.742", "", "0.6145", ""]


def test_the_average_is_over_all_seven_or_missing() -> None:
    facts = [
        TaskFacts(task, task, "span" if task in ("xquad", "mlqa", "tydiqa") else "tagging", metric)
        for task, metric in zip(AVERAGED, ["f1"] * 5 + ["accuracy"] * 2, strict=True)
    ]
    rows = [row for one in facts for row in make_rows(one)]
    table = make_task_table(make_sections(rows, facts), MODELS)
    average = find_cell(table, "better", "Avg")
    # Mean over languages and seeds is 0.51; questions count (0.51 + 0.255) / 2.
    assert average.value == pytest.approx((4 * 0.51 + 3 * 0.3825) / 7)
    by_seed = [(4 * value + 3 * 0.75 * value) / 7 for value in (0.5, 0.52)]
    assert average.deviation == pytest.approx((by_seed[1] - by_seed[0]) / 2**0.5)
    few = make_task_table(make_sections(rows, facts[:6]), MODELS)
    assert "Avg" not in [column.label for column in few.columns]


def test_languages_go_down_with_the_best_model_of_each_marked() -> None:
    rows = list(make_rows(XNLI))
    rows.append(make_row("base", "xnli", "accuracy", 0.99, language="fr", examples=7))
    [table] = make_language_tables(make_sections(rows, [XNLI]), MODELS)
    labels = [line.label for group in table.groups for line in group.lines]
    assert labels == ["English (en)", "German (de)", "French (fr)", "Mean"]
    assert [column.label for column in table.columns[-2:]] == ["Split", "Examples"]
    assert format_cell(find_cell(table, "French (fr)", "Examples")) == "7"
    assert find_cell(table, "German (de)", "better").best
    assert not find_cell(table, "French (fr)", "base").best  # alone there
    # The mean is over what both models have.
    assert find_cell(table, "Mean", "base").value == pytest.approx(0.41)
    by_task = make_task_table(make_sections(rows, [XNLI]), MODELS)
    assert any("1 that not all models have are left out" in note for note in by_task.notes)


def test_reviews_are_supervised_or_transferred() -> None:
    rows = []
    for source in ("en", "de"):
        for language in ("en", "de"):
            scenario = "supervised" if source == language else "transfer"
            more = {"source": source, "language": language, "scenario": scenario}
            value = 0.9 if source == language else 0.6
            rows.append(make_row("base", "amazon-dvd", "accuracy", value, **more))
    sections = make_sections(rows, [REVIEWS])
    assert [section.name for section in sections] == [
        "amazon-dvd-supervised",
        "amazon-dvd-transfer",
    ]
    table = make_task_table(sections, ["base"])
    assert find_cell(table, "base", "Amazon DVD supervised, accuracy").value == pytest.approx(0.9)
    assert find_cell(table, "base", "Amazon DVD transfer, accuracy").value == pytest.approx(0.6)
    paper = find_line(table, "XLM (paper)")
    assert paper.cells[0].value == pytest.approx((0.818 + 0.798) / 2)
    assert paper.cells[1].value is None
    _, crossed = make_language_tables(sections, ["base"])
    assert [line.label for line in crossed.groups[0].lines] == ["en→de", "de→en"]
    # Trained in one language only, transfer is still not what the paper's table 2 shows.
    english = [row for row in rows if row["source"] == "en"]
    table = make_task_table(make_sections(english, [REVIEWS]), ["base"])
    assert find_line(table, "XLM (paper)").cells[0].value == pytest.approx(0.818)
    assert find_line(table, "XLM (paper)").cells[1].value is None


def test_another_training_language_is_told_apart() -> None:
    rows = [*make_rows(XNLI), *({**row, "source": "de", "value": 0.9} for row in make_rows(XNLI))]
    [section] = make_sections(rows, [XNLI])
    [table] = make_language_tables([section], MODELS)
    labels = [line.label for line in table.groups[0].lines]
    assert labels == ["en→en", "en→de", "de→en", "de→de"]
    assert find_cell(table, "en→de", "base").value == pytest.approx(0.31)
    assert find_cell(table, "de→de", "base").value == pytest.approx(0.9)
    assert len(make_task_table([section], MODELS).groups) == 1  # nothing of the paper's


def test_layers_are_chosen_for_each_model() -> None:
    rows = [
        make_row(model, task, metric, value, layer=layer, scenario="features")
        for task, metric in (("tatoeba", "accuracy"), ("alignment", "aer"))
        for model, values in (("base", (0.1, 0.3)), ("better", (0.6, 0.2)))
        for layer, value in enumerate(values)
    ]
    sections = make_sections(rows, [TATOEBA, ALIGNMENT])
    table = make_task_table(sections, MODELS)
    values = [[cell.value for cell in line.cells] for line in table.groups[0].lines]
    assert values == [[0.3, 0.1], [0.6, 0.2]]
    assert [cell.best for cell in table.groups[0].lines[0].cells] == [False, True]
    retrieval, alignment = make_language_tables(sections, MODELS)
    assert [column.detail for column in retrieval.columns] == ["layer 1", "layer 0", ""]
    assert find_cell(retrieval, "German (de)", "Chance").value == pytest.approx(0.01)
    assert [column.label for column in alignment.columns] == ["base", "better"]


def test_dev_sets_stand_in_where_tests_have_no_labels() -> None:
    rows = list(make_rows(XNLI, split="dev"))
    rows.append(make_row("base", "xnli", "accuracy", 0.9, language="en"))
    table = make_task_table(make_sections(rows, [XNLI]), MODELS)
    assert find_cell(table, "base", "XNLI accuracy").value == pytest.approx(0.41)
    assert "XNLI: dev, 2 sets of 100 examples, 2 seeds." in table.notes
    both = [*rows, *make_rows(XNLI)]
    table = make_task_table(make_sections(both, [XNLI]), MODELS)
    assert "XNLI: test, 2 sets of 100 examples, 2 seeds." in table.notes


def test_the_spread_over_seeds() -> None:
    table = make_seed_table(make_sections(list(make_rows(XQUAD)), [XQUAD]), MODELS)
    assert table is not None
    [group] = table.groups
    assert [f"{line.label} {line.detail}" for line in group.lines] == [
        "base F1", "base exact match", "better F1", "better exact match",
    ]  # fmt: skip
    mean, deviation, low, high, seeds = (cell.value for cell in group.lines[0].cells)
    assert (mean, deviation, seeds) == pytest.approx((0.41, 0.02 / 2**0.5, 2))
    # The 97.5 % quantile of t with one degree of freedom is 12.706.
    assert (low, high) == pytest.approx((0.41 - 0.12706, 0.41 + 0.12706), abs=1e-5)
    one = [row for row in make_rows(XNLI) if row["seed"] == 0]
    assert make_seed_table(make_sections(one, [XNLI]), MODELS) is None


def make_comparison(task: str, p_values: tuple[float, ...], mean_p: float) -> TaskComparison:
    by_language = tuple(
        Difference(0.1 if k % 3 else -0.1, 0.0, 0.2, p) for k, p in enumerate(p_values)
    )
    pair = PairComparison("base", "better", by_language, Difference(-0.021, -0.05, 0.0123, mean_p))
    units = tuple(("en", str(k)) for k in range(len(p_values)))
    return TaskComparison(task, "transfer", "accuracy", units, (50,) * len(units), 2, (pair,))


def test_paired_tests() -> None:
    comparisons = [
        make_comparison("xnli", (0.01, 0.04, 0.049, 0.05, 0.5), 0.02),
        make_comparison("pawsx", (0.9,), 0.0001),
        make_comparison("panx", (0.9,), 0.015),
    ]
    table = make_test_table(comparisons, {"xnli": "XNLI"})
    assert table is not None
    assert [group.label for group in table.groups] == [
        "XNLI, transfer (accuracy)", "pawsx, transfer (accuracy)",
        "panx, transfer (accuracy)",
    ]  # fmt: skip
    texts = [[format_cell(cell) for cell in group.lines[0].cells] for group in table.groups]
    assert texts[0] == ["−2.1", "[−5.0, 1.2]", "0.030", "2 / 1 of 5", "250", "2"]
    assert texts[1][2:4] == ["< 0.001", "0 / 0 of 1"]
    assert make_test_table([], {}) is None
    assert "[−5.0, 1.2]" in render_csv(table)
    assert "$<$ 0.001" in render_latex(table)


def test_tables_are_turned_and_narrowed_for_the_terminal() -> None:
    sections = make_sections(list(make_rows(XNLI)), [XNLI])
    table = make_task_table(sections, MODELS)
    turned = transpose(table)
    assert [column.label for column in turned.columns][:3] == ["base", "better", "XLM (paper)"]
    assert turned.groups[0].lines[0].cells[1] == find_cell(table, "better", "XNLI accuracy")
    [languages] = make_language_tables(sections, MODELS)
    narrow = fit_terminal(languages)
    assert [column.label for column in narrow.columns] == ["base", "better", "Chance", "Majority"]
    assert [len(line.cells) for line in narrow.groups[0].lines] == [4, 4]
    assert not any("another size" in note for note in narrow.notes)
    tests = make_test_table([make_comparison("xnli", (0.5,), 0.5)], {})
    assert tests is not None
    assert [column.label for column in fit_terminal(tests).columns][-1] == "Better / worse"
    assert fit_terminal(tests).notes == tests.notes
    assert render_terminal(fit_terminal(tests)).row_count == 2


def test_every_format_shows_the_second_score() -> None:
    table = make_task_table(make_sections(list(make_rows(XQUAD)), [XQUAD]), MODELS)
    text = "51.0 ± 1.4 / 25.5 ± 0.7"
    assert f"**{text}**" in render_markdown(table)
    assert f"<strong>{text}</strong>" in render_html(table, {})
    assert r"\textbf{51.0 $\pm$ 1.4 / 25.5 $\pm$ 0.7}" in render_latex(table)


def test_tasks_and_notes_come_from_the_records() -> None:
    file = {"language": "de", "name": "test", "num_examples": 0}
    about = {"kind": "classification", "metric": "accuracy", "limit": None}
    records = [
        {"task": "mine", "title": "Mine", "files": [], **about},
        {"task": "xnli", "title": "XNLI", "files": [file, {**file, "language": "ar"}], **about},
        {"task": "udpos", "title": "POS", "files": [], **about, "limit": 8},
    ]
    assert [f.name for f in describe_tasks(records, ["udpos", "xnli"])] == ["udpos", "xnli", "mine"]
    assert list_notes(records) == [
        "A quick try: only the first 8 examples of each file.",
        "No labels, predicted only: xnli test of ar de.",
    ]
