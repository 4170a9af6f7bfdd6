"""How a command ends: the exit code and the one line for each exception.

Of several processes, the main one decides and prints.
"""

from __future__ import annotations

import io
import os
import platform
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from types import FrameType
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from metaxlm import __version__
from metaxlm.errors import Interrupted, MetaXLMError, UnmetError, describe_failure, naming

if TYPE_CHECKING:
    from metaxlm.pretraining.distributed import World

EXIT_BUG = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 75
"""The system's code for "try again later": the same command continues."""

# Newer typers bring their own click, older ones import it: take the class from where it is used.
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
        return EXIT_INTERRUPTED, f"{str(error) or 'stopped'}; the same command continues"
    line = describe_failure(error)
    return None if line is None else (EXIT_USER_ERROR, line)


def prepare_streams() -> None:
    """Let every text print in any encoding, and keep files off the numbers of closed streams."""
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
    """Write what is left for the standard output; if that fails, drop it and raise."""
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
    """Print what an exception means, one line or the traceback of a bug; return the exit code."""
    error = _find_cause(error)
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


def _find_cause(error: BaseException) -> BaseException:
    """Undo what rich and typer make of a closed pipe and of a file that ends too early."""
    pipe = error.__context__
    if isinstance(error, SystemExit) and not error.__cause__ and isinstance(pipe, BrokenPipeError):
        pipe.filename = pipe.filename or "standard output"
        return pipe
    if isinstance(error, typer.Abort) and isinstance(error.__cause__, EOFError):
        return error.__cause__
    return error


def is_heard(error: BaseException) -> bool:
    """Return whether this process prints an error: of several with the same one, the first does."""
    is_first = os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"
    return is_first or isinstance(error, UnmetError)


@contextmanager
def ending_together(world: World) -> Iterator[None]:
    """Let all processes end when one does, with the main process's exit code."""
    if world.ranks is None:
        yield
        return
    if world.is_main:
        # Between trainings a stop ends the run at once, so that the others learn of it.
        _handle_stop(signal.default_int_handler)
    try:
        yield
    except BaseException as error:
        # The launcher stops those that are left when one has ended, but the story goes first.
        _handle_stop(signal.SIG_IGN)
        if _may_be_collective(error):
            world.ranks.suspect()
        code, reason = explain(error) or (EXIT_BUG, f"{type(error).__name__}: {error}")
        code = world.leave(code, "" if isinstance(error, Interrupted) else reason)
        if world.is_main or explain(error) is None:
            raise
        raise SystemExit(code) from error
    _handle_stop(signal.SIG_IGN)
    if code := world.leave(0):
        raise SystemExit(code)


def _handle_stop(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _may_be_collective(error: BaseException | None) -> bool:
    """Say whether a collective may have failed, also when a stop came on top of it."""
    while error is not None and not isinstance(error, RuntimeError):
        error = error.__context__
    return error is not None


def print_error(message: str) -> None:
    """Print one line where errors go."""
    one_line = " ".join(message.split())
    Console(stderr=True, highlight=False).print(
        f"metaxlm: {one_line}", markup=False, soft_wrap=True
    )
