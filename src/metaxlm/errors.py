"""Errors that the user can fix, and the one line that describes each.

Everything a user can get wrong raises `MetaXLMError`. Failures of the system (a full disk, no
memory, a closed pipe) raise exceptions of Python and of libraries, which `describe_failure` turns
into one line. The command line prints the line and exits with code 2. Any other exception is a bug
and keeps its traceback.
"""

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MAX_CHARACTERS = 2_000


class MetaXLMError(Exception):
    """A mistake of the user, in one line: what was found, where, and how to fix it."""

    def __init__(self, message: str = "") -> None:
        if len(message) > _MAX_CHARACTERS:
            half = _MAX_CHARACTERS // 2
            message = f"{message[:half]} ... {message[-half:]}"
        super().__init__(message)


class UnmetError(MetaXLMError):
    """One of several processes cannot reach the others, so each reports its own error."""


class Diverged(MetaXLMError):
    """A training run diverged; others of the same experiment may succeed."""


class Interrupted(BaseException):
    """The user or the system requested a stop; not an `Exception`, which libraries may swallow."""


STREAMS = ("standard input", "standard output", "standard error")
"""Names of the streams in error messages, in place of a path."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RUST_ERROR = re.compile(r"\(os error (\d+)\)")  # as safetensors and tokenizers show it
_TORCH_WRITE = re.compile("PytorchStreamWriter|inline_container")
_TORCH_MEMORY = re.compile(
    "not enough memory|can't allocate memory|(CUDA|MPS backend) out of memory"
)
_FILE_ERRORS = (
    ("safetensors", "SafetensorError"), ("pyarrow", "ArrowException"), ("lzma", "LZMAError"),
    ("zlib", "error"),
)  # fmt: skip
"""Exceptions of libraries that mean a damaged or unwritable file."""


@contextmanager
def naming(
    path: Path | str, temporary: Path | None = None, *, size: int | None = None
) -> Iterator[None]:
    """Add the path, and the `size` that the body writes, to exceptions that name none.

    Paths below `temporary` are replaced by those below `path`.
    """
    try:
        yield
    except Exception as error:
        found = _find_path(error)
        # Errors of `shutil.rmtree` have only the name of an entry.
        is_entry = found == Path(found or "").name and not isinstance(error, FileNotFoundError)
        if found is None or (is_entry and not os.path.lexists(found)):
            _set_path(error, str(path))
        elif temporary is not None and Path(found).is_relative_to(temporary):
            _set_path(error, str(Path(path, Path(found).relative_to(temporary))))
        if size is not None and _find_path(error) == str(path):
            error.size_bytes = size  # type: ignore[attr-defined]
        raise


def _find_path(error: BaseException) -> str | None:
    """Return the path that an exception names; of a renaming, the new one."""
    for name in ("filename2", "filename", "path"):
        value = getattr(error, name, None)
        if isinstance(value, str | bytes | os.PathLike):
            return os.fsdecode(value)
    return None


def _set_path(error: BaseException, path: str) -> None:
    # An OSError without a number would show its path instead of its message.
    if isinstance(error, OSError) and error.errno is not None:
        error.filename, error.filename2 = path, None
    else:
        error.path = path  # type: ignore[attr-defined]


def describe_failure(error: BaseException) -> str | None:
    """Return one line for a failure of the disk, the memory or the terminal; None for a bug."""
    place, text = _find_path(error), " ".join(str(error).split())
    if isinstance(error, MemoryError) or _is_of_torch(error, _TORCH_MEMORY):
        cause = f" ({text[:200]})" if text else ""
        return f"out of memory{cause}; use smaller batches or a machine with more memory"
    if (code := _find_code(error)) is not None:
        reason = os.strerror(code) if code in errno.errorcode else text
        if code in _FULL:
            reason += _describe_room(place, getattr(error, "size_bytes", None))
    elif isinstance(error, UnicodeEncodeError):
        wrong = error.object[error.start : error.end][:20]
        reason = f"{wrong!a} cannot be written in {error.encoding}"
    elif isinstance(error, OSError | EOFError) or _is_of_file(error):
        reason = text or type(error).__name__
    else:
        return None
    return f"{place}: {reason}" if place else reason


def _find_code(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    # tokenizers raises plain Exceptions.
    found = _RUST_ERROR.search(str(error))
    return int(found[1]) if found else None


def _is_of_torch(error: BaseException, pattern: re.Pattern[str]) -> bool:
    return isinstance(error, RuntimeError) and pattern.search(str(error)) is not None


def _is_of_file(error: BaseException) -> bool:
    # An exception of a library that is not imported cannot have been raised.
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in _FILE_ERRORS)
    is_known = any(kind is not None and isinstance(error, kind) for kind in kinds)
    return is_known or _is_of_torch(error, _TORCH_WRITE)


def _describe_room(place: str | None, size: int | None) -> str:
    """Return how much space is needed and free; what was half written has been removed by now."""
    facts = [] if size is None else [f"{size:,} bytes needed"]
    if place is not None and place not in STREAMS:
        folder = Path(place).absolute()
        with suppress(OSError):
            while not folder.exists():
                folder = folder.parent
            facts.append(f"{shutil.disk_usage(folder).free:,} bytes free")
    room = f" ({', '.join(facts)})" if facts else ""
    return f"{room}; free space and start again"
