"""Whole runs by several processes: the same models as by one, also when they are stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.rank_jobs import ranks, torchrun
from tests.toy_runs import SIZES, write_toy
from tests.trainings import rows

from metaxlm.files import digest_file
from metaxlm.pretrain.checkpoint import list_checkpoints

pytestmark = pytest.mark.faults


def write_recipe(folder: Path, variants: dict[str, Any] | None = None, steps: int = 400) -> None:
    """Write a recipe with two micro-batches and six seeds."""
    training = {"steps": steps, "checkpoint_every": 20, "log_every": 10, "micro_batches": 2}
    write_toy(
        folder,
        training,
        model={"layers": 2, "hidden": 32, "ffn": 64},
        pretraining={"steps": 40},
        variants=variants or {"metaxlm": {"initialize": "both"}},
        evaluation={
            "alignment": None,
            "finetune": {"xnli": {"epochs": 1, "length": 32, "seeds": 6}},
        },
    )


def command(folder: Path, *more: str) -> list[str]:
    """Return Python's arguments for the command line."""
    output = str(folder / "runs")
    run = ["run", str(folder / "toy.yaml"), "--output", output, "--device", "cpu"]
    return ["-m", "metaxlm", *run, *more]


def digests(folder: Path) -> list[str]:
    models = ("meta/model", "variants/metaxlm/model")
    return [digest_file(folder / "runs/toy" / name / "model.safetensors") for name in models]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is ready for its first training."""
    folder = tmp_path_factory.mktemp("prepared")
    write_recipe(folder)
    run_alone(folder, "--stage", "shards")
    return folder


@pytest.fixture(scope="module")
def one(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole run by one process."""
    folder = tmp_path_factory.mktemp("one")
    shutil.copytree(prepared, folder, dirs_exist_ok=True)
    run_alone(folder)
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    """A copy of the run that is ready for its first training."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run_alone(folder: Path, *more: str) -> None:
    with ranks(1, command(folder, *more)) as (process,):
        output = finish(process)
        assert process.returncode == 0, output


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=240)
    return output


def run_two(folder: Path, *more: str) -> str:
    """Run the command by two processes, and return its output."""
    process = torchrun(2, command(folder, *more))
    output = finish(process)
    assert process.returncode == 0, output
    return output


def wait_for_checkpoint(folder: Path, step: int, processes: list[subprocess.Popen[str]]) -> None:
    checkpoints = folder / "runs/toy/meta/checkpoints"
    while not any(int(path.name[5:]) > step for path in list_checkpoints(checkpoints)):
        for process in processes:
            assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)


def stopped_at(output: str) -> int:
    """Return the step that a run says it stopped after; it says so once."""
    found = re.findall(r"stopped after step (\d+); the same command continues", output)
    assert len(found) == 1, output
    return int(found[0])


def test_two_processes_make_the_models_of_one(folder: Path, one: Path) -> None:
    output = run_two(folder)
    assert output.count("meta: running") == output.count("pretrain metaxlm: done") == 1, output
    assert digests(folder) == digests(one)
    for place in ("meta", "variants/metaxlm"):
        logs = [rows(root / "runs/toy" / place / "checkpoints") for root in (folder, one)]
        assert logs[0] == logs[1]
    results = [(root / "runs/toy/results.jsonl").read_text("utf-8") for root in (folder, one)]
    assert results[0] == results[1]
    assert len(find_makers(folder)) == 2  # both processes made cells


def find_makers(folder: Path) -> set[str]:
    """Return the numbers of the processes that made cells, as their locks tell."""
    locks = (folder / "runs/toy/cells").glob("*/*/.lock-*")
    return {lock.read_text("ascii") for lock in locks}


def test_processes_of_torchrun_share_the_work(folder: Path) -> None:
    write_recipe(folder, {"one": {}, "two": {"initialize": "none"}}, steps=30)
    output = run_two(folder, "--shared")
    assert output.count("pretrain one: running") == output.count("pretrain two: running") == 1
    assert len(find_makers(folder)) == 2
    makers = {(folder / f"runs/toy/variants/{v}/.lock-model").read_text() for v in ("one", "two")}
    assert len(makers) == 2  # each variant was trained by a process of its own
    rows_found = (folder / "runs/toy/results.jsonl").read_text("utf-8").splitlines()
    assert {"one", "two"} <= {json.loads(row)["variant"] for row in rows_found}


def test_two_processes_with_shards_make_a_whole_model(folder: Path, one: Path) -> None:
    shards = ["--set", "execution.sharding=fsdp", "--stage", "meta", "--quiet"]
    assert run_two(folder, *shards).strip() == ""
    found, expected = (
        load_file(root / "runs/toy/meta/model/model.safetensors") for root in (folder, one)
    )
    # 400 steps away from rounding that differs in the gradient's norm.
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-5)
    files = [path.name for path in (folder / "runs/toy/meta/model").iterdir()]
    assert {"config.json", "tokenizer.json", "training_log.jsonl"} <= set(files)


def test_a_run_stopped_through_one_process_and_through_torchrun_ends_the_same(
    folder: Path, one: Path
) -> None:
    with ranks(2, command(folder)) as processes:
        wait_for_checkpoint(folder, 0, processes)
        processes[1].send_signal(signal.SIGTERM)
        outputs = [finish(process) for process in processes]
        assert [process.returncode for process in processes] == [75, 75], outputs
        assert outputs[1] == ""
    first = stopped_at(outputs[0])
    newest = list_checkpoints(folder / "runs/toy/meta/checkpoints")[-1]
    assert newest.name == f"step-{first:08d}"
    process = torchrun(2, command(folder))
    wait_for_checkpoint(folder, first, [process])
    process.send_signal(signal.SIGTERM)
    output = finish(process)
    assert process.returncode != 0
    assert first < stopped_at(output) < 400
    assert f"continuing after step {first}" in output
    run_two(folder)
    assert digests(folder) == digests(one)


def test_a_process_that_waits_stops_the_run_at_the_next_stage(tmp_path: Path) -> None:
    """Rank 0 prepares the text; rank 1, which only waits, gets a signal."""
    write_toy(tmp_path, corpus={"phrasebook": SIZES | {"source_sentences": 20_000}})
    with ranks(2, command(tmp_path)) as processes:
        while not (tmp_path / "runs/toy").is_dir():
            time.sleep(0.05)
        processes[1].send_signal(signal.SIGTERM)
        outputs = [finish(process) for process in processes]
        assert [process.returncode for process in processes] == [75, 75], outputs
    assert "metaxlm: rank 1 received a stop request; the same command continues" in outputs[0]
    assert outputs[1] == ""
    assert not (tmp_path / "runs/toy/vocabulary").exists()


def test_a_killed_worker_ends_the_run_with_an_error(folder: Path) -> None:
    process = torchrun(2, command(folder))
    wait_for_checkpoint(folder, 0, [process])
    workers = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
    )
    victim = max(int(pid) for pid in workers.stdout.split())
    os.kill(victim, signal.SIGKILL)
    output = finish(process)
    assert process.returncode != 0
    assert "SIGKILL" in output, output
    assert str(victim) in output, output


def test_the_command_says_what_two_processes_cannot_do(folder: Path) -> None:
    wrong = ["--set", "meta.micro_batches=3", "--set", "meta.batch_size=9"]
    process = torchrun(2, command(folder, *wrong))
    output = finish(process)
    assert process.returncode != 0
    assert output.count("metaxlm: micro_batches is 3, which 2 processes cannot share") == 1, output
