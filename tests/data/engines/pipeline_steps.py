"""Steps for the tests of the engines, which workers import from here, and looks at what they do.

Each step writes one file a rank, and a line to `executions.txt` each time it starts, so that tests
can tell which ranks ran and how often.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep

from metaxlm.data.engines.tasks import advance
from metaxlm.errors import MetaXLMError
from metaxlm.files import write_text


def read_executions(folder: Path) -> list[int]:
    """Ranks in the order in which they started, once for each start."""
    path = folder / "executions.txt"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def note_execution(folder: Path, rank: int) -> None:
    with (folder / "executions.txt").open("a") as file:
        file.write(f"{rank}\n")


def read_results(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("[0-9]*.txt")}


def wait_until(predicate: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether the process still runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class MakeDocuments(PipelineStep):
    """Yields a few documents that depend on the rank and on nothing else."""

    name = "make documents"
    type = "test"

    def __init__(self, num_documents: int = 20, pause_s: float = 0.0) -> None:
        super().__init__()
        self.num_documents = num_documents
        self.pause_s = pause_s
        self.made = 0

    def run(self, data: object, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        for index in range(self.num_documents):
            # A step that is not fresh would go on counting where the task before it stopped.
            self.made += 1
            self.stat_update("documents")
            time.sleep(self.pause_s)
            advance(1_000)
            key = hashlib.sha256(f"{rank}/{world_size}/{index}".encode()).hexdigest()
            yield Document(text=f"{self.made} {key}", id=f"{rank}/{index}")


class WriteDocuments(PipelineStep):
    """Writes the documents of a rank to one file, under its final name only when it is complete."""

    name = "write documents"
    type = "test"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def run(self, data: Iterator[Document], rank: int = 0, world_size: int = 1) -> None:
        note_execution(self.folder, rank)
        write_text(self.folder / f"{rank}.txt", "".join(f"{d.text}\n" for d in data))


class WaitForFile(PipelineStep):
    """Given ranks tell their process id and wait for a file that the test may or may not make."""

    name = "wait"
    type = "test"

    def __init__(self, folder: Path, ranks: set[int], holding_gil: bool = False) -> None:
        super().__init__()
        self.folder = folder
        self.ranks = ranks
        self.holding_gil = holding_gil

    def run(self, data: Iterator[Document], rank: int = 0, world_size: int = 1) -> None:
        note_execution(self.folder, rank)
        if rank in self.ranks:
            write_text(self.folder / f"pid-{rank}", str(os.getpid()))
            if self.holding_gil:
                pow(7, 1 << 33)  # minutes inside one call, during which no thread runs
            # Not forever: a test that fails leaves nobody to make the file.
            wait_until((self.folder / "go").exists, timeout_s=60)
        write_text(self.folder / f"{rank}.txt", f"{rank} of {world_size}\n")


class Misbehave(PipelineStep):
    """Does something bad in given ranks."""

    name = "misbehave"
    type = "test"

    def __init__(self, folder: Path, faults: dict[int, str]) -> None:
        super().__init__()
        self.folder = folder
        self.faults = faults

    def run(self, data: Iterator[Document], rank: int = 0, world_size: int = 1) -> None:
        note_execution(self.folder, rank)
        fault = self.faults.get(rank)
        if fault and not (self.folder / "mended").exists():
            self._misbehave(fault, rank)
        write_text(self.folder / f"{rank}.txt", "fine\n")

    def _misbehave(self, fault: str, rank: int) -> None:
        if fault == "user error":
            raise MetaXLMError(f"page {rank}:\ncut short; fetch it again")
        if fault == "full disk":
            with open("/dev/full", "w") as file:  # noqa: PTH123
                file.write("x")
        if fault == "bug":
            raise KeyError(f"rank {rank}")
        if fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "die once" and read_executions(self.folder).count(rank) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "exit":
            os._exit(3)
        if fault == "noise":
            print("printed by a library")
            print("and to stderr", file=sys.stderr)
