from __future__ import annotations

from pathlib import Path

from metaxlm.finetune.readers.lines import read_lines
from tests.finetune.readers.files import refuse, write


class TestLines:
    def test_both_line_ends_and_no_other(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a", "\ufeffone\r\ntwo\u2028still \x85two\n\nlast".encode())
        assert read_lines(path) == ["one", "two\u2028still \x85two", "", "last"]

    def test_missing(self, tmp_path: Path) -> None:
        with refuse("{}: no such file", tmp_path / "a"):
            read_lines(tmp_path / "a")

    def test_folder(self, tmp_path: Path) -> None:
        with refuse("{}: a folder; give a file", tmp_path):
            read_lines(tmp_path)

    def test_empty(self, tmp_path: Path) -> None:
        with refuse("{}:1: the file is empty; restore it", tmp_path / "a"):
            read_lines(write(tmp_path / "a", ""))

    def test_other_encoding(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a", "eins\nfünf\n".encode("latin-1"))
        with refuse("{}:2: not UTF-8 (byte 0xFC); convert it with iconv", path):
            read_lines(path)

    def test_utf_16(self, tmp_path: Path) -> None:
        for code in ("utf-16", "utf-16-be"):
            path = write(tmp_path / "a", "one\ntwo\n".encode(code))
            with refuse(
                "{}:1: NUL characters, as in UTF-16; convert the file to UTF-8 with iconv", path
            ):
                read_lines(path)
