"""Check that files are as metaxlm wrote them, before anything is computed from them.

Three kinds of sealed lists hold sizes and SHA-256 digests: `manifest.json` (a shard, a vocabulary,
a checkpoint, a model), `.stage.json` (the output of a stage, the files beside its checkpoints) and
`digests.json` (the files of a run's root, which are written more than once). A file that no list
names passes: most folders that a user names were not written by metaxlm.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json, write_json, write_text
from metaxlm.locks import lock
from metaxlm.manifest import MANIFEST, MARKER, check_file, read_sealed, write_sealed
from metaxlm.progress import say

DIGESTS = "digests.json"
CARD = "README.md"
_PROSE = (CARD, "data_notes.txt")  # nothing is computed from these: only `verify` checks them
_LARGE = 64_000_000  # bytes from which on a digest is remembered for later commands
_WORTH_SAYING = 2_000_000_000  # bytes from which on a message comes before reading
_SETTLED_NS = 2_000_000_000  # a file that changed more recently may change and keep its time

Facts = Mapping[str, Any]
Listed = dict[Path, Facts]  # size and digest of each file that should be there


def read_list(path: Path, *, nested: bool = False) -> Listed:
    """Return the files that a sealed list names; none for the marker of unfinished work.

    Of files below a manifest of their own, a marker has only the sizes; `nested` adds the digests.
    """
    files = read_sealed(path).get("files", {})
    listed: Listed = {path.parent / name: facts for name, facts in files.items()}
    for manifest in [other for other in listed if nested and other.name == MANIFEST]:
        listed |= read_list(manifest)
    return listed


def check_listed(
    path: Path, facts: Facts, check: Callable[[Path, Facts], str | None] = check_file
) -> str | None:
    """Return what is wrong with a file, which may still have the content before the last write."""
    problem = check(path, facts)
    if problem is not None and facts.get("earlier") and check(path, facts["earlier"]) is None:
        return None
    return problem


def find_damaged(listed: Listed) -> dict[Path, str]:
    """Return what is wrong with listed files. A large file that did not change is read once."""
    unread = sum(facts["bytes"] for path, facts in listed.items() if not _is_known(path, facts))
    if unread >= _WORTH_SAYING:
        say(f"checking {unread / 1e9:,.1f} GB in {os.path.commonpath(listed)}")
    with ThreadPoolExecutor() as pool:
        problems = pool.map(lambda path: check_listed(path, listed[path], _check_once), listed)
        return {path: what for path, what in zip(listed, problems, strict=True) if what}


def require_whole(path: Path, fix: str | None = None) -> None:
    """Raise an error if a file or folder differs from what metaxlm wrote; ignore unlisted ones."""
    path = path.absolute()
    for folder in (path, *path.parents):
        for record in (folder / MARKER, folder / MANIFEST, folder / DIGESTS):
            if not _is_ours(record):
                continue
            spoiled = record if record.name == DIGESTS else folder
            again = fix or f"delete {spoiled} and run again what made it"
            try:
                every = read_list(record, nested=True)
            except MetaXLMError as error:
                raise MetaXLMError(f"{error}; {again}") from error
            listed = {
                file: facts
                for file, facts in every.items()
                if file == path or (path in file.parents and file.name not in _PROSE)
            }
            if damaged := find_damaged(listed):
                file, what = next(iter(damaged.items()))
                again = again.replace(str(record), str(file))
                raise MetaXLMError(f"{file}: {what}; {again}")
            if listed:
                return


def write_listed(folder: Path, name: str, text: str) -> None:
    """Write a text file and its digest into the folder's list: its marker, else `digests.json`.

    A kill between the two writes does not look like damage: a new file is written before the list,
    and for a changed file the list is written first and keeps the earlier digest.
    """
    record = folder / (MARKER if (folder / MARKER).is_file() else DIGESTS)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(record):
        value = read_sealed(record) if record.is_file() else {}
        files: dict[str, dict[str, Any]] = value.setdefault("files", {})
        earlier = {key: files[name][key] for key in ("bytes", "sha256")} if name in files else None
        content = text.encode("utf-8")
        files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        if earlier is None:
            write_text(folder / name, text)
        elif earlier != files[name]:
            files[name]["earlier"] = earlier
        write_sealed(record, value)
        if earlier is not None:
            write_text(folder / name, text)


@contextmanager
def _locked(record: Path) -> Iterator[None]:
    """Let one process at a time change `digests.json`; a marker has one writer."""
    if record.name != DIGESTS:
        yield
        return
    with record.with_name(f".lock-{DIGESTS}").open("ab") as file:
        lock(file.fileno(), wait=True)
        yield


def _is_ours(record: Path) -> bool:
    """Return whether a list is of metaxlm; other programs write a `manifest.json`, too."""
    return record.is_file() and (record.name != MANIFEST or b'"seal"' in record.read_bytes())


# Digests that were compared: by path, the file's size and times and the digest.
_known: dict[str, list[Any]] = {}
_writing = Lock()


def _check_once(path: Path, facts: Facts) -> str | None:
    """Do what `check_file` does, but do not read a file again that did not change."""
    if _is_known(path, facts):
        return None
    entry = _make_entry(path, facts)
    problem = check_file(path, facts)
    if problem is None and time.time_ns() - max(entry[1:3]) > _SETTLED_NS:
        key = str(path.absolute())
        _known[key] = entry
        if facts["bytes"] >= _LARGE:
            _remember(key, entry)
    return problem


def _is_known(path: Path, facts: Facts) -> bool:
    entry, key = _make_entry(path, facts), str(path.absolute())
    if key not in _known and facts["bytes"] >= _LARGE:
        for name, value in _read_cache().items():
            _known.setdefault(name, value)
    return _known.get(key) == entry


def _make_entry(path: Path, facts: Facts) -> list[Any]:
    try:
        status = path.stat()
    except OSError:
        return [0, 0, 0, ""]
    times = status.st_mtime_ns, status.st_ctime_ns
    return [status.st_size, *times, facts.get("sha256"), facts["bytes"]]


def _find_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "metaxlm" / DIGESTS


def _read_cache() -> dict[str, list[Any]]:
    try:
        found = read_json(_find_cache())
    except (MetaXLMError, OSError, RuntimeError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(key: str, entry: list[Any]) -> None:
    """Keep a digest for later commands, if the cache can be written; forget files that are gone."""
    with suppress(OSError, RuntimeError), _writing:
        kept = {name: value for name, value in _read_cache().items() if Path(name).is_file()}
        write_json(_find_cache(), kept | {key: entry})
