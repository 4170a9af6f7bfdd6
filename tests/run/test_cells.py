"""Cells: written whole, made once, made again when anything that decides them changed."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.run import cells
from metaxlm.run.cells import (
    Cell,
    CellContent,
    CellKey,
    claim,
    collecting,
    find_basis,
    list_cells,
    read_cell,
)
from metaxlm.run.comparison import keep_current
from metaxlm.run.verification import verify

CONTENT = CellContent(
    {"task": "xnli", "files": [], "limit": None},
    {"test-de": np.array([[1.0, 1.0], [0.0, 1.0]])},
    {"test-de.tsv": "neutral\nentailment\n"},
)


def make_cell(output: Path, seed: int = 0, model: str = "m", **inputs: Any) -> Cell:
    key = CellKey(model, "xnli", "en", seed)
    values = {"settings": {"epochs": 1}, "limit": None, "seed": [1, seed], **inputs}
    return Cell(key, key.place(output), values)


def test_a_cell_comes_back_as_it_was_written(tmp_path: Path) -> None:
    cell = make_cell(tmp_path)
    assert cell.find_reason() == ""
    cell.write(CONTENT)
    assert cell.find_reason() is None
    assert cell.folder == tmp_path / "cells" / "m" / "xnli" / "en-0"
    stored = read_cell(cell.key, cell.folder)
    assert stored.record == CONTENT.record
    assert stored.fingerprint == cell.fingerprint
    np.testing.assert_array_equal(stored.read_tallies()["test-de"], CONTENT.tallies["test-de"])
    assert (cell.folder / "predictions" / "test-de.tsv").read_text("utf-8").startswith("neutral")
    assert verify(tmp_path).problems == {}
    assert verify(tmp_path).files == 3


def test_it_says_why_it_is_made_again(tmp_path: Path) -> None:
    make_cell(tmp_path).write(CONTENT)
    assert make_cell(tmp_path, settings={"epochs": 2}).find_reason() == (
        "again, changed: settings.epochs: 1 -> 2"
    )
    assert make_cell(tmp_path, limit=8).find_reason() == "again, changed: limit: None -> 8"
    assert make_cell(tmp_path).find_reason(needs_model=True) == "again, its model was not kept"
    kept = make_cell(tmp_path)
    kept.write(CONTENT, lambda folder: folder.mkdir())
    assert kept.find_reason(needs_model=True) is None
    path = kept.folder / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    assert set(manifest) == {"fingerprint", "inputs", "metaxlm", "files", "seal"}


def test_an_update_repeats_only_what_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cells, "__version__", "0.0.1")
        make_cell(tmp_path).write(CONTENT)
    cell = make_cell(tmp_path)
    assert cell.find_reason() is None
    stored = read_cell(cell.key, cell.folder)
    assert stored.metaxlm == "0.0.1" and stored.fingerprint != cell.fingerprint
    assert cell.is_made_as(stored.fingerprint, "0.0.1")
    assert not cell.is_made_as(stored.fingerprint, "0.0.2")
    assert make_cell(tmp_path, limit=8).find_reason() == "again, changed: limit: None -> 8"
    monkeypatch.setattr(cells, "VERSION", cells.VERSION + 1)
    assert make_cell(tmp_path).find_reason() == (
        f"again, changed: how metaxlm measures: 0.0.1 -> {cells.__version__}"
    )


@pytest.mark.parametrize(
    "name", ["cell.json", "tallies.npz", "predictions/test-de.tsv", "manifest.json"]
)
@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_damage_is_noticed(tmp_path: Path, name: str, how: str) -> None:
    cell = make_cell(tmp_path)
    cell.write(CONTENT)
    path = cell.folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if how == "flip":
        path.write_bytes(content)
    elif how == "cut":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    reason = cell.find_reason()
    assert reason is not None
    assert reason.startswith("again, ") and "damaged" in reason
    cells, problems = list_cells(tmp_path)
    assert cells == []
    [problem] = problems
    assert str(cell.folder) in problem
    cell.write(CONTENT)
    assert cell.find_reason() is None


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    cell = make_cell(tmp_path)
    cell.write(CONTENT)

    def fail(folder: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_cell(tmp_path, limit=3).write(CONTENT, fail)
    assert cell.find_reason() is None
    assert not list(tmp_path.rglob(".tmp-*"))


def test_listing_takes_whole_cells_only(tmp_path: Path) -> None:
    for seed in (10, 2):
        make_cell(tmp_path, seed).write(CONTENT)
    make_cell(tmp_path, 0, "a").write(CONTENT)
    (tmp_path / "cells" / "m" / "xnli" / ".tmp-en-3").mkdir()
    (tmp_path / "cells" / "m" / "xnli" / "notes-x").mkdir()
    cells, problems = list_cells(tmp_path)
    assert problems == []
    assert [(cell.key.model, cell.key.seed) for cell in cells] == [("a", 0), ("m", 2), ("m", 10)]
    assert cells[1].key == CellKey("m", "xnli", "en", 2)


def test_seeds_made_in_another_way_do_not_mix(tmp_path: Path) -> None:
    for seed in range(3):
        make_cell(tmp_path, seed).write(CONTENT)
    changed = make_cell(tmp_path, 1, settings={"epochs": 5})
    changed.write(CONTENT)
    cells, _ = list_cells(tmp_path)
    asked = make_cell(tmp_path, 7)
    kept, notes = keep_current(cells, [find_basis(asked.inputs)])
    assert [cell.key.seed for cell in kept] == [0, 2]
    assert "seeds 1 were made from other settings" in notes[0]
    kept, notes = keep_current(cells)  # the newest way counts when none is asked for
    os.utime(changed.folder / "cell.json", (2e9, 2e9))
    cells, _ = list_cells(tmp_path)
    kept, notes = keep_current(cells)
    assert [cell.key.seed for cell in kept] == [1]
    assert "seeds 0, 2" in notes[0]


def test_a_cell_is_held_once(tmp_path: Path) -> None:
    folder, other = tmp_path / "cells" / "en-0", tmp_path / "cells" / "en-1"
    with claim([folder]) as owner:
        assert owner is None
        with claim([other, folder]) as owner:
            assert owner == str(os.getpid())
        with claim([other]) as owner:
            assert owner is None
    with claim([other]), claim([folder, other]) as owner:
        assert owner == str(os.getpid())
    with claim([folder, other]) as owner:
        assert owner is None


def test_collecting_waits_for_its_turn(tmp_path: Path) -> None:
    with (
        collecting(tmp_path),
        (tmp_path / ".lock-tables").open("w") as lock,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / ".lock-tables").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cells").write_text("a file", encoding="utf-8")
    with (
        pytest.raises(MetaXLMError, match="choose another --output"),
        claim([tmp_path / "cells/x/y"]),
    ):
        pass
