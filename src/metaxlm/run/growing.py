"""The dictionaries of a variant, and the stage `grow`: a second round that adds entries to them.

The finished model of another variant links the words of sentence pairs. Words that it links often
are new entries, unless the dictionary already has both of them with other translations. The pairs
are parallel text, or the model finds them in the run's own text. `dictionaries.json` has what each
language has: its sources, the share of its text that is covered, and what the round added.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from metaxlm.analysis.run_folder import DICTIONARIES
from metaxlm.data.text import list_parts
from metaxlm.dictionary.alignments import (
    EmbeddedText,
    align_pairs,
    embed_lines,
    mine_sentences,
)
from metaxlm.dictionary.coverage import describe_origins, measure_text
from metaxlm.dictionary.entries import Entries, Entry
from metaxlm.dictionary.making import find_manifest, write_dictionary
from metaxlm.dictionary.merging import check_entries, merge
from metaxlm.dictionary.vectors import Splitter, TextLines, make_splitter
from metaxlm.errors import MetaXLMError
from metaxlm.files import link, write_json
from metaxlm.init.dictionaries import Dictionaries, Dictionary, load_dictionaries
from metaxlm.languages import language_name
from metaxlm.manifest import MARKER
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.probe.pool import choose_middle
from metaxlm.progress import say
from metaxlm.recipe import Recipe
from metaxlm.recipe.model_schema import GrowRecipe
from metaxlm.run.layout import RunLayout
from metaxlm.sentences.pairs import ParallelPairs
from metaxlm.sentences.parallel_files import load_parallel
from metaxlm.stopping import check_stop

WORK = "work-grow"  # folder of finished languages until all are


def list_others(recipe: Recipe) -> list[str]:
    """Return the languages that have a dictionary into the source language."""
    return [language for language in recipe.languages if language != recipe.source_language]


def load_given(recipe: Recipe, layout: RunLayout, name: str) -> Dictionaries:
    """Load the dictionaries that a variant is given: the recipe's, or the built-in corpus's."""
    folder = recipe.find_matching(recipe.variants[name]).dictionaries or layout.tasks / "muse"
    return load_dictionaries(folder, list_others(recipe), recipe.source_language)


def load_variant_dictionaries(recipe: Recipe, layout: RunLayout, name: str) -> Dictionaries:
    """Load the dictionaries of a variant, with what the stage `grow` added."""
    if recipe.variants[name].grow is None:
        return load_given(recipe, layout, name)
    folder = layout.dictionaries(name)
    return load_dictionaries(folder, list_others(recipe), recipe.source_language)


def describe_dictionaries(dictionaries: Dictionaries, layout: RunLayout) -> dict[str, Any]:
    """Describe the dictionary of each language; coverage is measured if the text still exists."""
    return {
        language: {**describe_origins(dictionary), "covered": _measure(dictionary, layout)}
        for language, dictionary in dictionaries.by_language.items()
    }


def _measure(dictionary: Dictionary, layout: RunLayout) -> float | None:
    parts = sorted(layout.text(dictionary.language).glob("*.txt"))
    found = measure_text(dictionary, parts[0]) if parts else None
    return found.share if found is not None and found.total else None


def check_growing(recipe: Recipe) -> None:
    """Reject parallel text that cannot be used, before any work."""
    for variant in recipe.variants.values():
        if variant.grow is not None and variant.grow.pairs is not None:
            load_parallel(variant.grow.pairs, recipe.source_language, list_others(recipe))


def grow_dictionaries(
    recipe: Recipe, layout: RunLayout, name: str, world: DistributedContext, folder: Path
) -> None:
    """Write the dictionaries of a variant with entries that another variant's model finds.

    Finished languages are kept in the work folder, so that an interrupted stage continues.
    """
    grow, others = recipe.variants[name].grow, list_others(recipe)
    assert grow is not None
    work_dir = layout.variant(name) / WORK
    given = load_given(recipe, layout, name).by_language
    linker = _Linker(recipe, layout, grow, world.device)
    for language in others:
        check_stop()
        output = work_dir / f"{recipe.source_language}-{language}.txt"
        if not find_manifest(output).is_file():  # the last file that is written
            _grow_language(linker, language, given.get(language), output)
    for path in sorted(work_dir.iterdir()):
        if path.name != MARKER:
            link(path, folder / path.name)
    grown = load_dictionaries(folder, others, recipe.source_language)
    write_json(folder / DICTIONARIES, describe_dictionaries(grown, layout))


def _grow_language(linker: _Linker, language: str, old: Dictionary | None, output: Path) -> None:
    """Write the dictionary of a language; if nothing is found, it has the old entries."""
    source, name = linker.recipe.source_language, language_name(language)
    given = [
        Entries(
            pairs.origin,
            source,
            language,
            [Entry(b, a) for a, b in pairs.iter_written()],
            is_kept=True,
        )
        for pairs in (old.files if old else ())
    ]
    before = merge(given) if given else None
    num_pairs, agreeing = 0, None
    try:
        num_pairs, found = linker.find(language, old)
        new, agreeing = check_entries(found, before)
        grown = merge([*given, Entries(f"links of {linker.grow.variant}", source, language, new)])
    except MetaXLMError as error:
        say(f"{name} {'keeps its' if before else 'gets no'} dictionary: {error}")
        if before is None:
            return
        grown = before
    num_before = len(before.entries) if before else 0
    added = len(grown.entries) - num_before
    say(f"{name}: {added:,} entries added to {num_before:,}, from {num_pairs:,} sentence pairs")
    growth = {
        "variant": linker.grow.variant, "pairs": num_pairs, "before": num_before, "added": added,
        "agreeing": agreeing, "covered_before": _measure(old, linker.layout) if old else 0.0,
    }  # fmt: skip
    write_dictionary(grown, output, {"growth": growth})


@dataclass(frozen=True)
class _Linker:
    """Links words with the finished model of a variant, which is loaded when it is needed."""

    recipe: Recipe
    layout: RunLayout
    grow: GrowRecipe
    device: torch.device

    def find(self, language: str, old: Dictionary | None) -> tuple[int, list[Entry]]:
        """Return the number of sentence pairs, and the words that are linked often in them."""
        pairs = self._list_pairs(language)
        if not pairs:
            raise MetaXLMError(f"{self.grow.pairs} has no pairs in {language}")
        known = {word for word, _ in old or ()}
        splits = self._source_split, make_splitter(self._read(language), language, known)
        model = self._model
        layer = choose_middle(model.encoder.config.num_layers)
        counts = align_pairs(model, pairs, splits, layer=layer, device=self.device)
        entries = counts.make_entries("", (self.recipe.source_language, language)).entries
        return len(pairs), list(entries)

    def _list_pairs(self, language: str) -> list[tuple[str, str]]:
        if self._parallel is not None:
            return self._parallel.list_rows(language)
        return mine_sentences(self._source_text, self._embed(language), device=self.device)

    def _embed(self, language: str) -> EmbeddedText:
        text, title = self._read(language), f"embed {language}"
        return embed_lines(self._encoder, text, device=self.device, title=title)

    def _read(self, language: str) -> TextLines:
        return TextLines(list_parts(self.layout.text(language)))

    @cached_property
    def _model(self) -> AnyEncoder:
        return load_encoder(self.layout.variant(self.grow.variant) / "model")

    @cached_property
    def _encoder(self) -> AnyEncoder:
        """The sentence encoder of the variant, or else its model."""
        is_trained = self.grow.variant in self.recipe.list_encoders()
        return load_encoder(self.layout.encoder(self.grow.variant)) if is_trained else self._model

    @cached_property
    def _parallel(self) -> ParallelPairs | None:
        if self.grow.pairs is None:
            return None
        source = self.recipe.source_language
        return load_parallel(self.grow.pairs, source, list_others(self.recipe))

    @cached_property
    def _source_text(self) -> EmbeddedText:
        return self._embed(self.recipe.source_language)

    @cached_property
    def _source_split(self) -> Splitter:
        source = self.recipe.source_language
        return make_splitter(self._read(source), source)
