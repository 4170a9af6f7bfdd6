"""The recipe itself: one experiment, variants that share everything else."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from metaxlm.files import LONGEST_NAME
from metaxlm.recipe.data import CorpusRecipe, EngineRecipe, VocabularyRecipe, parse_engine
from metaxlm.recipe.evaluation import EvaluationRecipe
from metaxlm.recipe.models import (
    ExecutionRecipe,
    MatchingRecipe,
    MetaRecipe,
    ModelRecipe,
    TrainingRecipe,
    VariantRecipe,
)
from metaxlm.recipe.values import Count, LanguageCode, Section, VariantName


class Recipe(Section):
    """One experiment: variants that share everything else."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=LONGEST_NAME)]
    """Names the run folder."""
    seed: Count = 1
    """Everything random follows from it."""
    languages: Annotated[list[LanguageCode], Field(min_length=2)]
    """Languages of cross-lingual pretraining."""
    source_language: LanguageCode = "en"
    """Language of meta-pretraining and of the finetuning data."""
    corpus: CorpusRecipe = CorpusRecipe()
    engine: Annotated[EngineRecipe, BeforeValidator(parse_engine)] = EngineRecipe()
    """Where corpus preparation and tokenization run: `local`, `slurm`, `ray`."""
    vocabulary: VocabularyRecipe = VocabularyRecipe()
    model: ModelRecipe = ModelRecipe()
    meta: MetaRecipe = MetaRecipe()
    """Phase (a), meta-pretraining."""
    matching: MatchingRecipe = MatchingRecipe()
    pretraining: TrainingRecipe = TrainingRecipe()
    """Phase (b), cross-lingual pretraining."""
    execution: ExecutionRecipe = ExecutionRecipe()
    """How both trainings run."""
    variants: Annotated[dict[VariantName, VariantRecipe], Field(min_length=1)]
    """Models to compare, by name."""
    evaluation: EvaluationRecipe = EvaluationRecipe()
    """Phase (c)."""

    def find_matching(self, variant: VariantRecipe) -> MatchingRecipe:
        """Return how a variant's vocabulary is matched."""
        if variant.matching is None:
            return self.matching
        folder = variant.matching.dictionaries or self.matching.dictionaries
        return variant.matching.model_copy(update={"dictionaries": folder})

    @property
    def measures_anything(self) -> bool:
        """Whether any task data is needed."""
        measures = self.evaluation
        if measures.grid:
            return True
        return bool(measures.retrieval or measures.alignment or measures.finetune)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Recipe:
        if self.source_language not in self.languages:
            raise ValueError(f"source_language {self.source_language!r} is not among languages")
        if self.corpus.source == "phrasebook" and self.source_language != "en":
            raise ValueError("the built-in corpus wants `source_language: en`")
        if len(set(self.languages)) < len(self.languages):
            raise ValueError("languages names one language twice")
        trained = [self.pretraining] if self.meta.model else [self.meta, self.pretraining]
        longest = max(training.length for training in trained)
        if longest > self.model.max_positions:
            raise ValueError(
                f"length {longest} exceeds model.max_positions {self.model.max_positions}"
            )
        for name in self.variants:
            if " " in name:
                raise ValueError(f"variant name {name!r} has a space in it")
        self._check_grid()
        return self

    def _check_grid(self) -> None:
        """Refuse blocks of the grid that name models which will not be there."""
        for number, block in enumerate(self.evaluation.grid):
            where = f"evaluation.grid[{number}]"
            for name in block.variants or ():
                if name not in self.variants:
                    known = ", ".join(self.variants)
                    raise ValueError(f"{where}: no variant {name!r}; the recipe has {known}")
