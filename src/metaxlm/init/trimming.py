"""A vocabulary trimmed to a user's text, with what that costs measured on text held out.

Comes in: a tokenizer and a folder of text. Goes out: the tokenizer with the pieces that the text
uses, and for each language how text that was not counted is cut by both. A finished model follows
by matching: `start.match(model, trimmed.tokenizer)` copies the rows that stay, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.data.statistics import count_sentences, list_languages, read_corpus
from metaxlm.errors import MetaXLMError
from metaxlm.vocab.trimming import choose_pieces, trim_tokenizer
from metaxlm.vocab.trimming_loss import TrimLoss, measure_loss

_HELD_OUT_EVERY = 20
_MOST_HELD_OUT = 2_000


@dataclass(frozen=True)
class Trimmed:
    """A smaller vocabulary and its price."""

    tokenizer: PreTrainedTokenizerBase
    rows: NDArray[np.int64]
    """The old row of each new one."""
    losses: Mapping[str, TrimLoss]
    """By language, on sentences that were not counted."""
    held_out: Mapping[str, Sequence[str]]
    """Those sentences."""


def trim(
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    languages: Sequence[str] | None = None,
    min_count: int = 1,
    size: int | None = None,
) -> Trimmed:
    """Keep the pieces that occur at least `min_count` times, or the `size` most frequent ones.

    `folder` is a run or has prepared text or files such as de.txt. Of each language's text every
    twentieth sentence, 2,000 at most, is not counted but measures the loss.
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
    """Yield sentences, but put some of them aside."""
    for place, sentence in enumerate(sentences):
        if place % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1 and len(held_out) < _MOST_HELD_OUT:
            held_out.append(sentence)
        else:
            yield sentence
