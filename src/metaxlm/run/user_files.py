"""The files that a user gave: known by place, size and time, and by content where times differ.

A stage or a cell is made again when a file it read has changed. Size and time tell that at once,
but a download or a plain copy gives the same text another time, and hours of training must not be
repeated for that. So the run folder remembers the digests (`inputs.json`): a file of the same size
and another time is read, and if its content is the old one, so is its identity.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from metaxlm.digests import require_whole, write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file, dump_json, read_json
from metaxlm.progress import track

FILE_NAME = "inputs.json"
_WORTH_SHOWING = 2_000_000_000
"""Bytes to be digested from which on a bar is shown."""


@dataclass(frozen=True)
class _Known:
    size: int
    time: int
    """Of the file when this content was first seen; part of its identity."""
    seen: int
    """The time that the content was last found under."""
    sha256: str

    def was_seen_as(self, size: int, time: int) -> bool:
        """Say whether size and time alone tell that it is this content."""
        return self.size == size and time in (self.time, self.seen)


class UserFiles:
    """All files of the user that a folder's results come from."""

    def __init__(self, folder: Path | None = None) -> None:
        """Take what the folder remembers; without one, files are known by size and time alone."""
        self._store = None if folder is None else folder / FILE_NAME
        self._known = {} if self._store is None else _read(self._store)
        self._new: dict[str, tuple[Path, int, int]] = {}
        self._learned: dict[str, _Known] = {}

    def identify(self, path: Path, folder: Path, what: str) -> list[Any]:
        """Return place, size and time; the place is that in a folder, which may itself be moved.

        `what` tells folders apart in which files are called alike.
        """
        status, place = path.stat(), _find_place(path, folder)
        size, time, name = status.st_size, status.st_mtime_ns, f"{what}: {place}"
        known = self._known.get(name)
        if known is not None and known.was_seen_as(size, time):
            return [place, size, known.time]
        new = (path, size, time)
        if known is not None and known.size == size and self._new.get(name) != new:
            digest = digest_file(path)
            if digest == known.sha256:
                self._learn(name, _Known(size, known.time, time, digest))
                return [place, size, known.time]
        self._new[name] = new
        return [place, size, time]

    def remember(self) -> None:
        """Digest what is new and write it down, beside what other processes have written."""
        if self._store is None or not (self._new or self._learned):
            return
        stored = _read(self._store)
        new = {
            name: facts
            for name, facts in self._new.items()
            if name not in stored or not stored[name].was_seen_as(*facts[1:])
        }
        total = sum(size for _, size, _ in new.values())
        with track("inputs", total, "bytes") as advance, ThreadPoolExecutor(os.cpu_count()) as pool:
            digests = pool.map(digest_file, (path for path, _, _ in new.values()))
            for (name, (_, size, time)), digest in zip(new.items(), digests, strict=True):
                self._learn(name, _Known(size, time, time, digest))
                if total >= _WORTH_SHOWING:
                    advance(size)
        known = stored | self._learned
        text = dump_json({name: asdict(facts) for name, facts in sorted(known.items())})
        write_listed(self._store.parent, self._store.name, text)
        self._new.clear()
        self._learned.clear()

    def _learn(self, name: str, facts: _Known) -> None:
        self._known[name] = self._learned[name] = facts


def _find_place(path: Path, folder: Path) -> str:
    for inner, outer in ((path, folder), (path.resolve(), folder.resolve())):
        if inner.is_relative_to(outer):
            return inner.relative_to(outer).as_posix()
    return str(path.resolve())


def _read(store: Path) -> dict[str, _Known]:
    """Read what was remembered; of a file that cannot be read, nothing is."""
    if store.is_file():
        require_whole(store)
    try:
        return {name: _Known(**facts) for name, facts in read_json(store).items()}
    except (MetaXLMError, OSError, TypeError, AttributeError):
        return {}
