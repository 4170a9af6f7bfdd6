"""Small trainings of sentence encoders that tests start, disturb and compare.

As a script with FOLDER and N, fork N processes that train together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.model.any_encoder import load_encoder
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import Pretrained, load_pretrained, save_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.probe.sentence_folder import export_sentence_transformers
from metaxlm.recipe import ExecutionRecipe
from metaxlm.recipe.sentences_schema import SentencesRecipe
from metaxlm.sentences.pairs import Pairs, ParallelPairs
from metaxlm.sentences.student import MaskedText, Training
from metaxlm.sentences.teacher import load_teacher
from tests.conftest import PARTS, make_encoder, sentences
from tests.rank_jobs import fork

CPU = torch.device("cpu")
WIDTH = 16
SETTINGS = SentencesRecipe(
    steps=12, batch_size=8, learning_rate=3e-3, checkpoint_every=5, log_every=4, max_length=24,
    parallel=[Path("text")],
)  # fmt: skip


class LoudPairs(ParallelPairs):
    """The translations of 64 sentences in two languages; calls `act` before each draw."""

    act: Callable[[int], None] = staticmethod(lambda number: None)

    def __init__(self) -> None:
        others = [language for language in PARTS if language != "en"]
        texts = [text for language in others for text in sentences(language)]
        languages = [language for language in others for _ in sentences(language)]
        super().__init__(texts, sentences("en") * len(others), languages, seed=1)

    def draw(self, numbers: Any) -> Pairs:
        self.act(int(numbers[0]))
        return super().draw(numbers)


def make_teacher(folder: Path, **settings: Any) -> Path:
    """Write a random English sentence encoder, and return its folder."""
    make_encoder(folder / "bert")
    export_sentence_transformers(load_encoder(folder / "bert"), folder / "teacher", **settings)
    return folder / "teacher"


def make_student(
    tokenizer: PreTrainedTokenizerBase, dropout: float = 0.1, width: int = WIDTH, **changes: Any
) -> MaskedLM:
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "num_heads": 1, "ffn_size": 2 * width, "max_positions": 32}
    sizes |= {"hidden_size": width, "dropout": dropout, "attention_dropout": dropout}
    return MaskedLM(EncoderConfig(len(tokenizer), **(sizes | changes)))


def save_student(folder: Path, tokenizer: PreTrainedTokenizerBase, **changes: Any) -> Path:
    save_pretrained(make_student(tokenizer, **changes).eval(), tokenizer, folder, "a student")
    return folder


@dataclass(frozen=True)
class SentenceTrainings:
    """Trainings of one student by one teacher; each starts or resumes in its folder."""

    teacher: Path
    student: Path

    def run(
        self,
        folder: Path,
        settings: SentencesRecipe = SETTINGS,
        *,
        world: DistributedContext | None = None,
        workers: int = 0,
        act: Callable[[int], None] | None = None,
        masked_text: MaskedText | None = None,
    ) -> MaskedLM:
        """Train; `folder` gets `work`, `encoder` and `steps`."""
        pairs = LoudPairs()
        if act is not None:
            pairs.act = act
        student = load_pretrained(self.student)
        training = Training(
            Pretrained(student.model, student.tokenizer, "", (), self.student),
            str(self.student), load_teacher(self.teacher), pairs, settings, 1,
            {"parallel text": "128 pairs"}, masked_text,
        )  # fmt: skip
        training.run(
            folder / "encoder", folder / "work", world or DistributedContext.alone(CPU),
            steps_dir=folder / "steps", execution=ExecutionRecipe(workers=workers, trackers=[]),
        )  # fmt: skip
        return student.model


def main() -> None:
    """Fork some processes that train together."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    fork(int(sys.argv[2]))
    world = DistributedContext.join("cpu", ExecutionRecipe(timeout_s=60))
    SentenceTrainings(folder / "teacher", folder / "student").run(folder / "two", world=world)
    world.leave(0)


if __name__ == "__main__":
    main()
