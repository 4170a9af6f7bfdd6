"""`metaxlm verify` names every changed file and no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from metaxlm.digests import write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.manifest import MANIFEST, write_manifest
from metaxlm.run.stage import Stage
from metaxlm.run.verify import verify


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run with one stage, whose output has a shard and another file."""

    def fill(folder: Path) -> None:
        (folder / "multilingual" / "en").mkdir(parents=True)
        (folder / "multilingual" / "en" / "tokens.bin").write_bytes(bytes(range(40)))
        (folder / "multilingual" / "en" / "offsets.bin").write_bytes(bytes(16))
        write_manifest(folder / "multilingual" / "en", {"counts": {"tokens": 20}})
        (folder / "notes.txt").write_text("beside")
        (folder / "README.md").write_text("card")

    root = tmp_path / "run"
    Stage("shards", root / "shards", {"a": 1}, (), fill).run()
    (root / "recipe.yaml").write_text("name: run\n")
    return root


def test_an_unchanged_run_has_no_problems(run_dir: Path) -> None:
    manifest = (run_dir / "shards/multilingual/en" / MANIFEST).stat().st_size
    result = verify(run_dir)
    assert result.problems == {}
    assert result.files == 5
    assert result.bytes == 40 + 16 + 6 + 4 + manifest
    assert result.unlisted == [run_dir / "recipe.yaml"]


def test_a_file_may_be_rewritten_with_its_digest(run_dir: Path) -> None:
    before = (run_dir / "shards" / "README.md").read_text()
    write_listed(run_dir / "shards", "README.md", "other words")
    write_listed(run_dir, "recipe.yaml", "name: other\n")
    result = verify(run_dir)
    assert (result.problems, result.unlisted, result.files) == ({}, [], 6)
    (run_dir / "shards" / "README.md").write_text(before)  # as after a kill between two writes
    assert verify(run_dir).problems == {}
    (run_dir / "shards" / "README.md").write_text("neither")
    (run_dir / "recipe.yaml").write_text("name: neither\n")
    assert set(verify(run_dir).problems) == {run_dir / "shards/README.md", run_dir / "recipe.yaml"}


FILES = ("notes.txt", "README.md", *(f"multilingual/en/{name}" for name in (
    "tokens.bin", "offsets.bin", MANIFEST,
)))  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_truncated_file_is_named(run_dir: Path, name: str) -> None:
    path = run_dir / "shards" / name
    path.write_bytes(path.read_bytes()[:-1])
    assert list(verify(run_dir).problems) == [path]
    path.unlink()
    problems = verify(run_dir).problems
    assert problems[path].startswith("missing")
    assert len(problems) == 1


@pytest.mark.parametrize("folder", ["shards", "shards/multilingual/en"])
def test_an_extra_file_is_named(run_dir: Path, folder: str) -> None:
    (run_dir / folder / "stray").touch()
    assert verify(run_dir).problems == {run_dir / folder / "stray": "extra, nothing lists it"}


def test_a_single_shard_can_be_checked(run_dir: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(run_dir / "shards" / "multilingual", copied)
    assert verify(copied).files == 2
    (copied / "en" / MANIFEST).unlink()
    assert list(verify(copied).problems) == [copied / "en" / MANIFEST]


def test_a_folder_without_digests_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="nothing to verify"):
        verify(tmp_path)
    with pytest.raises(MetaXLMError, match="no such folder"):
        verify(tmp_path / "absent")
