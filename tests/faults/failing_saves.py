"""Save checkpoints where the n-th call fails or kills the process; started by `test_saves.py`.

`python -m tests.faults.failing_saves FOLDER EVERY` tries every `EVERY`-th call and prints a JSON
object: the results, and everything that was wrong.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
from pathlib import Path

import torch
from tests.conftest import PARTS, sentences
from tests.faults.programs import fork, wait
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.manifest import find_damage
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import load_pretrained, save_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.checkpoint import (
    Checkpoint,
    CheckpointWriter,
    TrainingState,
    list_checkpoints,
    load_newest,
)
from metaxlm.progress import set_quiet
from metaxlm.vocab.unigram import train_unigram

LIBRARY = ctypes.CDLL(None)
LIBRARY.faulty_log.restype = ctypes.c_char_p
OLD, NEW = 10, 20


class Saves:
    """A folder with one good checkpoint, and a second one to save."""

    def __init__(self, root: Path, tokenizer: PreTrainedTokenizerBase) -> None:
        self.root, self.folder, self.tokenizer = root, root / "checkpoints", tokenizer
        self.config = EncoderConfig(len(tokenizer), 16, 1, 2, 32, 32)
        self.checkpoints = {step: self.make(step) for step in (OLD, NEW)}

    def make(self, step: int) -> Checkpoint:
        torch.manual_seed(step)
        model = MaskedLM(self.config).state_dict()
        moments = {f"exp_avg.{name}": torch.randn_like(tensor) for name, tensor in model.items()}
        return Checkpoint(model, moments, TrainingState(step))

    def begin(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.save(OLD)

    def save(self, step: int) -> None:
        """Save a checkpoint; the new one is permanent and is also exported."""

        def publish(checkpoint: Checkpoint) -> None:
            model = MaskedLM.from_state(self.config, checkpoint.model)
            save_pretrained(model, self.tokenizer, self.root / "steps" / str(step), "a step")

        checkpoint = self.checkpoints[step]
        with CheckpointWriter(
            self.folder,
            keep=1,
            permanent=[NEW],
            publish=publish,
            newest_step=OLD if step == NEW else 0,
        ) as writer:
            writer.save(checkpoint.model, checkpoint.moments, checkpoint.state)

    def newest(self) -> int:
        """Return the step from which a run would resume, after a comparison of all tensors."""
        found = load_newest(self.folder)
        assert found is not None
        expected = self.checkpoints[found.state.step]
        torch.testing.assert_close(
            found.model | found.moments, expected.model | expected.moments, rtol=0, atol=0
        )
        return found.state.step

    def check(self) -> int:
        """Check that the folder is whole, and that the same save now succeeds."""
        step = self.newest()
        for path in list_checkpoints(self.folder):
            assert not find_damage(path), f"{path} is damaged under its final name"
        if step == NEW or (self.root / "steps" / str(NEW)).exists():
            load_pretrained(self.root / "steps" / str(NEW))
        for leftover in self.folder.glob(".tmp-*"):  # as the next start does
            shutil.rmtree(leftover)
        self.save(NEW)
        assert self.newest() == NEW
        load_pretrained(self.root / "steps" / str(NEW))
        assert [path.name for path in list_checkpoints(self.folder)] == [f"step-{NEW:08d}"]
        return step


def fail_at(saves: Saves, number: int, calls: str) -> int:
    """Let the n-th call of a save fail; return the step of the newest good checkpoint."""
    saves.begin()
    LIBRARY.faulty_arm(str(saves.root).encode(), number, 0)
    try:
        saves.save(NEW)
    except MetaXLMError as error:
        message = str(error)
    else:
        # Only the removal of an absent name may fail.
        assert calls[number - 1] == "u", "a failed call went unnoticed"
        message = f"checkpoint of step {NEW} No space left resume after step {NEW}"
    finally:
        LIBRARY.faulty_arm(b"", 0, 0)
    assert f"checkpoint of step {NEW}" in message, message
    assert "No space left" in message or "Input/output error" in message, message
    # The new checkpoint may be found after its last flush failed, but this is not guaranteed.
    is_flushed = "f" not in calls[number:]
    assert f"resume after step {saves.newest()}" in message or is_flushed, message
    if calls[number - 1] != "u":
        assert not list(saves.folder.glob(".tmp-step*")), "half a checkpoint was left"
    return saves.check()


def die_at(saves: Saves, number: int, calls: str) -> int:
    """Kill a process at the n-th call of a save; return the step of the newest good checkpoint."""
    saves.begin()

    def save() -> None:
        LIBRARY.faulty_arm(str(saves.root).encode(), number, 1)
        saves.save(NEW)

    assert wait(fork(save)) == -9, "the process did not die"
    return saves.check()


def main(root: Path, every: int) -> None:
    """Try every n-th call in both ways."""
    set_quiet(True)
    torch.set_num_threads(1)
    lines = [line for language in PARTS for line in sentences(language)]
    saves = Saves(root, train_unigram(iter(lines), 110))
    saves.begin()
    LIBRARY.faulty_arm(str(root).encode(), 0, 0)
    saves.save(NEW)
    calls = LIBRARY.faulty_log().decode()
    LIBRARY.faulty_arm(b"", 0, 0)
    left: dict[str, list[int]] = {"fail": [], "die": []}
    wrong: list[str] = []
    for name, attempt in (("die", die_at), ("fail", fail_at)):
        for number in range(1, len(calls) + 1, every):
            try:
                left[name].append(attempt(saves, number, calls))
            except Exception as error:
                kind = calls[number - 1]
                wrong.append(f"{name} at {number} ({kind}): {type(error).__name__} {error}")
    print(json.dumps({"calls": calls, "left": left, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
