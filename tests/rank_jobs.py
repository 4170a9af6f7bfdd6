"""Trainings by several processes: started here for tests, and run there by this file as a script.

A job is a training of the tiny model in a folder. Some send their own process a signal on the way.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed.fsdp
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.cli.exit_codes import ending_together, explain, is_heard, print_error
from metaxlm.data.shards import Shard, open_shard
from metaxlm.errors import Interrupted, MetaXLMError
from metaxlm.model.huggingface import load_pretrained
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource, MicroBatch
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.pretrain.loop import train
from metaxlm.recipe import ExecutionRecipe
from tests.trainings import RECIPE, Training

ROOT = Path(__file__).parents[1]
_SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "default",
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # as the command line sets it
}


@dataclass(frozen=True)
class Job:
    """One training."""

    folder: str
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the usual recipe."""
    sharding: str = "ddp"
    signals: Sequence[tuple[int, int, int]] = ()
    """(rank, step, signal): what a process sends itself when it comes to a step; SIGHUP raises."""
    copy: str | None = None
    """Where the folder is copied to afterwards."""
    encoder: str | None = None
    """The folder of another model."""
    gradient_checkpointing: bool = False


class _Source(BatchSource):
    """Batches that remember their samples, and where processes send themselves signals."""

    def __init__(self, job: Job, rank: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._signals = {step: number for r, step, number in job.signals if r == rank}
        self.seen: dict[str, list[tuple[str, int]]] = {}

    def mask_key(self, step: int) -> int:
        if self._signals.get(step) == signal.SIGHUP:
            raise MetaXLMError(f"step {step} is not wanted here")
        if step in self._signals:
            os.kill(os.getpid(), self._signals[step])
        return super().mask_key(step)

    def micro_batch(self, step: int, index: int = 0, count: int = 1) -> MicroBatch:
        batch = super().micro_batch(step, index, count)
        self.seen[f"{step}.{index}"] = batch.samples
        return batch


def run_job(
    job: Job,
    world: DistributedContext,
    shards: Mapping[str, Shard],
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Train; an agreed stop ends only the job."""
    folder, recipe = Path(job.folder), RECIPE.model_copy(update=dict(job.recipe))
    if job.encoder is None:
        model = Training(shards, tokenizer).make_model()
    else:
        model = load_pretrained(job.encoder).model
    source = _Source(job, world.rank, shards, tokenizer, recipe, 1)
    masking = Masking(tokenizer, recipe, world.device)
    execution = ExecutionRecipe(
        sharding=job.sharding, gradient_checkpointing=job.gradient_checkpointing
    )
    end = "finished"
    try:
        train(model, source, recipe, folder, 1, world, "job", masking=masking, execution=execution)
    except Interrupted as stop:
        end = str(stop)
    note = {"end": end, "samples": source.seen}
    (folder / f"rank-{world.rank}.json").write_text(json.dumps(note), encoding="utf-8")
    world.broadcast(None)  # wait for all
    if job.copy is not None and world.is_main:
        shutil.copytree(folder, job.copy)


def open_shards(folder: Path) -> dict[str, Shard]:
    """Open the shards of all languages, in one order everywhere."""
    return {path.name: open_shard(path) for path in sorted(folder.iterdir())}


def notes(folder: Path) -> list[dict[str, Any]]:
    """Return what each process wrote down about its job, by rank."""
    paths = sorted(folder.glob("rank-*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def samples(folder: Path, steps: int) -> list[list[Any]]:
    """Return the samples of each step in the order of its micro-batches, over all processes."""
    seen = {key: value for note in notes(folder) for key, value in note["samples"].items()}
    order = sorted(seen, key=lambda key: [int(part) for part in key.split(".")])
    return [
        [sample for key in order if key.startswith(f"{step}.") for sample in seen[key]]
        for step in range(steps)
    ]


@dataclass(frozen=True)
class Work:
    """The jobs of a script."""

    shards: str
    tokenizer: str
    timeout_s: int
    jobs: Sequence[Job]

    def write(self, path: Path) -> list[str]:
        """Write it down; return the command of a process that does it."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return ["-m", "tests.rank_jobs", str(path)]


def torchrun(size: int, arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Start processes as a user does."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(size), "--standalone"]
    return _start([*launcher, *arguments], {})


def fork_ranks(size: int, arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Start a program that forks its processes, which import nothing again."""
    return _start([*arguments, str(size)], _world(size))


def _world(size: int) -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


@contextmanager
def ranks(
    size: int, arguments: Sequence[str], missing: int | None = None
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes without a launcher that looks after them, as on several machines."""
    shared = _world(size)
    started = [
        _start(arguments, shared | {"RANK": str(rank)}) for rank in range(size) if rank != missing
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _start(arguments: Sequence[str], more: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | _SETTINGS | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _work(values: dict[str, Any]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(values["tokenizer"])
    shards = open_shards(Path(values["shards"]))
    world = DistributedContext.join("cpu", ExecutionRecipe(timeout_s=values["timeout_s"]))
    with ending_together(world):
        for job in values["jobs"]:
            start = time.monotonic()
            run_job(Job(**job), world, shards, tokenizer)
            if world.is_main:
                print(f"{job['folder']}: {time.monotonic() - start:.1f} s", flush=True)


def fork(size: int) -> None:
    """Return in each of several processes; this one ends with them."""
    for name in ("torch.distributed.fsdp", "transformers.activations"):
        import_module(name)  # here, and not in each of them
    children = []
    for rank in range(size):
        if not (child := os.fork()):
            os.environ["RANK"] = str(rank)
            return
        children.append(child)
    sys.exit(max(abs(os.waitstatus_to_exitcode(os.waitpid(c, 0)[1])) for c in children))


def main() -> None:
    """Do the work as one process of several, or fork as many as the second argument says."""
    torch.set_num_threads(1)
    if len(sys.argv) > 2:
        fork(int(sys.argv[2]))
    try:
        _work(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    except (MetaXLMError, Interrupted) as error:
        ending = explain(error)
        assert ending is not None
        if is_heard(error):
            print_error(ending[1])
        sys.exit(ending[0])


if __name__ == "__main__":
    main()
