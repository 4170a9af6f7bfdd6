"""Train a student to a teacher's vectors, and write it as a sentence-transformers folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from metaxlm import __version__
from metaxlm.errors import MetaXLMError
from metaxlm.files import remove
from metaxlm.hub import HUB
from metaxlm.languages import language_name
from metaxlm.manifest import check_file
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.model.front_matter import (
    describe_sentence_encoder,
    list_codes,
    write_front_matter,
)
from metaxlm.model.huggingface import Pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource
from metaxlm.pretrain.checkpoint import TrainingState
from metaxlm.pretrain.distributed import DistributedContext, local_place
from metaxlm.pretrain.log import LOG_NAME, open_trackers
from metaxlm.pretrain.loop import train_phase
from metaxlm.pretrain.optimizer import largest
from metaxlm.probe.sentence_folder import export_sentence_transformers
from metaxlm.randomness import derive_seed
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe
from metaxlm.recipe.sentences_schema import SentencesRecipe
from metaxlm.sentences.pairs import PairSource
from metaxlm.sentences.sentence_batches import SentenceSource, count_workers
from metaxlm.sentences.sentence_step import SentencePhase, SentenceStep
from metaxlm.sentences.teacher import VECTORS, SentenceTeacher, compute_vectors

TRAINING_LOG = "training_log.jsonl"  # log of a finished training run, stored in its folder


@dataclass(frozen=True)
class MaskedText:
    """Text for the masked language modeling term of a step."""

    batches: BatchSource
    masking: Masking
    recipe: TrainingRecipe


@dataclass(frozen=True)
class Training:
    """All that decides the training of one sentence encoder."""

    student: Pretrained
    source: str  # name of the student in the card
    teacher: SentenceTeacher
    pairs: PairSource
    settings: SentencesRecipe
    seed: int
    data: Mapping[str, str]  # rows of the card: what the pairs are made of
    masked_text: MaskedText | None = None

    def run(
        self,
        folder: Path,
        work_dir: Path,
        world: DistributedContext,
        *,
        steps_dir: Path,
        title: str = "sentences",
        execution: ExecutionRecipe | None = None,
    ) -> None:
        """Train, and write the encoder and the training log into the folder (collective).

        Checkpoints and the teacher's vectors are stored in `work_dir`, and encoders of `keep_steps`
        in `steps_dir`.
        """
        execution = execution or ExecutionRecipe()
        model = self.student.model
        state = self._train(model, work_dir, steps_dir, world, title, execution)
        whole = world.whole(model)
        if not world.is_main:
            return
        remove(work_dir / VECTORS)
        self.write(whole.cpu().eval(), folder)
        shutil.copy(work_dir / LOG_NAME, folder / TRAINING_LOG)
        if problem := check_file(folder / TRAINING_LOG, state.log):
            fix = "move it away and run again: the trained model is in its checkpoint"
            raise MetaXLMError(f"{work_dir / LOG_NAME}: {problem}; {fix}")

    def _train(
        self,
        model: MaskedLM,
        work_dir: Path,
        steps_dir: Path,
        world: DistributedContext,
        title: str,
        execution: ExecutionRecipe,
    ) -> TrainingState:
        settings, text = self.settings, self.masked_text
        recipe = settings.make_training()
        most = min(settings.max_length, model.config.max_positions)
        # Sources may share sentences: equal ones have one vector, and are not negatives.
        numbers: dict[str, int] = {}
        rows = [numbers.setdefault(text, len(numbers)) for text in self.pairs.anchors]
        workers = execution.workers and count_workers(world.device, local_place()[1])
        with ExitStack() as stack:
            batches = stack.enter_context(
                SentenceSource(
                    self.pairs, np.array(rows, np.int64), self.student.tokenizer,
                    batch_size=settings.batch_size, max_length=most, device=world.device,
                    seed=derive_seed(self.seed, "sentences"), num_negatives=settings.negatives,
                    blocks=None if text is None else text.batches, workers=workers,
                )
            )  # fmt: skip
            vectors_AD = compute_vectors(self.teacher, list(numbers), work_dir, world)
            trackers = None
            if world.is_main:
                values = settings.model_dump(mode="json")
                trackers = open_trackers(execution.trackers, work_dir, title, values)
                stack.callback(trackers.close)

            def make_phase() -> SentencePhase:
                step = SentenceStep(
                    model, vectors_AD, self.teacher.modules.pooling, settings, execution, world,
                    masking=None if text is None else text.masking,
                    probability=0.0 if text is None else largest(text.recipe.mask_probability),
                )  # fmt: skip
                return SentencePhase(step, batches, recipe)

            return train_phase(
                make_phase, recipe, work_dir, world, title, max(workers, execution.workers),
                export=self.write, trackers=trackers, steps_dir=steps_dir,
            )  # fmt: skip

    def write(self, model: MaskedLM, folder: Path) -> None:
        """Write a model as a sentence-transformers folder with its card."""
        modules = self.teacher.modules
        encoder = AnyEncoder(self.source, self.student.tokenizer, model.encoder)
        export_sentence_transformers(
            encoder, folder, normalize=modules.normalize, pooling=modules.pooling,
            max_length=self.teacher.max_length, card=self._write_card(),
        )  # fmt: skip

    def _write_card(self) -> str:
        settings, config = self.settings, self.student.model.config
        languages = self.pairs.languages
        about = describe_sentence_encoder(self.source) | {"language": list_codes(languages)}
        teacher, student = (shorten(name) for name in (self.teacher.model.source, self.source))
        rows = {
            "teacher": teacher,
            "student before training": student,
            "languages": ", ".join(f"{language_name(code)} ({code})" for code in languages),
            **self.data,
            "steps": f"{settings.steps:,} of {settings.batch_size} pairs",
            "learning rate": f"{settings.learning_rate:g}, body x {settings.body_rate:g}",
            "loss": _describe_loss(settings),
            "longest text in training": f"{settings.max_length} tokens",
            "seed": str(self.seed),
        }
        table = "\n".join(f"| {key} | {value.replace('|', ' ')} |" for key, value in rows.items())
        return f"""{write_front_matter(about)}
# Sentence encoder for {len(languages)} languages

Vectors of {config.hidden_size} numbers for texts in {len(languages)} languages: translations have
similar vectors. The encoder was trained to give texts in other languages the vectors that
`{teacher}` gives the English sentences they were made from. Written by metaxlm {__version__}; it
loads without it:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(FOLDER)
vectors = model.encode(["A text.", "Ein Text."])
print(model.similarity(vectors, vectors))
```

## How it was trained

| | |
|---|---|
{table}
"""


def shorten(source: str) -> str:
    """Return the last parts of a path: the rest means nothing on other machines."""
    generic = ("/", "model", "..", ".")
    parts = [part for part in Path(source.removeprefix(HUB)).parts if part not in generic]
    return "/".join(parts[-2:])


def _describe_loss(settings: SentencesRecipe) -> str:
    terms = [f"InfoNCE in both directions at temperature {settings.temperature:g}"]
    if settings.negatives:
        terms[0] += f" with {settings.negatives:,} more negatives"
    if settings.cosine_weight:
        terms.append(f"{settings.cosine_weight:g} x (1 - cosine)")
    if settings.mlm_weight:
        terms.append(f"{settings.mlm_weight:g} x masked language modeling")
    return " + ".join(terms)
