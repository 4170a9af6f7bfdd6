"""Stops that arrive at a bad moment."""

from __future__ import annotations

import os
import signal
import sys
import weakref

import pytest

from metaxlm.stopping import immediate_stops


class Thing:
    """Something that can be referred to weakly."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_within_a_callback_is_not_lost(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    swallowed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", swallowed.append)
    before = signal.getsignal(number)
    with immediate_stops() as check:
        check()
        thing = Thing()
        reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), number))
        del thing
        assert reference() is None
        assert len(swallowed) == 1  # Python says so and goes on
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(number) is before


def test_a_stop_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), immediate_stops():
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("not stopped")
