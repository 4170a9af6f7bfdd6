"""The process in which SentencePiece trains; it imports nothing of metaxlm.

It reads sentences from standard input, one per line, and the file descriptor of the model and the
options as JSON from the command line. It writes the model to the descriptor, the log to standard
error, and a training error to standard output with the exit code `REJECTED`.
"""

import ctypes
import json
import os
import signal
import sys

REJECTED = 3
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Train, and return the exit code."""
    # Ctrl-C and schedulers signal both processes; the parent handles it and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":  # end this process when its parent dies
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    import sentencepiece

    file, options = sys.argv[1:]
    lines = (line.removesuffix(b"\n") for line in sys.stdin.buffer)
    try:
        with os.fdopen(int(file), "wb") as writer:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=lines, model_writer=writer, **json.loads(options)
            )
    except RuntimeError as error:
        print(error)
        return REJECTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
