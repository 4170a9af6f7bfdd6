"""Evaluation jobs: one model, one task, one training language, one seed.

A finished job is a folder `cells/MODEL/TASK/SOURCE-SEED/` with `cell.json` (scores, settings,
epochs), `tallies.npz`, `predictions/`, optionally `model/`, and a sealed `manifest.json` with the
fingerprint of all inputs and the digest of every file. The folder is renamed to its final name when
it is complete. A job runs again when its inputs change or a file is damaged, but not after an
update of metaxlm alone. Several processes may share a folder: each job is locked while it runs.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from metaxlm import __version__
from metaxlm.errors import MetaXLMError, naming
from metaxlm.files import digest_value, read_json, write_json
from metaxlm.finetune.task import Tally
from metaxlm.locks import lock
from metaxlm.manifest import MANIFEST, atomic_folder, read_manifest, write_manifest
from metaxlm.run.stage import find_first_damage, list_changes
from metaxlm.stopping import deferred_stops

JOBS = "cells"
RECORD = "cell.json"
TALLIES = "tallies.npz"
PREDICTIONS = "predictions"
MODEL = "model"
VERSION = 3  # increased when a change of the code invalidates earlier jobs


@dataclass(frozen=True, order=True)
class JobKey:
    """Identifies a job."""

    model: str
    task: str
    source: str  # language of the training data
    seed: int

    @property
    def title(self) -> str:
        """Name for the user."""
        return f"{self.model} {self.task} {self.source}-{self.seed}"

    def place(self, output: Path) -> Path:
        """Return the job's folder below an output folder."""
        return output / JOBS / self.model / self.task / f"{self.source}-{self.seed}"


@dataclass(frozen=True)
class EvalJob:
    """A job to run: its folder and its inputs."""

    key: JobKey
    folder: Path
    inputs: Mapping[str, Any]  # everything that decides the result, as JSON values

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the inputs and of the version of metaxlm."""
        return self._fingerprint(__version__)

    @property
    def basis(self) -> str:
        """A digest that is equal for jobs that differ only in their seed."""
        return digest_value({**self.inputs, "seed": self.inputs.get("seed", [None])[0]})

    def has_fingerprint(self, fingerprint: str, metaxlm: str) -> bool:
        """Return whether a fingerprint that any version of metaxlm wrote is of these inputs.

        An update must not repeat days of finetuning. `VERSION` is part of the fingerprint.
        """
        return fingerprint == self._fingerprint(metaxlm)

    def _fingerprint(self, metaxlm: str) -> str:
        return digest_value({"version": VERSION, "metaxlm": metaxlm, "inputs": self.inputs})

    def find_reason(self, *, needs_model: bool = False) -> str | None:
        """Return why the job must run: None if it is complete, empty if it is new."""
        if not self.folder.exists():
            return ""
        if damage := find_first_damage(self.folder / MANIFEST):
            return f"again, damaged: {damage}"
        found = read_manifest(self.folder)
        maker = str(found.get("metaxlm"))
        if not self.has_fingerprint(str(found.get("fingerprint")), maker):
            changes = list_changes(found.get("inputs", {}), self.inputs)
            changes = changes or [f"how metaxlm evaluates: {maker} -> {__version__}"]
            return f"again, changed: {', '.join(changes)}"
        if needs_model and not (self.folder / MODEL).is_dir():
            return "again, its model was not kept"
        return None

    def write(
        self,
        record: Mapping[str, Any],
        tallies: Mapping[str, Tally],
        predictions: Mapping[str, str] | None = None,
        save_model: Callable[[Path], None] | None = None,
    ) -> None:
        """Write scores, tallies as in `read_tallies`, submission files and the model atomically."""
        with atomic_folder(self.folder, set_aside=True) as temporary:
            write_json(temporary / RECORD, record)
            if tallies:
                arrays: dict[str, Any] = dict(tallies)
                np.savez_compressed(temporary / TALLIES, **arrays)
            for name, text in (predictions or {}).items():
                path = temporary / PREDICTIONS / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
            if save_model is not None:
                save_model(temporary / MODEL)
            facts = {"fingerprint": self.fingerprint, "inputs": dict(self.inputs)}
            write_manifest(temporary, {**facts, "metaxlm": __version__})


@dataclass(frozen=True)
class FinishedJob(EvalJob):
    """The stored result of a job."""

    record: dict[str, Any]
    origin: str  # the fingerprint that was written
    metaxlm: str  # version that ran the job
    written: float  # modification time in seconds

    def read_tallies(self) -> dict[str, Tally]:
        """Return the per-example counts by `SPLIT-LANGUAGE` or `LANGUAGE-LAYER`."""
        if not (self.folder / TALLIES).is_file():
            return {}
        with np.load(self.folder / TALLIES) as arrays:
            return {name: arrays[name] for name in arrays.files}


def read_job(key: JobKey, folder: Path) -> FinishedJob:
    """Read a complete job."""
    manifest, record = read_manifest(folder), read_json(folder / RECORD)
    made = (manifest["fingerprint"], str(manifest["metaxlm"]))
    time = (folder / RECORD).stat().st_mtime
    return FinishedJob(key, folder, manifest["inputs"], record, *made, time)


def list_jobs(output: Path) -> tuple[list[FinishedJob], list[str]]:
    """Return all complete jobs below an output folder, and messages about damaged ones."""
    jobs, problems = [], []
    for folder in sorted((output / JOBS).glob("*/*/*-*")):
        source, _, seed = folder.name.rpartition("-")
        hidden = any(part.startswith(".") for part in folder.relative_to(output).parts)
        if hidden or not folder.is_dir() or not seed.isdecimal():
            continue
        if damage := find_first_damage(folder / MANIFEST):
            problems.append(f"{folder}: skipped, damaged: {damage}")
            continue
        key = JobKey(folder.parent.parent.name, folder.parent.name, source, int(seed))
        jobs.append(read_job(key, folder))
    return sorted(jobs, key=lambda job: job.key), problems


def keep_current(
    jobs: Sequence[FinishedJob], requested: Iterable[EvalJob] = ()
) -> tuple[list[FinishedJob], list[str]]:
    """Keep jobs with the requested or else the newest settings and files, and return messages."""
    bases = {job.basis for job in requested}
    groups: dict[tuple[str, str, str], list[FinishedJob]] = {}
    for job in jobs:
        groups.setdefault((job.key.model, job.key.task, job.key.source), []).append(job)
    kept, notes = [], []
    for (model, task, source), group in groups.items():
        best = max(group, key=lambda job: (job.basis in bases, job.written)).basis
        kept += [job for job in group if job.basis == best]
        if seeds := sorted(job.key.seed for job in group if job.basis != best):
            skipped = f"skipped seeds {', '.join(map(str, seeds))}"
            notes.append(f"{model} {task} {source}: {skipped}, which used other settings or files")
    return kept, notes


@contextmanager
def claim(folders: list[Path]) -> Iterator[str | None]:
    """Lock folders for this process; yield None, or the process that has locked one of them."""
    with _open_locks(folders) as files:
        for file in files:
            try:
                lock(file.fileno())
            except BlockingIOError:
                file.seek(0)
                yield file.read(32).decode("ascii", "replace").strip() or "unknown"
                return
        for folder, file in zip(sorted(folders), files, strict=True):
            with naming(folder):
                file.truncate(0)
                file.write(str(os.getpid()).encode())
        yield None


@contextmanager
def collecting(output: Path) -> Iterator[None]:
    """Wait for the lock on the files that are collected from all jobs, and hold it."""
    with _open_locks([output / "tables"]) as [file]:
        lock(file.fileno(), wait=True)
        yield


@contextmanager
def _open_locks(targets: list[Path]) -> Iterator[list[FileIO]]:
    """Open a lock file next to each target; closing it releases the lock."""
    with ExitStack() as stack:
        files: list[FileIO] = []
        with deferred_stops():  # no stop between a file's opening and its entry in the stack
            for target in sorted(targets):
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    path = target.with_name(f".lock-{target.name}")
                    files.append(stack.enter_context(FileIO(path, "a+")))
                except OSError as error:
                    why = f"cannot be written ({error.strerror}); choose another --output"
                    raise MetaXLMError(f"{target.parent}: {why}") from error
        yield files
