"""Atomic writes, locks and digests, each with the fault that it guards against."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.files import (
    atomic_path,
    digest_value,
    exclusive_folder,
    read_json,
    read_text,
    write_json,
)


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises(RuntimeError), atomic_path(tmp_path / "a.json") as temporary:
        temporary.write_text("half", encoding="utf-8")
        raise RuntimeError
    assert read_json(tmp_path / "a.json") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_replaces_the_old_folder_whole(tmp_path: Path) -> None:
    final = tmp_path / "folder"
    for content in ("first", "second"):
        with atomic_path(final) as temporary:
            temporary.mkdir()
            (temporary / content).write_text(content, encoding="utf-8")
            assert content == "first" or (final / "first").exists()
    assert [path.name for path in final.iterdir()] == ["second"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_outputs_have_the_modes_of_the_umask(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.touch()
    with atomic_path(tmp_path / "folder") as temporary:
        (temporary / "inner").mkdir(parents=True)
        private = temporary / "inner" / "private"
        private.touch(mode=0o600)
    private = tmp_path / "folder" / "inner" / "private"
    assert private.stat().st_mode == usual.stat().st_mode


def test_digests_ignore_the_order_of_keys_only() -> None:
    assert digest_value({"a": 1, "b": [1, 2]}) == digest_value({"b": [1, 2], "a": 1})
    assert digest_value({"a": [1, 2]}) != digest_value({"a": [2, 1]})


def test_broken_and_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"a": 1,\n oops}', encoding="utf-8")
    with pytest.raises(MetaXLMError, match=r"broken.json:2: not valid JSON"):
        read_json(tmp_path / "broken.json")
    with pytest.raises(MetaXLMError, match="no such file"):
        read_text(tmp_path / "absent")
    with pytest.raises(MetaXLMError, match="a folder; give a file"):
        read_text(tmp_path)


def _hold(folder: Path, ready: object, done: object) -> None:
    with exclusive_folder(folder):
        ready.set()  # type: ignore[attr-defined]
        done.wait(30)  # type: ignore[attr-defined]


def test_a_folder_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
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
