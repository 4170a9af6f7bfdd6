"""Initialize an encoder for another vocabulary (section 3.2 of the paper).

    from metaxlm.init.start import match

    start = match("roberta-base", "xlm-roberta-base", dictionaries="muse/")
    start.save("start/")

`match` does it in one call and writes a plain Hugging Face folder, ready for any trainer, with the
ledger of all embeddings. `metaxlm run` calls `initialize` between its two phases of pretraining.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm import __version__
from metaxlm.data.statistics import count_sentences, list_languages, read_corpus
from metaxlm.errors import MetaXLMError
from metaxlm.files import write_json
from metaxlm.hub import HUB, MODULES
from metaxlm.init.dictionaries import Dictionaries, load_dictionaries
from metaxlm.init.extension import Extension, extend_tokenizer, read_words
from metaxlm.init.ledger import COVERAGE, LEDGER, coverage, save_ledger
from metaxlm.init.match_plan import Counts, Plan, make_plan
from metaxlm.init.rules import UNMATCHED
from metaxlm.languages import language_name
from metaxlm.manifest import atomic_folder
from metaxlm.model.encoder import INITIAL_STD, EncoderConfig
from metaxlm.model.extras import Extras, read_extras
from metaxlm.model.families import FAMILIES
from metaxlm.model.foreign import adapt_vocabulary, list_special_ids
from metaxlm.model.front_matter import (
    describe_class,
    list_codes,
    read_inherited,
    write_front_matter,
)
from metaxlm.model.huggingface import Pretrained, load_pretrained, save_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokenizer import load_tokenizer
from metaxlm.vocab.trim import TrimLoss, choose_pieces, measure_loss, trim_tokenizer

_HELD_OUT_EVERY, _MOST_HELD_OUT = 20, 2_000  # sentences

Preset = Literal["none", "body", "embeddings", "remainder", "both"]


@dataclass(frozen=True)
class Parts:
    """The parts to copy from the source model.

    The presets `body`, `embeddings` and `remainder` have no part in common, and together all of
    them, which is `both`: the paper names the body and the word embeddings, and does not say where
    positions, token types, the LayerNorm of the embeddings and the MLM head belong.
    """

    words: bool = False  # token embeddings by the plan; the decoder is tied to them
    positions: bool = False  # position embeddings, and the token type embeddings added to them
    embedding_norm: bool = False  # LayerNorm of the embeddings
    layers: bool = False  # the Transformer layers
    head: bool = False  # dense and LayerNorm of the MLM head, and the decoder's bias by the plan

    @classmethod
    def preset(cls, name: Preset) -> Self:
        """Return a variant of the paper (none, body, embeddings, both), or the remainder."""
        every = [part.name for part in fields(cls)]
        presets = {"none": [], "body": ["layers"], "embeddings": ["words"], "both": every}
        presets["remainder"] = [part for part in every if part not in ("layers", "words")]
        if name not in presets:
            known = "none, body, embeddings, remainder or both"
            raise MetaXLMError(f"initialize: no preset {name!r}; choose {known}")
        return cls(**dict.fromkeys(presets[name], True))

    def list_names(self) -> list[str]:
        """Return the names of the parts to copy."""
        return [part.name for part in fields(self) if getattr(self, part.name)]


@dataclass(frozen=True)
class Start:
    """An initialized model, ready for cross-lingual pretraining."""

    model: MaskedLM
    tokenizer: PreTrainedTokenizerBase
    plan: Plan
    coverage: dict[str, Any]  # the result of `ledger.coverage`
    remarks: tuple[str, ...]  # one sentence per part that could not be copied
    names: tuple[str, str]  # names of the encoder and the tokenizer
    extras: Extras = field(default_factory=Extras)  # task head and sentence modules of the source
    inherited: Mapping[str, Any] = field(default_factory=dict)  # of the source's card

    def save(self, folder: str | Path, add: Callable[[Path], None] | None = None) -> None:
        """Write a Hugging Face folder with ledger and coverage; `add` may write more files."""
        folder = Path(folder)
        check_output(folder)
        with atomic_folder(folder) as temporary:
            save_pretrained(self.model, self.tokenizer, temporary, self._card(), self.extras)
            save_ledger(self.plan, temporary / LEDGER)
            write_json(temporary / COVERAGE, self.coverage)
            if add is not None:
                add(temporary)

    def _card(self) -> str:
        source, target = self.names
        filled = int(self.plan.is_matched.sum())
        texts = self.coverage["by_language"]
        has_modules = MODULES in self.extras.files
        front = {
            **self.inherited,
            **({"language": list_codes(texts)} if texts else {}),
            **describe_class(self.extras.architecture or "ForMaskedLM", has_modules=has_modules),
        }
        lines = [
            write_front_matter(front),
            f"# {source} with the vocabulary of {target}\n",
            f"The layers of `{source}` with {len(self.plan):,} token embeddings for the tokenizer "
            f"of `{target}`; {filled:,} of them ({filled / len(self.plan):.1%}) are initialized "
            "from embeddings of the source. The model is not trained yet: continue with masked "
            f"language modeling in the new languages. Made by metaxlm {__version__}. `{LEDGER}` "
            "has the origin of every embedding; `metaxlm match explain TOKEN .` shows it.\n",
            *(f"- {remark}" for remark in self.remarks),
            *([""] if self.remarks else []),
            "| rule | tokens |",
            "|---|---:|",
            *(f"| {rule} | {count:,} |" for rule, count in self.plan.count_rules().items()),
        ]
        if texts:
            lines += ["", "| language | running tokens that a rule matched |", "|---|---:|"]
            lines += [f"| {language_name(k)} | {v['matched']:.1%} |" for k, v in texts.items()]
        return "\n".join(lines) + "\n"


def match(
    source: str | Path | Pretrained,
    target: str | Path | PreTrainedTokenizerBase | None = None,
    *,
    extend: Path | Sequence[str] | Extension | None = None,
    dictionaries: str | Path | Sequence[Path] | Dictionaries | None = None,
    languages: Sequence[str] | None = None,
    source_language: str = "en",
    matching: MatchingRecipe | None = None,
    parts: Parts | None = None,
    token_counts: Mapping[str, NDArray[np.int64]] | None = None,
    max_positions: int | None = None,
    seed: int = 1,
) -> Start:
    """Give an encoder the vocabulary of another tokenizer; keep its task head, if it has one.

    `source` and `target` are folders or hub ids; `languages` are the dictionaries to use (default:
    all); `parts` are the parts to copy (default: all); `token_counts` are the counts of the target
    tokens in text, by language; `max_positions` defaults to the encoder's.

    Instead of a target, `extend` adds words to the source's own vocabulary, whose embeddings are
    kept: a list of words, or a file with one per line. Words without any match start from the mean
    of the source's tokens for them.
    """
    if (target is None) == (extend is None):
        raise MetaXLMError("match: needs either the tokenizer of another model or words to add")
    encoder = source if isinstance(source, Pretrained) else load_pretrained(source)
    extension = None if extend is None else _extend(encoder.tokenizer, extend)
    if extension is not None:
        target, added = extension.tokenizer, f"{_name(source)} and {len(extension.words):,} words"
    assert target is not None
    names = (_name(source), _name(target) if extension is None else added)
    tokenizer = load_tokenizer(str(target)) if isinstance(target, str | Path) else target
    if isinstance(dictionaries, str | Path):
        dictionaries = [Path(dictionaries)]
    if dictionaries is not None and not isinstance(dictionaries, Dictionaries):
        dictionaries = load_dictionaries(dictionaries, languages, source_language)
    counts = Counts(target=token_counts)
    plan = make_plan(
        tokenizer, encoder.tokenizer, matching, dictionaries, counts, extends=extend is not None
    )
    config = adapt_config(encoder.model.config, tokenizer, len(plan), max_positions)
    parts = parts or Parts.preset("both")
    model = initialize(config, encoder.model, plan, parts, seed)
    extras = keep_extras(encoder, parts)
    remarks = _list_remarks(encoder, config, parts)
    remarks += filter(None, [extras.describe()])
    if extension is not None and extension.num_known:
        remarks.append(f"{extension.num_known:,} words were skipped: the vocabulary has them")
    found = coverage(plan, token_counts)
    origin = source.folder if isinstance(source, Pretrained) else source
    inherited = {} if origin is None else read_inherited(origin)
    return Start(model, tokenizer, plan, found, tuple(remarks), names, extras, inherited)


def _extend(
    tokenizer: PreTrainedTokenizerBase, words: Path | Sequence[str] | Extension
) -> Extension:
    if isinstance(words, Extension):
        return words
    listed = read_words(Path(words)) if isinstance(words, str | Path) else words
    return extend_tokenizer(tokenizer, listed)


def keep_extras(source: Pretrained, parts: Parts) -> Extras:
    """Return the task head and the sentence modules, which need the layers they were trained on."""
    return read_extras(source.folder) if parts.layers else Extras()


def adapt_config(
    config: EncoderConfig,
    tokenizer: PreTrainedTokenizerBase,
    vocab_size: int,
    max_positions: int | None = None,
) -> EncoderConfig:
    """Return the configuration of an encoder of the same family with another vocabulary."""
    if config.settings:
        _check_positions(config, max_positions)
        return adapt_vocabulary(config, vocab_size, list_special_ids(tokenizer))
    pad_id, fixed = tokenizer.pad_token_id, FAMILIES[config.family].pad_id
    if fixed not in (None, pad_id):
        raise MetaXLMError(
            f"{config.family}: pads with id {fixed}, but the tokenizer with {pad_id}; use a "
            "tokenizer with XLM-R's layout of special tokens"
        )
    return replace(
        config,
        vocab_size=vocab_size,
        pad_id=pad_id,
        position_offset=pad_id + 1 if config.position_offset else 0,
        max_positions=max_positions or config.max_positions,
    )


def _check_positions(config: EncoderConfig, max_positions: int | None) -> None:
    if max_positions and max_positions > config.max_positions:
        raise MetaXLMError(
            f"{config.family}: has {config.max_positions} positions and cannot have "
            f"{max_positions}; use at most {config.max_positions}"
        )


def check_output(folder: Path) -> None:
    """Raise if a folder to write is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MetaXLMError(f"{folder}: is there already; remove it or choose another folder")


def _name(value: str | Path | Pretrained | PreTrainedTokenizerBase) -> str:
    if isinstance(value, Pretrained):
        value = value.tokenizer
    if isinstance(value, PreTrainedTokenizerBase):
        value = value.name_or_path or type(value).__name__
    # The card is published: show the last part of a local path only.
    return Path(str(value).removeprefix(HUB)).name or str(value)


def _list_remarks(encoder: Pretrained, config: EncoderConfig, parts: Parts) -> list[str]:
    remarks = []
    if left_out := [part.name for part in fields(parts) if not getattr(parts, part.name)]:
        remarks.append(f"randomly initialized by choice: {', '.join(left_out)}")
    if encoder.missing and parts.head:
        names = ", ".join(name.removeprefix("head.") for name in encoder.missing)
        remarks.append(
            f"the source is a {encoder.architecture} without a masked language modeling head; "
            f"randomly initialized: {names}"
        )
    if parts.positions and config.rotary is None:
        length, found = config.max_positions, encoder.model.config.max_positions
        if length > found:
            remarks.append(
                f"positions {found + 1} to {length} are not in the source: randomly initialized"
            )
        elif length < found:
            remarks.append(f"the source's positions after {length} of {found} are left out")
    return remarks


def initialize(
    target_config: EncoderConfig,
    source: MaskedLM | None,
    plan: Plan | None,
    parts: Parts,
    seed: int,
) -> MaskedLM:
    """Make a random model from the seed, then copy the chosen parts of the source into it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        target = MaskedLM(target_config)
    if not parts.list_names():
        return target
    if source is None:
        raise MetaXLMError(
            f"initialize: nothing to copy {', '.join(parts.list_names())} from; "
            "give a source model, or the preset none"
        )
    _check_shapes(target_config, source.config, parts)
    found = source.state_dict()
    with torch.no_grad():
        for name, value in target.state_dict().items():
            part = target.find_part(name)
            if part not in parts.list_names():
                continue
            if part == "positions":
                if name in found:  # not every source has token types
                    _copy_positions(name, value, found[name], target_config, source.config)
            elif part != "words" and name.removeprefix("head.") not in target.head.by_token:
                value.copy_(found[name])
            else:
                assert plan is not None
                if part == "words":
                    _scale_fillers(value, found[name], plan, target_config)
                _fill_rows(value.view(len(value), -1), found[name].view(len(found[name]), -1), plan)
    return target


def _check_shapes(target: EncoderConfig, source: EncoderConfig, parts: Parts) -> None:
    names = {"hidden_size": "hidden size"}
    if parts.layers:
        names |= {"num_layers": "layers", "num_heads": "attention heads", "ffn_size": "ffn size"}
    for attribute, name in names.items():
        found, wanted = getattr(source, attribute), getattr(target, attribute)
        if found != wanted:
            raise MetaXLMError(
                f"initialize: the source model has {name} {found}, the target {wanted}; "
                f"give the target the source's sizes"
            )


def _scale_fillers(target_VD: Tensor, source_VD: Tensor, plan: Plan, config: EncoderConfig) -> None:
    """Give the random embeddings of unmatched tokens the mean and spread of the source."""
    if plan.recipe.filler != "normal":
        return
    # Scale the random embeddings, so that they too depend on the seed alone.
    fillers = np.flatnonzero(plan.rules == UNMATCHED)
    rows = torch.from_numpy(fillers[fillers != config.pad_id])
    deviation_D, mean_D = torch.std_mean(source_VD.to(target_VD), dim=0)
    # Each family of transformers draws its embeddings with its own spread.
    spread = target_VD.std() if config.settings else INITIAL_STD
    target_VD[rows] = mean_D + deviation_D * (target_VD[rows] / spread)


def _fill_rows(target_VD: Tensor, source_VD: Tensor, plan: Plan) -> None:
    source_VD = source_VD.to(target_VD)
    counts = np.diff(plan.offsets)
    is_single = np.repeat(counts == 1, counts)
    # A single row is copied, not multiplied by one, to keep all bits (signed zeros).
    single = torch.from_numpy(np.flatnonzero(counts == 1))
    target_VD[single] = source_VD[torch.from_numpy(plan.sources[is_single]).long()]
    several = np.flatnonzero(counts > 1)
    if several.size:
        starts = torch.from_numpy(np.concatenate([[0], np.cumsum(counts[several])[:-1]]))
        rows = torch.from_numpy(plan.sources[~is_single]).long()
        weights = torch.from_numpy(plan.weights[~is_single]).to(source_VD)
        target_VD[torch.from_numpy(several)] = F.embedding_bag(
            rows, source_VD, starts, mode="sum", per_sample_weights=weights
        )


def _copy_positions(
    name: str, value_PD: Tensor, found_PD: Tensor, target: EncoderConfig, source: EncoderConfig
) -> None:
    """Align the first real positions, and copy as many rows as both models have."""
    is_table = "position" in name.split(".")[-2]  # or one of token types
    mine, other = (config.position_offset if is_table else 0 for config in (target, source))
    # Rows before the first position (RoBERTa's padding) are copied if both models have them.
    before = min(mine, other)
    to_row, from_row = mine - before, other - before
    count = min(len(value_PD) - to_row, len(found_PD) - from_row)
    value_PD[to_row : to_row + count] = found_PD[from_row : from_row + count].to(value_PD)


@dataclass(frozen=True)
class Trimmed:
    """A trimmed vocabulary and its cost."""

    tokenizer: PreTrainedTokenizerBase
    rows: NDArray[np.int64]  # the old id of each token
    losses: Mapping[str, TrimLoss]  # by language, on held-out sentences
    held_out: Mapping[str, Sequence[str]]  # the held-out sentences


def trim(
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    languages: Sequence[str] | None = None,
    min_count: int = 1,
    size: int | None = None,
) -> Trimmed:
    """Keep the tokens that occur at least `min_count` times, or the `size` most frequent ones.

    `folder` is a run, or has prepared text or files such as de.txt. Every twentieth sentence of a
    language, at most 2,000, is held out to measure the loss.
    """
    found = languages or list_languages(folder)
    if not found:
        raise MetaXLMError(
            f"{folder}: no text in it; name a run, a folder of prepared text, or one with files "
            "such as de.txt or de.txt.xz"
        )
    held_out: dict[str, list[str]] = {language: [] for language in found}
    counts = sum(
        count_sentences(_hold_out(read_corpus(folder, language), held_out[language]), tokenizer)
        for language in found
    )
    assert isinstance(counts, np.ndarray)
    rows = choose_pieces(counts, tokenizer, min_count, size)
    smaller = trim_tokenizer(tokenizer, rows)
    return Trimmed(smaller, rows, measure_loss(tokenizer, smaller, held_out), held_out)


def _hold_out(sentences: Iterator[str], held_out: list[str]) -> Iterator[str]:
    for place, sentence in enumerate(sentences):
        if place % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1 and len(held_out) < _MOST_HELD_OUT:
            held_out.append(sentence)
        else:
            yield sentence
