"""A start in one call: an encoder and a tokenizer come in, an encoder with that tokenizer goes out.

    from metaxlm.init.start import match

    start = match("roberta-base", "xlm-roberta-base", dictionaries="muse/")
    start.save("start/")

The folder is a plain Hugging Face one, ready for anyone's trainer, with the ledger that says where
each row comes from. This is the initialization of section 3.2 of the paper on its own; `metaxlm
run` does the same between its two phases of pretraining.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm import __version__
from metaxlm.errors import MetaXLMError
from metaxlm.files import write_json
from metaxlm.hub import HUB
from metaxlm.init.apply import Parts, initialize
from metaxlm.init.composition import Counts
from metaxlm.init.dictionaries import Dictionaries, load_dictionaries
from metaxlm.init.ledger import COVERAGE, LEDGER, coverage, save_ledger
from metaxlm.init.plan import Plan, make_plan
from metaxlm.languages import language_name
from metaxlm.manifest import atomic_folder
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.hugging_face import Pretrained, load_pretrained, save_pretrained
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.loading import load_tokenizer


@dataclass(frozen=True)
class Start:
    """A model that is ready for cross-lingual pretraining, and how it came about."""

    model: MaskedLM
    tokenizer: PreTrainedTokenizerBase
    plan: Plan
    coverage: dict[str, Any]
    """What `ledger.coverage` says about the plan."""
    remarks: tuple[str, ...]
    """What could not be copied and is fresh, a sentence each."""
    names: tuple[str, str]
    """What the encoder and the tokenizer are called."""

    def save(self, folder: str | Path, add: Callable[[Path], None] | None = None) -> None:
        """Write a Hugging Face folder with the ledger and the coverage beside the model.

        `add` writes more files into the folder before it gets its final name.
        """
        folder = Path(folder)
        check_output(folder)
        with atomic_folder(folder) as temporary:
            save_pretrained(self.model, self.tokenizer, temporary, self._card())
            save_ledger(self.plan, temporary / LEDGER)
            write_json(temporary / COVERAGE, self.coverage)
            if add is not None:
                add(temporary)

    def _card(self) -> str:
        """Return README.md: what the folder is, and what it is not."""
        source, target = self.names
        filled = int(self.plan.is_matched.sum())
        rules = [f"| {rule} | {count:,} |" for rule, count in self.plan.count_rules().items()]
        lines = [
            f"# {source} with the vocabulary of {target}",
            "",
            f"The body of `{source}` with {len(self.plan):,} word rows for the tokenizer of "
            f"`{target}`, {filled:,} of which ({filled / len(self.plan):.1%}) start from a row of "
            f"the source. Nothing has been trained yet: this is where masked language modeling in "
            f"the new languages starts. Made by metaxlm {__version__}; `{LEDGER}` has the origin "
            f"of every row, and `metaxlm match explain TOKEN .` tells it.",
            "",
            *(f"- {remark}" for remark in self.remarks),
            *([""] if self.remarks else []),
            "| rule | rows |",
            "|---|---:|",
            *rules,
        ]
        texts = self.coverage["by_language"]
        if texts:
            lines += ["", "| language | running tokens that a rule matched |", "|---|---:|"]
            lines += [f"| {language_name(k)} | {v['matched']:.1%} |" for k, v in texts.items()]
        return "\n".join(lines) + "\n"


def match(
    source: str | Path | Pretrained,
    target: str | Path | PreTrainedTokenizerBase,
    *,
    dictionaries: str | Path | Sequence[Path] | Dictionaries | None = None,
    languages: Sequence[str] | None = None,
    source_language: str = "en",
    matching: MatchingRecipe | None = None,
    parts: Parts | None = None,
    token_counts: Mapping[str, NDArray[np.int64]] | None = None,
    max_positions: int | None = None,
    seed: int = 1,
) -> Start:
    """Give an encoder the vocabulary of another tokenizer.

    `source` and `target` are folders or hub ids; `languages` are the dictionaries to use (all when
    None); `parts` is what is copied (everything when None); `token_counts` says for each language
    how often its text uses each target row; `max_positions` is the encoder's when None.
    """
    names = (_name(source), _name(target))
    encoder = source if isinstance(source, Pretrained) else load_pretrained(source)
    tokenizer = load_tokenizer(str(target)) if isinstance(target, str | Path) else target
    if isinstance(dictionaries, str | Path):
        dictionaries = [Path(dictionaries)]
    if dictionaries is not None and not isinstance(dictionaries, Dictionaries):
        dictionaries = load_dictionaries(dictionaries, languages, source_language)
    counts = Counts(target=token_counts)
    plan = make_plan(tokenizer, encoder.tokenizer, matching, dictionaries, counts)
    config = adapt_config(encoder.model.config, len(plan), tokenizer, max_positions)
    parts = parts or Parts.preset("both")
    model = initialize(config, encoder.model, plan, parts, seed)
    remarks = tuple(_remark(encoder, config, parts))
    return Start(model, tokenizer, plan, coverage(plan, token_counts), remarks, names)


def check_output(folder: Path) -> None:
    """Refuse to write over anything."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MetaXLMError(f"{folder}: is there already; remove it or choose another folder")


def adapt_config(
    source: EncoderConfig,
    num_rows: int,
    tokenizer: PreTrainedTokenizerBase,
    max_positions: int | None = None,
) -> EncoderConfig:
    """Return the shape of an encoder with another vocabulary, in XLM-R's layout of positions."""
    return replace(
        source,
        vocab_size=num_rows,
        pad_id=tokenizer.pad_token_id,
        position_offset=tokenizer.pad_token_id + 1,
        num_token_types=1,
        max_positions=max_positions or source.max_positions,
    )


def _name(value: str | Path | Pretrained | PreTrainedTokenizerBase) -> str:
    if isinstance(value, Pretrained):
        value = value.tokenizer
    if isinstance(value, PreTrainedTokenizerBase):
        value = value.name_or_path or type(value).__name__
    # The last part: a card is read elsewhere, where the folder means nothing.
    return Path(str(value).removeprefix(HUB)).name or str(value)


def _remark(encoder: Pretrained, config: EncoderConfig, parts: Parts) -> list[str]:
    """Say what the start has that the source has not."""
    remarks = []
    left_out = [
        name for name in Parts.preset("both").list_names() if name not in parts.list_names()
    ]
    if left_out:
        remarks.append(f"freshly drawn by choice: {', '.join(left_out)}")
    if encoder.missing and parts.head:
        names = ", ".join(name.removeprefix("head.") for name in encoder.missing)
        remarks.append(
            f"the source is a {encoder.architecture} without a masked language modeling head; "
            f"freshly drawn: {names}"
        )
    if parts.positions:
        length, found = config.max_positions, encoder.model.config.max_positions
        if length > found:
            remarks.append(f"positions {found + 1} to {length} are new to the source, fresh")
        elif length < found:
            remarks.append(f"the source's positions after {length} of {found} are left out")
        if encoder.model.config.num_token_types > 1:
            remarks.append("one token type is kept, the first; pairs of sentences share it")
    return remarks
