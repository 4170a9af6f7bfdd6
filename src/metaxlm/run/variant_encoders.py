"""The stage `sentences`: train the sentence encoder of a variant after its pretraining."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from metaxlm.data.text import list_parts, read_sentences
from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries
from metaxlm.model.huggingface import load_pretrained, read_encoder_config
from metaxlm.model.model_folder import find_folder
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.randomness import derive_seed
from metaxlm.recipe import Recipe
from metaxlm.run.growing import list_others
from metaxlm.run.layout import RunLayout
from metaxlm.run.prepare import MULTILINGUAL, load_vocabulary, open_shards
from metaxlm.sentences.parallel_files import load_parallel
from metaxlm.sentences.preparation import prepare_pairs, read_text
from metaxlm.sentences.student import MaskedText, Training
from metaxlm.sentences.teacher import load_teacher, read_teacher
from metaxlm.sentences.translations import count_words


def list_dictionaries(recipe: Recipe, layout: RunLayout, name: str | None = None) -> list[Path]:
    """Return the folders of dictionaries that rewrite text, all or those of a variant.

    The built-in corpus has its own.
    """
    settings = recipe.sentences
    assert settings is not None
    if settings.dictionaries is not None:
        return list(settings.dictionaries)
    if name is not None and recipe.variants[name].grow is not None:
        return [layout.dictionaries(name)]
    if recipe.matching.dictionaries is not None:
        return [recipe.matching.dictionaries]
    return [layout.tasks / "muse"] if recipe.corpus.source == "phrasebook" else []


def has_pairs(recipe: Recipe) -> bool:
    """Return whether the recipe names a source of pairs."""
    settings = recipe.sentences
    assert settings is not None
    has_dictionaries = bool(list_dictionaries(recipe, RunLayout(Path())))
    weights = settings.weights
    rewrites = has_dictionaries and weights.dictionaries > 0
    return rewrites or (bool(settings.parallel) and weights.parallel > 0)


def check_encoders(recipe: Recipe) -> None:
    """Reject a teacher or parallel text that cannot be used, before any work."""
    settings = recipe.sentences
    assert settings is not None
    for path in settings.parallel:
        load_parallel(path, recipe.source_language, recipe.languages)
    teacher = settings.teacher or recipe.meta.model
    assert teacher is not None
    read_teacher(teacher)
    width = read_encoder_config(find_folder(teacher)).hidden_size
    if width != recipe.model.hidden:
        raise MetaXLMError(
            f"sentences.teacher {teacher}: has vectors of {width} numbers, but model.hidden is "
            f"{recipe.model.hidden}; choose a teacher of the same width"
        )


def train_variant_encoder(
    recipe: Recipe, layout: RunLayout, name: str, world: DistributedContext, folder: Path
) -> None:
    """Train the sentence encoder of a variant.

    All variants see the same pairs, except those with dictionaries of their own.
    """
    settings, place = recipe.sentences, layout.variant(name)
    assert settings is not None
    source_language, text = recipe.source_language, settings.text
    seed = derive_seed(recipe.seed, "sentences")

    def read() -> Iterator[str]:
        if text is None:
            return read_sentences(layout.text(source_language))
        return read_text(text, source_language)

    def count(language: str, dictionaries: Dictionaries) -> Counter[str]:
        part = list_parts(layout.text(language))[0]
        return count_words(part, language, dictionaries.by_language[language])

    prepared = prepare_pairs(
        settings, seed, read_sentences=read, dictionaries=list_dictionaries(recipe, layout, name),
        languages=list_others(recipe), source_language=source_language, count=count,
        where=str(text or layout.text(source_language)),
    )  # fmt: skip
    teacher = load_teacher(settings.teacher or layout.meta / "model")
    student = load_pretrained(place / "model")
    training = Training(
        student, str(place / "model"), teacher, prepared.pairs, settings, seed, prepared.data,
        _make_masked_text(recipe, layout, world) if settings.mlm_weight else None,
    )  # fmt: skip
    training.run(
        folder, place / "work-sentences", world, steps_dir=place / "sentence-steps",
        title=f"sentences {name}", execution=recipe.execution,
    )  # fmt: skip


def _make_masked_text(recipe: Recipe, layout: RunLayout, world: DistributedContext) -> MaskedText:
    tokenizer = load_vocabulary(layout, MULTILINGUAL)
    seed = derive_seed(recipe.seed, "masked text of sentences")
    batches = BatchSource(open_shards(recipe, layout), tokenizer, recipe.pretraining, seed)
    masking = Masking(tokenizer, recipe.pretraining, world.device)
    return MaskedText(batches, masking, recipe.pretraining)
