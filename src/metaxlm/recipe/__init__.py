"""Recipes: one YAML file describes one experiment.

The docstring below each key is its documentation; `docs/recipe.md` is generated from it.
Validation is strict: unknown keys and values of another type are errors. `load.py` reads the YAML
and reports errors with file and line.
"""

from metaxlm.recipe.corpus_schema import (
    CleaningRecipe,
    CorpusRecipe,
    EngineRecipe,
    PhrasebookRecipe,
    SlurmRecipe,
    VocabularyRecipe,
)
from metaxlm.recipe.evaluation_schema import (
    AlignmentRecipe,
    EvaluationRecipe,
    FinetuneRecipe,
    GridRecipe,
    RetrievalRecipe,
)
from metaxlm.recipe.model_schema import (
    DistillationRecipe,
    ExecutionRecipe,
    MatchingRecipe,
    MetaRecipe,
    ModelRecipe,
    PartsRecipe,
    SwitchRecipe,
    TrainingRecipe,
    VariantRecipe,
)
from metaxlm.recipe.schema import Recipe
from metaxlm.recipe.values import Section

__all__ = [
    "AlignmentRecipe", "CleaningRecipe", "CorpusRecipe", "DistillationRecipe", "EngineRecipe",
    "EvaluationRecipe", "ExecutionRecipe", "FinetuneRecipe", "GridRecipe", "MatchingRecipe",
    "MetaRecipe", "ModelRecipe", "PartsRecipe", "PhrasebookRecipe", "Recipe", "RetrievalRecipe",
    "Section", "SlurmRecipe", "SwitchRecipe", "TrainingRecipe", "VariantRecipe", "VocabularyRecipe",
]  # fmt: skip
