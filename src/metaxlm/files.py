"""One door for files: atomic writes, digests, JSON, locks.

Nothing half-written is ever seen under a final name: a file or folder is written beside its final
place under a temporary name, flushed to the disk, and renamed. A crash leaves at most a
`.tmp-*` entry, which the next start removes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import lzma
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from metaxlm.errors import MetaXLMError, naming

TEMPORARY_PREFIX = ".tmp-"
PACKED = ".xz"
"""Ending of a text file that is stored compressed."""
STANDARD = "-"
"""Names the standard input or output where a file is asked for."""
_PREPARATION_S = 20.0
"""How long the first of several processes may take to sweep a folder they will share."""
_UMASK = os.umask(0)  # it can only be read by setting it
os.umask(_UMASK)


def sync_tree(path: Path) -> None:
    """Flush a file, or a folder and all that is in it, to the disk."""
    children = [*path.rglob("*"), path] if path.is_dir() else [path]
    for child in children:
        descriptor = os.open(child, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _set_usual_modes(path: Path) -> None:
    """Give files the modes of the user's umask; safetensors keeps its own from everybody else."""
    files = [child for child in path.rglob("*") if child.is_file()] if path.is_dir() else [path]
    for file in files:
        file.chmod(0o666 & ~_UMASK)


def _rename_into_place(temporary: Path, final: Path) -> None:
    """Rename, replacing a folder that stands in the way, and flush the parent's entry."""
    if final.is_dir() and not final.is_symlink():
        discarded = final.with_name(f"{TEMPORARY_PREFIX}old-{final.name}")
        shutil.rmtree(discarded, ignore_errors=True)
        final.rename(discarded)
        temporary.rename(final)
        shutil.rmtree(discarded)
    else:
        temporary.replace(final)
    descriptor = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_path(final: Path) -> Iterator[Path]:
    """Yield a temporary path beside `final`; on success it is flushed and renamed to `final`.

    The caller creates either a file or a folder there. If the body raises, the temporary is removed
    and whatever stood at `final` is untouched.
    """
    temporary = final.with_name(f"{TEMPORARY_PREFIX}{final.name}")
    with naming(final, temporary):
        final.parent.mkdir(parents=True, exist_ok=True)
        remove(temporary)
        try:
            yield temporary
            _set_usual_modes(temporary)
            sync_tree(temporary)
            _rename_into_place(temporary, final)
        finally:
            remove(temporary)


def remove(path: Path) -> None:
    """Remove a file or a folder if it is there."""
    with naming(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def link(source: Path, target: Path) -> None:
    """Give a finished file a second name; where the file system cannot, copy it."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def link_tree(source: Path, target: Path) -> None:
    """Give all files of a finished folder a second name below another folder."""
    shutil.copytree(source, target, copy_function=_link_entry, dirs_exist_ok=True)


def _link_entry(source: str, target: str) -> None:
    link(Path(source), Path(target))


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def dump_json(value: Any) -> str:
    """Return a value as JSON that a person can read."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, readable by a person."""
    write_text(path, dump_json(value))


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or broken one is a clear error."""
    return json_loads(read_text(path), str(path))


def json_loads(text: str, where: str) -> Any:
    """Parse JSON and name the place when it is broken."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise MetaXLMError(
            f"{where}:{error.lineno}: not valid JSON ({error.msg}); restore the file or delete it"
        ) from error


def read_text(path: Path) -> str:
    """Read a UTF-8 text file; a missing, unreadable or differently encoded one is a clear error."""
    try:
        if path.suffix == PACKED:
            return lzma.decompress(path.read_bytes()).decode("utf-8")
        return path.read_text(encoding="utf-8")
    except lzma.LZMAError as error:
        raise MetaXLMError(f"{path}: damaged or cut off ({error}); copy it again") from error
    except FileNotFoundError as error:
        raise MetaXLMError(f"{path}: no such file") from error
    except UnicodeDecodeError as error:
        raise MetaXLMError(
            f"{path}: not UTF-8 at byte {error.start}; convert it with iconv"
        ) from error
    except OSError as error:
        raise MetaXLMError(f"{path}: cannot be read ({error.strerror})") from error


def find_packed(path: Path) -> Path:
    """Return a file, or its compressed form where only that is there."""
    packed = path.with_name(path.name + PACKED)
    return packed if packed.is_file() and not path.is_file() else path


def pack(text: str, target: Path) -> None:
    """Write a text compressed, as `read_text` reads it; the same text gives the same bytes."""
    target.write_bytes(lzma.compress(text.encode("utf-8"), preset=9))


def decode_text(data: bytes, path: Path) -> str:
    """Decode a file's UTF-8, with or without a byte order mark; name the line that is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise MetaXLMError(
            f"{path}:{line}: not UTF-8 (byte 0x{data[error.start]:02X}); convert it with iconv"
        ) from error


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_value(value: Any) -> str:
    """Return the SHA-256 of a JSON-like value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; a second process gets a clear error instead of a mess."""
    with _open_lock(folder) as lock:
        _lock_or_refuse(folder, lock, fcntl.LOCK_EX)
        _sign(lock)
        yield


@contextmanager
def shared_folder(folder: Path, prepare: Callable[[], None]) -> Iterator[None]:
    """Hold a folder together with other processes that share it; refuse one that does not.

    `prepare` runs while no other process is there: for the first one, and not for later ones.
    """
    with _open_lock(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _wait_for_preparation(lock)
        else:
            _sign(lock)
            prepare()
        _lock_or_refuse(folder, lock, fcntl.LOCK_SH)
        yield


def _wait_for_preparation(lock: TextIO) -> None:
    """Wait while somebody has the folder alone, but not for as long as a whole run takes."""
    deadline = time.monotonic() + _PREPARATION_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.05)


def _sign(lock: TextIO) -> None:
    with naming(lock.name):
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()


def _open_lock(folder: Path) -> TextIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / ".lock").open("a+")
    except OSError as error:
        raise MetaXLMError(
            f"{folder}: cannot be written ({error.strerror}); choose another --output"
        ) from error


def _lock_or_refuse(folder: Path, lock: TextIO, kind: int) -> None:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        raise MetaXLMError(
            f"{folder}: in use by process {owner}; wait for it, or choose another --output"
        ) from error


@contextmanager
def open_output(target: str) -> Iterator[TextIO]:
    """Open a text file that appears when it is whole, or the standard output for `-`."""
    if target == STANDARD:
        try:
            with naming("standard output"):
                yield sys.stdout
                sys.stdout.flush()
        except BrokenPipeError:
            # Its reader has enough; Python must not fail again when it closes the stream.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    with atomic_path(Path(target)) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


def get_standard_input() -> BinaryIO:
    """Return the standard input as bytes; a closed one is a clear error."""
    if sys.stdin is None:
        raise MetaXLMError("standard input: closed; name a file, or pipe text into the command")
    return sys.stdin.buffer
