"""The published scores: complete, equal to the paper's source, and consistent with its averages."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from metaxlm.analysis.figures import list_improvements
from metaxlm.analysis.paper import (
    ABLATED,
    AVERAGED,
    MEAN,
    MODELS,
    TABLES,
    average_tasks,
    find_paper_mean,
    find_paper_scores,
    list_paper_languages,
    make_paper_table,
    paper_scores,
)
from metaxlm.analysis.score_tables import (
    list_task_scores,
    make_language_table,
    make_summary_table,
)
from metaxlm.analysis.scores import IN_TEXT, NOT_IN_TEXT
from metaxlm.analysis.stats import mean
from tests.analysis.rows import make_results, make_row

PAPER = Path(__file__).parents[2] / ".." / "shared" / "paper" / "metaxlm.tex"
NUM_LANGUAGES = {
    "udpos": 33, "panx": 40, "xquad": 11, "mlqa": 7, "tydiqa": 9, "xnli": 15, "pawsx": 7,
    "amazon-books": 4, "amazon-dvd": 4, "amazon-music": 4,
}  # fmt: skip
ABLATIONS = {
    "XLM+KD": "XLM$+$KD & 47.3",
    "MetaXLM+freezing": "~~~~$+$freezing & 45.2",
    "Body only": "Body & 43.5",
    "Embeddings only": "Emb & 46.8",
}
"""The models of tables 3 to 5, and how their rows begin."""
ROUNDING = 0.0005
"""Of one printed score; a mean of such, against a printed mean, may be twice as far off."""


def list_values(model: str, task: str, metric: str) -> list[float]:
    found = (find_paper_scores(task, code).get(model, {}) for code in list_paper_languages(task))
    return [scores[metric] for scores in found if metric in scores]


def test_table_5_has_rows_for_what_the_paper_leaves_open() -> None:
    spec = next(table for table in TABLES if table.name == "table-5-initialization")
    rows = [make_row("xnli", variant, 0.5) for variant in ("xlm", "body", "remainder")]
    labels = [line.label for line in make_paper_table(make_results(rows), spec).groups[0].lines]
    assert labels == ["None", "Body", "Emb", "Both", "Remainder"]
    rows = [row for row in rows if row["variant"] != "remainder"]
    labels = [line.label for line in make_paper_table(make_results(rows), spec).groups[0].lines]
    assert labels == ["None", "Body", "Emb", "Both"]


def test_tables_have_the_languages_of_the_text_apart() -> None:
    """POS in two languages, of which one is in the text; XNLI in languages of the text only."""
    rows = [
        make_row(task, "xlm", value, language=language, metric=metric)
        for task, metric, scores in (
            ("udpos", "f1", {"en": 0.8, "eu": 0.2}), ("xnli", "accuracy", {"en": 0.6, "de": 0.4}),
        )
        for language, value in scores.items()
    ]  # fmt: skip
    results = replace(make_results(rows), text_languages=frozenset({"en", "de"}))
    first, *others = make_paper_table(results, TABLES[0]).groups
    groups = {group.label: group for group in (*others, first)}
    place = [AVERAGED.index(task) for task in ("udpos", "xnli")]
    for label, expected in (("", [0.5, 0.5]), (IN_TEXT, [0.8, 0.5]), (NOT_IN_TEXT, [0.2, None])):
        line = next(line for line in groups[label].lines if line.label == "XLM")
        found = [line.cells[k].value for k in place]
        assert found == [value if value is None else pytest.approx(value) for value in expected]
    section = results.section("udpos", "transfer", ["xlm"])
    assert section is not None
    means = make_language_table(section).groups[1].lines
    assert [(line.label, line.cells[0].value) for line in means[:3]] == [
        ("Mean", 0.5), (f"{IN_TEXT} (1)", 0.8), (f"{NOT_IN_TEXT} (1)", 0.2),
    ]  # fmt: skip
    unknown = make_paper_table(make_results(rows), TABLES[0])
    assert IN_TEXT not in [group.label for group in unknown.groups]


def test_summary_and_figures_have_the_languages_of_the_text_apart() -> None:
    """POS is tested in a language outside of the text, XNLI in languages of the text only."""
    rows = [
        make_row(task, variant, value + more, language=language, metric=metric)
        for task, metric, scores in (
            ("udpos", "f1", {"en": 0.5, "de": 0.4, "eu": 0.1}),
            ("xnli", "accuracy", {"en": 0.6, "de": 0.2}),
        )
        for language, value in scores.items()
        for variant, more in (("xlm", 0.0), ("metaxlm", 0.3 if language == "de" else 0.0))
    ]  # fmt: skip
    results = replace(make_results(rows), text_languages=frozenset({"en", "de"}))
    table = make_summary_table(results)
    place = next(k for k, column in enumerate(table.columns) if column.detail == "others")
    others = {
        group.label: [line.cells[place].value for line in group.lines[:2]] for group in table.groups
    }
    everywhere = [(0.25 + 0.2) / 2, (0.4 + 0.5) / 2]
    assert others == {
        "": pytest.approx(everywhere),
        IN_TEXT: pytest.approx([0.3, 0.6]),
        NOT_IN_TEXT: pytest.approx([0.1, 0.1]),  # POS alone
    }
    overview = {row.label: row.scores for row in list_task_scores(results, ["xlm", "metaxlm"])}
    assert [*overview] == ["POS", "POS, in the text", "XNLI"]
    assert mean(overview["POS, in the text"]["metaxlm"]) == pytest.approx(0.6)
    gains = {gain.label: gain.value for gain in list_improvements(results)}
    assert gains == pytest.approx({"POS": 0.1, "POS, in the text": 0.15, "XNLI": 0.15})


@pytest.mark.parametrize("model", MODELS[:3])
def test_means_over_languages_are_the_printed_ones(model: str) -> None:
    beyond_own_rounding = set()
    for task, number in NUM_LANGUAGES.items():
        metrics = find_paper_scores(task, "en")[model]
        for metric in metrics:
            values = list_values(model, task, metric)
            assert len(values) == number
            printed = find_paper_scores(task).get(model, {}).get(metric)
            if printed is not None:
                assert statistics.fmean(values) == pytest.approx(printed, abs=2 * ROUNDING)
                assert find_paper_mean(task, model, metric, list_paper_languages(task)) == printed
                if abs(statistics.fmean(values) - printed) > ROUNDING + 1e-9:
                    beyond_own_rounding.add((task, metric))
    expected = {"XLM": {("pawsx", "accuracy")}, "MetaXLM": {("tydiqa", "f1")}}
    assert beyond_own_rounding == expected.get(model, set())
    amazon = [v for task in NUM_LANGUAGES if task.startswith("amazon")
              for v in list_values(model, task, "accuracy")]  # fmt: skip
    printed = find_paper_scores("amazon")[model]["accuracy"]
    assert statistics.fmean(amazon) == pytest.approx(printed, abs=2 * ROUNDING)


def test_the_average_over_tasks_counts_questions_once() -> None:
    for model, expected in zip(MODELS, (49.19, 55.67, 59.3, 63.05), strict=True):
        by_task = [list(find_paper_scores(task)[model].values()) for task in AVERAGED]
        assert [len(scores) for scores in by_task] == [1, 1, 2, 2, 2, 1, 1]
        average = average_tasks(by_task)
        assert average is not None and round(100 * average, 2) == expected
        printed = find_paper_scores("xtreme")[model]["average"]
        assert average == pytest.approx(printed, abs=ROUNDING + 1e-9)
    assert average_tasks([[0.5], []]) is None
    assert find_paper_mean("xnli", "XLM", "accuracy", ["de", "xx"]) is None


def test_every_number_is_in_the_paper() -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's source is not here")
    rows = {line.strip() for line in PAPER.read_text("utf-8").splitlines() if "&" in line}
    printed = {number for row in rows for number in re.findall(r"(?<![\d.])\d+\.\d(?!\d)", row)}
    values = [v for models in paper_scores().values() for m in models.values() for v in m.values()]
    assert len(values) > 500
    assert {f"{100 * value:.1f}" for value in values} <= printed
    for model, start in ABLATIONS.items():
        theirs = re.findall(r"\d+\.\d", next(row for row in rows if row.startswith(start)))
        ours = [next(iter(find_paper_scores(task, MEAN)[model].values())) for task in ABLATED]
        assert theirs == [f"{100 * value:.1f}" for value in ours]
