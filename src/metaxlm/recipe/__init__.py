"""Recipes: one YAML file describes one experiment.

The docstring below each key is its documentation; `docs/recipe.md` is generated from it.
Validation is strict: unknown keys and values of another type are errors. `recipe_file.py` reads the
YAML and reports errors with file and line.
"""

# isort: off
from metaxlm.recipe.corpus_schema import (
    CleaningRecipe, CorpusRecipe, EngineRecipe, PhrasebookRecipe, SlurmRecipe,
)  # fmt: skip
from metaxlm.recipe.evaluation_schema import (
    AlignmentRecipe, FinetuneRecipe, GridRecipe, RetrievalRecipe,
)  # fmt: skip
from metaxlm.recipe.model_schema import (
    DistillationRecipe, ExecutionRecipe, MatchingRecipe, PartsRecipe, TrainingRecipe, VariantRecipe,
)  # fmt: skip
from metaxlm.recipe.schema import Recipe, name_encoder
from metaxlm.recipe.sentences_schema import SentencesRecipe
from metaxlm.recipe.values import Section

__all__ = [
    "AlignmentRecipe", "CleaningRecipe", "CorpusRecipe", "DistillationRecipe", "EngineRecipe",
    "ExecutionRecipe", "FinetuneRecipe", "GridRecipe", "MatchingRecipe", "PartsRecipe",
    "PhrasebookRecipe", "Recipe", "RetrievalRecipe", "Section", "SentencesRecipe", "SlurmRecipe",
    "TrainingRecipe", "VariantRecipe", "name_encoder",
]  # fmt: skip
