"""The command line: `app` registers all commands, the other modules have one topic each."""

import os
import sys

from metaxlm.errors import Interrupted
from metaxlm.stopping import CONTINUES, EXIT_INTERRUPTED, stoppable

__all__ = ["describe_stop", "is_first_process", "main"]


def describe_stop(reason: str = "stopped") -> str:
    """Return the message of a stopped command, with what a restart does."""
    if sys.argv[1:2] and sys.argv[1] in ("demo", "evaluate", "run"):
        return f"{reason}{CONTINUES}"
    return f"{reason}; no incomplete file was written, and the same command starts over"


def is_first_process() -> bool:
    """Return whether this process has rank 0 or is alone."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def main() -> None:
    """Run the command line; handle Ctrl-C and SIGTERM, also while modules are imported."""
    line = f"metaxlm: {describe_stop()}" if is_first_process() else ""
    with stoppable(line):
        try:
            from metaxlm.cli.app import run_command

            run_command()
        except Interrupted:
            print(line, end="\n" if line else "", file=sys.stderr)
            sys.exit(EXIT_INTERRUPTED)
