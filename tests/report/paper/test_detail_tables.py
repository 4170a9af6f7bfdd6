from __future__ import annotations

import pytest

from metaxlm.report.cells import format_cell
from metaxlm.report.paper.detail_tables import (
    collect_directions,
    make_direction_table,
    make_language_tables,
    make_layer_tables,
    make_paired_tests,
)
from metaxlm.report.paper.measurements import Measurements

from .synthetic import (
    AMAZON,
    make_comparison,
    make_direction_rows,
    make_layer_rows,
    make_paper_rows,
)


def test_directions_average_three_domains_or_nothing() -> None:
    rows = make_direction_rows({"xlm": 0.6, "metaxlm": 0.7}) + make_paper_rows(tasks=AMAZON)
    rows = [r for r in rows if (r["task"], r["source"], r["language"]) !=
            ("amazon-music", "de", "fr")]  # fmt: skip
    found = Measurements(rows)
    directions = collect_directions(found, ["xlm", "metaxlm"])
    assert len(directions["xlm"]) == 15 and ("de", "fr") not in directions["xlm"]
    assert directions["xlm"]["en", "de"] == {0: pytest.approx(0.61)}
    english = (0.841 + 0.818 + 0.847) / 3
    assert directions["xlm"]["en", "en"][1] == pytest.approx(english)
    table = make_direction_table(found)
    assert table is not None
    german = table.groups[1]
    assert german.label == "Finetuned in German"
    to_english, _, to_french, _ = german.lines
    assert [format_cell(cell) for cell in to_english.cells] == ["61.0", "71.0", "–", "10.0"]
    assert [cell.best for cell in to_english.cells] == [False, True, False, False]
    assert [format_cell(cell) for cell in to_french.cells] == ["–", "–", "–", "–"]
    assert make_direction_table(Measurements(make_paper_rows(tasks=["xnli"]))) is None


def test_layers_mark_the_lowest_error_and_the_highest_accuracy() -> None:
    retrieval, alignment = make_layer_tables(Measurements(make_layer_rows()))
    assert [column.label for column in retrieval.columns] == ["Emb.", "1", "2"]
    for table, shown in (
        (retrieval, ["30.0", "32.0", "34.0"]),
        (alignment, ["70.0", "68.0", "66.0"]),
    ):
        lines = {line.label: line for line in table.groups[0].lines}
        assert [format_cell(cell) for cell in lines["MetaXLM+Dict"].cells] == shown
        assert all(cell.best for cell in lines["MetaXLM+Dict"].cells)
        assert not any(cell.best for cell in lines["XLM"].cells)
    assert make_layer_tables(Measurements(make_paper_rows(tasks=["xnli"]))) == []


def test_language_tables_have_english_first_and_the_mean_last() -> None:
    found = Measurements(make_paper_rows(tasks=["mlqa"]))
    [table] = make_language_tables(found)
    languages, mean = table.groups
    assert languages.lines[0].label == "English" and len(languages.lines) == 7
    assert [format_cell(cell) for cell in mean.lines[0].cells] == [
        "39.9 ± 1.0 / 25.3 ± 1.0", "51.5 ± 1.0 / 34.3 ± 1.0", "57.0 ± 1.0 / 40.0 ± 1.0",
    ]  # fmt: skip


def test_features_by_language_are_those_of_the_best_layer() -> None:
    retrieval, alignment = make_language_tables(Measurements(make_layer_rows()))
    assert retrieval.title == "Tatoeba by language (accuracy)"
    assert [column.detail for column in retrieval.columns] == ["layer 2"] * 3
    for table, best in ((retrieval, "34.0"), (alignment, "66.0")):
        for group in table.groups:
            for line in group.lines:
                assert [cell.best for cell in line.cells] == [False, False, True]
        assert format_cell(table.groups[-1].lines[0].cells[-1]) == best
        assert "in the paper" not in " ".join(table.notes)  # it publishes no numbers by language


def test_tests_are_turned_so_that_a_gain_is_positive() -> None:
    comparison = make_comparison(
        "xnli",
        {
            ("xlm", "metaxlm"): (-0.05, 0.001),
            ("metaxlm", "metaxlm+dict"): (0.01, 0.4),
            ("metaxlm+dict", "mine"): (-0.03, 0.01),
            ("body", "freeze"): (0.3, 0.001),
        },
    )
    table = make_paired_tests([comparison], ["xlm", "metaxlm", "metaxlm+dict", "mine"])
    assert table is not None
    lines = {line.label: [format_cell(cell) for cell in line.cells]
             for line in table.groups[0].lines}  # fmt: skip
    assert list(lines) == ["MetaXLM − XLM", "MetaXLM+Dict − MetaXLM", "mine − MetaXLM+Dict"]
    assert lines["MetaXLM − XLM"][:3] == ["5.0", "[4.0, 7.0]", "0.003"]
    assert lines["MetaXLM+Dict − MetaXLM"][:2] == ["−1.0", "[−2.0, 1.0]"]
    assert lines["MetaXLM − XLM"][3] == "2 / 0 of 2"
    assert make_paired_tests([], ["xlm"]) is None
