"""The process in which SentencePiece trains; it imports nothing of metaxlm.

It reads sentences from standard input, one per line, and the options as JSON from the command line.
It writes the model to standard output and the log to standard error. With the exit code `REJECTED`,
standard output is a training error.
"""

import ctypes
import json
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

    lines = (line.removesuffix(b"\n") for line in sys.stdin.buffer)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines, model_writer=sys.stdout.buffer, **json.loads(sys.argv[1])
        )
    except RuntimeError as error:
        print(error)
        return REJECTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
