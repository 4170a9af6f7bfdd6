"""The command line: `application` has the commands of a run, the other modules one topic each."""

from metaxlm.cli.application import main

__all__ = ["main"]
