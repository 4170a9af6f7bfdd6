"""Read files that may be compressed: `.gz`, `.bz2`, `.xz` and `.zst`.

Files of several streams (multistream dumps, pbzip2, concatenated gzip or zstd) are read to their
end. A misnamed, damaged or truncated file is an error; it is never read as a shorter file.
"""

import bz2
import io
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol, cast

from metaxlm.errors import MetaXLMError
from metaxlm.reading import open_file, reading

Advance = Callable[[int], None]  # receives the number of bytes that were read from the file

_MAGIC = {
    ".gz": re.compile(rb"\x1f\x8b\x08"),
    ".bz2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    ".xz": re.compile(rb"\xfd7zXZ\x00"),
    ".zst": re.compile(rb"(?s)\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
COMPRESSIONS = tuple(_MAGIC)  # endings of compressed files
_HEAD_BYTES, _CHUNK_BYTES, _BUFFER_BYTES = 10, 1 << 16, 1 << 20
_UNPACKED = 4  # bytes of text per byte of a compressed file, roughly
_MAX_DICTIONARY_BYTES = 256 << 20  # `xz -9` needs a quarter of it


def open_stream(
    path: Path, advance: Advance | None = None, start: int = 0, stop: int | None = None
) -> IO[bytes]:
    """Open a file, or a part of it, for reading; uncompress it according to its ending.

    In a compressed file, `start` must be the start of a compressed stream.
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


def estimate_size(path: Path) -> int:
    """Return the size of a file in bytes; of a compressed one, roughly that of its text."""
    return path.stat().st_size * (1 if find_compression(path) is None else _UNPACKED)


class Meter:
    """Reports progress with a total of exactly the size of a split, whatever is read."""

    def __init__(self, advance: Advance, size: int) -> None:
        self._advance = advance
        self._left = size

    def add(self, num_bytes: int) -> None:
        """Report the number of bytes that were read."""
        counted = min(num_bytes, self._left)
        if counted > 0:
            self._left -= counted
            self._advance(counted)

    def finish(self) -> None:
        """Report the rest of the split."""
        self.add(self._left)


def _check_head(path: Path, compression: str | None) -> None:
    with open_file(path) as file, reading(path):
        head = file.read(_HEAD_BYTES)
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
    def __init__(self, path: Path, advance: Advance | None, start: int, stop: int | None) -> None:
        self._path = path
        self._advance = advance
        self._left = stop - start if stop is not None else None
        with reading(path):
            self._file = io.FileIO(path)
            self._file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        if self._left is not None:
            view = view[: self._left]
        with reading(self._path):
            num_bytes = self._file.readinto(view) or 0
        if self._left is not None:
            self._left -= num_bytes
        if self._advance is not None and num_bytes:
            self._advance(num_bytes)
        return num_bytes

    def close(self) -> None:
        self._file.close()
        super().close()


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _GzipDecoder:
    """zlib's decompressor with the interface of the others."""

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
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_DICTIONARY_BYTES),
}


class _Unpacked(io.RawIOBase):
    """The content of a compressed file; damage is an error that names the file."""

    def __init__(self, path: Path, file: io.RawIOBase) -> None:
        self._path = path
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._fill(buffer)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise MetaXLMError(
                f"{self._path}: cannot be read to its end ({error}); damaged or cut short: fetch "
                "it again"
            ) from error

    def _fill(self, buffer: Any) -> int:
        raise NotImplementedError

    def close(self) -> None:
        self._file.close()
        super().close()


class _InflatedStream(_Unpacked):
    """The streams of a compressed file, one after the other.

    Python's own `BZ2File` and `LZMAFile` stop without an error at a stream whose header is damaged.
    """

    def __init__(self, path: Path, file: io.RawIOBase, new_decoder: Callable[[], _Decoder]) -> None:
        super().__init__(path, file)
        self._new_decoder = new_decoder
        self._decoder = new_decoder()

    def _fill(self, buffer: Any) -> int:
        while True:
            given = b""
            if self._decoder.eof:  # xz and gzip files may be padded with zeros
                given = self._decoder.unused_data.lstrip(b"\0")
                while not given and (chunk := self._file.read(_CHUNK_BYTES)):
                    given = chunk.lstrip(b"\0")
                if not given:
                    return 0
                self._decoder = self._new_decoder()
            elif self._decoder.needs_input:
                given = self._file.read(_CHUNK_BYTES) or b""
                if not given:
                    raise EOFError("the compressed data ends in the middle")
            if data := self._decoder.decompress(given, len(buffer)):
                buffer[: len(data)] = data
                return len(data)


class _ZstdStream(_Unpacked):
    """A zstd file through pyarrow: `zstandard` would read a file cut within a frame as shorter."""

    def __init__(self, path: Path, file: io.RawIOBase) -> None:
        import pyarrow  # imported here: it takes a while, and few corpora are zstd

        super().__init__(path, file)
        self._stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")

    def _fill(self, buffer: Any) -> int:
        return cast(int, self._stream.readinto(buffer))

    def close(self) -> None:
        self._stream.close()
        super().close()
