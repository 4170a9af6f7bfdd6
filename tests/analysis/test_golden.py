"""Redraw tables, verdicts and the numbers of figures of three runs; compare with `tests/golden`.

`python -m tests.analysis.test_golden` writes the files again, for changes that are intended.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from metaxlm.analysis.claims import list_verdicts
from metaxlm.analysis.evaluation_tables import make_seed_table, make_task_table
from metaxlm.analysis.figures import list_improvements
from metaxlm.analysis.paper import MAIN_VARIANTS, make_test_table
from metaxlm.analysis.report import find_headline, make_tables
from metaxlm.analysis.run_folder import Run, read_run
from metaxlm.analysis.score_tables import list_task_scores, make_layer_table
from metaxlm.analysis.tables import render_csv, render_markdown
from tests.analysis.fake_run import make_run

ROOT = Path(__file__).parents[2]
RUNS = ("twin", "twin_minilm", "fake")


def read(name: str, folder: Path) -> Run:
    published = ROOT / "docs/results" / name
    return read_run(published if published.is_dir() else make_run(folder / name, seeds=3))


def collect(run: Run) -> dict[str, Any]:
    """Return every number that the report of a run has, with ten digits."""
    results, models = run.results, run.variants
    tables = [table for some in make_tables(run).values() for table in some]
    sections = list(results.sections(results.tasks, models).values())
    evaluated = [
        make_task_table(results, sections, models),
        make_seed_table(sections, models),
        make_test_table([c for c in results.comparisons if c.layer is None]),
        make_layer_table(results, "alignment", models, by_language=True),
    ]
    found = {
        "tables": {t.name: [render_markdown(t), render_csv(t)] for t in tables},
        "evaluate": {t.name: render_csv(t) for t in evaluated if t},
        "verdicts": list_verdicts(run.verdicts),
        "collapsed": list(map(asdict, results.collapsed)),
        "improvements": list(map(asdict, list_improvements(results))),
        "overview": list(map(asdict, list_task_scores(results, MAIN_VARIANTS))),
        "headline": asdict(find_headline(run)),
    }
    round_float = partial(json.loads, parse_float=lambda text: float(f"{float(text):.10g}"))
    rounded: dict[str, Any] = round_float(json.dumps(found))
    return rounded


@pytest.mark.parametrize("name", RUNS)
def test_numbers_are_those_of_the_golden_files(name: str, tmp_path: Path) -> None:
    golden = json.loads(lzma.decompress((ROOT / f"tests/golden/{name}.json.xz").read_bytes()))
    found = collect(read(name, tmp_path))
    for part in ("tables", "evaluate"):
        assert found[part].keys() == golden[part].keys()
        for table, texts in golden[part].items():
            assert found[part][table] == texts, table
    assert found == golden


if __name__ == "__main__":
    target = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "tests/golden"
    with tempfile.TemporaryDirectory() as scratch:
        for each in RUNS:
            text = json.dumps(collect(read(each, Path(scratch))), ensure_ascii=False)
            (target / f"{each}.json.xz").write_bytes(lzma.compress(text.encode()))
