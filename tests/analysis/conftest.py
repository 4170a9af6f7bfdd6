from __future__ import annotations

from pathlib import Path

import pytest

from metaxlm.analysis.report import write_report
from tests.analysis.fake_run import (
    LAYERS,
    VARIANTS,
    make_row,
    make_run,
    retrieval_value,
    write_lines,
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A complete run folder with one seed."""
    return make_run(tmp_path / "fake")


@pytest.fixture
def small_run_dir(tmp_path: Path) -> Path:
    """A run folder with retrieval results and nothing else, which is quickly reported."""
    folder = tmp_path / "small"
    rows = [
        make_row(variant, "tatoeba", "accuracy", "de", retrieval_value(variant, layer, "de"),
                 layer=layer)
        for variant in VARIANTS
        for layer in range(LAYERS)
    ]  # fmt: skip
    write_lines(folder / "results.jsonl", rows)
    return folder


@pytest.fixture(scope="session")
def finished_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report folder of a complete run with three seeds; tests only read it."""
    folder = make_run(tmp_path_factory.mktemp("runs") / "fake", seeds=3)
    return write_report(folder).parent
