"""Flipped bits are found: in a checkpoint, so that an earlier one is loaded, and in all files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.damage import flipped, list_files, make_run
from tests.trainings import RECIPE, Training
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.data.shards import Shard
from metaxlm.pretrain.checkpoint import list_checkpoints, load_newest
from metaxlm.progress import set_quiet
from metaxlm.run.verify import verify


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.faults)])
def test_flipped_bits_of_a_checkpoint_are_found(
    shards: dict[str, Shard],
    tokenizer: Tokenizer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    count: int,
) -> None:
    training = Training(shards, tokenizer)
    training.run(tmp_path, RECIPE.model_copy(update={"steps": 4, "checkpoint_every": 2}))
    files = sorted(list_checkpoints(tmp_path)[-1].iterdir())
    assert len(files) == 4
    draw = random.Random(200)
    for number in range(count):
        path = files[number % len(files)]
        bit = draw.randrange(8 * path.stat().st_size)
        with flipped(path, bit):
            loaded = load_newest(tmp_path)
        assert loaded is not None
        assert loaded.state.step == 2, f"bit {bit} of {path.name} was not noticed"
    assert capsys.readouterr().out.count("skipped a damaged checkpoint") == count
    print(f"{count} flipped bits in {[file.name for file in files]}: all found")
    loaded = load_newest(tmp_path)
    assert loaded is not None
    assert loaded.state.step == 4


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
