"""Finetuning steps on one GPU, alone and side by side: all token embeddings, or those in use.

Each process trains an XNLI classifier with random weights on batches of 32 random sequences; they
start together and are counted for the same seconds. `all rows` is AdamW over the whole table of
token embeddings, `used rows` what finetuning does: over those of the training set, which has
15,000 different tokens here. With several processes, the last column is that of NVIDIA's
Multi-Process Service, which this script starts and stops; without it, a GPU computes the kernels of
one process at a time.

    python benchmarks/finetuning_steps.py [--shapes small,base] [--processes 1,12] [--seconds 5]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import product

import numpy as np
import torch

from metaxlm.finetune.batches import FeatureTable
from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.task import Features
from metaxlm.finetune.trainer import FinetuneStep, TrainedRows
from metaxlm.model.encoder import Encoder, EncoderConfig
from metaxlm.model.heads import TaskModel, make_head
from metaxlm.pretrain.distributed import choose_device
from metaxlm.pretrain.optimizer import make_optimizer

BATCH, SEQUENCES, CLASSES, WARM_UP = 32, 2_048, 3, 60
SHAPES = {"small": (64_000, 6, 384), "base": (250_002, 12, 768)}
"""Tokens, layers, size."""
USED, ROWS = 15_000, ("all", "used")
SERVICE = "nvidia-cuda-mps-control"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="small,base")
    parser.add_argument("--processes", default="1,12")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        shape, rows = options.work.split(",")
        work(shape, rows, choose_device(options.device))
        return
    print("steps/s: shape, processes, all rows, used rows, ratio; with MPS, ratio", flush=True)
    for shape, count in product(options.shapes.split(","), map(int, options.processes.split(","))):
        plain = dict(os.environ)
        before, after = (measure(f"{shape},{rows}", count, options, plain) for rows in ROWS)
        print(
            f"{shape:8}{count:4}{before:9.0f}{after:9.0f}{after / before:7.2f}", end="", flush=True
        )
        with nullcontext() if count == 1 else serving() as environment:
            if environment is not None:
                served = measure(f"{shape},used", count, options, environment)
                print(f"{served:9.0f}{served / after:7.2f}", end="")
        print(flush=True)


def measure(
    kind: str, count: int, options: argparse.Namespace, environment: dict[str, str]
) -> float:
    """Return the steps per second of all processes together."""
    command = [sys.executable, __file__, "--work", kind, "--device", options.device]
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)
        for _ in range(count)
    ]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    start = time.time() + 0.5
    for worker in workers:
        assert worker.stdin is not None
        print(start, start + options.seconds, file=worker.stdin, flush=True)
    taken = sum(int(worker.communicate()[0]) for worker in workers)
    return taken / float(options.seconds)


@contextmanager
def serving() -> Iterator[dict[str, str] | None]:
    """Start the service for the processes of this script; yield None where it is missing."""
    if shutil.which(SERVICE) is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
        environment = {**os.environ, **dict.fromkeys(names, folder)}
        subprocess.run([SERVICE, "-d"], env=environment, check=True)
        try:
            yield environment
        finally:
            subprocess.run([SERVICE], input="quit\n", env=environment, text=True, check=True)


def work(shape: str, kind: str, device: torch.device) -> None:
    """Train from the first to the second of the times on standard input; print the steps."""
    torch.manual_seed(0)
    vocabulary, layers, width = SHAPES[shape]
    config = EncoderConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_layers=layers,
        num_heads=width // 64,
        ffn_size=4 * width,
        max_positions=130,
    )
    head = make_head("classification", config, CLASSES)
    model = TaskModel(Encoder(config), head).to(device).train()
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(3.55, 0.45, SEQUENCES).astype(int), 8, 128)
    known = np.sort(random.choice(np.arange(5, vocabulary), USED, replace=False)).astype(np.int32)
    features = [
        Features(
            ids=random.choice(known, length), labels=random.integers(0, CLASSES, 1).astype(np.int32)
        )
        for length in lengths
    ]
    pad_id = config.pad_id
    if kind == "used":
        rows = TrainedRows(model, features)
        features, pad_id = rows.renumber(features), rows.pad_id
    table = FeatureTable(features, config, device, pad_id)
    optimizer = make_optimizer(
        model, learning_rate=1e-5, weight_decay=0.0, betas=(0.9, 0.999), epsilon=1e-8
    )
    step = FinetuneStep(TASKS["xnli"], model, table, optimizer, device, clip=1.0)

    def take(number: int) -> None:
        batch = sorted(random.choice(SEQUENCES, BATCH).tolist(), key=lambda k: -lengths[k])
        step.take(step.make_inputs(batch, BATCH, number), 1e-5)
        if number % 20 == 0:
            step.totals.last_loss.item()  # wait for the device

    for number in range(WARM_UP if device.type == "cuda" else 2):
        take(number)
    step.totals.last_loss.item()
    print("ready", flush=True)
    start, end = map(float, sys.stdin.readline().split())
    time.sleep(max(0.0, start - time.time()))
    taken = 0
    while time.time() < end:
        take(taken)
        taken += 1
    step.totals.last_loss.item()
    print(taken)


if __name__ == "__main__":
    main()
