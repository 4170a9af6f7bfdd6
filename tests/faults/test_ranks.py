"""Processes that die, hang or fail without a launcher: the others end with an error."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.conftest import PARTS, sentences
from tests.rank_jobs import Job, Work, ranks
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.data.shards import write_shard
from metaxlm.pretrain.checkpoint import list_checkpoints

TIMEOUT_S = 10
LONG = {"steps": 100_000, "batch_size": 6, "checkpoint_every": 5, "held_out": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    root = tmp_path_factory.mktemp("data")
    tokenizer.save_pretrained(root / "tokenizer")
    for language in PARTS:
        write_shard(root / "shards" / language, sentences(language), tokenizer)
    return root


def command(data: Path, folder: Path, *jobs: Job) -> list[str]:
    work = Work(str(data / "shards"), str(data / "tokenizer"), TIMEOUT_S, jobs)
    return work.write(folder / "work.json")


def wait(processes: list[subprocess.Popen[str]], limit_s: float) -> list[list[str]]:
    """Wait for all processes; return the messages of each."""
    deadline = time.monotonic() + limit_s
    outputs = [p.communicate(timeout=max(0.1, deadline - time.monotonic()))[0] for p in processes]
    return [[line for line in text.splitlines() if "metaxlm:" in line] for text in outputs]


def wait_for_checkpoint(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    while not list_checkpoints(folder):
        for process in processes:
            assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "victim"),
    [
        (signal.SIGKILL, 1),
        (signal.SIGKILL, 0),
        (signal.SIGSTOP, 1),
    ],
)
@pytest.mark.faults
def test_a_process_that_dies_or_hangs_ends_the_others_with_an_error(
    data: Path, tmp_path: Path, number: signal.Signals, victim: int
) -> None:
    with ranks(2, command(data, tmp_path, Job(str(tmp_path / "run"), LONG))) as processes:
        wait_for_checkpoint(tmp_path / "run", processes)
        processes[victim].send_signal(number)
        other = processes[1 - victim]
        messages = wait([other], 90)
    assert other.returncode == 75, messages
    what = "another process" if victim else "rank 0"
    assert f"lost contact with {what}" in messages[0][0], messages
    assert "continues" in messages[0][0] or "starts over" in messages[0][0]


@pytest.mark.faults
@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_process_is_reported_and_ends_all(
    data: Path, tmp_path: Path, rank: int
) -> None:
    """SIGHUP makes a job fail in one process only; the other waits in a collective."""
    job = Job(str(tmp_path / "run"), LONG, signals=[(rank, 7, signal.SIGHUP)])
    with ranks(2, command(data, tmp_path, job)) as processes:
        messages = wait(processes, 90)
        codes = [process.returncode for process in processes]
        assert codes[0] == 2 and codes[1] != 0, messages
        who = "rank 1: " if rank else ""
        assert messages[0] == [f"metaxlm: {who}step 7 is not wanted here"]


@pytest.mark.faults
def test_a_wrong_recipe_is_reported_once(data: Path, tmp_path: Path) -> None:
    with ranks(3, command(data, tmp_path, Job(str(tmp_path / "run")))) as processes:
        messages = wait(processes, 90)
        assert [process.returncode for process in processes] == [2, 2, 2], messages
        (line,) = [line for lines in messages for line in lines]
        assert line.startswith("metaxlm: batch_size 8 does not split into 3 equal micro-batches")


@pytest.mark.faults
def test_a_process_that_never_starts_is_an_error(data: Path, tmp_path: Path) -> None:
    arguments = command(data, tmp_path, Job(str(tmp_path / "run"), LONG))
    with ranks(3, arguments, missing=1) as processes:
        messages = wait(processes, 90)
        assert [process.returncode for process in processes] == [2, 2], messages
        for rank, lines in zip((0, 2), messages, strict=True):
            expected = f"metaxlm: rank {rank}: the 3 processes did not connect"
            assert [line.startswith(expected) for line in lines] == [True], messages
