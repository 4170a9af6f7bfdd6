"""Files that metaxlm wrote are compared before they are read, large unchanged ones once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from metaxlm import digests
from metaxlm.digests import DIGESTS, find_damaged, read_list, require_whole, write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.manifest import MANIFEST, check_file, write_manifest
from metaxlm.run.verify import verify


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with its manifest."""
    folder = tmp_path / "exported"
    (folder / "inner").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(bytes(100))
    (folder / "inner" / "config.json").write_text("{}")
    (folder / "README.md").write_text("card")
    write_manifest(folder, {})
    return folder


Reads = Callable[[Path], tuple[list[str], bool]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reads:
    """Check a folder as a new command does; return the names that were read, and if all fit."""
    monkeypatch.setattr(digests, "_LARGE", 100)
    monkeypatch.setattr(digests, "_SETTLED_NS", -1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def check(folder: Path) -> tuple[list[str], bool]:
        monkeypatch.setattr(digests, "_known", {})
        names: list[str] = []

        def spy(path: Path, facts: digests.Facts) -> str | None:
            names.append(path.name)
            return check_file(path, facts)

        monkeypatch.setattr(digests, "check_file", spy)
        listed = read_list(folder / MANIFEST)
        is_whole = not find_damaged(listed)
        first = sorted(names)
        assert bool(find_damaged(listed)) != is_whole
        return first, is_whole

    return check


SMALL = ["README.md", "config.json"]


def test_an_unchanged_large_file_is_read_once(folder: Path, reads: Reads) -> None:
    assert reads(folder) == ([*SMALL, "weights.bin"], True)
    assert reads(folder) == (SMALL, True)
    (folder / "weights.bin").write_bytes(bytes(99) + b"\1")
    assert reads(folder) == ([*SMALL, "weights.bin"], False)
    (folder / "weights.bin").write_bytes(bytes(100))
    assert reads(folder) == ([*SMALL, "weights.bin"], True)


@pytest.mark.parametrize("content", ["{", "[]", "3", "\udcff"])
def test_a_damaged_cache_is_ignored(
    content: str, folder: Path, tmp_path: Path, reads: Reads
) -> None:
    reads(folder)
    cache = tmp_path / "cache" / "metaxlm" / DIGESTS
    [entry] = json.loads(cache.read_text("utf-8")).values()
    assert entry[0] == 100
    cache.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert reads(folder) == ([*SMALL, "weights.bin"], True)
    assert reads(folder) == (SMALL, True)


def test_a_cache_cannot_be_written(folder: Path, tmp_path: Path, reads: Reads) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    for _ in range(2):
        assert reads(folder) == ([*SMALL, "weights.bin"], True)


@pytest.mark.parametrize("name", ["weights.bin", "inner/config.json", MANIFEST])
@pytest.mark.parametrize("place", ["", "inner"])
def test_damage_is_named_if_it_is_read(folder: Path, name: str, place: str) -> None:
    (folder / "README.md").write_text("a card may be changed")
    require_whole(folder / place)
    path = folder / name
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    if (place, name) == ("inner", "weights.bin"):
        require_whole(folder / place)
        return
    with pytest.raises(MetaXLMError, match=f"{path}.*; delete {folder} and run again"):
        require_whole(folder / place)


@pytest.mark.parametrize("content", ['{"files": ["a"]}', "no JSON", ""])
def test_the_manifest_of_another_program_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST).write_text(content)
    (tmp_path / "model").mkdir()
    require_whole(tmp_path / "model")
    require_whole(tmp_path)


def test_a_list_names_only_what_was_written_with_it(tmp_path: Path) -> None:
    write_listed(tmp_path, "a.txt", "a")
    write_listed(tmp_path, "b.txt", "b")
    (tmp_path / "a.txt").write_text("x")
    write_listed(tmp_path, "b.txt", "c")
    with pytest.raises(MetaXLMError, match=r"a\.txt: changed.*; delete .*a\.txt and run again"):
        require_whole(tmp_path)
    require_whole(tmp_path / "b.txt")
    (tmp_path / DIGESTS).write_text("{")
    for call in (lambda: require_whole(tmp_path), lambda: write_listed(tmp_path, "a.txt", "a")):
        with pytest.raises(MetaXLMError, match=DIGESTS):
            call()
    assert (tmp_path / "a.txt").read_text() == "x"


def test_a_failed_write_is_not_listed(tmp_path: Path) -> None:
    write_listed(tmp_path, "one.txt", "one")
    with pytest.raises(OSError, match="disk"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaxlm.digests.write_text", Mock(side_effect=OSError("disk")))
        write_listed(tmp_path, "two.txt", "two")
    assert verify(tmp_path).problems == {}
