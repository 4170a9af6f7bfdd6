"""Shared and exclusive locks, by the system's own calls and by those of Windows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from threading import Timer

import pytest

from metaxlm import locks
from tests import fake_windows


@pytest.fixture(params=["posix", "windows"])
def files(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[FileIO]]:
    """One file, opened three times as by three processes."""
    if request.param == "windows":
        monkeypatch.setattr(locks, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", fake_windows.make_msvcrt())
    with ExitStack() as stack:
        yield [stack.enter_context(FileIO(tmp_path / "lock", "a+")) for _ in range(3)]


def is_free(file: FileIO, *, shared: bool) -> bool:
    try:
        locks.lock(file.fileno(), shared=shared)
    except BlockingIOError:
        return False
    return True


def test_an_exclusive_lock_excludes_all_others(files: list[FileIO]) -> None:
    one, two, _ = files
    locks.lock(one.fileno())
    assert not is_free(two, shared=False) and not is_free(two, shared=True)
    one.close()
    assert is_free(two, shared=False)


def test_shared_locks_exclude_exclusive_ones(files: list[FileIO]) -> None:
    one, two, three = files
    for file in (one, two):
        locks.lock(file.fileno(), shared=True)
    assert not is_free(three, shared=False)
    one.close()
    assert not is_free(three, shared=False) and is_free(three, shared=True)
    two.close()
    assert is_free(three, shared=False)


def test_a_lock_changes_its_kind_and_keeps_the_place(files: list[FileIO]) -> None:
    one = files[0]
    one.write(b"1234")
    one.seek(2)
    for shared in (False, True, False, True):
        locks.lock(one.fileno(), shared=shared)
        assert one.tell() == 2
        with FileIO(one.name, "a+") as other:
            assert is_free(other, shared=True) == shared
            other.seek(0)
            assert other.read() == b"1234"


def test_a_lock_waits_for_another(files: list[FileIO]) -> None:
    one, two, _ = files
    locks.lock(one.fileno())
    release = Timer(0.1, one.close)
    release.start()
    locks.lock(two.fileno(), wait=True)
    assert one.closed
    release.join()
