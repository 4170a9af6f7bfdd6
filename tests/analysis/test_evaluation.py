"""The tables of `metaxlm evaluate`: models side by side, own tasks, crossed languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metaxlm.analysis.evaluation_tables import fit_terminal, make_tables, write_evaluation
from metaxlm.analysis.paper import find_paper_mean
from metaxlm.analysis.results import Result
from metaxlm.analysis.tables import Table, format_cell
from tests.analysis.rows import make_comparison, make_row

MODELS = ["a", "b"]


def make_record(task: str, kind: str, metric: str, **more: Any) -> dict[str, Any]:
    return {
        "task": task,
        "title": task.upper(),
        "kind": kind,
        "metric": metric,
        "files": [],
        **more,
    }


def make_rows(task: str, metric: str, languages: list[str], **more: Any) -> list[dict[str, Any]]:
    return [
        make_row(task, model, 0.5 + 0.1 * number + 0.01 * seed, language=language, seed=seed,
                 metric=metric, **more)
        for number, model in enumerate(MODELS)
        for language in languages
        for seed in range(2)
    ]  # fmt: skip


def tables(rows: list[dict[str, Any]], *records: dict[str, Any], **more: Any) -> dict[str, Table]:
    results = [Result(**row) for row in rows]
    made = make_tables(records, results, more.get("tests", []), MODELS, [], more.get("notes", []))
    return {table.name: table for table in made}


def read(table: Table, row: str, column: str) -> str:
    place = [c.label for c in table.columns].index(column)
    [line] = [line for line in table.lines if line.name == row]
    return format_cell(line.cells[place])


def test_models_beside_the_papers_and_the_baselines() -> None:
    rows = make_rows("xnli", "accuracy", ["en", "de"])
    rows += [make_row("xnli", None, 1 / 3, metric="majority", language=x) for x in ("en", "de")]
    comparison = make_comparison("xnli", ("b", "a"), {("en", "en"): 0.1, ("en", "de"): 0.1})
    found = tables(rows, make_record("xnli", "classification", "accuracy"), tests=[comparison],
                   notes=["A note."])  # fmt: skip
    assert list(found) == ["languages-xnli", "seeds", "tests", "tasks"]
    assert read(found["tasks"], "b", "XNLI") == "60.5 ± 0.7"
    paper = find_paper_mean("xnli", "XLM", "accuracy", ["en", "de"])
    assert paper is not None
    assert read(found["tasks"], "XLM (paper)", "XNLI") == f"{100 * paper:.1f}"
    assert "A note." in found["tasks"].notes
    by_language = found["languages-xnli"]
    assert read(by_language, "German, de", "Majority label") == "33.3"
    assert read(by_language, "Mean", "a") == "50.5 ± 0.7"
    assert read(by_language, "Transfer gap", "a") == "0.0 ± 0.0"
    assert read(found["tests"], "b − a", "p") == "0.001"
    assert read(found["seeds"], "a, accuracy", "Seeds") == "2"
    narrow = fit_terminal(found["tasks"])
    assert [column.label for column in narrow.columns][:2] == MODELS
    assert "paper" not in {column.detail for column in fit_terminal(by_language).columns}


def test_questions_and_own_tasks() -> None:
    rows = make_rows("faq", "f1", ["en"]) + make_rows("faq", "em", ["en"])
    rows += make_rows("mood", "accuracy", ["xx"])
    unlabeled = [{"name": "test", "language": "de", "num_examples": 0}]
    mood = make_record("mood", "classification", "accuracy", limit=8) | {"files": unlabeled}
    found = tables(rows, make_record("faq", "span", "f1"), mood)
    assert read(found["tasks"], "a", "FAQ") == "50.5 ± 0.7 / 50.5 ± 0.7"
    assert read(found["tasks"], "a", "MOOD") == "50.5 ± 0.7"
    notes = " ".join(found["tasks"].notes)
    assert "only the first 8 examples" in notes
    assert "No labels, predictions only: mood test of de." in notes
    assert "(paper)" not in " ".join(line.label for line in found["tasks"].lines)


def test_tasks_trained_in_several_languages_have_directions() -> None:
    rows = make_rows("amazon-dvd", "accuracy", ["de"], source="de", scenario="supervised")
    rows += make_rows("amazon-dvd", "accuracy", ["fr"], source="de")
    rows += make_rows("amazon-dvd", "accuracy", ["de"], source="en")
    record = make_record("amazon-dvd", "classification", "accuracy", trained_in_each=True)
    found = tables(rows, record)
    assert {"languages-amazon-dvd-supervised", "languages-amazon-dvd-transfer"} <= found.keys()
    labels = [line.name for line in found["languages-amazon-dvd-transfer"].lines]
    assert labels == ["de→fr", "en→de", "Mean"]


@pytest.mark.parametrize(("task", "metric"), [("tatoeba", "accuracy"), ("alignment", "aer")])
def test_layers_have_a_table_and_a_figure(task: str, metric: str, tmp_path: Path) -> None:
    rows = [
        {**row, "layer": layer, "value": row["value"] + 0.1 * layer}
        for layer in range(3)
        for row in make_rows(task, metric, ["de", "fr"], scenario="features")
    ]
    found = tables(rows, make_record(task, "features", metric))
    table = found[f"layers-{task}"]
    assert [group.label for group in table.groups] == ["Mean", "German (de)", "French (fr)"]
    assert len(fit_terminal(table).groups) == 1
    best = [cell.best for cell in table.groups[0].lines[1 if metric == "accuracy" else 0].cells]
    assert best == ([True] * 3)
    assert read(found["tasks"], "b", task.upper()).startswith(
        "80.5" if metric == "accuracy" else "60.5"
    )
    results = [Result(**row) for row in rows]
    write_evaluation(tmp_path / "tables", list(found.values()), results, MODELS)
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert {f"layers-{task}.svg", f"layers-{task}.pdf", "tasks.md", "tasks.csv"} <= names
