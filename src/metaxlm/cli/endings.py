"""How a command ends: the exit code and the one line that an exception stands for.

Of several processes, the main one decides and tells.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from metaxlm.cli import describe_stop, is_first_process
from metaxlm.errors import Interrupted, MetaXLMError, UnmetError
from metaxlm.stopping import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from metaxlm.pretrain.distributed import World

EXIT_BUG = 1
EXIT_USER_ERROR = 2

# Newer typers bring their own click, older ones import it: take the class from where it is used.
_UsageError: type[typer.BadParameter] = next(
    ancestor for ancestor in typer.BadParameter.__mro__ if ancestor.__name__ == "ClickException"
)
_USERS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def explain(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and the line for the user; None for a bug, which keeps its traceback."""
    if isinstance(error, MetaXLMError):
        return EXIT_USER_ERROR, str(error)
    if isinstance(error, _UsageError):
        return EXIT_USER_ERROR, error.format_message()
    if isinstance(error, (Interrupted, KeyboardInterrupt, typer.Abort)):
        return EXIT_INTERRUPTED, describe_stop(str(error) or "stopped")
    if isinstance(error, OSError) and error.errno in _USERS:
        return EXIT_USER_ERROR, f"{error.filename or 'output'}: {os.strerror(error.errno or 0)}"
    if _find_cause(error, Interrupted) is not None:  # a library turned the stop into its own error
        return EXIT_INTERRUPTED, describe_stop()
    return None


def is_heard(error: BaseException) -> bool:
    """Say whether this process tells an error: of several with the same one, the first does."""
    return is_first_process() or isinstance(error, UnmetError)


@contextmanager
def ending_together(world: World) -> Iterator[None]:
    """Let all processes end when one does, with the main process's exit code."""
    if world.ranks is None:
        yield
        return
    try:
        yield
    except BaseException as error:
        # The launcher stops those that are left when one has ended, but the story goes first.
        _ignore_launcher()
        if _may_be_collective(error):
            world.ranks.suspect()
        code, reason = explain(error) or (EXIT_BUG, f"{type(error).__name__}: {error}")
        code = world.leave(code, "" if isinstance(error, Interrupted) else reason)
        if world.is_main or explain(error) is None:
            raise
        raise SystemExit(code) from error
    _ignore_launcher()
    if code := world.leave(0):
        raise SystemExit(code)


def _ignore_launcher() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _may_be_collective(error: BaseException) -> bool:
    """Say whether a collective may have failed, also when a stop followed."""
    return _find_cause(error, RuntimeError) is not None


def _find_cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """Return the exception of a kind that an error is or was raised from, if there is one."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def print_error(message: str) -> None:
    """Print one line where errors go."""
    one_line = " ".join(message.split())
    Console(stderr=True, highlight=False).print(
        f"metaxlm: {one_line}", markup=False, soft_wrap=True
    )
