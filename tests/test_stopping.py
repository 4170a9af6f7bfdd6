"""Stops that arrive at a bad moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import weakref

import pytest

from metaxlm.errors import Interrupted
from metaxlm.stopping import check_stop, deferred_stops, stoppable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Thing:
    """Something that can be referred to weakly."""


def ask(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_stop_is_raised_at_once_and_handlers_are_restored(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (*SIGNALS, signal.SIGALRM)], sys.unraisablehook
    with pytest.raises(Interrupted), stoppable(""):
        ask(number)
        raise AssertionError("not stopped")
    after = [signal.getsignal(each) for each in (*SIGNALS, signal.SIGALRM)], sys.unraisablehook
    assert after == before


def test_a_stop_within_a_callback_is_raised_again() -> None:
    with pytest.raises(Interrupted), stoppable(""):
        thing = Thing()
        reference = weakref.ref(thing, lambda _: ask())
        del thing
        assert reference() is None  # Python dropped the exception
        for _ in range(1_000):
            time.sleep(0.01)
        raise AssertionError("not stopped")


def test_a_stop_that_a_library_swallows_is_found_at_the_next_check() -> None:
    with stoppable(""):
        check_stop()
        try:
            ask()
        except BaseException as error:
            assert isinstance(error, Interrupted)
        with pytest.raises(Interrupted):
            check_stop()


@pytest.mark.parametrize("nested", [True, False])
def test_a_deferred_stop_is_raised_at_the_end(nested: bool) -> None:
    steps: list[str] = []

    def work() -> None:
        with deferred_stops() as requested:
            assert not requested()
            with deferred_stops():
                ask()
            steps.append("inner")
            assert requested()
        steps.append("outer")

    def command() -> None:
        with stoppable(""):
            work()

    with pytest.raises(Interrupted):
        (command if nested else work)()
    assert steps == ["inner"]


PROGRAM = """
import os, sys, time
from metaxlm.stopping import deferred_stops, stoppable
with stoppable("the line"):
    {body}
"""
# Locks a mutex twice: waits in C code for ever, where no handler of Python runs.
STUCK = (
    "import ctypes; lock = ctypes.CDLL(None).pthread_mutex_lock; "
    "mutex = ctypes.create_string_buffer(64); "
    "lock(mutex); print('ready', flush=True); lock(mutex)"
)


@pytest.mark.parametrize(
    ("body", "num_signals"),
    [
        (f"with deferred_stops(): {STUCK}", 2),
        ("with deferred_stops():\n        print('ready', flush=True)\n        time.sleep(100)", 2),
        (STUCK, 1),
    ],
    ids=["second in C code", "second", "first in C code"],
)
def test_a_process_that_cannot_answer_ends_with_the_line(body: str, num_signals: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for number in range(num_signals):
        time.sleep(number)  # two in quick succession count as one
        process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[1] == "the line\n"
    assert process.returncode == 75
