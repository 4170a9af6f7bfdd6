"""Map exceptions to exit codes and one-line messages.

Of several processes, rank 0 decides the exit code and prints the message.
"""

from __future__ import annotations

import io
import os
import platform
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from metaxlm import __version__
from metaxlm.cli import describe_stop, is_first_process
from metaxlm.errors import Interrupted, MetaXLMError, UnmetError, describe_failure, naming
from metaxlm.stopping import EXIT_INTERRUPTED, was_stopped

if TYPE_CHECKING:
    from metaxlm.pretrain.distributed import DistributedContext

EXIT_BUG = 1
EXIT_USER_ERROR = 2

# Newer versions of typer vendor click: take the class from typer's own hierarchy.
_UsageError: type[typer.BadParameter] = next(
    ancestor for ancestor in typer.BadParameter.__mro__ if ancestor.__name__ == "ClickException"
)


def explain(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and the line for the user; None for a bug."""
    if isinstance(error, MetaXLMError):
        return EXIT_USER_ERROR, str(error)
    if isinstance(error, _UsageError):
        return EXIT_USER_ERROR, error.format_message()
    if isinstance(error, Interrupted | KeyboardInterrupt | typer.Abort):
        return EXIT_INTERRUPTED, describe_stop(str(error) or "stopped")
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Interrupted):
        cause = cause.__cause__ or cause.__context__
    if cause is not None or was_stopped():  # a library turned the stop into its own error
        return EXIT_INTERRUPTED, describe_stop()
    line = describe_failure(error)
    return None if line is None else (EXIT_USER_ERROR, line)


def prepare_streams() -> None:
    """Print any text in any encoding, and reserve the descriptors of closed streams."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


@contextmanager
def explaining_threads() -> Iterator[None]:
    """Print one line for failures in threads of libraries, such as TensorBoard's writer."""
    before = threading.excepthook

    def explain_thread(ended: threading.ExceptHookArgs) -> None:
        line = None if ended.exc_value is None else describe_failure(ended.exc_value)
        if line is None:
            before(ended)
        else:
            print_error(f"{type(ended.thread).__module__.partition('.')[0]}: {line}")

    threading.excepthook = explain_thread
    try:
        yield
    finally:
        threading.excepthook = before


def flush_output() -> None:
    """Flush standard output; if that fails, discard the rest and raise."""
    if sys.stdout is None:
        return
    try:
        with naming("standard output"):
            sys.stdout.flush()
    except OSError:
        # Python would fail again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def end(error: BaseException) -> int:
    """Print one line for an exception, or the traceback of a bug; return the exit code."""
    error = _undo_wrapping(error)
    if isinstance(error, SystemExit):
        raise error
    ending = explain(error)
    with suppress(OSError):
        flush_output()
    with suppress(OSError):  # the standard error may be full, too
        if ending is None:
            traceback.print_exception(error)
            libraries = f"Python {platform.python_version()}, torch {version('torch')}"
            print_error(
                f"this is a bug in metaxlm {__version__} ({libraries}, {platform.system()}); "
                "please report it with the traceback above"
            )
        elif is_heard(error):
            print_error(ending[1])
    return EXIT_BUG if ending is None else ending[0]


def _undo_wrapping(error: BaseException) -> BaseException:
    """Return the original error if rich or typer replaced a broken pipe or an early end of file."""
    pipe = error.__context__
    if isinstance(error, SystemExit) and not error.__cause__ and isinstance(pipe, BrokenPipeError):
        pipe.filename = pipe.filename or "standard output"
        return pipe
    if isinstance(error, typer.Abort) and isinstance(error.__cause__, EOFError):
        return error.__cause__
    return error


def is_heard(error: BaseException) -> bool:
    """Return whether this process prints an error: rank 0, or any that cannot reach it."""
    return is_first_process() or isinstance(error, UnmetError)


@contextmanager
def ending_together(world: DistributedContext) -> Iterator[None]:
    """End all processes of a run with the exit code of rank 0, which reports any error."""
    if world.size == 1:
        yield
        return
    from metaxlm.pretrain.distributed import is_collective_error

    try:
        yield
    except BaseException as error:
        # torchrun sends SIGTERM to the remaining processes; report the error first.
        _ignore_launcher()
        is_lost = is_collective_error(error)
        code, reason = explain(error) or (EXIT_BUG, f"{type(error).__name__}: {error}")
        if not world.is_main:
            is_own = not is_lost and not isinstance(error, Interrupted)
            ended = world.leave(code, reason if is_own else "")
            if is_lost and ended is None:
                print_error(describe_stop(f"rank {world.rank}: lost contact with rank 0"))
            if explain(error) is None and not is_lost:
                raise
            raise SystemExit(EXIT_INTERRUPTED if ended is None else ended) from error
        if (is_lost or isinstance(error, Interrupted)) and (failure := world.find_failure()):
            world.leave(EXIT_USER_ERROR)
            raise MetaXLMError(failure) from error
        if is_lost:
            world.leave(EXIT_INTERRUPTED)
            raise Interrupted("lost contact with another process") from error
        world.leave(code)
        raise
    _ignore_launcher()
    if code := world.leave(0) or 0:
        raise SystemExit(code)


def _ignore_launcher() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def print_error(message: str) -> None:
    """Print one line on standard error."""
    line = f"metaxlm: {' '.join(message.split())}"
    Console(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)
