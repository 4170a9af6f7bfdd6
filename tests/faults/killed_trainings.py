"""Trainings that are killed with -9 at random moments; run by `test_kills.py`.

`python -m tests.faults.killed_trainings FOLDER RUNS SEED` prints one JSON object: how each killed
run ended after it was started again, beside the ending of an undisturbed one. Every run is a
process of its own, forked from this one, which therefore only starts, kills and compares.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from tests.conftest import PARTS, sentences
from tests.trainings import RECIPE, Training, ending

from metaxlm.data.shards import open_shard, write_shard
from metaxlm.files import digest_value
from metaxlm.pretrain.checkpoint import list_checkpoints
from metaxlm.progress import set_quiet
from metaxlm.vocab.unigram import train_unigram

# Saves so often that many kills hit one.
SETTINGS = RECIPE.model_copy(update={"checkpoint_every": 2, "steps": 40})


def make_training(folder: Path) -> Training:
    tokenizer = train_unigram(iter(line for name in PARTS for line in sentences(name)), 110)
    for language in PARTS:
        write_shard(folder / language, sentences(language), tokenizer)
    return Training({name: open_shard(folder / name) for name in PARTS}, tokenizer)


def start(training: Training, folder: Path, workers: int) -> int:
    """Start or continue a training in a process of its own."""
    child = os.fork()
    if not child:
        code = 1
        try:
            torch.set_num_threads(1)
            training.run(folder, SETTINGS, workers=workers)
            code = 0
        finally:
            os._exit(code)
    return child


def finish(training: Training, folder: Path, workers: int) -> float:
    """Run a training to its end; return the seconds that it took."""
    begin = time.monotonic()
    code = os.waitstatus_to_exitcode(os.waitpid(start(training, folder, workers), 0)[1])
    assert code == 0, f"a training ended with {code}"
    return time.monotonic() - begin


def kill(training: Training, folder: Path, workers: int, delay: float) -> bool:
    """Kill a training after a while; say whether it was still running."""
    child = start(training, folder, workers)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main(root: Path, num_runs: int, seed: int) -> None:
    """Kill so many runs, each once or twice, and start each again until it ends."""
    set_quiet(True)
    draw = random.Random(seed)
    training = make_training(root / "shards")
    seconds = finish(training, root / "whole", 0)
    whole = digest_value(ending(root / "whole"))
    endings: list[str] = []
    reached: list[int] = []
    during_a_save = 0
    while len(endings) < num_runs:
        folder = root / str(len(endings))
        killed = 0
        while killed < 1 + len(endings) % 2:
            if kill(training, folder, draw.randrange(3), draw.uniform(0.0, 0.9 * seconds)):
                killed += 1
                checkpoints = list_checkpoints(folder)
                reached.append(int(checkpoints[-1].name[5:]) if checkpoints else 0)
                during_a_save += any(folder.glob(".tmp-*"))
        finish(training, folder, draw.randrange(3))
        endings.append(digest_value(ending(folder)))
    found = {"whole": whole, "endings": endings, "reached": reached, "in_a_save": during_a_save}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
