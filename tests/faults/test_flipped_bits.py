"""Flipped bits are found: in a checkpoint, so that an earlier one is taken, and all over a run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.damage import flipped, list_files, make_run
from tests.trainings import RECIPE, Training
from transformers import PreTrainedTokenizerBase

from metaxlm.data.shards import Shard
from metaxlm.pretrain.checkpoint import list_checkpoints, load_newest
from metaxlm.progress import set_quiet
from metaxlm.run.verify import verify


def flip_bits(
    training: Training, folder: Path, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    training.run(folder, RECIPE.model_copy(update={"steps": 4, "checkpoint_every": 2}))
    newest = list_checkpoints(folder)[-1]
    files = sorted(newest.iterdir())
    assert len(files) == 4
    draw = random.Random(200)
    found = 0
    for number in range(count):
        path = files[number % len(files)]
        whole = path.read_bytes()
        damaged = bytearray(whole)
        bit = draw.randrange(8 * len(whole))
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        loaded = load_newest(folder)
        assert loaded is not None
        assert loaded.state.step == 2, f"bit {bit} of {path.name} was not noticed"
        found += 1
        path.write_bytes(whole)
    assert capsys.readouterr().out.count("skipped a damaged checkpoint") == count
    print(f"{count} flipped bits in {[file.name for file in files]}: {found} found")
    loaded = load_newest(folder)
    assert loaded is not None
    assert loaded.state.step == 4


@pytest.fixture
def training(shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase) -> Training:
    return Training(shards, multilingual_tokenizer)


def test_some_bits(training: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip_bits(training, tmp_path, 40, capsys)


@pytest.mark.faults
def test_two_hundred_bits(
    training: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip_bits(training, tmp_path, 200, capsys)


@pytest.mark.faults
def test_three_bits_of_every_file_of_a_run(tmp_path: Path) -> None:
    root = make_run(tmp_path)
    set_quiet(True)
    draw = random.Random(520)
    files = list_files(root)
    count = 0
    for path in files:
        size = 8 * path.stat().st_size
        for bit in draw.sample(range(size), min(3, size)):
            with flipped(path, bit):
                assert list(verify(root).problems) == [path], f"bit {bit} of {path}"
            count += 1
    assert count >= 520
    assert verify(root).problems == {}
    print(f"{count} flipped bits in {len(files)} files of a run: {count} found")
