"""Stages of a run: corpus -> vocabulary -> shards -> meta -> per variant: (grow ->) initialize ->
pretrain -> sentences.

Each stage lists exactly the parts of the recipe that decide its output, so that changing one key
runs only the stages that depend on it. `stage.py` runs one stage, `grid.py` evaluates the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from metaxlm import manifest
from metaxlm.digests import write_listed
from metaxlm.files import check_output
from metaxlm.init.pieces import require_wordpiece
from metaxlm.manifest import MARKER
from metaxlm.model.extras import read_extras
from metaxlm.pretrain.distributed import DistributedContext, describe_device
from metaxlm.progress import say
from metaxlm.recipe import Recipe, SentencesRecipe
from metaxlm.recipe.corpus_schema import VocabularyRecipe
from metaxlm.recipe.model_schema import CHANGED_TRAINING, RENAMED_PRECEDENCE, MetaRecipe
from metaxlm.recipe.recipe_file import save_recipe
from metaxlm.run.fingerprints import FileFingerprints
from metaxlm.run.growing import WORK, check_growing, grow_dictionaries
from metaxlm.run.layout import RunLayout
from metaxlm.run.prepare import prepare_corpus, prepare_shards, prepare_vocabularies
from metaxlm.run.stage import Stage, read_marker
from metaxlm.run.training import initialize_variant, load_imported, meta_pretrain, pretrain_variant
from metaxlm.run.variant_encoders import check_encoders, list_dictionaries, train_variant_encoder
from metaxlm.vocab.tokenizer import load_tokenizer

EVALUATION_STAGES = (None, "evaluate", "report")  # values of `--stage` that include evaluation


def build_stages(
    recipe: Recipe,
    layout: RunLayout,
    world: DistributedContext,
    files: FileFingerprints | None = None,
) -> list[Stage]:
    """Return all stages of a recipe except the report, each after those it needs."""
    files = files or FileFingerprints()
    values = recipe.model_dump(mode="json")
    is_imported = recipe.meta.model is not None
    text = {key: values[key] for key in ("seed", "languages", "source_language")}
    text["corpus"] = recipe.corpus.model_dump(mode="json", exclude={"path", "decontaminate"})
    if recipe.corpus.decontaminate is not None:
        text["decontaminate"] = _list_tests(recipe.corpus.decontaminate, layout, files)
    corpus = Stage(
        "corpus",
        layout.corpus,
        {**text, "files": _list_text(recipe, layout, files)},
        (),
        partial(prepare_corpus, recipe, layout),
        work_dir=layout.work("corpus"),
        keeps_work=False,
        version=2,
    )
    extended = _describe_model("meta", recipe, files) if recipe.vocabulary.extend else None
    vocabulary = Stage(
        "vocabulary",
        layout.vocabulary,
        {"seed": recipe.seed, "imports_encoder": is_imported}
        | ({} if extended is None else {"extends": extended["files"] or recipe.meta.model})
        | _describe_model("vocabulary", recipe, files),
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
        {"seed": recipe.seed, "model": values["model"]} | _describe_model("meta", recipe, files),
        () if is_imported else (shards,),
        partial(meta_pretrain, recipe, layout, world),
        work_dir=layout.meta / "checkpoints",
        together=not is_imported,
        version=2,
        device=describe_device(world.device),
        reads=() if is_imported else (vocabulary,),
    )
    # Import an encoder first, so that a wrong name fails before hours of preparation.
    shared = [corpus, vocabulary, shards]
    stages = [meta, *shared] if is_imported else [*shared, meta]
    built: dict[str, list[Stage]] = {}
    for name in recipe.order_variants():
        grown = _build_grow(recipe, layout, world, name, corpus, built, files)
        built[name] = _build_variant(recipe, layout, world, name, shared, meta, files, grown)
    return [*stages, *chain.from_iterable(built.values())]


def _build_grow(
    recipe: Recipe,
    layout: RunLayout,
    world: DistributedContext,
    name: str,
    corpus: Stage,
    built: Mapping[str, Sequence[Stage]],
    files: FileFingerprints,
) -> tuple[Stage, ...]:
    """Return the stage that adds to the dictionaries of a variant, if its recipe has one."""
    variant = recipe.variants[name]
    if variant.grow is None:
        return ()
    pairs, folder = variant.grow.pairs, recipe.find_matching(variant).dictionaries
    # The sentence encoder finds pairs, but does not link words.
    used = ("pretrain", "sentences") if pairs is None else ("pretrain",)
    grow = Stage(
        "grow",
        layout.dictionaries(name),
        {
            "variant": variant.grow.variant,
            "languages": recipe.languages,
            "dictionary_files": files.list_folder(folder, "dictionaries"),
            "pair_files": [] if pairs is None else files.list_place(pairs, "pairs"),
        },
        tuple(stage for stage in built[variant.grow.variant] if stage.name in used),
        partial(grow_dictionaries, recipe, layout, name, world),
        name,
        work_dir=layout.variant(name) / WORK,
        keeps_work=False,
        device=describe_device(world.device),
        reads=(corpus,),
    )
    return (grow,)


def _build_variant(
    recipe: Recipe,
    layout: RunLayout,
    world: DistributedContext,
    name: str,
    shared: Sequence[Stage],
    meta: Stage,
    files: FileFingerprints,
    grown: tuple[Stage, ...],
) -> list[Stage]:
    variant, folder = recipe.variants[name], layout.variant(name)
    corpus, vocabulary, shards = shared
    values = recipe.model_dump(mode="json")
    settings = values["variants"][name]
    choices = recipe.find_matching(variant)
    training = {key: settings.pop(key) for key in ("freeze", "distill")}
    own = {key: settings.pop(key) for key in CHANGED_TRAINING}
    training |= {key: value for key, value in own.items() if value is not None}
    # Keep keys and values of earlier versions, so that finished models are not trained again.
    if training["distill"] is not None:
        training["distill"] |= {"tokens": 0.0, "temperature": 1.0}
    settings.pop("sentences")
    settings.pop("grow")  # the stage's own inputs have it
    seed = recipe.find_seed(variant)
    settings.pop("seed")
    if settings["matching"] is not None:
        settings["matching"] = _restore_names(settings["matching"])
        # The files decide, not their path; finished stages keep the path that they recorded.
        earlier = read_marker(folder / "initialization").get("inputs", {}).get("variant") or {}
        recorded = (earlier.get("matching") or {}).get("dictionaries")
        settings["matching"]["dictionaries"] = recorded
    if (switch := settings.pop("switch")) is not None:
        dictionary_files = files.list_folder(choices.dictionaries, "dictionaries")
        training |= {"switch": switch, "dictionary_files": dictionary_files}
    inputs = {"seed": seed, "model": values["model"], "variant": settings}
    if variant.needs_source:
        dumped = choices.model_dump(mode="json", exclude={"dictionaries"})
        inputs["matching"] = _restore_names(dumped)
    if variant.dictionaries:
        inputs["dictionary_files"] = files.list_folder(choices.dictionaries, "dictionaries")
    # The built-in corpus contains the dictionaries.
    built_in = grown or ((corpus,) if choices.dictionaries is None else ())
    initialize = Stage(
        "initialize",
        folder / "initialization",
        inputs,
        ((shards, meta) if variant.needs_source else (shards,)) + grown,
        partial(initialize_variant, recipe, layout, name),
        name,
        reads=(vocabulary, *(built_in if variant.dictionaries else ())),
    )
    pretrain = Stage(
        "pretrain",
        folder / "model",
        {"seed": seed, "pretraining": _drop_new(values["pretraining"])} | training,
        (initialize,) if variant.distill is None else (initialize, meta),
        partial(pretrain_variant, recipe, layout, name, world),
        name,
        work_dir=folder / "checkpoints",
        together=True,
        version=2,
        device=describe_device(world.device),
        reads=(vocabulary, shards, *(built_in if variant.switch else ())),
    )
    if name not in recipe.list_encoders():
        return [*grown, initialize, pretrain]
    earlier = (*shared, meta, pretrain)
    encoder = _build_encoder(recipe, layout, world, name, earlier, files, grown)
    return [*grown, initialize, pretrain, encoder]


def _build_encoder(
    recipe: Recipe,
    layout: RunLayout,
    world: DistributedContext,
    name: str,
    earlier: Sequence[Stage],
    files: FileFingerprints,
    grown: Sequence[Stage],
) -> Stage:
    corpus, vocabulary, shards, meta, pretrain = earlier
    settings = recipe.sentences
    assert settings is not None
    # The corpus stage writes the dictionaries of the built-in corpus.
    folders = [one for one in list_dictionaries(recipe, layout) if one != layout.tasks / "muse"]
    # The work that is written, but not the result, depends on these.
    ignored = {"teacher", "text", "dictionaries", "parallel", "checkpoint_every", "log_every"}
    inputs: dict[str, Any] = {
        "seed": recipe.seed,
        "sentences": _drop_new(settings.model_dump(mode="json", exclude=ignored | {"keep_steps"})),
        "languages": recipe.languages,
        "dictionary_files": [files.list_folder(one, "dictionaries") for one in folders],
        "parallel_files": [files.list_place(one, "parallel") for one in settings.parallel],
        "text_files": [] if settings.text is None else files.list_place(settings.text, "text"),
    }
    if settings.mlm_weight:
        inputs["pretraining"] = recipe.pretraining.model_dump(mode="json")
    upstream = [pretrain]
    if settings.teacher is None:
        upstream.append(meta)
    elif Path(settings.teacher).is_dir():
        inputs["teacher_files"] = files.list_folder(Path(settings.teacher), "teacher")
    else:
        inputs["teacher"] = settings.teacher
    return Stage(
        "sentences",
        layout.encoder(name),
        inputs,
        tuple(upstream),
        partial(train_variant_encoder, recipe, layout, name, world),
        name,
        work_dir=layout.variant(name) / "work-sentences",
        keeps_work=False,
        together=True,
        device=describe_device(world.device),
        reads=(corpus, vocabulary, *((shards,) if settings.mlm_weight else ()), *grown),
    )


def select_stages(
    stages: Sequence[Stage], stage: str | None, variants: Sequence[str], also: str | None = None
) -> list[Stage]:
    """Return the requested stages and all that they need, in order.

    Stages that only complete stages need, such as text that was deleted after tokenization, are
    left out, except for the stage `also`.
    """
    requested = [
        one
        for one in stages
        if (stage in EVALUATION_STAGES or one.name == stage)
        and (not variants or one.variant is None or one.variant in variants)
    ]
    chosen = _close(requested, lambda one: one.upstream)
    used = {id(earlier) for later in chosen.values() for earlier in later.upstream}
    ends = [one for key, one in chosen.items() if key not in used or one.name == also]
    needed = _close(ends, lambda one: () if one.is_complete() else one.needed)
    kept = needed | {key: one for key, one in chosen.items() if one.is_complete()}
    return [one for one in stages if id(one) in kept]


def _close(
    stages: Iterable[Stage], find_earlier: Callable[[Stage], Iterable[Stage]]
) -> dict[int, Stage]:
    """Return stages and all their predecessors, by identity."""
    found: dict[int, Stage] = {}
    stack = list(stages)
    while stack:
        stage = stack.pop()
        if id(stage) not in found:
            found[id(stage)] = stage
            stack += find_earlier(stage)
    return found


def check_inputs(recipe: Recipe, layout: RunLayout, stages: Sequence[Stage]) -> None:
    """Raise an error before anything is written if the run would overwrite user files."""
    matching = [recipe.matching, *(recipe.find_matching(v) for v in recipe.variants.values())]
    sentences = recipe.sentences or SentencesRecipe()
    inputs = (
        recipe.corpus.path,
        sentences.teacher,
        sentences.text,
        *(sentences.dictionaries or ()),
        *sentences.parallel,
        recipe.evaluation.data,
        recipe.meta.model,
        recipe.vocabulary.model,
        *(choices.dictionaries for choices in matching),
        *(variant.grow.pairs for variant in recipe.variants.values() if variant.grow),
    )
    outputs = [*(stage.output for stage in stages), layout.report]
    work_dirs = [stage.work_dir for stage in stages if stage.work_dir is not None]
    for folder in (*outputs, *work_dirs, layout.root / "cells"):
        check_output(folder, inputs)
    for folder in outputs:
        if not (folder / MARKER).exists():
            manifest.list_foreign_files(folder)


def write_recipe(recipe: Recipe, layout: RunLayout) -> None:
    """Save the resolved recipe, which the report reads."""
    write_listed(layout.root, layout.recipe.name, save_recipe(recipe, layout.root))


def check_models(recipe: Recipe, stages: Sequence[Stage] | None = None) -> None:
    """Load the encoder and the tokenizer that the recipe names, to reject them before any work.

    With `stages`, load only those that an incomplete stage among them needs.
    """
    needed = [stage.name for stage in stages or () if not stage.is_complete()]
    if recipe.meta.model is not None and (stages is None or "meta" in needed):
        read_extras(load_imported(recipe).folder)
    if recipe.vocabulary.model is not None and (stages is None or "vocabulary" in needed):
        load_tokenizer(recipe.vocabulary.model)
    if recipe.vocabulary.extend and (stages is None or "vocabulary" in needed):
        assert recipe.meta.model is not None  # the recipe checks it
        require_wordpiece(load_tokenizer(recipe.meta.model))
    if recipe.list_encoders() and (stages is None or "sentences" in needed):
        check_encoders(recipe)
    if stages is None or "grow" in needed:
        check_growing(recipe)


def _restore_names(matching: Mapping[str, Any]) -> dict[str, Any]:
    old = {new: old for old, new in RENAMED_PRECEDENCE.items()}
    return {**matching, "precedence": old.get(matching["precedence"], matching["precedence"])}


def _list_text(recipe: Recipe, layout: RunLayout, files: FileFingerprints) -> list[list[Any]]:
    """Fingerprint the raw text; if it is not on this machine, use those of the finished corpus."""
    if recipe.corpus.source == "phrasebook":
        return []
    from metaxlm.data.readers.inputs import find_inputs

    folder = recipe.corpus.path
    assert folder is not None  # the recipe checks it
    if not folder.exists() and (earlier := read_marker(layout.corpus).get("inputs")):
        say(f"corpus: {folder} does not exist; using the inputs recorded in {layout.corpus}")
        return list(earlier["files"])
    return [
        files.get(path, folder, "text")
        for language in recipe.languages
        for path in find_inputs(folder, recipe.corpus.source, language)
    ]


def _list_tests(folder: Path, layout: RunLayout, files: FileFingerprints) -> list[list[Any]]:
    """Fingerprint the test sets that are removed, or use those of the finished corpus."""
    earlier = read_marker(layout.corpus).get("inputs", {}).get("decontaminate")
    if not folder.exists() and earlier is not None:
        return list(earlier)
    return files.list_folder(folder, "decontaminate")


def _describe_model(
    name: Literal["vocabulary", "meta"], recipe: Recipe, files: FileFingerprints
) -> dict[str, Any]:
    """Describe a section whose `model` is a folder on this machine or a name on the hub."""
    section: VocabularyRecipe | MetaRecipe = getattr(recipe, name)
    if section.model is None or not Path(section.model).is_dir():
        return {name: _drop_new(section.model_dump(mode="json")), "files": []}
    settings = _drop_new(section.model_dump(mode="json", exclude={"model"}))
    return {name: settings, "files": files.list_folder(Path(section.model), name)}


def _drop_new(settings: dict[str, Any]) -> dict[str, Any]:
    """Drop keys of later versions at their defaults, so that finished models are not repeated."""
    new = {"body_rate": 1.0, "rewind": False, "extend": False, "anchor": 0.0}
    return {k: v for k, v in settings.items() if k not in new or v != new[k]}
