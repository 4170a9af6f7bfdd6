"""The command line: `application` has the commands of a run, the other modules one topic each."""

from __future__ import annotations

import os
import sys

from metaxlm.errors import Interrupted
from metaxlm.stopping import CONTINUES, EXIT_INTERRUPTED, stoppable

__all__ = ["describe_stop", "is_first_process", "main"]

_RESUMABLE = ("demo", "evaluate", "run")


def describe_stop(reason: str = "stopped") -> str:
    """Say that the command was stopped, and what another start does."""
    if sys.argv[1:2] and sys.argv[1] in _RESUMABLE:
        return f"{reason}{CONTINUES}"
    return f"{reason}; no incomplete file was written, and the same command starts over"


def is_first_process() -> bool:
    """Say whether this process speaks for all that were started together."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def main() -> None:
    """Run the command line; answer Ctrl-C and SIGTERM from here on, also while it is loaded."""
    line = f"metaxlm: {describe_stop()}" if is_first_process() else ""
    with stoppable(line):
        try:
            from metaxlm.cli.application import run_command

            run_command()
        except Interrupted:
            print(line, end="\n" if line else "", file=sys.stderr)
            sys.exit(EXIT_INTERRUPTED)
