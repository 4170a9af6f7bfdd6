"""A manifest notices every changed bit of its files and of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.manifest import (
    MANIFEST,
    describe_files,
    find_damage,
    list_files,
    read_manifest,
    read_sealed,
    write_manifest,
)
from tests.damage import flip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.bin").write_bytes(b"some bytes")
    (tmp_path / "inner" / "b.txt").write_text("Wörter")
    (tmp_path / "empty").touch()
    write_manifest(tmp_path, {"counts": {"tokens": 7}, "größe": [1, 2.5]})
    return tmp_path


def test_an_untouched_folder_is_whole(folder: Path) -> None:
    assert find_damage(folder) == []
    manifest = read_manifest(folder)
    assert manifest["counts"] == {"tokens": 7}
    assert list(manifest["files"]) == ["a.bin", "empty", "inner/b.txt"]


@pytest.mark.parametrize("name", ["a.bin", "inner/b.txt", MANIFEST])
def test_flipped_bits_are_found(folder: Path, name: str) -> None:
    path = folder / name
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 9 if name == MANIFEST else 1):
        flip(path, bit)
        (problem,) = find_damage(folder)
        changed = f"{path}: changed, its digest does not fit"
        assert problem == changed or (name == MANIFEST and problem.startswith(str(path)))
        path.write_bytes(content)


def test_a_manifest_written_in_another_way_is_not_ours(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert find_damage(folder) == [f"{path}: damaged, its content does not fit its seal"]


def test_missing_extra_and_truncated_files_are_named(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"some byte")
    (folder / "empty").unlink()
    (folder / "inner" / "new").touch()
    assert find_damage(folder) == [
        f"{folder}/inner/new: extra, nothing lists it",
        f"{folder}/a.bin: 9 bytes, should be 10",
        f"{folder}/empty: missing",
    ]
    (folder / MANIFEST).unlink()
    assert find_damage(folder) == [f"{folder}/{MANIFEST}: no such file"]


def test_a_folder_with_its_own_manifest_answers_for_itself(folder: Path) -> None:
    write_manifest(folder / "inner", {})
    assert list_files(folder) == ["a.bin", "empty"]
    assert f"{folder}/inner/b.txt: missing" not in find_damage(folder)
    sizes = describe_files(folder, list_files(folder, nested=True))
    assert "sha256" in sizes["a.bin"]
    assert sizes["inner/b.txt"] == {"bytes": 7}


@pytest.mark.parametrize("content", ["[]", "{}", '{"seal": "0"}', "{", "null"])
def test_unsealed_content_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(MetaXLMError, match=r"x\.json:"):
        read_sealed(tmp_path / "x.json")
