"""Atomic writes, locks and digests, each with the fault that it guards against."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.files import (
    atomic_file,
    check_name,
    check_output,
    exclusive_folder,
    read_json,
    sweep,
    walk_files,
    write_json,
)
from metaxlm.manifest import atomic_folder, find_damage, read_manifest


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "a.json") as temporary:
        temporary.write_text("half", encoding="utf-8")
        raise RuntimeError
    assert read_json(tmp_path / "a.json") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_replaces_the_old_folder_and_keeps_user_files(tmp_path: Path) -> None:
    final = tmp_path / "folder"
    for content in ("first", "second"):
        with atomic_folder(final) as temporary:
            (temporary / content).write_text(content, encoding="utf-8")
            assert content == "first" or (final / "first").exists()
        if content == "first":
            (final / "notes").mkdir()
            (final / "notes" / "mine.txt").write_text("mine", encoding="utf-8")
            (final / "notes" / "link").symlink_to("mine.txt")
    names = sorted(str(path.relative_to(final)) for path in final.rglob("*"))
    assert names == ["manifest.json", "notes", "notes/link", "notes/mine.txt", "second"]
    assert (final / "notes" / "mine.txt").read_text(encoding="utf-8") == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("content", [{"a.txt": "mine"}, {"manifest.json": '{"files": {"a": {}}}'}])
def test_a_folder_of_the_user_is_never_replaced(tmp_path: Path, content: dict[str, str]) -> None:
    final = tmp_path / "folder"
    final.mkdir()
    for name, text in content.items():
        (final / name).write_text(text, encoding="utf-8")
    with pytest.raises(MetaXLMError, match="not written by metaxlm"), atomic_folder(final):
        raise AssertionError("the body must not run")
    assert {path.name: path.read_text(encoding="utf-8") for path in final.iterdir()} == content


def test_a_file_in_the_way_stops_the_replacement(tmp_path: Path) -> None:
    final = tmp_path / "folder"
    with atomic_folder(final) as temporary:
        (temporary / "old").touch()
    (final / "new").write_text("mine", encoding="utf-8")
    with (
        pytest.raises(MetaXLMError, match="new: not written by metaxlm"),
        atomic_folder(final) as temporary,
    ):
        (temporary / "new").touch()
    assert (final / "new").read_text(encoding="utf-8") == "mine" and (final / "old").exists()


def test_files_and_folders_never_replace_each_other(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for writer, name in ((atomic_file, "folder"), (atomic_file, "pipe"), (atomic_folder, "file")):
        with pytest.raises(MetaXLMError, match=name), writer(tmp_path / name):
            raise AssertionError("the body must not run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "pipe"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real.json")
    write_json(tmp_path / "link", {"a": 1})
    assert (tmp_path / "link").is_symlink() and read_json(tmp_path / "real.json") == {"a": 1}


def test_two_writers_each_write_a_whole_file_or_folder(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a.txt") as one, atomic_file(tmp_path / "a.txt") as other:
        one.write_text("one", encoding="utf-8")
        other.write_text("other", encoding="utf-8")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "one"
    final = tmp_path / "folder"
    with atomic_folder(final) as one, atomic_folder(final) as other:
        for folder in (one, other):
            (folder / "a.txt").write_text(folder.name, encoding="utf-8")
    assert (final / "a.txt").read_text(encoding="utf-8") == one.name
    assert find_damage(final) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "folder"]


def _run_and_join(function: Callable[..., None], *arguments: object) -> None:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join()


def _write_and_die(final: Path) -> None:
    with atomic_folder(final) as temporary:
        (temporary / "half").touch()
        os._exit(1)


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    _run_and_join(_write_and_die, tmp_path / "folder")
    assert len(list(tmp_path.glob(".tmp-*"))) == 1
    with atomic_folder(tmp_path / "folder"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def _replace_and_die(final: Path, renames: int) -> None:
    """Replace a folder, and die instead of the rename after the given number of them."""
    rename, left = Path.rename, iter(range(renames))

    def rename_or_die(self: Path, target: Path) -> Path:
        if next(left, None) is None:
            os._exit(1)
        return rename(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", rename_or_die)
        with atomic_folder(final, {"content": "new"}):
            pass


@pytest.mark.parametrize("renames", [0, 1, 2])
@pytest.mark.parametrize("exchanges", [True, False])
def test_an_interrupted_replacement_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool, renames: int
) -> None:
    if not exchanges:
        monkeypatch.setattr("metaxlm.files._exchange", lambda *_: False)
    final = tmp_path / "folder"
    with atomic_folder(final, {"content": "old"}):
        pass
    _run_and_join(_replace_and_die, final, renames)
    assert read_manifest(final)["content"] == ("new" if exchanges or renames == 2 else "old")
    assert find_damage(final) == []
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", "a\nb", ".hidden", "x" * 101, "é" * 51]
)
def test_names_that_leave_their_folder_are_rejected(name: str) -> None:
    with pytest.raises(MetaXLMError, match=r"variant .* cannot be a file name"):
        check_name(name, "variant")


def test_inputs_inside_an_output_are_rejected(tmp_path: Path) -> None:
    check_output(tmp_path / "out", [tmp_path / "in", None, "-"])
    with pytest.raises(MetaXLMError, match="contains the input"):
        check_output(tmp_path / "out", [tmp_path / "out" / "raw" / "en.txt"])
    with pytest.raises(MetaXLMError, match="is also an input"):
        check_output(tmp_path / "out", [tmp_path / "x" / ".." / "out"])


def test_outputs_have_the_modes_of_the_umask(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.touch()
    with atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "inner").mkdir()
        private = temporary / "inner" / "private"
        private.touch(mode=0o600)
    private = tmp_path / "folder" / "inner" / "private"
    assert private.stat().st_mode == usual.stat().st_mode


def _hold(folder: Path, ready: object, done: object) -> None:
    with exclusive_folder(folder):
        ready.set()  # type: ignore[attr-defined]
        done.wait(30)  # type: ignore[attr-defined]


def test_a_folder_in_use_by_another_process_is_an_error(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, done))
    holder.start()
    try:
        assert ready.wait(30)
        with (
            pytest.raises(MetaXLMError, match=f"in use by process {holder.pid}"),
            exclusive_folder(tmp_path),
        ):
            pass
    finally:
        done.set()
        holder.join()
    with exclusive_folder(tmp_path):
        pass


def test_files_behind_links_are_found_once_per_path(tmp_path: Path) -> None:
    (tmp_path / "data" / "muse").mkdir(parents=True)
    (tmp_path / "data" / "muse" / "en-de.txt").touch()
    given = tmp_path / "given"
    given.mkdir()
    (given / "a.txt").touch()
    (given / "muse").symlink_to(tmp_path / "data" / "muse")
    (given / "muse" / "circle").symlink_to(tmp_path / "data")
    (given / "missing.txt").symlink_to(tmp_path / "nothing")
    found = [path.relative_to(given).as_posix() for path in walk_files(given)]
    assert found == ["a.txt", "muse/en-de.txt"]
