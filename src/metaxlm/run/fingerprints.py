"""Detect changes of the user's files by size and modification time, and by content if in doubt.

A stage or job runs again when one of its input files changed. A download or a plain copy changes
only the modification time, so the run folder stores digests (`inputs.json`): if a file has its old
size and a new time, its content is compared, and an unchanged file keeps its fingerprint.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from metaxlm.digests import require_whole, write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file, dump_json, read_json, walk_files
from metaxlm.progress import say

FILE_NAME = "inputs.json"
_WORTH_SAYING = 2_000_000_000  # log a message before computing digests of at least this many bytes


@dataclass(frozen=True)
class _Entry:
    size: int
    time: int  # modification time when this content was first seen; part of the fingerprint
    seen: int  # modification time when this content was last seen
    sha256: str

    def matches(self, size: int, time: int) -> bool:
        return self.size == size and time in (self.time, self.seen)


class FileFingerprints:
    """Fingerprints of the user's files that the results in a folder depend on."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read the entries stored in a folder; without one, use size and time only."""
        self._store = None if folder is None else folder / FILE_NAME
        self._entries = {} if self._store is None else _read(self._store)
        self._undigested: dict[str, tuple[Path, int, int]] = {}
        self._changed: dict[str, _Entry] = {}

    def get(self, path: Path, folder: Path, what: str) -> list[Any]:
        """Return `[place in folder, size, time]`; `what` distinguishes folders with equal names."""
        status, place = path.stat(), _find_place(path, folder)
        size, time, name = status.st_size, status.st_mtime_ns, f"{what}: {place}"
        entry, facts = self._entries.get(name), (path, size, time)
        if entry is not None and entry.matches(size, time):
            return [place, size, entry.time]
        is_new = self._undigested.get(name) != facts
        if entry and entry.size == size and is_new and entry.sha256 == digest_file(path):
            self._update(name, _Entry(size, entry.time, time, entry.sha256))
            return [place, size, entry.time]
        self._undigested[name] = facts
        return [place, size, time]

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
            name: facts
            for name, facts in self._undigested.items()
            if name not in stored or not stored[name].matches(*facts[1:])
        }
        if (total := sum(size for _, size, _ in new.values())) >= _WORTH_SAYING:
            say(f"inputs: computing digests of {len(new)} files, {total / 1e9:,.1f} GB")
        with ThreadPoolExecutor() as pool:
            digests = pool.map(digest_file, (path for path, _, _ in new.values()))
            for (name, (_, size, time)), digest in zip(new.items(), digests, strict=True):
                self._update(name, _Entry(size, time, time, digest))
        entries = sorted((stored | self._changed).items())
        text = dump_json({name: asdict(entry) for name, entry in entries})
        write_listed(self._store.parent, self._store.name, text)
        self._undigested.clear()
        self._changed.clear()

    def _update(self, name: str, entry: _Entry) -> None:
        self._entries[name] = self._changed[name] = entry


def _find_place(path: Path, folder: Path) -> str:
    for inner, outer in ((path, folder), (path.resolve(), folder.resolve())):
        if inner.is_relative_to(outer):
            return inner.relative_to(outer).as_posix()
    return str(path.resolve())


def _read(store: Path) -> dict[str, _Entry]:
    if store.is_file():
        require_whole(store)
    try:
        return {name: _Entry(**facts) for name, facts in read_json(store).items()}
    except (MetaXLMError, OSError, TypeError, AttributeError):
        return {}
