"""A worker process of the local engine: `python -m metaxlm.data.engines.worker`.

Comes in, over a socket: ranks. Goes out: how far the task is, and how it ended. It ends as soon as
the socket closes, even in the middle of a task, so that nothing outlives the process that started
it. It imports only what the steps need: starting one takes a few tenths of a second.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

from metaxlm.data.engines.tasks import reporting_to, run_pickled

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the ranks that come over the socket, one after the other."""
    descriptor, parent, world_size, pipeline_file, work_dir = sys.argv[1:]
    _end_with_parent(int(parent))
    faulthandler.enable()
    # Ctrl-C and schedulers signal all processes; the parent decides, and it ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection: Connection[object, object] = Connection(int(descriptor))
    ranks: SimpleQueue[int] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, ranks), daemon=True).start()
    pipeline = Path(pipeline_file).read_bytes()
    while True:
        with reporting_to(connection.send):
            outcome = run_pickled(pipeline, ranks.get(), int(world_size), Path(work_dir))
        connection.send(outcome)


def _end_with_parent(parent: int) -> None:
    """Have the kernel end this process with its parent, even inside a long call of C code."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _listen(connection: Connection[object, object], ranks: SimpleQueue[int]) -> None:
    try:
        while True:
            ranks.put(connection.recv())  # type: ignore[arg-type]
    except (EOFError, OSError):
        os._exit(1)


if __name__ == "__main__":
    main()
