"""The program of the process in which SentencePiece trains; nothing of metaxlm is imported here.

Comes in: sentences, a line each, on standard input; on the command line the descriptor of the
model's file and SentencePiece's options as JSON. Goes out: the model in that file, and the log on
standard error. If SentencePiece refuses, its reason is on standard output and the exit code is
`REFUSED`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator

REFUSED = 3
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Train, and return the exit code."""
    # Ctrl-C and schedulers signal both processes; the parent decides, and it ends this one.
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
        return REFUSED
    return 0


def _read_lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def _end_with_parent() -> None:
    """Ask Linux to end this process when its parent dies; training hears of nothing else."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
