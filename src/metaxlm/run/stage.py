"""A stage runs only if its inputs, its part of the recipe or its files changed, and says which.

A stage has what it depends on (recipe values, files of the user, earlier stages) and a function
that fills a folder. The filled folder has a `.stage.json` with the fingerprint of all inputs and
the digests of all files. The folder appears under its final name only when it is complete, so a
killed run never leaves a half stage behind; a stage that keeps work of its own (training, corpus
preparation) finds it again in `work_dir`, which is cleared only when the fingerprint changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from metaxlm import __version__
from metaxlm.digests import CARD, find_damaged, read_list
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_value, remove
from metaxlm.manifest import (
    MARKER,
    atomic_folder,
    describe_files,
    list_files,
    read_sealed,
    write_sealed,
)
from metaxlm.progress import say
from metaxlm.stopping import check_stop

_LONGEST_SHOWN = 80


@dataclass(frozen=True)
class Stage:
    """One step of a run."""

    name: str
    """What the user calls it: `corpus`, `pretrain`, ..."""
    output: Path
    """Folder that the stage makes."""
    inputs: Mapping[str, Any]
    """Everything of the recipe and the user's files that decides the output, as JSON values."""
    upstream: tuple[Stage, ...]
    """Stages whose fingerprints are part of this one's."""
    fill: Callable[[Path], None]
    """Fills the folder it is given."""
    variant: str | None = None
    """The variant it belongs to, or None for stages that all variants share."""
    work_dir: Path | None = None
    """Folder whose content outlives an interruption, such as checkpoints."""
    keeps_work: bool = True
    """Whether that folder stays when the stage is complete."""
    together: bool = False
    """Whether all processes of a run fill it; else only the main one does."""
    version: int = 1
    """Raised when a change of the code makes earlier outputs wrong."""
    device: str | None = None
    """What a training runs on, for the record."""
    reads: tuple[Stage, ...] = ()
    """Stages before `upstream` whose output this one reads as well."""

    @property
    def title(self) -> str:
        """Return the stage's name for the user."""
        return f"{self.name} {self.variant}" if self.variant else self.name

    @cached_property
    def fingerprint(self) -> str:
        """Return a digest of everything that decides the output."""
        return digest_value(
            {
                "stage": self.name,
                "version": self.version,
                "inputs": self.inputs,
                "upstream": [stage.fingerprint for stage in self.upstream],
            }
        )

    def was_made(self) -> bool:
        """Say whether the output was made from the present inputs; it may be gone by now."""
        return read_marker(self.output).get("fingerprint") == self.fingerprint

    @property
    def needed(self) -> tuple[Stage, ...]:
        """Return the stages that must be complete before this one runs."""
        return (*self.upstream, *self.reads)

    def is_complete(self) -> bool:
        """Say whether the output is there, as it was written, and made from the present inputs."""
        return self.was_made() and self.find_damage() is None

    def find_damage(self) -> str | None:
        """Say what is wrong with the files of the output; a model card does not count."""
        try:
            listed = read_list(self.output / MARKER, nested=True)
        except MetaXLMError as error:
            return str(error)
        damaged = find_damaged({path: facts for path, facts in listed.items() if path.name != CARD})
        found = (f"{path.relative_to(self.output)}: {what}" for path, what in damaged.items())
        return next(found, None)

    def run(self, call: Callable[[str], None] | None = None) -> None:
        """Make the output if it is missing or out of date.

        `call` lets the other processes of the run take part, by the title of the stage.
        """
        check_stop()
        if self.is_complete():
            say(f"{self.title}: up to date")
            return
        say(f"{self.title}: {self.find_reason()}")
        start = time.monotonic()
        if self.work_dir is not None:
            self._claim_work(self.work_dir)
        has_marker = (self.output / MARKER).exists()  # without one, the files are not ours
        with atomic_folder(self.output, set_aside=has_marker) as temporary:
            if self.together and call is not None:
                call(self.title)
            self.fill(temporary)
            seconds = round(time.monotonic() - start, 1)
            write_sealed(temporary / MARKER, self._marker(temporary, seconds))
            if self.work_dir is not None and self.keeps_work:
                self._mark_work(self.work_dir, {"files": _describe(self.work_dir)})
        if self.work_dir is not None and not self.keeps_work:
            remove(self.work_dir)
        say(f"{self.title}: done in {seconds:.1f} s")

    def take_part(self) -> None:
        """Do this process's share of what the main process runs; that one alone writes."""
        assert self.together
        self.fill(self.output)

    def _marker(self, folder: Path, seconds: float) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint,
            "inputs": self.inputs,
            "files": _describe(folder, nested=True),
            "seconds": seconds,
            "device": self.device,
            "metaxlm": __version__,
        }

    def find_reason(self) -> str:
        """Tell why the stage runs, if it is not complete."""
        marker = read_marker(self.output)
        if not marker:
            return "running"
        if marker.get("fingerprint") == self.fingerprint:
            return f"running again, its files are damaged or missing ({self.find_damage()})"
        changed = list_changes(marker.get("inputs", {}), self.inputs)
        if not changed:
            return "running again, an earlier stage changed"
        return f"running again, changed: {', '.join(changed)}"

    def _claim_work(self, work_dir: Path) -> None:
        """Keep earlier work of the same inputs; clear that of others."""
        marker = work_dir / MARKER
        try:
            earlier = read_sealed(marker).get("fingerprint") if marker.is_file() else None
        except MetaXLMError as error:
            # What it belongs to is unknown. It may be days of training, so nothing is removed.
            raise MetaXLMError(f"{error}; move {work_dir} away to begin again") from error
        if earlier is not None and earlier != self.fingerprint:
            say(f"{self.title}: clearing {work_dir}, made with another recipe")
        if earlier != self.fingerprint:
            if not marker.exists() and work_dir.is_dir() and any(work_dir.iterdir()):
                raise MetaXLMError(
                    f"{work_dir}: not empty and not written by metaxlm (no {MARKER}); move it away"
                )
            remove(work_dir)
        self._mark_work(work_dir, {})

    def _mark_work(self, work_dir: Path, facts: Mapping[str, Any]) -> None:
        """Write whose work it is and, when it is finished, the digests of its files."""
        write_sealed(work_dir / MARKER, {"fingerprint": self.fingerprint, **facts})


def _describe(folder: Path, *, nested: bool = False) -> dict[str, dict[str, Any]]:
    """Return sizes and digests of a folder's files, but for its marker and locks."""
    names = [
        name
        for name in list_files(folder, nested=nested)
        if (folder / name).is_file() and not Path(name).name.startswith((MARKER, ".lock"))
    ]
    return describe_files(folder, names)


def read_marker(folder: Path) -> dict[str, Any]:
    """Return the marker of a folder; one that is missing or damaged says nothing."""
    try:
        return read_sealed(folder / MARKER)
    except MetaXLMError:
        return {}


def list_changes(before: Any, after: Any, place: str = "") -> list[str]:
    """List the keys whose values differ, as `a.b: 1 -> 2`."""
    if isinstance(before, dict) and isinstance(after, Mapping):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            change
            for key in keys
            for change in list_changes(before.get(key), after.get(key), f"{place}.{key}".strip("."))
        ]
    return [] if before == after else [f"{place}: {_shorten(before)} -> {_shorten(after)}"]


def _shorten(value: Any) -> str:
    """Show a value, or the beginning of a long one such as a list of files."""
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
