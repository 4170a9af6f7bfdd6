"""Detect changes of the user's files by size and modification time, and by content if in doubt.

A stage or job runs again when one of its input files changed. A download or a plain copy changes
only the modification time, so the run folder stores digests (`inputs.json`): if a file has its old
size and a new time, its content is compared, and an unchanged file keeps its fingerprint. Folders
of the same kind may have files of the same name (the dictionaries of two variants), so a name has
an entry for each content.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from metaxlm.digests import require_whole, write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file, dump_json, read_json, walk_files
from metaxlm.progress import say

FILE_NAME = "inputs.json"
_Facts = tuple[int, int]  # size and modification time of a file
_WORTH_SAYING = 2_000_000_000  # log a message before computing digests of at least this many bytes


@dataclass(frozen=True)
class _Entry:
    size: int
    time: int  # modification time when this content was first seen; part of the fingerprint
    seen: int  # modification time when this content was last seen
    sha256: str


class FileFingerprints:
    """Fingerprints of the user's files that the results in a folder depend on."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read the entries stored in a folder; without one, use size and time only."""
        self._store = None if folder is None else folder / FILE_NAME
        self._entries = {} if self._store is None else _read(self._store)
        self._times: dict[tuple[str, Path, _Facts], int] = {}  # as `get` returned them
        self._paths: dict[str, set[Path]] = {}
        self._undigested: dict[tuple[str, Path], _Facts] = {}
        self._changed: dict[str, list[_Entry]] = {}

    def get(self, path: Path, folder: Path, what: str) -> list[Any]:
        """Return `[place in folder, size, time]`; `what` distinguishes folders with equal names."""
        status, place = path.stat(), _find_place(path, folder)
        facts, name = (status.st_size, status.st_mtime_ns), f"{what}: {place}"
        if (key := (name, path, facts)) not in self._times:
            self._times[key] = self._find_time(*key)
        return [place, status.st_size, self._times[key]]

    def _find_time(self, name: str, path: Path, facts: _Facts) -> int:
        """Return the time when a file's content was first seen; read it if that is in doubt."""
        size, time = facts
        paths = self._paths.setdefault(name, set())
        paths.add(path)
        for other in paths - {path}:  # equal files have one time, that of the first one
            if (its := self._undigested.get((name, other))) and its[0] == size:
                self._update(name, _Entry(*its, its[1], digest_file(other)))
        alike = [entry for entry in self._entries.get(name, []) if entry.size == size]
        if len(alike) == len(paths) == 1 and time in (alike[0].time, alike[0].seen):
            return alike[0].time
        digest = digest_file(path) if alike else ""
        for entry in alike:
            if entry.sha256 == digest:
                self._update(name, _Entry(size, entry.time, time, digest))
                return entry.time
        self._undigested[name, path] = facts
        return time

    def list_place(self, path: Path, what: str) -> list[list[Any]]:
        """Return the fingerprint of a file, or those of the files in a folder."""
        if path.is_file():
            return [self.get(path, path.parent, what)]
        return self.list_folder(path, what)

    def list_folder(self, folder: Path | None, what: str) -> list[list[Any]]:
        """Return the fingerprints of the files in a folder; none without a folder."""
        if folder is None:
            return []
        if not folder.is_dir():
            fix = f"correct the path ({what}), or name another one with --set"
            raise MetaXLMError(f"{folder}: no such folder, but the recipe names it; {fix}")
        return [self.get(path, folder, what) for path in walk_files(folder)]

    def save(self) -> None:
        """Compute missing digests and add them to those that other processes stored."""
        if self._store is None or not (self._undigested or self._changed):
            return
        stored = _read(self._store)
        new = {
            (name, path): facts
            for (name, path), facts in self._undigested.items()
            if len(self._paths[name]) > 1
            or not any(facts == (entry.size, entry.seen) for entry in stored.get(name, []))
        }
        if (total := sum(size for size, _ in new.values())) >= _WORTH_SAYING:
            say(f"inputs: computing digests of {len(new)} files, {total / 1e9:,.1f} GB")
        with ThreadPoolExecutor() as pool:
            digests = pool.map(digest_file, (path for _, path in new))
            for ((name, _), (size, time)), digest in zip(new.items(), digests, strict=True):
                self._update(name, _Entry(size, time, time, digest))
        for name, entries in self._changed.items():
            stored[name] = _merge(stored.get(name, []), entries)
        # A name with one entry is written as in earlier versions, which can read it.
        found = {name: [asdict(entry) for entry in many] for name, many in sorted(stored.items())}
        text = dump_json({k: many if many[1:] else many[0] for k, many in found.items()})
        write_listed(self._store.parent, self._store.name, text)
        self._undigested.clear()
        self._changed.clear()

    def _update(self, name: str, entry: _Entry) -> None:
        for entries in (self._entries, self._changed):
            entries[name] = _merge(entries.get(name, []), [entry])


def _merge(entries: Iterable[_Entry], newer: Iterable[_Entry]) -> list[_Entry]:
    """Return one entry per content, the newer one where there are two."""
    return list({entry.sha256: entry for entry in (*entries, *newer)}.values())


def _find_place(path: Path, folder: Path) -> str:
    for inner, outer in ((path, folder), (path.resolve(), folder.resolve())):
        if inner.is_relative_to(outer):
            return inner.relative_to(outer).as_posix()
    return str(path.resolve())


def _read(store: Path) -> dict[str, list[_Entry]]:
    if store.is_file():
        require_whole(store)
    try:
        return {
            name: [_Entry(**facts) for facts in (many if isinstance(many, list) else [many])]
            for name, many in read_json(store).items()
        }
    except (MetaXLMError, OSError, TypeError, AttributeError):
        return {}
