"""The root section of a recipe."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from metaxlm.files import LONGEST_NAME
from metaxlm.recipe.corpus_schema import CorpusRecipe, EngineRecipe, VocabularyRecipe
from metaxlm.recipe.evaluation_schema import EvaluationRecipe
from metaxlm.recipe.model_schema import (
    ExecutionRecipe,
    MatchingRecipe,
    MetaRecipe,
    ModelRecipe,
    TrainingRecipe,
    VariantRecipe,
)
from metaxlm.recipe.sentences_schema import SentencesRecipe
from metaxlm.recipe.values import Count, LanguageCode, Section, VariantName

ENCODER = "+sentences"  # ending of the name of a variant's sentence encoder in results

_SWITCHED = "+switched-"  # before the share of switched words of a finetuning


def name_encoder(variant: str) -> str:
    """Return the name of a variant's sentence encoder in results."""
    return f"{variant}{ENCODER}"


def name_switched(variant: str, share: float) -> str:
    """Return the name of a variant in results of finetuning with a share of switched words."""
    return f"{variant}{_SWITCHED}{share:g}"


def find_trained(row: str | None) -> str:
    """Return the name of the pretrained variant that a row of results is about."""
    return str(row).partition(_SWITCHED)[0]


class Recipe(Section):
    """One experiment: variants that share all other settings."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=LONGEST_NAME)]
    """Name of the run folder."""
    seed: Count = 1
    """Seed of all random numbers."""
    languages: Annotated[list[LanguageCode], Field(min_length=2)]
    """Languages of cross-lingual pretraining."""
    source_language: LanguageCode = "en"
    """Language of meta-pretraining and of the finetuning data."""
    corpus: CorpusRecipe = CorpusRecipe()
    engine: Annotated[
        EngineRecipe, BeforeValidator(lambda v: {"name": v} if isinstance(v, str) else v)
    ] = EngineRecipe()
    """Where to run corpus preparation and tokenization: `local`, `slurm`, `ray`."""
    vocabulary: VocabularyRecipe = VocabularyRecipe()
    model: ModelRecipe = ModelRecipe()
    meta: MetaRecipe = MetaRecipe()
    """Phase (a), meta-pretraining."""
    matching: MatchingRecipe = MatchingRecipe()
    pretraining: TrainingRecipe = TrainingRecipe()
    """Phase (b), cross-lingual pretraining."""
    sentences: SentencesRecipe | None = None
    """Train a sentence encoder of each variant after pretraining; `null` trains none."""
    execution: ExecutionRecipe = ExecutionRecipe()
    """How to run all training phases."""
    variants: Annotated[dict[VariantName, VariantRecipe], Field(min_length=1)]
    """Models to compare, by name."""
    evaluation: EvaluationRecipe = EvaluationRecipe()
    """Phase (c)."""

    def find_matching(self, variant: VariantRecipe) -> MatchingRecipe:
        """Return the matching settings of a variant."""
        if variant.matching is None:
            return self.matching
        folder = variant.matching.dictionaries or self.matching.dictionaries
        return variant.matching.model_copy(update={"dictionaries": folder})

    def find_seed(self, variant: VariantRecipe) -> int:
        """Return the seed of a variant's initialization and pretraining."""
        return self.seed if variant.seed is None else variant.seed

    def order_variants(self) -> list[str]:
        """Return the variants, each after the one that its dictionaries grow from."""
        ordered: dict[str, None] = {}
        for name in self.variants:
            chain = [name]
            while (grow := self.variants[chain[-1]].grow) is not None:
                if grow.variant not in self.variants:
                    known = ", ".join(self.variants)
                    where = f"variants.{chain[-1]}.grow"
                    raise ValueError(
                        f"{where}: no variant {grow.variant!r}; the recipe has {known}"
                    )
                if grow.variant in chain:
                    circle = " -> ".join([*chain, grow.variant])
                    raise ValueError(f"variants grow from each other ({circle}); remove one `grow`")
                chain.append(grow.variant)
            ordered |= dict.fromkeys(reversed(chain))
        return list(ordered)

    def list_encoders(self) -> list[str]:
        """Return the variants that have a sentence encoder."""
        if self.sentences is None:
            return []
        return [name for name, variant in self.variants.items() if variant.sentences is None]

    @model_validator(mode="after")
    def _names_of_rows_differ(self) -> Self:
        for name in self.variants:
            if _SWITCHED in name:
                what = f"variant {name!r} has the name of a finetuning with switched words"
                raise ValueError(f"{what}; choose a name without {_SWITCHED!r}")
        return self

    @model_validator(mode="after")
    def _a_teacher_exists(self) -> Self:
        if self.sentences is None:
            return self
        if self.sentences.teacher is None and self.meta.model is None:
            raise ValueError("sentences.teacher is null, and so is meta.model; name a teacher")
        if self.sentences.max_length > self.model.max_positions:
            most = self.model.max_positions
            raise ValueError(f"sentences.max_length exceeds model.max_positions {most}")
        for name in self.list_encoders():
            if name_encoder(name) in self.variants:
                raise ValueError(f"variant {name_encoder(name)!r} has the name of an encoder")
        return self

    @model_validator(mode="after")
    def _grown_dictionaries_are_used(self) -> Self:
        for name in self.order_variants():
            variant = self.variants[name]
            is_rewriting = (
                self.sentences is not None
                and self.sentences.dictionaries is None
                and variant.sentences is None
            )
            is_used = variant.dictionaries or variant.switch or is_rewriting
            if variant.grow is not None and not is_used:
                raise ValueError(
                    f"variants.{name}.grow: the variant uses no dictionaries; set its "
                    "`dictionaries: true`, or remove `grow`"
                )
        return self

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.source_language not in self.languages:
            raise ValueError(f"source_language {self.source_language!r} is not among languages")
        if self.corpus.source == "phrasebook" and self.source_language != "en":
            raise ValueError("the built-in corpus needs `source_language: en`")
        if self.vocabulary.extend and self.meta.model is None:
            raise ValueError("vocabulary.extend needs an encoder to extend; name it in meta.model")
        if len(set(self.languages)) < len(self.languages):
            raise ValueError("languages names one language twice")
        trained = [self.pretraining] if self.meta.model else [self.meta, self.pretraining]
        longest, limit = max(training.length for training in trained), self.model.max_positions
        if longest > limit:
            raise ValueError(f"length {longest} exceeds model.max_positions {limit}")
        if spaced := next((name for name in self.variants if " " in name), ""):
            raise ValueError(f"variant name {spaced!r} has a space in it")
        known = ", ".join(self.variants)
        for number, block in enumerate(self.evaluation.grid):
            for name in (name for name in block.variants or () if name not in self.variants):
                where = f"evaluation.grid[{number}]"
                raise ValueError(f"{where}: no variant {name!r}; the recipe has {known}")
        return self
