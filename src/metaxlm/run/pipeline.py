"""A recipe becomes a list of stages, in the order of the paper's Figure 2.

corpus -> vocabulary -> shards -> meta -> for each variant: initialize -> pretrain. Each stage names
exactly the parts of the recipe that decide its output, so that changing one key repeats what
depends on it and nothing else. What is measured afterwards is the grid's (`grid.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from metaxlm.digests import write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import check_output, sweep
from metaxlm.manifest import MARKER, list_foreign_files
from metaxlm.pretrain.distributed import DistributedContext, describe_device
from metaxlm.progress import say
from metaxlm.recipe import Recipe
from metaxlm.recipe.load import save_recipe
from metaxlm.run.grid import Grid, check_grid
from metaxlm.run.layout import RunLayout
from metaxlm.run.preparation import (
    prepare_corpus,
    prepare_shards,
    prepare_vocabularies,
)
from metaxlm.run.stage import Stage, read_marker
from metaxlm.run.training import (
    initialize_variant,
    load_imported,
    meta_pretrain,
    pretrain_variant,
)
from metaxlm.run.user_files import UserFiles
from metaxlm.vocab.load import load_tokenizer


def build_stages(
    recipe: Recipe, layout: RunLayout, world: DistributedContext, known: UserFiles | None = None
) -> list[Stage]:
    """Return all stages of a recipe but the report, each after those it needs."""
    known = known or UserFiles()
    values = recipe.model_dump(mode="json")

    def parts(*keys: str) -> dict[str, Any]:
        return {key: values[key] for key in ("seed", *keys)}

    corpus = Stage(
        "corpus",
        layout.corpus,
        parts("languages", "source_language")
        | {
            "corpus": _without(values["corpus"], "path"),
            "files": _text_files(recipe, layout, known),
        },
        (),
        partial(prepare_corpus, recipe, layout),
        work_dir=layout.work("corpus"),
        keeps_work=False,
        version=2,
    )
    vocabulary = Stage(
        "vocabulary",
        layout.vocabulary,
        {"seed": recipe.seed, "imports_encoder": recipe.meta.model is not None}
        | _describe_source("vocabulary", values, known),
        (corpus,),
        partial(prepare_vocabularies, recipe, layout),
    )
    shards = Stage(
        "shards",
        layout.shards,
        {},
        (vocabulary,),
        partial(prepare_shards, recipe, layout),
        work_dir=layout.work("shards"),
        keeps_work=False,
        version=2,
        reads=(corpus,),
    )
    meta = Stage(
        "meta",
        layout.meta / "model",
        parts("model") | _describe_source("meta", values, known),
        () if recipe.meta.model else (shards,),
        partial(meta_pretrain, recipe, layout, world),
        work_dir=layout.meta / "checkpoints",
        together=recipe.meta.model is None,
        version=2,
        device=describe_device(world.device),
        reads=() if recipe.meta.model else (vocabulary,),
    )
    # An encoder to import is looked at first: a wrong name must not cost hours of preparation.
    first = [meta, corpus] if recipe.meta.model else [corpus]
    last = [] if recipe.meta.model else [meta]
    stages = [*first, vocabulary, shards, *last]
    for name in recipe.variants:
        stages += _variant_stages(
            recipe, layout, world, name, (corpus, vocabulary, shards), meta, known
        )
    return stages


def _variant_stages(
    recipe: Recipe,
    layout: RunLayout,
    world: DistributedContext,
    name: str,
    prepared: tuple[Stage, Stage, Stage],
    meta: Stage,
    known: UserFiles,
) -> list[Stage]:
    variant = recipe.variants[name]
    corpus, vocabulary, shards = prepared
    folder = layout.variant(name)
    values = recipe.model_dump(mode="json")
    start = values["variants"][name]
    choices = recipe.find_matching(variant)
    training = {key: start.pop(key) for key in ("freeze", "distill")}
    if training["distill"] is not None:
        # Keys of earlier versions: without them, finished models would be trained again.
        training["distill"] |= {"tokens": 0.0, "temperature": 1.0}
    dictionaries = partial(_list_files, choices.dictionaries, "dictionaries", known)
    if (switch := start.pop("switch")) is not None:
        training |= {"switch": switch, "dictionary_files": dictionaries()}
    matching: dict[str, Any] = {}
    if variant.needs_source:
        matching["matching"] = choices.model_dump(mode="json", exclude={"dictionaries"})
    if variant.dictionaries:
        matching["dictionary_files"] = dictionaries()
    # The built-in corpus has the dictionaries in it.
    built_in = (corpus,) if choices.dictionaries is None else ()
    initialize = Stage(
        "initialize",
        folder / "initialization",
        {"seed": recipe.seed, "model": values["model"], "variant": start} | matching,
        (shards, meta) if variant.needs_source else (shards,),
        partial(initialize_variant, recipe, layout, variant),
        name,
        reads=(vocabulary, *(built_in if variant.dictionaries else ())),
    )
    pretrain = Stage(
        "pretrain",
        folder / "model",
        {"seed": recipe.seed, "pretraining": values["pretraining"]} | training,
        (initialize,) if variant.distill is None else (initialize, meta),
        partial(pretrain_variant, recipe, layout, name, world),
        name,
        work_dir=folder / "checkpoints",
        together=True,
        version=2,
        device=describe_device(world.device),
        reads=(vocabulary, shards, *(built_in if variant.switch else ())),
    )
    return [initialize, pretrain]


def build_grid(
    recipe: Recipe,
    layout: RunLayout,
    stages: Sequence[Stage],
    variants: Sequence[str],
    device: torch.device,
    known: UserFiles | None = None,
) -> Grid:
    """Return what is measured on the given variants, or on all."""
    pretrained = {
        stage.variant: stage
        for stage in stages
        if stage.name == "pretrain"
        and stage.variant is not None
        and (not variants or stage.variant in variants)
    }
    return Grid(recipe, layout, pretrained, device, known or UserFiles())


def select_stages(
    stages: Sequence[Stage], stage: str | None, variants: Sequence[str], also: str | None = None
) -> list[Stage]:
    """Return the asked-for stages and all that they need, in order.

    What only complete stages need, such as text that was deleted when its shards were made, is not
    needed any more, unless it is the stage `also`.
    """
    wanted = [
        candidate
        for candidate in stages
        if (stage in (None, "evaluate", "report") or candidate.name == stage)
        and (not variants or candidate.variant is None or candidate.variant in variants)
    ]
    chosen: dict[int, Stage] = {}

    def choose(candidate: Stage) -> None:
        if id(candidate) not in chosen:
            chosen[id(candidate)] = candidate
            for earlier in candidate.upstream:
                choose(earlier)

    for candidate in wanted:
        choose(candidate)
    used = {id(earlier) for later in chosen.values() for earlier in later.upstream}
    needed: set[int] = set()

    def need(candidate: Stage) -> None:
        if id(candidate) not in needed:
            needed.add(id(candidate))
            for earlier in () if candidate.is_complete() else candidate.needed:
                need(earlier)

    for candidate in chosen.values():
        if id(candidate) not in used or candidate.name == also:
            need(candidate)
    return [
        candidate
        for candidate in stages
        if id(candidate) in needed or (id(candidate) in chosen and candidate.is_complete())
    ]


def start_run(recipe: Recipe, layout: RunLayout) -> None:
    """Sweep what a killed run left under temporary names, and save the resolved recipe."""
    sweep(layout.root)
    note_recipe(recipe, layout)


def check_inputs(recipe: Recipe, layout: RunLayout, stages: Sequence[Stage]) -> None:
    """Raise an error before anything is written if the run would overwrite user files."""
    matching = [recipe.matching, *(recipe.find_matching(v) for v in recipe.variants.values())]
    inputs = (
        recipe.corpus.path,
        recipe.evaluation.data,
        recipe.meta.model,
        recipe.vocabulary.model,
        *(choices.dictionaries for choices in matching),
    )
    folders = [stage.output for stage in stages]
    folders += [stage.work_dir for stage in stages if stage.work_dir is not None]
    for folder in (*folders, layout.report, layout.root / "cells"):
        check_output(folder, inputs)
    for folder in (*(stage.output for stage in stages), layout.report):
        if not (folder / MARKER).exists():
            list_foreign_files(folder)


def note_recipe(recipe: Recipe, layout: RunLayout) -> None:
    """Save the resolved recipe, which tells the report what to show."""
    write_listed(layout.root, layout.recipe.name, save_recipe(recipe))


def check_recipe(recipe: Recipe, variants: Sequence[str]) -> None:
    """Refuse what cannot work before any time is spent: unknown variants, tasks and folders."""
    for name in variants:
        if name not in recipe.variants:
            known = ", ".join(recipe.variants)
            raise MetaXLMError(f"--variant {name}: not in the recipe, which has {known}")
    check_grid(recipe)
    if recipe.corpus.source == "phrasebook":
        return
    if recipe.evaluation.data is None and recipe.measures_anything:
        raise MetaXLMError(
            "evaluation.data is not set; name the folder with tatoeba/, wordalign/, xnli/ and so "
            "on, or set retrieval and alignment to null"
        )
    if any(
        (variant.dictionaries or variant.switch)
        and recipe.find_matching(variant).dictionaries is None
        for variant in recipe.variants.values()
    ):
        raise MetaXLMError(
            "a variant has `dictionaries: true` or `switch`, but matching.dictionaries names no "
            "folder; set it to a folder of MUSE files such as en-de.txt"
        )


def check_models(recipe: Recipe, stages: Sequence[Stage] | None = None) -> None:
    """Load the encoder and the tokenizer that the recipe names, to refuse them before any work.

    With `stages`, load only those that an incomplete stage among them needs.
    """
    needed = [stage.name for stage in stages or () if not stage.is_complete()]
    if recipe.meta.model is not None and (stages is None or "meta" in needed):
        load_imported(recipe)
    if recipe.vocabulary.model is not None and (stages is None or "vocabulary" in needed):
        load_tokenizer(recipe.vocabulary.model)


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Leave out where a folder is: its files say what is in it, and it may be moved."""
    return {name: value for name, value in values.items() if name != key}


def _text_files(recipe: Recipe, layout: RunLayout, known: UserFiles) -> list[list[Any]]:
    """Identify the raw text, or go by what was read if it is not on this machine."""
    if recipe.corpus.source == "phrasebook":
        return []
    from metaxlm.data.readers.inputs import find_inputs

    folder = recipe.corpus.path
    assert folder is not None  # the recipe checks it
    if not folder.exists() and (read := read_marker(layout.corpus).get("inputs")):
        say(f"corpus: {folder} is not there; going by what {layout.corpus} was made from")
        return list(read["files"])
    return [
        known.identify(path, folder, "text")
        for language in recipe.languages
        for path in find_inputs(folder, recipe.corpus.source, language)
    ]


def _describe_source(section: str, values: Mapping[str, Any], known: UserFiles) -> dict[str, Any]:
    """Describe a section whose `model` is a folder on this machine or a name on the hub."""
    settings = values[section]
    name = settings["model"]
    if name is None or not Path(name).is_dir():
        return {section: settings, "files": []}
    files = _list_files(Path(name), section, known)
    return {section: _without(settings, "model"), "files": files}


def _list_files(folder: Path | None, what: str, known: UserFiles) -> list[list[Any]]:
    """Identify all files of a folder, so that a change is noticed."""
    if folder is None:
        return []
    if not folder.is_dir():
        raise MetaXLMError(f"{folder}: no such folder, but the recipe names it")
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [known.identify(path, folder, what) for path in files]
