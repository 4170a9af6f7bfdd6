"""Ctrl-C and SIGTERM raise `Interrupted`: at once, or where the work can be continued.

A command runs in `stoppable`, which answers from its first import to its end. Work that first has
to reach a point from which it can continue, such as a training, runs in `deferred_stops`.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from metaxlm.errors import Interrupted

EXIT_INTERRUPTED = 75  # the system's code for "try again later"
CONTINUES = "; the same command continues"

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HAS_ALARM = hasattr(signal, "setitimer")  # not on Windows
# A request may arrive twice: `timeout` signals its child, and then the group of the child.
_SAME_REQUEST_S = 0.5
_PATIENCE_S = 5.0
_RAISE_AGAIN_S = 0.01
_SHOW_CURSOR = "\x1b[?25h\n"


class _Stops:
    """The stop requests of a command, or of work that a program of the user calls."""

    def __init__(self, line: str | None = None) -> None:
        self.line = line  # printed by a command that ends at once; None outside of a command
        self.requested = False
        self.raised = False
        self.num_deferring = 0

    def handle(self, *_: object) -> None:
        """Take a request, as a signal handler."""
        if self.requested and self.line is None:
            raise KeyboardInterrupt
        if not self.requested:
            self.requested = True
            self.check()

    def check(self) -> None:
        """Raise `Interrupted` if there is a request and no work defers it."""
        if self.requested and not self.num_deferring:
            self.raised = True
            raise Interrupted("stopped")

    def raise_again(self, dropped: sys.UnraisableHookArgs) -> None:
        """Raise a stop again that Python dropped because it was raised within a destructor."""
        if isinstance(dropped.exc_value, Interrupted):
            self.requested = False
            if _HAS_ALARM:  # elsewhere `watch` ends the process
                signal.setitimer(signal.ITIMER_REAL, _RAISE_AGAIN_S)
        else:
            sys.__unraisablehook__(dropped)

    def watch(self, reader: socket.socket) -> None:
        """End the process on a second request, or when a call of C code holds up the first."""
        first_s: float | None = None
        while True:
            patience_s = None if first_s is None else _PATIENCE_S
            if not select.select([reader], [], [], patience_s)[0]:
                if not self.requested and not self.num_deferring:
                    self.end()
                continue
            number = reader.recv(1)
            if not number:
                reader.close()
                return
            if number[0] not in _SIGNALS:
                continue
            if first_s is None:
                first_s = time.monotonic()
            elif time.monotonic() - first_s > _SAME_REQUEST_S:
                self.end()

    def end(self) -> None:
        """End the process here and now; every output is complete or under a temporary name."""
        if self.line:
            cursor = _SHOW_CURSOR if os.isatty(2) else ""
            os.write(2, f"{cursor}{self.line}\n".encode())
        os._exit(EXIT_INTERRUPTED)


_active: list[_Stops] = []  # at most one


@contextmanager
def _receive(line: str | None = None) -> Iterator[_Stops]:
    """Receive stop requests, or share those that are being received."""
    # Only the main thread gets signals; elsewhere, and where the user ignores them, do nothing.
    if threading.current_thread() is not threading.main_thread():
        yield _Stops()
        return
    if _active:
        yield _active[0]
        return
    stops = _Stops(line)
    _active.append(stops)
    previous = {
        number: signal.signal(number, stops.handle)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield stops
    finally:
        _active.clear()
        for number, handler in previous.items():
            if signal.getsignal(number) == stops.handle:
                signal.signal(number, handler)


@contextmanager
def stoppable(line: str) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise `Interrupted` in a command.

    A second request, or a first one without an answer, prints `line` and ends the process.
    """
    with _receive(line) as stops:
        reader, writer = socket.socketpair()  # Windows cannot wait for a pipe
        writer.setblocking(False)
        threading.Thread(target=stops.watch, args=(reader,), name="stops", daemon=True).start()
        descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        alarm = signal.signal(signal.SIGALRM, stops.handle) if _HAS_ALARM else None
        hook, sys.unraisablehook = sys.unraisablehook, stops.raise_again
        try:
            yield
        finally:
            sys.unraisablehook = hook
            if _HAS_ALARM:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, alarm)
            signal.set_wakeup_fd(descriptor)
            writer.close()
            for number in _SIGNALS:  # the exit code is settled when Python cleans up
                atexit.register(signal.signal, number, signal.SIG_IGN)


@contextmanager
def deferred_stops() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether to stop; raise `Interrupted` at the end."""
    with _receive() as stops:
        stops.num_deferring += 1
        try:
            yield lambda: stops.requested
        finally:
            stops.num_deferring -= 1
        stops.check()


@contextmanager
def interruptible(title: str) -> Iterator[Callable[[], None]]:
    """Yield a function that raises `Interrupted` once a stop was requested."""
    with deferred_stops() as requested:

        def check() -> None:
            if requested():
                raise Interrupted(f"{title}: stopped")

        yield check


def check_stop() -> None:
    """Raise `Interrupted` if a stop was requested, also where a library swallowed the first."""
    for stops in _active:
        stops.check()


def was_stopped() -> bool:
    """Return whether `Interrupted` was raised, even if a library replaced it by another error."""
    return any(stops.raised for stops in _active)
