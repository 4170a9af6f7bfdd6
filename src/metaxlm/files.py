"""Atomic writes, digests, JSON, locks.

A file or folder is written beside its final path under a temporary name, flushed to the disk and
renamed, so that nothing half-written appears under a final name. A crash leaves at most a
`.tmp-metaxlm-*` entry, which the next write to the same path removes.
"""

import ctypes
import errno
import hashlib
import json
import lzma
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from metaxlm.errors import MetaXLMError, naming
from metaxlm.locks import IS_POSIX, lock
from metaxlm.reading import decode_text, json_loads, read_bytes, read_record
from metaxlm.streams import open_stream

TEMPORARY_PREFIX = ".tmp-metaxlm-"  # of every unfinished file or folder
_REPLACED = f"{TEMPORARY_PREFIX}replaced-"  # of a folder while a new one takes its place
_LOCK = f"{TEMPORARY_PREFIX}lock-"  # of a file that is locked in place of a temporary
PACKED = ".xz"  # ending of a text file that is stored compressed
STANDARD = "-"  # the standard input or output in place of a file name
LONGEST_NAME = 100  # bytes of a file name
_FORBIDDEN = frozenset("/\\" if IS_POSIX else '/\\<>:"|?*')
_PREPARATION_S = 20.0  # for the first of several processes to sweep a shared folder
_TOKEN_BYTES = 4
_UMASK = os.umask(0)  # it can only be read by setting it
os.umask(_UMASK)


def _sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    if not IS_POSIX and path.is_dir():
        return  # Windows cannot open a folder
    descriptor = os.open(path, os.O_RDONLY if IS_POSIX else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(final: Path) -> Iterator[Path]:
    """Yield a temporary file beside `final`; on success flush it and rename it to `final`."""
    check_file_target(final)
    final = follow_link(final)
    with temporary_beside(final, folder=False) as temporary:
        yield temporary
        finish(temporary)
        temporary.replace(final)
        _sync(final.parent)


def follow_link(path: Path) -> Path:
    """Return the target of a symbolic link, so that the link itself is not replaced."""
    return path.resolve() if path.is_symlink() else path


def check_file_output(output: Path | str | None, *inputs: Path | str | None) -> None:
    """Raise an error if a file cannot be written, or if it is an input; before any work starts."""
    check_output(output, inputs)
    if output is not None and output != STANDARD:
        check_file_target(Path(output))


def check_file_target(path: Path) -> None:
    """Raise an error if a file cannot be written to a path because something else is there."""
    if path.is_dir():
        raise MetaXLMError(f"{path}: is a folder, cannot write a file there; add a file name")
    if path.exists() and not path.is_file():
        raise MetaXLMError(f"{path}: not a regular file; name a file, or - for standard output")


def check_output(output: Path | str | None, inputs: Iterable[Path | str | None]) -> None:
    """Raise an error if an input is the output or is inside it."""
    if output is None or output == STANDARD:
        return
    target = Path(output).expanduser().resolve()
    for source in inputs:
        if source is None or source == STANDARD:
            continue
        path = Path(source).expanduser().resolve()
        if path.is_relative_to(target):
            found = "is also an input" if path == target else f"contains the input {source}"
            raise MetaXLMError(f"{output}: {found}; choose another output")


@lru_cache(maxsize=4096)
def check_name(name: str, what: str) -> str:
    """Return a name that becomes a file name; raise an error if it could leave its folder."""
    if (
        not name.strip(". ")
        or name.startswith(".")
        or any(c in _FORBIDDEN or not c.isprintable() for c in name)
        or len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME
    ):
        raise MetaXLMError(
            f"{what} {name[:120]!r}: cannot be a file name; use at most {LONGEST_NAME} bytes "
            f"without slashes or control characters{'' if IS_POSIX else ' or <>:|?*'}, not "
            "beginning with a dot"
        )
    return name


@contextmanager
def temporary_beside(final: Path, *, folder: bool) -> Iterator[Path]:
    """Create a file or folder beside `final` under a temporary name; remove it at the end."""
    # It is locked while its writer lives, to distinguish it from leftovers of killed processes.
    with naming(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        restore_replaced(final)
    for prefix in (TEMPORARY_PREFIX, _REPLACED, _LOCK):
        for leftover in _list_temporaries(final, prefix):
            if not _is_locked(leftover):
                remove(leftover)
    with naming(final):
        temporary, descriptor = _create_locked(final, folder)
    try:
        with naming(final, temporary):
            yield temporary
    finally:
        os.close(descriptor)
        for path in {temporary, _find_lock(temporary)}:
            with suppress(OSError):
                remove(path)


def finish(temporary: Path) -> None:
    """Give files the modes of the user's umask, and flush everything to the disk."""
    for path in [*temporary.rglob("*"), temporary] if temporary.is_dir() else [temporary]:
        if path.is_file():  # safetensors creates files that only their owner can read
            path.chmod(0o666 & ~_UMASK)
        _sync(path)


def replace_folder(temporary: Path, final: Path) -> None:
    """Rename a finished folder to its final name; exchange and remove an existing one."""
    if not final.is_dir():
        temporary.rename(final)
    elif not _exchange(temporary, final):
        replaced = _name_temporary(final, _REPLACED)
        final.rename(replaced)
        try:
            temporary.rename(final)
        except OSError:
            replaced.rename(final)
            raise
        remove(replaced)
    _sync(final.parent)


def restore_replaced(final: Path) -> None:
    """Undo a replacement that was interrupted after the old folder had been renamed."""
    if not final.exists():
        for replaced in _list_temporaries(final, _REPLACED)[-1:]:
            replaced.rename(final)


def sweep(folder: Path) -> None:
    """Remove all temporaries below a folder that no other process uses; finish replacements."""
    for leftover in sorted(folder.rglob(f"{TEMPORARY_PREFIX}*")):
        if leftover.name.startswith(_REPLACED):
            restore_replaced(leftover.with_name(leftover.name[_start(_REPLACED) :]))
        if not _is_locked(leftover):
            remove(leftover)


def _name_temporary(final: Path, prefix: str) -> Path:
    return final.with_name(f"{prefix}{secrets.token_hex(_TOKEN_BYTES)}-{_shorten(final)}")


def _shorten(final: Path) -> str:
    """Return a name that leaves room for a prefix, with the same suffix."""
    if len(final.name.encode()) <= 200:
        return final.name
    return hashlib.sha256(final.name.encode()).hexdigest() + final.suffix[-50:]


def _start(prefix: str) -> int:
    return len(prefix) + 2 * _TOKEN_BYTES + 1


def _list_temporaries(final: Path, prefix: str) -> list[Path]:
    if not final.parent.is_dir():
        return []
    start = _start(prefix)
    names = [entry.name for entry in os.scandir(final.parent) if entry.name.startswith(prefix)]
    found = [final.with_name(name) for name in names if name[start:] == _shorten(final)]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def _create_locked(final: Path, folder: bool) -> tuple[Path, int]:
    """Create a temporary and lock it; try again if another process removed it in between."""
    while True:
        temporary = _name_temporary(final, TEMPORARY_PREFIX)
        place = _find_lock(temporary)
        if folder and place == temporary:
            temporary.mkdir()
            descriptor = os.open(temporary, os.O_RDONLY)
        else:
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # a file system without locks, or another process is removing it
            lock(descriptor)
        if place != temporary:
            temporary.mkdir() if folder else temporary.touch()
        if temporary.exists():
            return temporary, descriptor
        os.close(descriptor)


def _find_lock(temporary: Path) -> Path:
    """Return what is locked while a temporary is written; a temporary of Windows has a lock file.

    There an open file cannot be renamed, and a folder cannot be locked.
    """
    if IS_POSIX or temporary.name.startswith(_LOCK):
        return temporary
    return temporary.with_name(_LOCK + temporary.name.removeprefix(TEMPORARY_PREFIX))


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(_find_lock(path), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        lock(descriptor)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; return False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):  # of Windows
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(other))


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
    shutil.copytree(
        source, target, copy_function=lambda *names: link(*map(Path, names)), dirs_exist_ok=True
    )


def walk_files(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted; also those behind links, but not in a circle."""
    found = []
    for name, folders, files in os.walk(folder, followlinks=True):
        place = Path(name)
        real = place.resolve()
        folders[:] = [one for one in folders if not real.is_relative_to((place / one).resolve())]
        found += [path for file in files if (path := place / file).is_file()]
    return sorted(found)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def dump_json(value: Any) -> str:
    """Return a value as JSON that a person can read."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, readable by a person."""
    write_text(path, dump_json(value))


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or broken one is a clear error."""
    return json_loads(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a UTF-8 text file; a missing, unreadable or differently encoded one is a clear error."""
    if path.suffix != PACKED:
        return decode_text(read_bytes(path), path, keep_mark=True)
    with open_stream(path) as stream:
        return decode_text(read_record(stream, path), path, keep_mark=True)


def find_packed(path: Path) -> Path:
    """Return a file, or its compressed form where only that is there."""
    packed = path.with_name(path.name + PACKED)
    return packed if packed.is_file() and not path.is_file() else path


def pack(text: str, target: Path) -> None:
    """Write a compressed text for `read_text`; the same text gives the same bytes."""
    target.write_bytes(lzma.compress(text.encode("utf-8"), preset=9))


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
    """Lock a folder for this process; a second process gets an error."""
    with _open_lock(folder) as file:
        _lock(folder, file, shared=False)
        _sign(file)
        yield


@contextmanager
def shared_folder(folder: Path, prepare: Callable[[], None]) -> Iterator[None]:
    """Lock a folder with other processes; the first runs `prepare`, and the others wait for it."""
    with _open_lock(folder) as file:
        try:
            lock(file.fileno())
        except BlockingIOError:
            deadline = time.monotonic() + _PREPARATION_S
            while time.monotonic() < deadline:
                with suppress(BlockingIOError):
                    lock(file.fileno(), shared=True)
                    break
                time.sleep(0.05)
        else:
            _sign(file)
            prepare()
        _lock(folder, file, shared=True)
        yield


def _sign(file: TextIO) -> None:
    with naming(file.name):
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()


def _open_lock(folder: Path) -> TextIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise MetaXLMError(
            f"{folder}: cannot be written ({error.strerror}); choose another --output"
        ) from error


def _lock(folder: Path, file: TextIO, *, shared: bool) -> None:
    try:
        lock(file.fileno(), shared=shared)
    except BlockingIOError as error:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        raise MetaXLMError(
            f"{folder}: in use by process {owner}; wait for it, or choose another --output"
        ) from error


@contextmanager
def open_output(target: str) -> Iterator[TextIO]:
    """Open a text file that appears when it is complete, or the standard output for `-`."""
    if target == STANDARD:
        try:
            with naming("standard output"):
                yield sys.stdout
                sys.stdout.flush()
        except BrokenPipeError:
            # The reader closed it; Python must not fail again when it closes the stream.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    with (
        atomic_file(Path(target)) as temporary,
        temporary.open("w", encoding="utf-8", newline="\n") as file,
    ):
        yield file


def get_standard_input() -> BinaryIO:
    """Return the standard input as bytes; a closed one is a clear error."""
    if sys.stdin is None or getattr(sys.stdin, "closed", False):
        raise MetaXLMError("standard input: closed; name a file, or pipe text into the command")
    return sys.stdin.buffer
