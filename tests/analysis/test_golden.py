"""Redraw the tables and verdicts of the published runs and compare every cell with `tests/golden`.

The fixtures were written before the analysis code was unified. Two tables per task (one with the
paper's numbers, one with all variants) became one table by language; cells are looked up there.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from metaxlm.analysis.figures import list_improvements, list_task_scores
from metaxlm.analysis.paper import MAIN_VARIANTS, make_test_table
from metaxlm.analysis.report import find_headline, make_tables
from metaxlm.analysis.results import FEATURES, display_name
from metaxlm.analysis.run_folder import Run, read_run
from metaxlm.analysis.score_tables import make_layer_table, make_seed_table, make_task_table
from metaxlm.analysis.scores import Results
from metaxlm.analysis.stats import deviation, mean
from metaxlm.analysis.tables import Cell, Table, format_cell
from tests.analysis.fake_run import make_run

ROOT = Path(__file__).parents[2]
PUBLISHED = ("twin", "twin_minilm")
GROUPS = {
    "Both directions": "", "Alignment error rate (lower is better)": "",
    "Other language → English": "Other language → English",
    "English → other language": "English → other language",
    "Precision": "Precision", "Recall": "Recall",
}  # fmt: skip


@cache
def read_golden(name: str) -> dict[str, Any]:
    found = json.loads(lzma.decompress((ROOT / f"tests/golden/{name}.json.xz").read_bytes()))
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module", params=[*PUBLISHED, "fake"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = ROOT / "docs/results" / request.param
    if request.param == "fake":
        folder = make_run(tmp_path_factory.mktemp("golden") / "fake", seeds=3)
    return read_run(folder)


@pytest.fixture(scope="module")
def tables(run: Run) -> dict[str, Table]:
    return {table.name: table for some in make_tables(run).values() for table in some}


def digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.10g}")


def normalize(text: str) -> str:
    return re.sub(r" \(one seed.*\)", "", text.replace(" less ", " − "))


def show(cell: Cell) -> list[Any]:
    paper = [format_cell(cell.paper), digits(cell.paper.value)] if cell.paper else []
    return [normalize(format_cell(cell)), int(cell.best), *paper]


def assert_same(old: Mapping[str, Any], table: Table) -> None:
    """Compare texts, bold, the paper's numbers and ten digits of every cell."""
    assert [column.label for column in table.columns] == [label for label, _ in old["columns"]]
    assert [line.name for line in table.lines] == [normalize(row[1]) for row in old["rows"]]
    for line, (_, _, cells, values) in zip(table.lines, old["rows"], strict=True):
        assert [show(cell) for cell in line.cells] == [
            [normalize(cell[0]), *cell[1:]] for cell in cells
        ], (table.name, line.name)
        numbers = [None if c.style == "text" else digits(c.value) for c in line.cells]
        assert numbers == values, (table.name, line.name)


def look_up(table: Table, group: str, row: str, column: str) -> Cell:
    place = [c.label for c in table.columns].index(column)
    labels = {name: g for g in table.groups for line in g.lines for name in [line.name]
              if g.label == group or (not group and not g.label)}  # fmt: skip
    [cell] = [line.cells[place] for line in labels[row].lines if line.name == row]
    return cell


def list_by_language(old: Mapping[str, Any]) -> Iterator[tuple[str, str, str, list[Any], Any]]:
    """Yield (group, language or mean, variant, cell, value) of a table with variants down."""
    for group, row, cells, values in old["rows"]:
        variant = row.partition(", layer")[0]
        for (label, code), cell, value in zip(old["columns"], cells, values, strict=True):
            yield (
                group,
                f"{label}, {code}" if code not in ("", "mean") else label,
                variant,
                cell,
                value,
            )


def is_percent(cell: list[Any]) -> bool:
    return cell[0] not in ("–", "")


def test_tables_with_the_same_layout(run: Run, tables: dict[str, Table]) -> None:
    golden = read_golden(run.name)
    old = {**golden["run"], **golden.get("paper", {})}
    same = [name for name in old if name in tables and not name.startswith("languages-")
            and name != "summary"]  # fmt: skip
    assert len(same) >= (16 if run.has_grid else 3)
    for name in same:
        assert_same(old[name], tables[name])
    gone = {name for name in old if name not in tables}
    assert all(name.startswith(("transfer-", "retrieval", "alignment")) for name in gone)


def test_appendix_by_language(run: Run, tables: dict[str, Table]) -> None:
    checked = 0
    for name, old in read_golden(run.name).get("paper", {}).items():
        if not name.startswith("languages-"):
            continue
        for _, row, cells, values in old["rows"]:
            for (variant, _), cell, value in zip(old["columns"], cells, values, strict=True):
                found = look_up(tables[name], "", row, variant)
                assert show(found)[::2] == cell[::2], (name, row, variant)
                assert show(found)[3:] == cell[3:]
                assert digits(found.value) == value
                checked += 1
    assert checked > 400 or not run.has_grid


def test_transfer_by_language_with_all_variants(run: Run, tables: dict[str, Table]) -> None:
    checked = 0
    renamed = {"Others": "Other languages", "Gap": "Transfer gap"}
    for name, old in read_golden(run.name)["run"].items():
        if not name.startswith("transfer-"):
            continue
        task, _, metric = name.removeprefix("transfer-").rpartition("-")
        is_review = task.startswith("amazon")
        table = tables[f"languages-{task}-transfer" if is_review else f"languages-{task}"]
        for _, row, variant, cell, value in list_by_language(old):
            if not is_percent(cell) or (is_review and row == "Others"):
                continue  # the mean over directions from English is now over all directions
            if variant == "Majority label" and (metric == "em" or row == "Others"):
                continue
            place = f"en→{row.rpartition(', ')[2]}" if is_review else renamed.get(row, row)
            found = look_up(table, "", place, variant)
            found = found.beside if metric == "em" and found.beside else found
            assert digits(found.value) == value, (name, row, variant)
            checked += 1
    assert checked > 0


def test_features_by_language(run: Run, tables: dict[str, Table]) -> None:
    for task, name in zip(FEATURES, ("retrieval", "alignment"), strict=True):
        for group, row, variant, cell, value in list_by_language(
            read_golden(run.name)["run"][name]
        ):
            found = look_up(tables[f"languages-{task}"], GROUPS[group], row, variant)
            assert format_cell(found) == cell[0], (group, row, variant)
            assert digits(found.value) == value


def test_summary(run: Run, tables: dict[str, Table]) -> None:
    """Retrieval and alignment stay; transfer of runs with several tasks was wrong and changed."""
    old = {row[1]: row[2] for row in read_golden(run.name)["run"]["summary"]["rows"]}
    table = tables["summary"]
    for line in table.lines:
        shown = [format_cell(cell) for cell in line.cells]
        if not run.has_grid:
            assert [show(cell) for cell in line.cells] == old[line.name]
        elif line.variant:
            assert shown[:2] == [cell[0] for cell in old[line.name][:2]]
            assert all(is_percent([text]) for text in shown[3:])
    if run.has_grid:
        averages = {line.name: line.cells[-1].value for line in tables["table-1-xtreme"].lines}
        for name in map(display_name, MAIN_VARIANTS):
            assert look_up(table, "", name, "Transfer").value == averages[name]


def test_verdicts(run: Run) -> None:
    golden = read_golden(run.name).get("verdicts", {})
    assert {v.claim.name: v.outcome for v in run.verdicts} == {
        name: outcome for name, (outcome, _) in golden.items()
    }
    for verdict in run.verdicts:
        old = golden[verdict.claim.name][1]
        new = [number for _, number in verdict.numbers]
        extract = [sorted(re.findall(r"\d[\d,.]*", text) for text in side) for side in (new, old)]
        assert extract[0] == extract[1], verdict.claim.name


def test_numbers_of_figures_and_headline(run: Run) -> None:
    golden = read_golden(run.name)
    collapsed = [
        [c.variant, c.task, c.source, [*c.seeds], c.num_seeds, digits(c.value), digits(c.others)]
        for c in run.results.collapsed
    ]
    assert collapsed == golden["collapsed"]
    if not run.has_grid:
        return
    assert [
        [g.label, g.variant, digits(g.value), g.interval and [*map(digits, g.interval)],
         digits(g.half_width)]
        for g in list_improvements(run.results)
    ] == golden["gains"]  # fmt: skip
    assert [
        [row.label, {v: [digits(mean(s)), digits(deviation(list(s.values())))]
                     for v, s in row.scores.items()}, digits(row.baseline)]
        for row in list_task_scores(run.results, MAIN_VARIANTS)
    ] == golden["overview"]  # fmt: skip
    assert [
        [v, digits(mean(s)), digits(deviation(list(s.values()))), digits(paper)]
        for v, s, paper in find_headline(run).numbers
    ] == golden["headline"]


def test_tables_of_evaluate(run: Run) -> None:
    golden, results = read_golden(run.name)["evaluate"], run.results
    models = run.variants
    sections = list(results.sections(results.tasks, models).values())
    plain = Results(results.frame, results.comparisons)
    made = [
        make_task_table(plain, sections, models),
        make_seed_table(sections, models),
        make_test_table([c for c in results.comparisons if c.layer is None]),
        make_layer_table(results, "alignment", models, by_language=True),
    ]
    for table in (table for table in made if table is not None):
        old = golden[table.name]
        rows = {line.name: line for line in table.lines}
        assert len(table.lines) == len(old["rows"])
        for line, (_, _, cells, values) in zip(table.lines, old["rows"], strict=True):
            assert [show(cell)[0] for cell in line.cells] == [cell[0] for cell in cells], line.name
            numbers = [None if c.style == "text" else digits(c.value) for c in line.cells]
            assert numbers == values
        assert rows
