"""Byte streams of input files, whatever they are compressed with.

Comes in: a file whose name ends in `.gz`, `.bz2`, `.xz`, `.zst` or anything else (plain). Goes out:
a buffered stream of its uncompressed bytes. Files of several streams (multistream dumps, pbzip2,
concatenated gzip or zstd) are read to their end. What is misnamed, damaged or cut short is a
`MetaXLMError`; it is never taken for a shorter file.
"""

from __future__ import annotations

import bz2
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol, cast

from metaxlm.data.documents import Advance
from metaxlm.errors import MetaXLMError

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
"""Endings of compressed files."""

_MAGIC = {
    ".gz": re.compile(rb"\x1f\x8b\x08"),
    ".bz2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    ".xz": re.compile(rb"\xfd7zXZ\x00"),
    ".zst": re.compile(rb"(?s)\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
_HEAD_BYTES = 10
_CHUNK_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 20


def open_stream(
    path: Path, advance: Advance | None = None, start: int = 0, stop: int | None = None
) -> IO[bytes]:
    """Open a file for reading, uncompressed by its ending.

    `advance` is told the bytes of the file as they are read. `start` and `stop` bound what is read
    of the file; in a compressed file `start` must be the start of a compressed stream.
    """
    compression = find_compression(path)
    _check_head(path, compression)
    file = _RawFile(path, advance, start, stop)
    stream: io.RawIOBase = file
    if compression == ".zst":
        stream = _ZstdStream(path, file)
    elif compression is not None:
        stream = _InflatedStream(path, file, _DECODERS[compression])
    return io.BufferedReader(stream, _BUFFER_BYTES)


def find_compression(path: Path) -> str | None:
    """Return which of `COMPRESSIONS` the name ends in, or None for a plain file."""
    return path.suffix if path.suffix in COMPRESSIONS else None


class Meter:
    """Passes bytes on to `advance` and keeps the total at exactly the size of the split.

    A split may read past its end, to finish its last record, and may leave bytes of the file
    unread, such as a footer.
    """

    def __init__(self, advance: Advance, size: int) -> None:
        self._advance = advance
        self._left = size

    def add(self, num_bytes: int) -> None:
        """Tell that so many more bytes were read."""
        counted = min(num_bytes, self._left)
        if counted > 0:
            self._left -= counted
            self._advance(counted)

    def finish(self) -> None:
        """Tell that the split is read."""
        self.add(self._left)


def _check_head(path: Path, compression: str | None) -> None:
    """Refuse a file whose first bytes are not what its ending says."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise MetaXLMError(f"{path}: cannot be opened ({error.strerror})") from error
    found = next((ending for ending, magic in _MAGIC.items() if magic.match(head)), None)
    if found == compression:
        return
    if not head:
        raise MetaXLMError(f"{path}: empty, so damaged or cut short; fetch or write it again")
    if found is None:
        raise MetaXLMError(
            f"{path}: not {compression} data (it starts with {head[:4]!r}); damaged or cut short, "
            "or misnamed: rename it, or fetch it again"
        )
    shown = path.name.removesuffix(compression or "") + found
    raise MetaXLMError(f"{path}: {found} data under another ending; rename it to {shown}")


class _RawFile(io.RawIOBase):
    """The bytes of a file from `start` to `stop`, counted as they are read."""

    def __init__(self, path: Path, advance: Advance | None, start: int, stop: int | None) -> None:
        self._path = path
        self._advance = advance
        self._left = stop - start if stop is not None else None
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
            os.lseek(self._descriptor, start, os.SEEK_SET)
        except OSError as error:
            raise MetaXLMError(f"{path}: cannot be opened ({error.strerror})") from error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        if self._left is not None:
            view = view[: self._left]
        try:
            num_bytes = os.readv(self._descriptor, [view])
        except OSError as error:
            raise MetaXLMError(f"{self._path}: cannot be read ({error.strerror})") from error
        if self._left is not None:
            self._left -= num_bytes
        if self._advance is not None and num_bytes:
            self._advance(num_bytes)
        return num_bytes

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class _Decoder(Protocol):
    """What the decompressors of `bz2` and `lzma` have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _GzipDecoder:
    """zlib's decompressor, which keeps its unread input outside, in the shape of the others."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = 0) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    ".gz": _GzipDecoder,
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
}


def _damaged(path: Path, error: Exception) -> MetaXLMError:
    return MetaXLMError(
        f"{path}: cannot be read to its end ({error}); damaged or cut short: fetch it again"
    )


class _InflatedStream(io.RawIOBase):
    """The streams of a compressed file, one after the other.

    Python's own `BZ2File` and `LZMAFile` stop without a word at the first stream whose header is
    damaged, as if the file ended there; here it is an error.
    """

    def __init__(self, path: Path, file: io.RawIOBase, new_decoder: Callable[[], _Decoder]) -> None:
        self._path = path
        self._file = file
        self._new_decoder = new_decoder
        self._decoder = new_decoder()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._read(len(buffer))
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise _damaged(self._path, error) from error
        buffer[: len(data)] = data
        return len(data)

    def _read(self, max_length: int) -> bytes:
        """Return some uncompressed bytes; none at the end of the file."""
        while True:
            given = b""
            if self._decoder.eof:
                given = self._start_next_stream()
                if not given:
                    return b""
            elif self._decoder.needs_input:
                given = self._read_chunk()
                if not given:
                    raise EOFError("the compressed data ends in the middle")
            if data := self._decoder.decompress(given, max_length):
                return data

    def _start_next_stream(self) -> bytes:
        """Return the first bytes of the next stream; xz and gzip files may be padded with zeros."""
        data = self._decoder.unused_data.lstrip(b"\0")
        while not data:
            chunk = self._read_chunk()
            if not chunk:
                return b""
            data = chunk.lstrip(b"\0")
        self._decoder = self._new_decoder()
        return data

    def _read_chunk(self) -> bytes:
        return cast(bytes, self._file.read(_CHUNK_BYTES))

    def close(self) -> None:
        self._file.close()
        super().close()


class _ZstdStream(io.RawIOBase):
    """A zstd file of any number of frames, through pyarrow's codec.

    The `zstandard` package takes a file that is cut in the middle of a frame for a shorter one;
    pyarrow tells, and is needed for parquet anyway.
    """

    def __init__(self, path: Path, file: io.RawIOBase) -> None:
        import pyarrow  # imported here: it takes a while, and few corpora are zstd

        self._path = path
        self._file = file
        self._stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return cast(int, self._stream.readinto(buffer))
        except OSError as error:
            raise _damaged(self._path, error) from error

    def close(self) -> None:
        self._stream.close()
        self._file.close()
        super().close()
