"""The recipe's sections of measuring, phase (c)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from metaxlm.recipe.values import (
    Count,
    Fraction,
    LanguageCode,
    Location,
    Positive,
    Real,
    Section,
)


class RetrievalRecipe(Section):
    """Tatoeba-style sentence retrieval without finetuning."""

    batch_tokens: Positive = 16_384
    """Tokens, padding included, in one forward pass."""


class AlignmentRecipe(Section):
    """Word alignment without finetuning, by optimal transport."""

    batch_tokens: Positive = 8_192
    """Tokens, padding included, in one forward pass."""
    drawn_pairs: Count = 2
    """Sentence pairs a language that the report draws."""


class FinetuneRecipe(Section):
    """A task finetuned in the source language; what is left out is the paper's for that task."""

    epochs: Positive | None = None
    """Passes over the training examples."""
    learning_rate: Real | None = None
    """Peak of the linear schedule."""
    batch_size: Positive | None = None
    """Examples in a step."""
    weight_decay: Real | None = None
    """Decoupled weight decay."""
    warmup: Fraction | None = None
    """Share of the steps that warm up."""
    length: Positive | None = None
    """Longest input, special tokens included."""
    stride: Positive | None = None
    """Tokens from the start of a window to that of the next (long contexts of questions only)."""
    select_by: Literal["source", "all", "last"] | None = None
    """What picks the epoch: the source language's dev set, the mean of all, or none: the last."""
    seeds: Positive = 1
    """How many seeds."""


class GridRecipe(Section):
    """A block of cells: every task with every variant, at every step, with every seed."""

    tasks: Annotated[list[str], Field(min_length=1)]
    """Names such as `xnli`, groups (`xtreme`, `amazon`), `tatoeba`, `alignment`."""
    variants: list[str] | None = None
    """Which variants; null means all."""
    steps: Literal["last", "kept"] = "last"
    """`last` is the finished model; `kept` are also all checkpoints of `pretraining.keep_steps`."""
    seeds: Positive | None = None
    """How many seeds; null leaves it to `finetune`. Tasks without finetuning have none."""
    languages: list[LanguageCode] | None = None
    """Languages to test; null means all that a task's data has."""
    sources: list[LanguageCode] | None = None
    """Languages to finetune in, one at a time; null means the task's own."""


class EvaluationRecipe(Section):
    """Phase (c): what is measured."""

    data: Location | None = None
    """Folder with the task data; the built-in corpus brings its own."""
    retrieval: RetrievalRecipe | None = RetrievalRecipe()
    """Sentence retrieval; `null` leaves it out."""
    alignment: AlignmentRecipe | None = AlignmentRecipe()
    """Word alignment; `null` leaves it out."""
    finetune: dict[str, FinetuneRecipe] = {}
    """Finetuned tasks by name."""
    grid: list[GridRecipe] = []
    """What is measured on which models. Empty: retrieval, alignment and the tasks of `finetune` on
    every finished variant, finetuned in the source language, tested in the recipe's languages."""
