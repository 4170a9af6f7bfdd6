"""The process in which SentencePiece trains; it imports nothing of metaxlm.

It reads sentences from standard input, one per line, and the file descriptor of the model and the
options as JSON from the command line. It writes the model to the descriptor, the log to standard
error, and a training error to standard output with the exit code `REJECTED`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator

REJECTED = 3
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Train, and return the exit code."""
    # Ctrl-C and schedulers signal both processes; the parent handles it and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_with_parent()
    import sentencepiece

    file, options = sys.argv[1:]
    try:
        with os.fdopen(int(file), "wb") as writer:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_read_lines(), model_writer=writer, **json.loads(options)
            )
    except RuntimeError as error:
        print(error)
        return REJECTED
    return 0


def _read_lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def _end_with_parent() -> None:
    """End this process when its parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
