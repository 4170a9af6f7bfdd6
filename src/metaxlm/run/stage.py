"""A stage of a run: fill a folder, and run only if needed.

A stage runs only if its recipe values, the user's files, an earlier stage or its own files changed.
The folder has a `.stage.json` with the fingerprint of all inputs and the digests of all files, and
it is renamed to its final name when it is complete. Stages that keep checkpoints or other work
resume from `work_dir`, which is cleared only when the fingerprint changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from metaxlm import __version__, manifest
from metaxlm.digests import CARD, find_damaged, read_list
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_value, remove
from metaxlm.manifest import MARKER
from metaxlm.progress import say
from metaxlm.stopping import check_stop

_LONGEST_SHOWN = 80


@dataclass(frozen=True)
class Stage:
    """One step of a run."""

    name: str  # name for the user: such as `corpus`
    output: Path
    inputs: Mapping[str, Any]
    """Recipe values and files of the user that decide the output, as JSON values."""
    upstream: tuple[Stage, ...]  # stages whose fingerprints are part of this one's
    fill: Callable[[Path], None]  # writes the output to the folder it is given
    variant: str | None = None  # the variant it belongs to; None for stages that all variants share
    work_dir: Path | None = None
    """Folder with content that survives an interruption, such as checkpoints."""
    keeps_work: bool = True  # whether to keep that folder when the stage is complete
    together: bool = False  # whether all processes of a run fill it, instead of rank 0 only
    version: int = 1  # increased when a change of the code invalidates earlier outputs
    device: str | None = None  # device of a training run, for provenance
    reads: tuple[Stage, ...] = ()  # stages before `upstream` whose output this one also reads

    @property
    def title(self) -> str:
        """The stage's name with its variant."""
        return f"{self.name} {self.variant}" if self.variant else self.name

    @property
    def needed(self) -> tuple[Stage, ...]:
        """The stages that must be complete before this one runs."""
        return (*self.upstream, *self.reads)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything that decides the output."""
        upstream = [stage.fingerprint for stage in self.upstream]
        facts = {"stage": self.name, "version": self.version}
        return digest_value({**facts, "inputs": self.inputs, "upstream": upstream})

    def was_made(self) -> bool:
        """Return whether the output was made from the current inputs; files may be missing."""
        return read_marker(self.output).get("fingerprint") == self.fingerprint

    def is_complete(self) -> bool:
        """Return whether the output was made from the current inputs and is undamaged."""
        return self.was_made() and self.find_damage() is None

    def find_damage(self) -> str | None:
        """Return the first problem with the files of the output; model cards are ignored."""
        return find_first_damage(self.output / MARKER)

    def run(self, call: Callable[[str], None] | None = None) -> None:
        """Make the output if it is missing or out of date.

        `call` makes the other processes of the run take part in the stage with the given title.
        """
        check_stop()
        if self.is_complete():
            say(f"{self.title}: up to date")
            return
        say(f"{self.title}: {self.find_reason()}")
        start = time.monotonic()
        if self.work_dir is not None:
            self._claim_work(self.work_dir)
        has_marker = (self.output / MARKER).exists()  # otherwise the files are the user's
        with manifest.atomic_folder(self.output, set_aside=has_marker) as temporary:
            if self.together and call is not None:
                call(self.title)
            self.fill(temporary)
            seconds = round(time.monotonic() - start, 1)
            facts: dict[str, Any] = {"fingerprint": self.fingerprint, "inputs": self.inputs}
            facts |= {"files": _describe(temporary, nested=True), "seconds": seconds}
            facts |= {"device": self.device, "metaxlm": __version__}
            facts["finished"] = time.strftime("%Y-%m-%d", time.gmtime())
            manifest.write_sealed(temporary / MARKER, facts)
            if self.work_dir is not None and self.keeps_work:
                self._mark_work(self.work_dir, {"files": _describe(self.work_dir)})
        if self.work_dir is not None and not self.keeps_work:
            remove(self.work_dir)
        say(f"{self.title}: done in {seconds:.1f} s")

    def find_reason(self) -> str:
        """Return why an incomplete stage runs."""
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
        """Keep earlier work on the same inputs; clear other work."""
        marker = work_dir / MARKER
        try:
            earlier = manifest.read_sealed(marker).get("fingerprint") if marker.is_file() else None
        except MetaXLMError as error:
            # The work may be days of training, so it is not removed.
            raise MetaXLMError(f"{error}; move {work_dir} away to start from scratch") from error
        if earlier is not None and earlier != self.fingerprint:
            say(f"{self.title}: clearing {work_dir}, made with another recipe")
        if earlier != self.fingerprint:
            if not marker.exists() and work_dir.is_dir() and any(work_dir.iterdir()):
                what = f"not empty and not written by metaxlm (no {MARKER})"
                raise MetaXLMError(f"{work_dir}: {what}; move it away")
            remove(work_dir)
        self._mark_work(work_dir, {})

    def _mark_work(self, work_dir: Path, facts: Mapping[str, Any]) -> None:
        manifest.write_sealed(work_dir / MARKER, {"fingerprint": self.fingerprint, **facts})


def _describe(folder: Path, *, nested: bool = False) -> dict[str, dict[str, Any]]:
    """Return sizes and digests of a folder's files, except for markers and locks."""
    listed = [
        name for name in manifest.list_files(folder, nested=nested) if (folder / name).is_file()
    ]
    names = [name for name in listed if not Path(name).name.startswith((MARKER, ".lock"))]
    return manifest.describe_files(folder, names)


def read_marker(folder: Path) -> dict[str, Any]:
    """Return the marker of a folder; empty if it is missing or damaged."""
    try:
        return manifest.read_sealed(folder / MARKER)
    except MetaXLMError:
        return {}


def find_first_damage(record: Path) -> str | None:
    """Return the first problem with a sealed list or its files; model cards are ignored."""
    try:
        listed = read_list(record, nested=True)
    except MetaXLMError as error:
        return str(error)
    damaged = find_damaged({path: facts for path, facts in listed.items() if path.name != CARD})
    found = (f"{path.relative_to(record.parent)}: {what}" for path, what in damaged.items())
    return next(found, None)


def list_changes(before: Any, after: Any, place: str = "") -> list[str]:
    """List the keys whose values differ, as `a.b: 1 -> 2`."""
    if isinstance(before, dict) and isinstance(after, Mapping):
        changes = []
        for key in dict.fromkeys([*before, *after]):
            inner = f"{place}.{key}".strip(".")
            changes += list_changes(before.get(key), after.get(key), inner)
        return changes
    if before == after:
        return []
    old, new = (
        text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
        for text in map(str, (before, after))
    )
    return [f"{place}: {old} -> {new}"]
