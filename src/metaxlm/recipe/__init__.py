"""The recipe: one YAML file is one experiment, and nothing is hidden.

Every key has its meaning below it; `docs/recipe.md` is made from here. Checking is strict: no
unknown keys, no converted types. `recipe_file.py` reads the YAML and words the complaints.
"""

from metaxlm.recipe.data import (
    CleaningRecipe,
    CorpusRecipe,
    EngineRecipe,
    PhrasebookRecipe,
    SlurmRecipe,
    VocabularyRecipe,
)
from metaxlm.recipe.evaluation import (
    AlignmentRecipe,
    EvaluationRecipe,
    FinetuneRecipe,
    GridRecipe,
    RetrievalRecipe,
)
from metaxlm.recipe.models import (
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
from metaxlm.recipe.schema import (
    Recipe,
)
from metaxlm.recipe.values import (
    Section,
)

__all__ = [
    "AlignmentRecipe",
    "CleaningRecipe",
    "CorpusRecipe",
    "DistillationRecipe",
    "EngineRecipe",
    "EvaluationRecipe",
    "ExecutionRecipe",
    "FinetuneRecipe",
    "GridRecipe",
    "MatchingRecipe",
    "MetaRecipe",
    "ModelRecipe",
    "PartsRecipe",
    "PhrasebookRecipe",
    "Recipe",
    "RetrievalRecipe",
    "Section",
    "SlurmRecipe",
    "SwitchRecipe",
    "TrainingRecipe",
    "VariantRecipe",
    "VocabularyRecipe",
]
