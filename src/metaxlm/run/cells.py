"""One cell of an evaluation: a model, a task, a training language, a seed.

Comes in: scores, tallies and predictions of one finetuning (or of features without any). Goes out:
`cells/MODEL/TASK/SOURCE-SEED/` with `cell.json` (scores, settings, epochs), `tallies.npz`,
`predictions/`, perhaps `model/`, and a sealed `manifest.json` with the fingerprint of all that
decided them and the digest of every file. A cell appears when it is complete, is not made twice,
and is made again when its inputs changed or a byte of it did, but not after an update alone.
Several processes may share a folder: each cell is locked while it is made.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from metaxlm import __version__
from metaxlm.digests import CARD, find_damaged, read_list
from metaxlm.errors import MetaXLMError, naming
from metaxlm.files import digest_value, read_json, write_json
from metaxlm.finetune.task import Tally
from metaxlm.manifest import MANIFEST, atomic_folder, read_manifest, write_manifest
from metaxlm.run.stage import list_changes

CELLS = "cells"
RECORD = "cell.json"
TALLIES = "tallies.npz"
PREDICTIONS = "predictions"
MODEL = "model"
VERSION = 3
"""Raised when a change of the code makes earlier cells wrong."""


@dataclass(frozen=True)
class CellKey:
    """What a cell is about."""

    model: str
    task: str
    source: str
    """Language of the training data."""
    seed: int

    @property
    def title(self) -> str:
        """Name it for the user."""
        return f"{self.model} {self.task} {self.source}-{self.seed}"

    def place(self, output: Path) -> Path:
        """Return its folder below an output folder."""
        return output / CELLS / self.model / self.task / f"{self.source}-{self.seed}"


@dataclass(frozen=True)
class CellContent:
    """What is stored."""

    record: Mapping[str, Any]
    """Scores and all about them, as JSON values."""
    tallies: Mapping[str, Tally]
    """By `SPLIT-LANGUAGE`."""
    predictions: Mapping[str, str]
    """Submission files by name."""


@dataclass(frozen=True)
class Cell:
    """A cell to be made: where it goes and what decides it."""

    key: CellKey
    folder: Path
    inputs: Mapping[str, Any]
    """Everything that decides the content, as JSON values."""

    @cached_property
    def fingerprint(self) -> str:
        """Return a digest of everything that decides the content, and of who makes it."""
        return self._fingerprint(__version__)

    def is_made_as(self, fingerprint: str, metaxlm: str) -> bool:
        """Say whether a fingerprint is of the same inputs, whichever version of metaxlm wrote it.

        An update must not cost days of finetuning; what it does change, `VERSION` tells.
        """
        return fingerprint == self._fingerprint(metaxlm)

    def _fingerprint(self, metaxlm: str) -> str:
        return digest_value({"version": VERSION, "metaxlm": metaxlm, "inputs": self.inputs})

    def find_reason(self, *, needs_model: bool = False) -> str | None:
        """Say why it must be made; None if it is complete, empty if nothing is there."""
        if not self.folder.exists():
            return ""
        damage = find_cell_damage(self.folder)
        if damage is not None:
            return f"again, {damage}"
        found = read_manifest(self.folder)
        maker = str(found.get("metaxlm"))
        if not self.is_made_as(str(found.get("fingerprint")), maker):
            changes = list_changes(found.get("inputs", {}), self.inputs)
            if not changes:
                changes = [f"how metaxlm measures: {maker} -> {__version__}"]
            return f"again, changed: {', '.join(changes)}"
        if needs_model and not (self.folder / MODEL).is_dir():
            return "again, its model was not kept"
        return None

    def write(self, content: CellContent, save_model: Callable[[Path], None] | None = None) -> None:
        """Store the content; the folder appears when all of it is on the disk."""
        with atomic_folder(self.folder, set_aside=True) as temporary:
            write_json(temporary / RECORD, content.record)
            if content.tallies:
                arrays: dict[str, Any] = dict(content.tallies)
                np.savez_compressed(temporary / TALLIES, **arrays)
            for name, text in content.predictions.items():
                path = temporary / PREDICTIONS / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
            if save_model is not None:
                save_model(temporary / MODEL)
            facts = {"fingerprint": self.fingerprint, "inputs": dict(self.inputs)}
            write_manifest(temporary, {**facts, "metaxlm": __version__})


@dataclass(frozen=True)
class StoredCell:
    """A complete cell, read."""

    key: CellKey
    folder: Path
    record: dict[str, Any]
    fingerprint: str
    inputs: dict[str, Any]
    metaxlm: str
    """Version that made it."""
    written: float
    """When it was written, in seconds."""

    @property
    def basis(self) -> str:
        """Return what is equal for cells that differ in their seed only."""
        return find_basis(self.inputs)

    def read_tallies(self) -> dict[str, Tally]:
        """Return what each labeled example adds to the scores, by `SPLIT-LANGUAGE`."""
        if not (self.folder / TALLIES).is_file():
            return {}
        with np.load(self.folder / TALLIES) as arrays:
            return {name: arrays[name] for name in arrays.files}


def read_cell(key: CellKey, folder: Path) -> StoredCell:
    """Read a complete cell."""
    manifest = read_manifest(folder)
    written = (folder / RECORD).stat().st_mtime
    record = read_json(folder / RECORD)
    made = (manifest["fingerprint"], manifest["inputs"], str(manifest["metaxlm"]))
    return StoredCell(key, folder, record, *made, written)


def find_basis(inputs: Mapping[str, Any]) -> str:
    """Digest what decides a cell but for the number of its seed."""
    seed = inputs.get("seed", [None])[0]
    return digest_value({**inputs, "seed": seed})


def list_cells(output: Path) -> tuple[list[StoredCell], list[str]]:
    """Return all whole cells below an output folder, and what is wrong with the others."""
    cells, problems = [], []
    for folder in sorted((output / CELLS).glob("*/*/*-*")):
        source, _, seed = folder.name.rpartition("-")
        hidden = any(part.startswith(".") for part in folder.relative_to(output).parts)
        if hidden or not folder.is_dir() or not seed.isdecimal():
            continue
        damage = find_cell_damage(folder)
        if damage is not None:
            problems.append(f"{folder}: left out, {damage}")
            continue
        key = CellKey(folder.parent.parent.name, folder.parent.name, source, int(seed))
        cells.append(read_cell(key, folder))
    cells.sort(key=lambda cell: (cell.key.model, cell.key.task, cell.key.source, cell.key.seed))
    return cells, problems


def find_cell_damage(folder: Path) -> str | None:
    """Say which file of a cell is not as it was written; None if all are."""
    try:
        listed = read_list(folder / MANIFEST)
    except MetaXLMError:
        return "its manifest is damaged or missing"
    damaged = find_damaged({path: facts for path, facts in listed.items() if path.name != CARD})
    found = (f"{path.relative_to(folder)} is damaged ({what})" for path, what in damaged.items())
    return next(found, None)


@contextmanager
def claim(folders: list[Path]) -> Iterator[str | None]:
    """Hold cells for this process; yields None, or who holds one of them already."""
    with _opened(folders) as locks:
        for lock in locks:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
                yield owner or "unknown"
                return
        for folder, lock in zip(sorted(folders), locks, strict=True):
            with naming(folder):
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield None


@contextmanager
def collecting(output: Path) -> Iterator[None]:
    """Let one process at a time write what is collected from all cells; others wait."""
    with _opened([output / "tables"]) as [lock]:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _opened(targets: list[Path]) -> Iterator[list[int]]:
    """Open a lock file beside each target; closing it lets go."""
    locks: list[int] = []
    try:
        for target in sorted(targets):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                path = target.with_name(f".lock-{target.name}")
                locks.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
            except OSError as error:
                raise MetaXLMError(
                    f"{target.parent}: cannot be written ({error.strerror}); "
                    f"choose another --output"
                ) from error
        yield locks
    finally:
        for lock in locks:
            os.close(lock)
