"""Lock open files between processes, shared or exclusive; closing a file releases its lock.

POSIX systems lock a file as a whole with `flock`. Windows locks ranges of bytes, only exclusively:
an exclusive lock takes all of `_SLOTS`, a shared one takes any of them.
"""

import errno
import os
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

IS_POSIX = fcntl is not None
"""Whether a folder can be locked, and whether a file can be renamed while it is locked."""
_POLL_S = 0.05
_FIRST_SLOT = 1 << 30  # beyond the content, which other processes could not read otherwise
_SLOTS = 256  # processes that can share a lock on Windows


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> None:
    """Lock an open file, or change its lock; raise `BlockingIOError` if another process has it.

    With `wait`, wait until the lock is free.
    """
    if fcntl is not None:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        return
    while not _lock_slots(descriptor, shared):
        if not wait:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        time.sleep(_POLL_S)


def _lock_slots(descriptor: int, shared: bool) -> bool:
    windows: Any = import_module("msvcrt")
    place = os.lseek(descriptor, 0, os.SEEK_CUR)

    def attempt(mode: int, slot: int, count: int) -> bool:
        os.lseek(descriptor, _FIRST_SLOT + slot, os.SEEK_SET)
        with suppress(OSError):
            windows.locking(descriptor, mode, count)
            return True
        return False

    try:
        # Release what this file has locked: a range can only be released as it was locked.
        for slot, count in ((0, _SLOTS), *((slot, 1) for slot in range(_SLOTS))):
            if attempt(windows.LK_UNLCK, slot, count):
                break
        if not shared:
            return attempt(windows.LK_NBLCK, 0, _SLOTS)
        return any(attempt(windows.LK_NBLCK, slot, 1) for slot in range(_SLOTS))
    finally:
        os.lseek(descriptor, place, os.SEEK_SET)
