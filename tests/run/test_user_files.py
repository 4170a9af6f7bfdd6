"""Which file of the user is the one that was read before."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from metaxlm.digests import write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file
from metaxlm.run import user_files
from metaxlm.run.user_files import FILE_NAME, UserFiles


class Data:
    """A folder with one file, and the run folder that remembers it."""

    def __init__(self, root: Path) -> None:
        self.folder, self.run = root / "data", root / "run"
        self.path = self.folder / "de" / "a.txt"
        self.path.parent.mkdir(parents=True)
        self.run.mkdir()

    def write(self, text: str, time: int) -> None:
        self.path.write_text(text, encoding="utf-8")
        os.utime(self.path, ns=(time, time))

    def identify(self, what: str = "text") -> list[object]:
        """Identify it as a new process does, which then remembers."""
        known = UserFiles(self.run)
        found = known.identify(self.path, self.folder, what)
        assert known.identify(self.path, self.folder, what) == found
        known.remember()
        return found


@pytest.fixture
def data(tmp_path: Path) -> Data:
    found = Data(tmp_path)
    found.write("abc", 1_000)
    return found


def test_a_file_is_known_by_place_size_and_time(data: Data) -> None:
    assert data.identify() == ["de/a.txt", 3, 1_000]
    assert data.identify() == ["de/a.txt", 3, 1_000]
    data.folder = data.folder.rename(data.run.with_name("elsewhere"))
    data.path = data.folder / "de" / "a.txt"
    assert data.identify() == ["de/a.txt", 3, 1_000]


def test_the_same_content_with_another_time_is_the_same_file(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.identify()
    data.write("abc", 2_000)
    assert data.identify() == ["de/a.txt", 3, 1_000]
    monkeypatch.setattr(user_files, "digest_file", lambda _: pytest.fail("read again"))
    assert data.identify() == ["de/a.txt", 3, 1_000]  # that time is known by now
    data.write("abc", 1_000)
    assert data.identify() == ["de/a.txt", 3, 1_000]


def test_a_file_is_read_only_if_it_may_be_the_old_one_and_only_once(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run asks for the files of a task once for each of its cells."""
    read: list[Path] = []

    def count(path: Path) -> str:
        read.append(path)
        return digest_file(path)

    data.identify()
    monkeypatch.setattr(user_files, "digest_file", count)
    for text, expected in (("abc", 1), ("abd", 1), ("abcd", 0)):
        known = UserFiles(data.run)
        data.write(text, 2_000)
        for _ in range(3):
            known.identify(data.path, data.folder, "text")
        assert len(read) == expected, text
        read.clear()


def test_another_size_is_another_file_whatever_the_time(data: Data) -> None:
    data.identify()
    data.write("abcd", 1_000)
    assert data.identify() == ["de/a.txt", 4, 1_000]
    data.write("abcd", 2_000)
    assert data.identify() == ["de/a.txt", 4, 1_000]  # it was remembered
    data.write("abc", 1_000)
    assert data.identify() == ["de/a.txt", 3, 1_000]


@pytest.mark.parametrize("text", ["abd", "abcd"])
def test_another_content_is_another_file_and_is_remembered(data: Data, text: str) -> None:
    data.identify()
    data.write(text, 2_000)
    assert data.identify() == ["de/a.txt", len(text), 2_000]
    data.write(text, 3_000)
    assert data.identify() == ["de/a.txt", len(text), 2_000]
    data.write("abc", 1_000)
    assert data.identify() == ["de/a.txt", 3, 1_000]


def test_files_of_one_name_in_other_folders_are_told_apart(data: Data) -> None:
    data.identify("text")
    data.write("xyz", 2_000)
    assert data.identify("dictionaries") == ["de/a.txt", 3, 2_000]
    data.write("abc", 3_000)
    assert data.identify("text") == ["de/a.txt", 3, 1_000]


def test_what_is_not_remembered_is_known_by_its_time(data: Data) -> None:
    for known in (UserFiles(), UserFiles(data.run)):
        known.identify(data.path, data.folder, "text")
    data.write("abc", 2_000)
    assert UserFiles(data.run).identify(data.path, data.folder, "text") == ["de/a.txt", 3, 2_000]
    UserFiles().remember()
    assert not (data.run / FILE_NAME).exists()


def test_a_damaged_memory_is_refused(data: Data) -> None:
    data.identify()
    path = data.run / FILE_NAME
    path.write_text(path.read_text("utf-8").replace("1000", "1001"), encoding="utf-8")
    with pytest.raises(MetaXLMError, match=r"inputs\.json: changed.*; delete .*\.json and run"):
        data.identify()
    path.unlink()
    assert data.identify() == ["de/a.txt", 3, 1_000]


def test_a_memory_of_another_form_says_nothing(data: Data) -> None:
    for content in ("{", "[]", '{"text: de/a.txt": 3}', '{"text: de/a.txt": {"size": 3}}'):
        data.write("abc", 1_000)
        data.identify()
        write_listed(data.run, FILE_NAME, content)
        data.write("abc", 2_000)
        assert data.identify() == ["de/a.txt", 3, 2_000]
        assert json.loads((data.run / FILE_NAME).read_text("utf-8")).keys() == {"text: de/a.txt"}
        (data.run / FILE_NAME).unlink()


def test_processes_add_to_what_others_wrote(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = UserFiles(data.run), UserFiles(data.run)
    first.identify(data.path, data.folder, "text")
    second.identify(data.path, data.folder, "data")
    third = UserFiles(data.run)
    third.identify(data.path, data.folder, "text")
    first.remember()
    second.remember()
    monkeypatch.setattr(user_files, "digest_file", lambda _: pytest.fail("digested twice"))
    third.remember()
    assert json.loads((data.run / FILE_NAME).read_text("utf-8")).keys() == {
        "text: de/a.txt", "data: de/a.txt",
    }  # fmt: skip


def test_a_place_is_found_through_links_too(data: Data, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data.folder)
    through = tmp_path / "link" / "de" / "a.txt"
    assert UserFiles().identify(through, data.folder, "text")[0] == "de/a.txt"
    other = tmp_path / "other.txt"
    other.write_text("x")
    assert UserFiles().identify(other, data.folder, "text")[0] == str(other.resolve())
