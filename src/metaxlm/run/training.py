"""The stages that train models: meta-pretraining, initialization, cross-lingual pretraining."""

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.analysis.run_folder import DICTIONARIES
from metaxlm.data.shards import Shard, open_shard
from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json, remove, write_json
from metaxlm.hub import CONFIG
from metaxlm.init.ledger import COVERAGE, LEDGER, coverage, save_ledger
from metaxlm.init.match_plan import Counts, make_plan
from metaxlm.init.start import Parts, adapt_config, initialize, keep_extras
from metaxlm.languages import language_name
from metaxlm.manifest import check_file
from metaxlm.model.card import model_card
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.extras import Extras, read_extras
from metaxlm.model.foreign import adapt_vocabulary, list_sizes
from metaxlm.model.huggingface import (
    Pretrained,
    load_pretrained,
    read_encoder_config,
    save_pretrained,
)
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.model.model_folder import find_folder
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource
from metaxlm.pretrain.checkpoint import list_checkpoints
from metaxlm.pretrain.code_switching import Switching
from metaxlm.pretrain.distill import Distillation, make_teacher
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.pretrain.log import LOG_NAME, open_trackers
from metaxlm.pretrain.loop import STEPS, train
from metaxlm.progress import say
from metaxlm.randomness import derive_seed
from metaxlm.recipe import PartsRecipe, Recipe, TrainingRecipe
from metaxlm.run.growing import describe_dictionaries, load_variant_dictionaries
from metaxlm.run.layout import RunLayout
from metaxlm.run.prepare import MONOLINGUAL, MULTILINGUAL, load_vocabulary, open_shards
from metaxlm.run.switch_table import build_switch_table

TRAINING_LOG = "training_log.jsonl"  # log of a finished training run, stored in the model's folder


def encoder_config(recipe: Recipe, vocab_size: int, pad_id: int = 1) -> EncoderConfig:
    """Return the shape of the recipe's encoder for a vocabulary."""
    return EncoderConfig(
        vocab_size=vocab_size,
        pad_id=pad_id,
        position_offset=pad_id + 1,
        hidden_size=recipe.model.hidden,
        num_layers=recipe.model.layers,
        num_heads=recipe.model.heads,
        ffn_size=recipe.model.ffn,
        max_positions=recipe.model.max_positions,
        dropout=recipe.model.dropout,
        attention_dropout=recipe.model.dropout,
    )


def estimate_config(recipe: Recipe, vocab_size: int) -> EncoderConfig:
    """Return the shape of all variants without their tokenizer, to estimate the cost of a run."""
    config = encoder_config(recipe, vocab_size)
    if recipe.meta.model is None:
        return config
    source = read_encoder_config(find_folder(recipe.meta.model))
    if source.settings:
        return adapt_vocabulary(source, vocab_size, {"pad": config.pad_id})
    return replace(
        source,
        vocab_size=vocab_size,
        pad_id=config.pad_id,
        position_offset=config.position_offset if source.position_offset else 0,
        max_positions=config.max_positions,
        dropout=config.dropout,
        attention_dropout=config.dropout,
    )


def variant_config(
    recipe: Recipe, layout: RunLayout, tokenizer: PreTrainedTokenizerBase
) -> EncoderConfig:
    """Return the shape of all variants: the recipe's, in the family of an imported encoder."""
    config = encoder_config(recipe, len(tokenizer), tokenizer.pad_token_id)
    if recipe.meta.model is None:
        return config
    folder = layout.meta / "model"
    if not (folder / CONFIG).exists():  # the run's copy may be gone, or not be written yet
        folder = find_folder(recipe.meta.model)
    source = read_encoder_config(folder)
    adapted = adapt_config(source, tokenizer, len(tokenizer), config.max_positions)
    if adapted.settings:  # other families have their own settings of dropout
        return adapted
    return replace(adapted, dropout=config.dropout, attention_dropout=config.dropout)


def meta_pretrain(
    recipe: Recipe, layout: RunLayout, world: DistributedContext, folder: Path
) -> None:
    """Phase (a): train the monolingual encoder, or import the one that the recipe names."""
    if recipe.meta.model is not None:
        imported = load_imported(recipe)
        if imported.missing:
            say(f"{recipe.meta.model}: has no {', '.join(imported.missing)}; randomly initialized")
        card = _intermediate_card(recipe, f"the encoder {recipe.meta.model}, imported")
        extras = read_extras(imported.folder)
        save_pretrained(imported.model, imported.tokenizer, folder, card, extras)
        return
    tokenizer = load_vocabulary(layout, MONOLINGUAL)
    shard = open_shard(layout.shards / MONOLINGUAL / recipe.source_language)
    seed = derive_seed(recipe.seed, "meta")
    torch.manual_seed(seed)
    model = MaskedLM(encoder_config(recipe, len(tokenizer)))
    batches = BatchSource({recipe.source_language: shard}, tokenizer, recipe.meta, seed)
    what = f"{language_name(recipe.source_language)} encoder after meta-pretraining"
    phase = _Phase(recipe, recipe.meta, "meta-pretraining", tokenizer, layout.meta, what)
    phase.run(model, batches, seed, world, folder, _intermediate_card(recipe, what))


def load_imported(recipe: Recipe) -> Pretrained:
    """Load the encoder that the recipe names; reject one of another shape."""
    assert recipe.meta.model is not None
    imported = load_pretrained(recipe.meta.model)
    expected = encoder_config(recipe, imported.model.config.vocab_size)
    names = {"num_layers": "layers", "hidden_size": "hidden", "num_heads": "heads"}
    known = list_sizes(imported.model.config)
    for attribute, key in {**names, "ffn_size": "ffn"}.items():
        if attribute not in known:
            continue
        found, needed = (getattr(c, attribute) for c in (imported.model.config, expected))
        if found != needed:
            fix = f"the recipe's model.{key} is {needed}; set it to the encoder's"
            raise MetaXLMError(f"{recipe.meta.model}: has {found} {key}, {fix}")
    most = imported.model.config.max_positions
    if imported.model.config.settings and recipe.model.max_positions > most:
        fix = f"set model.max_positions to at most {most}"
        raise MetaXLMError(f"{recipe.meta.model}: has {most} positions; {fix}")
    return imported


def initialize_variant(recipe: Recipe, layout: RunLayout, name: str, folder: Path) -> None:
    """Match the vocabularies, write the ledger, and save the initialized model."""
    variant, tokenizer = recipe.variants[name], load_vocabulary(layout, MULTILINGUAL)
    config = variant_config(recipe, layout, tokenizer)
    # Variants share the seed: they differ in what is copied, not in random values.
    seed = derive_seed(recipe.find_seed(variant), "initialization")
    extras = None
    if variant.needs_source:
        source = load_pretrained(layout.meta / "model")
        matching = recipe.find_matching(variant)
        dictionaries = None
        if variant.dictionaries:
            dictionaries = load_variant_dictionaries(recipe, layout, name)
            if variant.grow is None:  # otherwise the stage `grow` wrote it
                write_json(folder / DICTIONARIES, describe_dictionaries(dictionaries, layout))
        counts = _count_tokens(open_shards(recipe, layout), tokenizer)
        both = Counts(_count_source(recipe, layout), counts)
        extends = recipe.vocabulary.extend
        plan = make_plan(tokenizer, source.tokenizer, matching, dictionaries, both, extends=extends)
        save_ledger(plan, folder / LEDGER)
        write_json(folder / COVERAGE, coverage(plan, counts))
        parts = variant.initialize
        copied = (
            Parts(**parts.model_dump()) if isinstance(parts, PartsRecipe) else Parts.preset(parts)
        )
        model = initialize(config, source.model, plan, copied, seed)
        extras = keep_extras(source, copied)
    else:
        model = initialize(config, None, None, Parts.preset("none"), seed)
    card = _intermediate_card(recipe, "the initialization of cross-lingual pretraining")
    save_pretrained(model.eval(), tokenizer, folder / "model", card, extras)


def _count_source(recipe: Recipe, layout: RunLayout) -> NDArray[np.int64] | None:
    """Count the source language's tokens if its own vocabulary was trained in this run."""
    if recipe.meta.model is not None:
        return None
    size = len(load_vocabulary(layout, MONOLINGUAL))
    return open_shard(layout.shards / MONOLINGUAL / recipe.source_language).count_tokens(size)


def pretrain_variant(
    recipe: Recipe, layout: RunLayout, name: str, world: DistributedContext, folder: Path
) -> None:
    """Phase (b): cross-lingual pretraining of a variant.

    All variants are trained on the same blocks, except those with their own `alpha` or `seed`.
    """
    variant, place = recipe.variants[name], layout.variant(name)
    tokenizer = load_vocabulary(layout, MULTILINGUAL)
    start = place / "initialization" / "model"
    model = load_pretrained(start).model
    if variant.freeze == "body":
        model.freeze_layers()
    teacher = None
    if variant.distill is not None:
        source = load_pretrained(layout.meta / "model")
        teacher = make_teacher(
            source, tokenizer, model.config, variant.distill, recipe.source_language, world.device
        )
    shards = open_shards(recipe, layout)
    seed = derive_seed(recipe.find_seed(variant), "pretraining")
    settings = variant.change_training(recipe.pretraining)
    batches = BatchSource(
        shards,
        tokenizer,
        settings,
        seed,
        None if teacher is None else teacher.prepare,
        _make_switching(recipe, layout, name, tokenizer, shards),
    )
    architecture = read_json(start / CONFIG)["architectures"][0]
    card = model_card(recipe.model_dump(mode="json"), name, None, architecture)
    what = f"{name} during pretraining"
    title, extras = f"pretraining {name}", read_extras(start)
    phase = _Phase(recipe, settings, title, tokenizer, place, what, extras)
    phase.run(model, batches, seed, world, folder, card, teacher)


@dataclass(frozen=True)
class _Phase:
    recipe: Recipe
    settings: TrainingRecipe
    title: str
    tokenizer: PreTrainedTokenizerBase
    place: Path  # folder of `checkpoints/` and, for the recipe's `keep_steps`, of `steps/`
    what: str  # description of the model in the card of an intermediate checkpoint
    extras: Extras = field(default_factory=Extras)  # saved with the model, without training

    def run(
        self,
        model: MaskedLM,
        batches: BatchSource,
        seed: int,
        world: DistributedContext,
        folder: Path,
        card: str,
        teacher: Distillation | None = None,
    ) -> None:
        """Train; save the finished model and the training log in the folder."""
        work_dir = self.place / "checkpoints"
        if world.is_main and not list_checkpoints(work_dir):
            remove(self.place / STEPS)  # of an earlier recipe
        with ExitStack() as stack:
            trackers = None
            if world.is_main:
                names, values = self.recipe.execution.trackers, self.recipe.model_dump(mode="json")
                trackers = open_trackers(names, work_dir, self.title, values)
                stack.callback(trackers.close)
            state = train(
                model, batches, self.settings, work_dir, seed, world, self.title,
                masking=Masking(self.tokenizer, self.settings, world.device),
                execution=self.recipe.execution, teacher=teacher, export=self._export,
                trackers=trackers,
            )  # fmt: skip
        whole = world.whole(model)
        if world.is_main:
            save_pretrained(whole.cpu().eval(), self.tokenizer, folder, card, self.extras)
            shutil.copy(work_dir / LOG_NAME, folder / TRAINING_LOG)
            if problem := check_file(folder / TRAINING_LOG, state.log):
                fix = "move it away and run again: the trained model is in its checkpoint"
                raise MetaXLMError(f"{work_dir / LOG_NAME}: {problem}; {fix}")

    def _export(self, model: MaskedLM, folder: Path) -> None:
        card = _intermediate_card(self.recipe, f"{self.what}, {folder.name}")
        save_pretrained(model, self.tokenizer, folder, card, self.extras)


def _make_switching(
    recipe: Recipe,
    layout: RunLayout,
    name: str,
    tokenizer: PreTrainedTokenizerBase,
    shards: Mapping[str, Shard],
) -> Switching | None:
    variant = recipe.variants[name]
    if variant.switch is None:
        return None
    dictionaries = load_variant_dictionaries(recipe, layout, name)
    table = build_switch_table(dictionaries, tokenizer, _count_tokens(shards, tokenizer))
    counts = table.count_pieces()
    if not any(counts.values()):
        raise MetaXLMError(
            f"variants.{name}.switch: no dictionary entry has a word and a translation that are "
            "single tokens of the vocabulary; use a larger vocabulary, or remove `switch`"
        )
    found = ", ".join(f"{language} {count:,}" for language, count in counts.items())
    say(f"tokens that may switch into another language: {found}")
    return Switching(table, tokenizer, variant.switch.probability)


def _count_tokens(
    shards: Mapping[str, Shard], tokenizer: PreTrainedTokenizerBase
) -> dict[str, NDArray[np.int64]]:
    return {name: shard.count_tokens(len(tokenizer)) for name, shard in shards.items()}


def _intermediate_card(recipe: Recipe, what: str) -> str:
    """Return the card of a model between two phases, which is not meant to be published."""
    return f"# {recipe.name}: {what}\n\nMade by metaxlm from the run's `recipe.yaml`.\n"
