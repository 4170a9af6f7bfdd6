"""Recipe section of sentence encoders, which are trained after cross-lingual pretraining."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from metaxlm.recipe.model_schema import TrainingRecipe
from metaxlm.recipe.values import Count, Fraction, Location, Positive, Real, Section


class RewritingRecipe(Section):
    """How English sentences are rewritten with dictionaries."""

    replaced: Fraction = 0.9
    """Share of the words with a translation that are replaced."""
    unchanged: Fraction = 0.25
    """Share of the sentences that stay English."""
    shuffled: Fraction = 0.5
    """Share of the sentences with local noise in the word order."""
    reach: Count = 3
    """Places that a word of these sentences moves at most."""
    phrases: bool = True
    """Whether phrases of the dictionaries are replaced as one."""


class SourceWeights(Section):
    """How often pairs are drawn from each source; only sources that exist count."""

    dictionaries: Real = 1.0
    """Weight of rewritten sentences."""
    parallel: Real = 1.0
    """Weight of parallel text."""


class SentencesRecipe(Section):
    """Train a sentence encoder: pull the vectors of texts to those of an English teacher."""

    teacher: str | None = None
    """English sentence encoder: a sentence-transformers folder, or a name on the hub; null uses
    `meta.model`. Teacher and student must have the same width."""
    text: Location | None = None
    """English text, one sentence or paragraph per line; null uses the run's own text."""
    max_sentences: Positive = 1_000_000
    """Use at most this many sentences, chosen at random from the first ones of the text (four times
    as many)."""
    dictionaries: list[Location] | None = None
    """Folders of dictionaries such as MUSE's `en-de.txt`; null uses `matching.dictionaries`.
    With `[]`, no sentence is rewritten."""
    parallel: list[Location] = []
    """Files or folders of parallel text."""
    weights: SourceWeights = SourceWeights()
    """How often pairs are drawn from each source."""
    rewriting: RewritingRecipe = RewritingRecipe()
    """How sentences are rewritten."""
    steps: Positive = 12_000
    """Number of optimizer steps."""
    batch_size: Positive = 512
    """Pairs per step over all processes; the other pairs of a step are negatives."""
    negatives: Count = 4_096
    """Additional negatives per step: teacher's vectors of random sentences."""
    learning_rate: Real = 2e-4
    """Peak of the linear schedule."""
    warmup: Fraction = 0.05
    """Share of the steps used for linear warm-up; the rate then decays linearly to zero."""
    body_rate: Real = 1.0
    """Learning rate of the Transformer layers, relative to that of all other parameters."""
    anchor: Real = 0.0
    """Pull token embeddings back to those of the student; as `pretraining.anchor`."""
    temperature: Annotated[Real, Field(gt=0)] = 0.05
    """Divisor of the cosines in the contrastive loss; smaller values weigh hard negatives more."""
    cosine_weight: Real = 4.0
    """Weight of 1 - cosine between the vectors of student and teacher."""
    mlm_weight: Real = 0.0
    """Weight of masked language modeling on the run's shards in the same step, with the settings of
    `pretraining`; 0 leaves it out. Not available in `metaxlm sentences`, which has no shards."""
    max_length: Annotated[int, Field(ge=3)] = 64
    """Tokens of a text in training, including special tokens; longer texts are cut."""
    checkpoint_every: Positive = 1_000
    """Steps between checkpoints."""
    keep_steps: list[Positive] = []
    """Steps whose encoders are also written as folders."""
    log_every: Positive = 50
    """Steps between rows of the training log."""

    def make_training(self) -> TrainingRecipe:
        """Return the settings of the training loop."""
        same = ("steps", "batch_size", "learning_rate", "body_rate", "anchor", "checkpoint_every")
        chosen = {name: getattr(self, name) for name in (*same, "keep_steps", "log_every")}
        return TrainingRecipe(
            **chosen, warmup_steps=int(self.warmup * self.steps), length=self.max_length,
            keep_checkpoints=1, held_out=0, adam_betas=[0.9, 0.999], adam_epsilon=1e-8,
            mask_probability=0.0,
        )  # fmt: skip

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        weights = self.weights
        has_rewritten = weights.dictionaries > 0 and self.dictionaries != []
        if not has_rewritten and not (weights.parallel > 0 and self.parallel):
            raise ValueError("no source of pairs: name dictionaries or parallel text")
        return self
