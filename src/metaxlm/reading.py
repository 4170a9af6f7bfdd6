"""Limits and errors of everything that reads files.

A reader holds one record at a time, and a record has a limit. Parsers run inside `reading`, which
turns the exceptions that damaged data can cause into a `MetaXLMError`; any other one is a bug.
"""

import json
import lzma
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, AnyStr, BinaryIO

import yaml

from metaxlm.errors import MetaXLMError

MAX_RECORD_BYTES = 32 << 20
"""Longest line of a corpus, page of a dump, row of a table, and JSON document in a packed file."""
MAX_TEXT_BYTES = 4 << 20  # longest line that a model reads; a book has about a megabyte
MAX_DOCUMENT_BYTES = 1 << 30  # largest file that is read whole, such as a JSON file of questions
MAX_JSON_VALUES = 4_000_000  # of a JSON record; each takes up to 65 bytes of memory
_USUAL = (OSError, EOFError, UnicodeError, RecursionError, lzma.LZMAError, zlib.error)
_MAX_CHARACTERS, _MAX_VALUES, _MAX_DEPTH = 1 << 20, 100_000, 50  # of YAML
_MAX_DIGITS = 300  # of a whole number in JSON; longer ones exceed every float


@contextmanager
def reading(
    path: Path | str, *kinds: type[Exception], fix: str = "restore it or fetch it again"
) -> Iterator[None]:
    """Turn the exceptions of damaged data into a `MetaXLMError`; `kinds` are those of a library."""
    caught: tuple[type[Exception], ...] = (*_USUAL, *kinds)
    try:
        yield
    except FileNotFoundError as error:
        raise MetaXLMError(f"{path}: no such file") from error
    except caught as error:
        raise MetaXLMError(f"{path}: cannot be read ({tell_reason(error)}); {fix}") from error


def tell_reason(error: BaseException) -> str:
    """Return the first line of an exception's message, or its kind if it has none."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def open_file(path: Path) -> BinaryIO:
    """Open a regular file; a folder, a pipe or a device is an error."""
    with reading(path, fix="check the path and its permissions"):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise MetaXLMError(f"{path}: a folder; give a file")
        if not stat.S_ISREG(mode):
            raise MetaXLMError(
                f"{path}: a pipe or a device; give a file, or `-` where standard input is read"
            )
        return path.open("rb")


def read_bytes(path: Path) -> bytes:
    """Read a whole file of at most `MAX_DOCUMENT_BYTES`."""
    with open_file(path) as file, reading(path):
        size = path.stat().st_size
        if size > MAX_DOCUMENT_BYTES:
            raise MetaXLMError(
                f"{path}: {size:,} bytes, but this file is read whole and may have "
                f"{MAX_DOCUMENT_BYTES:,}; split it"
            )
        return file.read()


def read_record(stream: IO[bytes], path: Path) -> bytes:
    """Read the content of a packed file, at most `MAX_RECORD_BYTES`."""
    data = stream.read(MAX_RECORD_BYTES + 1)
    if len(data) > MAX_RECORD_BYTES:
        raise MetaXLMError(
            f"{path}: unpacks to more than {MAX_RECORD_BYTES:,} bytes; restore it or fetch it again"
        )
    return data


def read_lines(
    stream: IO[bytes], name: Path | str, most: int = MAX_RECORD_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers and lines with their ends; a line above `most` bytes is an error."""
    number = 0
    with reading(name):
        while line := stream.readline(most + 2):
            number += 1
            if len(line.rstrip(b"\r\n")) > most:
                raise MetaXLMError(
                    f"{name}:{number}: the line has more than {most:,} bytes, the limit; is this "
                    "a text file with one record per line?"
                )
            yield number, line


def decode_text(data: bytes, path: Path, *, keep_mark: bool = False, first_line: int = 1) -> str:
    """Decode UTF-8 without a byte order mark; `first_line` is the line number of the first byte."""
    try:
        return data.decode("utf-8" if keep_mark or first_line > 1 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + first_line
        raise MetaXLMError(
            f"{path}:{line}: not UTF-8 (byte 0x{data[error.start]:02X}); convert it with iconv"
        ) from error


def decode_line(number: int, line: bytes, name: Path | str) -> str:
    """Decode a line of a UTF-8 file without its end; LF and CRLF both end a line."""
    if b"\0" in line:
        raise MetaXLMError(
            f"{name}:{number}: NUL characters, as in UTF-16; convert the file to UTF-8 with iconv"
        )
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise MetaXLMError(
            f"{name}:{number}: not UTF-8 (byte 0x{line[error.start]:02X}); convert it with iconv"
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def json_loads(text: str, where: str, *, is_line: bool = False) -> Any:
    """Parse JSON; `where` is the file, or with `is_line` the whole place, for error messages."""
    if has_too_many_values(text):
        raise MetaXLMError(f"{where}: JSON with more than {MAX_JSON_VALUES:,} values; split it")
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        place = where if is_line else f"{where}:{error.lineno}"
        raise MetaXLMError(
            f"{place}: not valid JSON ({error.msg}); restore the file or delete it"
        ) from error
    except UnicodeEncodeError as error:
        found = f"\\u{ord(error.object[error.start]):04x}"
        raise MetaXLMError(f"{where}: {found} is half a character; restore the text") from error
    except _LongNumberError as error:
        raise MetaXLMError(f"{where}: {error}; restore the file") from error
    except RecursionError as error:
        raise MetaXLMError(f"{where}: JSON that is nested too deeply; restore the file") from error
    return value


def has_too_many_values(text: AnyStr) -> bool:
    """Return whether a JSON record (not a larger document) takes much more memory than its text."""
    if not MAX_JSON_VALUES < len(text) <= MAX_RECORD_BYTES:
        return False
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    return sum(map(data.count, (b"[", b"{", b","))) > MAX_JSON_VALUES


class _LongNumberError(Exception):
    """A whole number with too many digits."""


def _parse_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _LongNumberError(f"a number of {len(digits):,} digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_parse_int)


class _Loader(yaml.SafeLoader):
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth > _MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def parse_yaml(text: str, where: str) -> tuple[yaml.Node | None, Any]:
    """Parse YAML; return its node, which has line numbers, and its value."""
    if len(text) > _MAX_CHARACTERS:
        size = f"{len(text):,} characters of YAML"
        raise MetaXLMError(f"{where}: {size}, the limit is {_MAX_CHARACTERS:,}")
    try:
        node = _Loader(text).get_single_node()
        _check_size(node, where)
        return node, _Loader(text).get_single_data()  # which merges `<<` into its nodes
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise MetaXLMError(f"{where}{line}: not valid YAML ({problem})") from error
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, OverflowError) as error:
        # Raised by the library for a misplaced tag such as !!bool, or for an invalid date.
        why = f"a value that YAML cannot read ({tell_reason(error)})"
        raise MetaXLMError(f"{where}: {why}; quote it") from error


def _check_size(node: yaml.Node | None, where: str) -> None:
    """Reject aliases that expand a short file to a huge or infinite value."""
    stack = [] if node is None else [(node, 0)]
    num_values = 0
    while stack:
        one, depth = stack.pop()
        num_values += 1
        if depth > _MAX_DEPTH or num_values > _MAX_VALUES:
            raise MetaXLMError(
                f"{where}:{one.start_mark.line + 1}: YAML with aliases that give more than "
                f"{_MAX_DEPTH} levels or {_MAX_VALUES:,} values; write less of it"
            )
        if isinstance(one, yaml.MappingNode):
            stack += [(part, depth + 1) for pair in one.value for part in pair]
        elif isinstance(one, yaml.SequenceNode):
            stack += [(part, depth + 1) for part in one.value]
