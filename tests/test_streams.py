from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.streams import open_stream
from tests.data.readers.conftest import zstd

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}
TEXT = "".join(f"{number} líne\n" for number in range(300)).encode()

every_compression = pytest.mark.parametrize("ending", COMPRESS)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def read(path: Path) -> bytes:
    with open_stream(path) as file:
        return file.read()


@every_compression
def test_all_streams_of_a_file_are_read_and_counted(tmp_path: Path, ending: str) -> None:
    compress = COMPRESS[ending]
    data = b"".join(map(compress, (TEXT, b"", TEXT * 300, b"end")))
    path = write(tmp_path / f"en.txt{ending}", data)
    told: list[int] = []
    with open_stream(path, told.append) as file:
        assert file.read() == TEXT + TEXT * 300 + b"end"
    assert sum(told) == len(data)


@every_compression
def test_a_file_cut_anywhere_is_an_error(tmp_path: Path, ending: str) -> None:
    data = COMPRESS[ending](TEXT[:300])
    for stop in range(len(data)):
        path = write(tmp_path / f"en.txt{ending}", data[:stop])
        with pytest.raises(MetaXLMError, match=r"en\.txt.*damaged or cut short.*again"):
            read(path)


@every_compression
def test_a_damaged_second_stream_is_an_error_and_not_the_end(tmp_path: Path, ending: str) -> None:
    first, second = COMPRESS[ending](TEXT), COMPRESS[ending](TEXT)
    path = write(tmp_path / f"en.txt{ending}", first + b"?" + second[1:])
    with pytest.raises(MetaXLMError, match="damaged or cut short"):
        read(path)


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_zeros_between_streams_are_padding(tmp_path: Path, ending: str) -> None:
    data = COMPRESS[ending](TEXT)
    path = write(tmp_path / f"en.txt{ending}", data + bytes(1 << 17) + data + bytes(8))
    assert read(path) == TEXT * 2


@every_compression
def test_compressed_data_under_another_name_is_rejected(tmp_path: Path, ending: str) -> None:
    for name in ("en.txt", "en.txt.xz" if ending != ".xz" else "en.txt.gz"):
        path = write(tmp_path / name, COMPRESS[ending](TEXT))
        with pytest.raises(MetaXLMError, match=rf"rename it to en\.txt\{ending}$"):
            read(path)


@every_compression
def test_plain_data_under_a_compressed_name_is_rejected(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"en.txt{ending}", TEXT)
    with pytest.raises(MetaXLMError, match=rf"not \{ending} data.*'0 l.*rename"):
        read(path)


def test_a_range_of_a_file_is_read_alone(tmp_path: Path) -> None:
    streams = [bz2.compress(data) for data in (b"one", b"two", b"three")]
    path = write(tmp_path / "en.xml.bz2", b"".join(streams))
    start = len(streams[0])
    with open_stream(path, start=start) as file:
        assert file.read() == b"twothree"
    told: list[int] = []
    with open_stream(path, told.append, start, start + len(streams[1])) as file:
        assert file.read() == b"two"
    assert sum(told) == len(streams[1])
    with open_stream(write(tmp_path / "en.txt", b"0123456789"), start=3, stop=7) as file:
        assert file.read() == b"3456"
