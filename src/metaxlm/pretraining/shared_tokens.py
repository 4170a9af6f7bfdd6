"""Two tokenizers' tokens: which ones say the same, what they spell, and how text is cut into them.

Comes in: the tokenizers of the student and of the teacher. Goes out: the teacher's row for each of
the student's tokens, the bytes that each token adds to a text, and sentences as the teacher's
tokens with the characters they stand on. It serves distillation (section 5.3 of the paper), whose
two models have different vocabularies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from metaxlm.data.encode import word_mode
from metaxlm.vocabulary.token_forms import Form, Kind, detect_kind, find_form, spell

Ints = NDArray[np.int64]

# So many words are remembered, at some 500 bytes each; they are most of any text.
_KNOWN_WORDS = 1 << 16


@dataclass(frozen=True)
class Cut:
    """Sentences as tokens; characters count through all sentences."""

    ids_K: Ints
    starts_K: Ints
    ends_K: Ints
    counts_S: Ints
    """Tokens of each sentence."""


def share_tokens(student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase) -> Ints:
    """Return the teacher's row of each of the student's tokens, -1 where it has no such token.

    Two tokens are the same if they spell the same text and agree on whether it starts a word.
    """
    ours, theirs = _list_forms(student), _list_forms(teacher)
    partners = np.full(count_rows(student), -1, np.int64)
    for form, row in ours.items():
        partners[row] = theirs.get(form, -1)
    return partners


class Cutter:
    """Cuts sentences into a tokenizer's tokens, each frequent word once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        content: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
        plain = {**content, "truncation": None, "padding": None}
        self._backend = Tokenizer.from_str(json.dumps(plain))
        # `<s>` in a text is just text.
        self._backend.encode_special_tokens = True
        # Byte-level BPE writes the space before a word; others would make a token of it.
        self._keeps_space = detect_kind(tokenizer) is Kind.BYTE_BPE
        self._by_words = word_mode(content) != "sentence"
        # What is remembered changes no answer, and the cache may be used by many threads.
        self._know = lru_cache(_KNOWN_WORDS)(self._encode) if self._by_words else self._encode

    def cut(self, texts: list[str]) -> Cut:
        """Cut sentences, in which words have one space before them."""
        words: list[str] = []
        num_words: list[int] = []
        for text in texts:
            before = len(words)
            words += _split(text) if self._by_words else [text]
            num_words.append(len(words) - before)
        found = list(map(self._know, words))
        counts_W = _collect(len(ids) for ids, _, _ in found)
        widths_W = _collect(map(len, words))
        begins_K = np.repeat(np.cumsum(widths_W) - widths_W, counts_W)
        totals = np.concatenate([[0], np.cumsum(counts_W)])
        return Cut(
            _collect(chain.from_iterable(ids for ids, _, _ in found)),
            _collect(chain.from_iterable(starts for _, starts, _ in found)) + begins_K,
            _collect(chain.from_iterable(ends for _, _, ends in found)) + begins_K,
            np.diff(totals[np.concatenate([[0], np.cumsum(num_words, dtype=np.int64)])]),
        )

    def _encode(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the ids of a text, and where they start and end in it."""
        bare = text if self._keeps_space else text.removeprefix(" ")
        shift = len(text) - len(bare)
        encoding = self._backend.encode(bare, add_special_tokens=False)
        starts = tuple(start + shift for start, _ in encoding.offsets)
        ends = tuple(end + shift for _, end in encoding.offsets)
        return tuple(encoding.ids), starts, ends


def count_rows(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return one more than the largest id of a tokenizer."""
    rows: dict[str, int] = tokenizer.get_vocab()
    return max(rows.values()) + 1


def _list_forms(tokenizer: PreTrainedTokenizerBase) -> dict[Form, int]:
    """Return the row of each form; the first one where rows spell the same."""
    kind, specials = detect_kind(tokenizer), set(tokenizer.all_special_ids)
    rows: dict[Form, int] = {}
    for token, row in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        form = None if row in specials else find_form(token, kind)
        if form is not None:
            rows.setdefault(form, row)
    return rows


def spell_all(tokenizer: PreTrainedTokenizerBase) -> list[bytes]:
    """Return what each row adds to a text; special tokens, the unknown one too, add nothing."""
    kind, specials = detect_kind(tokenizer), set(tokenizer.all_special_ids)
    words = [b""] * count_rows(tokenizer)
    for token, row in tokenizer.get_vocab().items():
        if row not in specials:
            words[row] = spell(token, kind)
    return words


def _split(text: str) -> Iterator[str]:
    """Yield the words of a text, each with the space before it."""
    first, *others = text.split(" ")
    if first:
        yield first
    for word in others:
        yield f" {word}"


def _collect(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)
