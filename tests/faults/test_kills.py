"""A run killed with SIGKILL at any moment and started again ends like an undisturbed one.

As a program, `python -m tests.faults.test_kills FOLDER RUNS SEED` kills training runs at random
moments and prints a JSON object: the result of each killed run after it was started again, and the
result of an undisturbed run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.conftest import PARTS, sentences
from tests.faults.programs import fork, run_program, wait
from tests.trainings import RECIPE, Training, ending

from metaxlm.data.shards import open_shard, write_shard
from metaxlm.files import digest_value
from metaxlm.pretrain.checkpoint import list_checkpoints
from metaxlm.progress import set_quiet
from metaxlm.vocab.unigram import train_unigram

# A save every second step: many kills hit one.
SETTINGS = RECIPE.model_copy(update={"checkpoint_every": 2, "steps": 40})


def make_training(folder: Path) -> Training:
    tokenizer = train_unigram(iter(line for name in PARTS for line in sentences(name)), 110)
    for language in PARTS:
        write_shard(folder / language, sentences(language), tokenizer)
    return Training({name: open_shard(folder / name) for name in PARTS}, tokenizer)


def start(training: Training, folder: Path, workers: int) -> int:
    """Start or resume a training run in a forked process."""

    def run() -> None:
        torch.set_num_threads(1)
        training.run(folder, SETTINGS, workers=workers)

    return fork(run)


def main(root: Path, num_runs: int, seed: int) -> None:
    """Kill each run once or twice, and start it again until it ends."""
    set_quiet(True)
    draw = random.Random(seed)
    training = make_training(root / "shards")
    begin = time.monotonic()
    assert wait(start(training, root / "whole", 0)) == 0
    seconds = time.monotonic() - begin
    endings: list[str] = []
    reached: list[int] = []
    during_a_save = 0
    while len(endings) < num_runs:
        folder = root / str(len(endings))
        killed = 0
        while killed < 1 + len(endings) % 2:
            child = start(training, folder, draw.randrange(3))
            time.sleep(draw.uniform(0.0, 0.9 * seconds))
            os.kill(child, signal.SIGKILL)
            if wait(child) == -signal.SIGKILL:  # it was still running
                killed += 1
                checkpoints = list_checkpoints(folder)
                reached.append(int(checkpoints[-1].name[5:]) if checkpoints else 0)
                during_a_save += any(folder.glob(".tmp-*"))
        assert wait(start(training, folder, draw.randrange(3))) == 0
        endings.append(digest_value(ending(folder)))
    whole = digest_value(ending(root / "whole"))
    found = {"whole": whole, "endings": endings, "reached": reached, "in_a_save": during_a_save}
    print(json.dumps(found))


@pytest.mark.faults
def test_killed_runs_end_like_undisturbed_ones(tmp_path: Path) -> None:
    num_runs = 50
    found = run_program("test_kills", tmp_path, num_runs, 20)
    endings, reached = found["endings"], found["reached"]
    same = endings.count(found["whole"])
    print(
        f"{len(reached)} kills of {len(endings)} runs, {found['in_a_save']} of them during a save, "
        f"newest checkpoints between step {min(reached)} and {max(reached)}: {same} identical "
        "results (weights, moments, state, log)"
    )
    assert len(endings) == same == num_runs
    assert len(reached) == num_runs + num_runs // 2
    # The kills are spread over the run.
    assert len(set(reached)) > num_runs // 5
    assert found["in_a_save"] >= num_runs // 10


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
