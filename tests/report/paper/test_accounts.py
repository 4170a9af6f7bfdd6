from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from metaxlm.experiments.paper_scores import list_paper_languages
from metaxlm.report.cells import format_cell
from metaxlm.report.paper.accounts import (
    list_missing,
    make_cost_tables,
    make_data_table,
    make_idea_tests,
    make_ideas_table,
    read_data_sources,
)
from metaxlm.report.paper.measurements import Measurements
from metaxlm.report.paper.source import PaperSource

from .synthetic import make_comparison, make_layer_rows, make_paper_rows, make_row

DATA = Path(__file__).parents[3] / ".." / "shared" / "data" / "README.md"
PROVENANCE = {
    "stages": [
        {"title": "meta-pretraining", "variant": None, "seconds": 120, "steps": 100,
         "tokens": 1000, "device": "GPU"},
        {"title": "pretraining", "variant": "xlm", "seconds": 30, "steps": 200, "tokens": 3000,
         "device": "GPU"},
        {"title": "vocabulary", "variant": None, "seconds": 60, "device": "CPU"},
    ],
    "cells": [
        {"model": "xlm", "task": "xnli", "source": "en", "seed": 0, "seconds": 30, "device": "GPU"},
        {"model": "xlm", "task": "xnli", "source": "en", "seed": 1, "seconds": 60, "device": "GPU"},
        {"model": "xlm-step-10", "task": "mlqa", "source": "en", "seed": 0, "seconds": 4,
         "device": "GPU"},
        {"model": "xlm-step-20", "task": "mlqa", "source": "en", "seed": 0, "seconds": 2,
         "device": "GPU"},
    ],
}  # fmt: skip


def test_own_ideas_stand_beside_dict_on_what_they_were_measured_on() -> None:
    rows = make_paper_rows() + make_layer_rows()
    rows.append(make_row("freeze", "xnli", "accuracy", "de", 0.5))  # the paper's, not ours
    assert make_ideas_table(Measurements(rows)) is None
    better = [
        row | {"variant": "mine", "value": row["value"] + 0.05}
        for row in rows
        if row["variant"] == "metaxlm+dict" and row["task"] in ("xnli", "alignment")
    ]
    tests = [make_comparison("xnli", {("metaxlm+dict", "mine"): (-0.02, 0.01)})]
    table = make_ideas_table(Measurements(rows + better), tests)
    assert table is not None
    assert [column.label for column in table.columns] == ["XNLI", "Word alignment", "Avg"]
    base, mine = table.groups[0].lines
    assert (base.label, mine.label) == ("MetaXLM+Dict", "mine")
    assert [format_cell(cell) for cell in mine.cells] == ["72.2 ± 1.0", "71.0", "–"]
    assert [cell.best for cell in mine.cells] == [True, False, False]  # less error is better
    assert base.cells[1].best
    assert table.notes[-1] == (
        "mine against MetaXLM+Dict: better on 1 (1 after Holm), worse on 0, undecided on 0 of 1 "
        "task."
    )
    collapsed = [
        row | {"value": 0.333} if row["task"] == "xnli" and row["seed"] == 1 else row
        for row in better
    ]
    collapsed.append(make_row(None, "xnli", "majority", "en", 0.333))
    named = make_ideas_table(Measurements(rows + collapsed))
    assert named is not None and "XNLI: 1 of 3 finetunings of mine learned" in named.notes[-1]
    alone = make_ideas_table(Measurements(better))
    assert alone is not None and "is not here yet" in " ".join(alone.notes)


def test_own_ideas_are_tested_against_all_that_stand_before_them() -> None:
    rows = make_paper_rows() + make_layer_rows()
    assert make_idea_tests(Measurements(rows)) is None
    own = [
        row | {"variant": name, "value": row["value"] + gain}
        for name, gain in (("mine", 0.05), ("yours", 0.06))
        for row in rows
        if row["variant"] == "metaxlm+dict" and row["task"] not in ("pawsx", "tatoeba")
    ]
    units = [("en", language) for language in list_paper_languages("xnli")]
    tested = make_comparison("xnli", {("metaxlm+dict", "mine"): (-0.05, 0.001)}, units=units)
    table = make_idea_tests(Measurements(rows + own), [tested])
    assert table is not None
    lines = {line.label: [cell.text for cell in line.cells] for line in table.groups[0].lines}
    assert list(lines) == [
        "mine less XLM", "mine less MetaXLM", "mine less MetaXLM+Dict",
        "yours less XLM", "yours less MetaXLM", "yours less MetaXLM+Dict", "yours less mine",
    ]  # fmt: skip
    labels = [column.label for column in table.columns]
    told = dict(zip(labels, lines["yours less MetaXLM+Dict"], strict=True))
    assert re.fullmatch(r"\+6\.0 \(p = 0\.\d+, over 3 seeds\)", told["XNLI"])
    both = lines["mine less MetaXLM+Dict"][labels.index("XNLI")]
    assert both == "+5.0 (p < 0.001)"
    assert told["Word alignment"].startswith("-6.0 (")  # more errors
    assert told["PAWS-X"] == told["Tatoeba"] == told["Avg"] == "–"
    assert lines["yours less mine"][labels.index("XNLI")].startswith("+1.0 (p = ")


def test_of_ideas_the_average_counts_exact_matches_and_features_the_others_best_layer() -> None:
    rows = make_paper_rows() + make_layer_rows()
    last = max(row["layer"] for row in rows if row["task"] == "alignment")

    def change(row: Mapping[str, Any]) -> float:
        if row["task"] == "alignment":  # best at the last layer, but for this one
            return 0.2 if row["layer"] == last else 0.0
        return 0.0 if row["metric"] == "em" else 0.07

    own = [
        row | {"variant": "mine", "value": row["value"] + change(row)}
        for row in rows
        if row["variant"] == "metaxlm+dict"
    ]
    table = make_idea_tests(Measurements(rows + own))
    assert table is not None
    told = dict(zip((c.label for c in table.columns), table.groups[0].lines[-1].cells, strict=True))
    assert told["Word alignment"].text.startswith("-20.0 (")
    assert told["XQuAD"].text.startswith("+7.0 (")
    assert told["Avg"].text.startswith("+5.5 (")  # four tasks by 7, three by 3.5


def test_cost_is_summed_by_stage_model_and_device() -> None:
    stages, cells = make_cost_tables(PROVENANCE)
    total = stages.groups[1].lines[0]
    assert [format_cell(cell) for cell in total.cells] == ["3.50", "300", "4,000", ""]
    assert "2.5 on GPU, 1.0 on CPU" in " ".join(stages.notes)
    vocabulary = stages.groups[0].lines[2]
    assert [format_cell(cell) for cell in vocabulary.cells[:3]] == ["1.00", "–", "–"]
    lines = {line.label: [format_cell(cell) for cell in line.cells]
             for group in cells.groups for line in group.lines}  # fmt: skip
    assert lines == {
        "XLM": ["1.50", "–", "1.50"],
        "XLM, checkpoints": ["–", "0.10", "0.10"],
        "All": ["1.50", "0.10", "1.60"],
    }
    assert "4 evaluations" in " ".join(cells.notes)
    assert make_cost_tables(None) == [] and make_cost_tables({"recipe": "x"}) == []


def test_every_data_set_has_a_license_and_its_facts_are_the_data_folders() -> None:
    sources = read_data_sources()
    assert all(row["license"] and row["here"] and row["used"] for row in sources)
    assert len(make_data_table({"name": "twin"}).groups[0].lines) == len(sources) == 14
    if not DATA.is_file():
        pytest.skip("the description of the data is not here")
    text = DATA.read_text("utf-8")
    for row in sources:
        for number in re.findall(
            r"\d{1,3}(?:,\d{3})+|(?<!\.)\b\d{3,}\b", row["here"] + row["what"]
        ):
            if number != "1,244":  # the sum of the four pairs
                assert number in text, (row["name"], number)


def test_sizes_of_the_twins_data_are_told_of_the_twin_only() -> None:
    twin = make_data_table({"name": "twin_minilm"})
    assert "Here" in [column.label for column in twin.columns]
    assert "may differ" in " ".join(twin.notes)
    for recipe in ({"name": "mine"}, {}):
        other = make_data_table(recipe)
        assert [column.label for column in other.columns] == ["Used for", "What", "License"]
        assert len(other.groups[0].lines) == len(twin.groups[0].lines) - 1
        assert "are not known to this report" in " ".join(other.notes)
        text = " ".join(cell.text for line in other.groups[0].lines for cell in line.cells)
        assert "15,239" not in text and "630 MB" not in text


def test_the_missing_is_listed() -> None:
    rows = make_paper_rows(tasks=["xnli"])
    rows.append(make_row("freeze", "xnli", "accuracy", "de", 0.5, step=500))
    recipe = {"pretraining": {"steps": 20_000}}
    source = PaperSource("x", rows, recipe=recipe)
    text = " ".join(list_missing(source, Measurements(rows)))
    assert "Not measured yet: XLM+KD, Body only, Embeddings only." in text
    assert "No scores yet on POS, NER, XQuAD" in text and "XNLI," not in text
    assert "MetaXLM+freezing: the last measured step is 500 of 20,000." in text
    assert "MetaXLM: the last" not in text
    for words in ("no paired tests", "no record of time", "no training logs", "all of them"):
        assert words in text
