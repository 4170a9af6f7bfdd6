"""Ctrl-C and SIGTERM as a request that long work honors when it suits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from metaxlm.errors import Interrupted


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether a stop was asked for; a second request does not wait.

    Only the main thread gets signals; elsewhere, and where the user ignores them, nothing changes.
    """
    requested = False

    def request(*_: object) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True

    with _handling(request):
        yield lambda: requested


@contextmanager
def _handling(request: Callable[..., None]) -> Iterator[None]:
    previous = {}
    if threading.current_thread() is threading.main_thread():
        previous = {
            number: signal.signal(number, request)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def interruptible(title: str) -> Iterator[Callable[[], None]]:
    """Yield a function that raises `Interrupted` once a stop was asked for."""
    with stop_requests() as requested:

        def check() -> None:
            if requested():
                raise Interrupted(f"{title}: stopped")

        yield check


@contextmanager
def immediate_stops() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt at once, and yield a check for lost ones.

    Python swallows an exception that a signal raises within a destructor or a weak reference's
    callback; the check raises it again.
    """
    requested = False

    def request(*_: object) -> None:
        nonlocal requested
        requested = True
        raise KeyboardInterrupt

    def check() -> None:
        if requested:
            raise KeyboardInterrupt

    with _handling(request):
        yield check
