"""Processes that die, hang or fail: the others end in time and say who it was."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from tests.conftest import PARTS, sentences
from tests.rank_jobs import Job, Work, ranks
from transformers import PreTrainedTokenizerBase

from metaxlm.data.shards import write_shard
from metaxlm.pretraining.checkpoint import list_checkpoints

TIMEOUT_S = 10
LONG = {"steps": 100_000, "batch_size": 6, "checkpoint_every": 5, "held_out": 0}


@pytest.fixture(scope="module")
def data(
    tmp_path_factory: pytest.TempPathFactory, multilingual_tokenizer: PreTrainedTokenizerBase
) -> Path:
    root = tmp_path_factory.mktemp("data")
    multilingual_tokenizer.save_pretrained(root / "tokenizer")
    for language in PARTS:
        write_shard(root / "shards" / language, sentences(language), multilingual_tokenizer)
    return root


def command(data: Path, folder: Path, *jobs: Job) -> list[str]:
    work = Work(str(data / "shards"), str(data / "tokenizer"), TIMEOUT_S, jobs)
    return work.write(folder / "work.json")


def wait(processes: list[subprocess.Popen[str]], limit_s: float) -> list[str]:
    """Wait for all processes; return what each complained about."""
    deadline = time.monotonic() + limit_s
    outputs = [p.communicate(timeout=max(0.1, deadline - time.monotonic()))[0] for p in processes]
    complaints = ("metaxlm:", "Error", "Warning")
    return [
        "\n".join(line for line in text.splitlines() if any(c in line for c in complaints))
        for text in outputs
    ]


def wait_for_checkpoint(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    while not list_checkpoints(folder):
        for process in processes:
            assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "victim"),
    [
        (signal.SIGKILL, 1),
        pytest.param(signal.SIGKILL, 0, marks=pytest.mark.faults),
        pytest.param(signal.SIGSTOP, 0, marks=pytest.mark.faults),
        pytest.param(signal.SIGSTOP, 1, marks=pytest.mark.faults),
    ],
)
def test_a_process_that_dies_or_hangs_ends_the_others_with_its_name(
    data: Path, tmp_path: Path, number: signal.Signals, victim: int
) -> None:
    with ranks(3, command(data, tmp_path, Job(str(tmp_path / "run"), LONG))) as processes:
        wait_for_checkpoint(tmp_path / "run", processes)
        processes[victim].send_signal(number)
        start = time.monotonic()
        others = [process for rank, process in enumerate(processes) if rank != victim]
        outputs = wait(others, 4 * TIMEOUT_S)
        took_s = time.monotonic() - start
    assert [process.returncode for process in others] == [75, 75], outputs
    who = f"metaxlm: rank {victim} ("
    assert [output.count("\n") for output in outputs] == [0, 0], outputs
    assert outputs[0].startswith(who), outputs
    assert outputs[0].endswith("the same command continues")
    assert f"pid {processes[victim].pid}) " in outputs[0]
    assert outputs[1] == "", outputs
    if number == signal.SIGKILL:
        assert "died" in outputs[0]
        assert took_s < TIMEOUT_S
    else:
        assert f"has not answered for {TIMEOUT_S} s" in outputs[0]
        assert TIMEOUT_S - 1 < took_s < 2 * TIMEOUT_S


@pytest.mark.faults
@pytest.mark.parametrize("rank", [0, 1])
def test_a_failure_of_one_process_is_told_and_ends_all(
    data: Path, tmp_path: Path, rank: int
) -> None:
    """SIGHUP makes a job fail in one process only; the other waits in a collective."""
    job = Job(str(tmp_path / "run"), LONG, signals=[(rank, 7, signal.SIGHUP)])
    with ranks(2, command(data, tmp_path, job)) as processes:
        outputs = wait(processes, 90)
        assert [process.returncode for process in processes] == [2, 2], outputs
        told = "step 7 is not wanted here"
        who = f"rank 1 ({socket.gethostname()}, pid {processes[1].pid}): " if rank else ""
        assert outputs == [f"metaxlm: {who}{told}", ""]


@pytest.mark.faults
def test_a_wrong_recipe_is_told_once(data: Path, tmp_path: Path) -> None:
    with ranks(3, command(data, tmp_path, Job(str(tmp_path / "run")))) as processes:
        outputs = wait(processes, 90)
        assert [process.returncode for process in processes] == [2, 2, 2], outputs
        assert outputs[0].startswith("metaxlm: batch_size 8 does not split into 3 equal pieces")
        assert outputs[1:] == ["", ""]


@pytest.mark.faults
def test_a_process_that_never_starts_is_named(data: Path, tmp_path: Path) -> None:
    arguments = command(data, tmp_path, Job(str(tmp_path / "run"), LONG))
    with ranks(3, arguments, missing=1) as processes:
        outputs = wait(processes, 90)
        assert [process.returncode for process in processes] == [2, 2], outputs
        assert [
            f"rank {rank}: rank 1 of 3 did not start within {TIMEOUT_S} s" in output
            for rank, output in zip((0, 2), outputs, strict=True)
        ] == [True, True], outputs
