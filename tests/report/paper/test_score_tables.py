"""Fed with the paper's own numbers, the tables must show them twice; what is missing must show."""

from __future__ import annotations

import pytest

from metaxlm.experiments.paper_scores import AVERAGED
from metaxlm.report.cells import Cell, Table, format_cell
from metaxlm.report.paper.measurements import Measurements, PaperCell
from metaxlm.report.paper.score_tables import (
    make_ablation_tables,
    make_review_table,
    make_xtreme_table,
)

from .synthetic import AMAZON, VARIANTS, make_paper_rows, make_row, printed


def list_lines(table: Table) -> dict[str, tuple[Cell, ...]]:
    return {line.label: line.cells for group in table.groups for line in group.lines}


def test_table_1_of_the_papers_rows_is_the_papers() -> None:
    table = make_xtreme_table(Measurements(make_paper_rows()))
    assert [column.label for column in table.columns] == [
        "POS", "NER", "XQuAD", "MLQA", "TyDiQA", "XNLI", "PAWS-X", "Avg",
    ]  # fmt: skip
    for variant, name in VARIANTS.items():
        for task, cell in zip(AVERAGED, list_lines(table)[name], strict=False):
            assert isinstance(cell, PaperCell) and cell.paper is not None
            metric = "f1" if task not in ("xnli", "pawsx") else "accuracy"
            assert cell.paper.value == printed(task, variant, metric)
            assert cell.value == pytest.approx(cell.paper.value, abs=0.001)
            is_question = task in ("xquad", "mlqa", "tydiqa")
            assert (cell.beside is not None) is (cell.paper.beside is not None) is is_question
            if is_question:
                assert cell.paper.beside.value == printed(task, variant, "em")
    averages = [list_lines(table)[name][-1] for name in VARIANTS.values()]
    assert [format_cell(cell.paper) for cell in averages] == ["49.2", "55.7", "59.3"]
    assert [cell.value for cell in averages] == pytest.approx([0.492, 0.557, 0.593], abs=0.001)
    # As in the paper, +Dict is the best of every column, and nothing else is.
    best = {name: [cell.best for cell in cells] for name, cells in list_lines(table).items()}
    assert all(best["MetaXLM+Dict"])
    assert not any(any(marks) for name, marks in best.items() if name != "MetaXLM+Dict")


def test_table_1_says_which_sets_and_languages_it_is_from() -> None:
    rows = [row for row in make_paper_rows() if (row["task"], row["language"]) != ("panx", "th")]
    rows = [row | {"split": "dev"} if row["task"] == "mlqa" else row for row in rows]
    table = make_xtreme_table(Measurements(rows))
    notes = " ".join(table.notes)
    assert "MLQA: dev" in notes and "NER: 39 languages here, 40 in the paper" in notes
    assert "(it prints 51.0, 54.0, 55.0)" in notes
    cell = list_lines(table)["XLM"][1]
    assert isinstance(cell, PaperCell) and cell.paper is not None
    assert format_cell(cell.paper) == "52.3"  # over the same 39
    flat = [row for row in rows if row["task"] != "xnli"]
    flat += [make_row(v, "xnli", "accuracy", "en", 0.34) for v in VARIANTS]
    flat.append(make_row(None, "xnli", "majority", "en", 0.333))
    assert "XNLI: no model is clearly above" in " ".join(
        make_xtreme_table(Measurements(flat)).notes
    )


def test_what_was_not_measured_is_a_dash_and_a_sentence() -> None:
    rows = make_paper_rows(["xlm", "metaxlm"], ["xnli", "pawsx"])
    rows = [row for row in rows if (row["variant"], row["task"]) != ("metaxlm", "pawsx")]
    table = make_xtreme_table(Measurements(rows))
    lines = list_lines(table)
    assert format_cell(lines["MetaXLM+Dict"][5]) == "–"
    assert [format_cell(cell) for cell in lines["XLM"][:5]] == ["–"] * 5
    xquad = lines["XLM"][2]
    assert isinstance(xquad, PaperCell) and xquad.paper is not None
    assert format_cell(xquad.paper) == "47.3 / 33.2"  # the paper's stands there all the same
    assert lines["XLM"][-1].value is None
    notes = " ".join(table.notes)
    assert "Not measured here: MetaXLM+Dict." in notes
    assert "POS, NER, XQuAD, MLQA, TyDiQA" in notes
    assert "PAWS-X has not been measured for MetaXLM." in notes


def test_table_2_of_the_papers_rows_is_the_papers() -> None:
    table = make_review_table(Measurements(make_paper_rows(tasks=AMAZON)))
    assert [(c.detail, c.label) for c in table.columns[:4]] == [
        ("English", "Book"), ("English", "DVD"), ("English", "Music"), ("German", "Book"),
    ]  # fmt: skip
    for name in VARIANTS.values():
        for cell in list_lines(table)[name]:
            assert isinstance(cell, PaperCell) and cell.paper is not None
            assert cell.value == pytest.approx(cell.paper.value, abs=0.001)
    lines = list_lines(table)
    assert [format_cell(lines["XLM"][k]) for k in (0, 11)] == ["84.1 ± 1.0", "79.3 ± 1.0"]
    # English DVD is a tie in the paper, German books are MetaXLM's.
    assert lines["MetaXLM"][1].best and lines["MetaXLM+Dict"][1].best
    assert lines["MetaXLM"][3].best and not lines["MetaXLM+Dict"][3].best


def test_table_2_averages_all_twelve_or_nothing() -> None:
    rows = make_paper_rows(tasks=AMAZON)
    fewer = [row for row in rows if (row["task"], row["language"]) != ("amazon-dvd", "ja")]
    lines = list_lines(make_review_table(Measurements(fewer)))
    assert lines["XLM"][-1].value is None and lines["XLM"][10].value is None
    assert lines["XLM"][0].value is not None


def test_ablations_show_f1_only_and_what_is_missing() -> None:
    tasks = ["xquad", "mlqa", "tydiqa", "xnli", "pawsx"]
    rows = make_paper_rows(["xlm", "metaxlm"], tasks)
    rows += [row | {"variant": "body"} for row in rows if row["variant"] == "xlm"]
    distillation, freezing, initialization = make_ablation_tables(Measurements(rows))
    assert [line.label for line in freezing.groups[0].lines] == [
        "XLM", "MetaXLM", "MetaXLM+freezing",
    ]  # fmt: skip
    kd = list_lines(distillation)["XLM+KD"]
    assert [format_cell(cell) for cell in kd] == ["–"] * 5
    papers = [cell.paper for cell in kd if isinstance(cell, PaperCell) and cell.paper]
    assert [format_cell(cell) for cell in papers] == ["47.3", "40.4", "27.7", "57.9", "78.3"]
    assert "Not measured here: XLM+KD." in distillation.notes
    lines = list_lines(initialization)
    assert list(lines) == ["None", "Body", "Emb", "Both"]
    assert all(cell.beside is None for cells in lines.values() for cell in cells)
    assert lines["Body"][0].value == lines["None"][0].value
    assert all(cell.best for cell in lines["Both"])
    assert "Not measured here: Embeddings only." in initialization.notes


def test_notes_name_finetunings_that_learned_nothing() -> None:
    tasks = [*AVERAGED, *AMAZON]
    rows = [
        row | {"value": 0.5}
        if (row["variant"], row["seed"], row["metric"]) == ("metaxlm", 2, "accuracy")
        and (row["task"], row["language"]) in (("xnli", "en"), ("amazon-dvd", "fr"))
        else row
        for row in make_paper_rows(tasks=tasks)
    ]
    for task, source, scenario in (("xnli", "en", "transfer"), ("amazon-dvd", "fr", "supervised")):
        level = make_row(None, task, "majority", source, 0.5, source=source, scenario=scenario)
        rows = [row for row in rows if not (row["variant"] is None and row["task"] == task)]
        rows.append(level)
    found = Measurements(rows)
    xtreme, reviews = (
        " ".join(make(found).notes) for make in (make_xtreme_table, make_review_table)
    )
    assert "XNLI: 1 of 3 finetunings of MetaXLM learned nothing (seed 2" in xtreme
    assert "Amazon DVD: 1 of 3 finetunings of MetaXLM learned nothing" in reviews
    assert "Amazon" not in xtreme and "XNLI" not in reviews
    for table in make_ablation_tables(found):  # MetaXLM is in all of them
        assert "XNLI: 1 of 3 finetunings of MetaXLM" in " ".join(table.notes)
