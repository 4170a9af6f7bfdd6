"""Sentences become token ids, each distinct word of a batch encoded once.

Comes in: sentences with single spaces between words, and a tokenizer. Goes out: the ids of all
sentences in a row, and how many each sentence has. SentencePiece and byte-level BPE never let a
token cross a space, so a sentence's ids are its words' ids in a row; since a few words make up most
of any text, encoding the distinct words of a large batch and gathering is many times faster than
encoding sentences. Tokenizers for which that is not known to hold are run on whole sentences.

Text never becomes a special token: a literal `<s>` or `<mask>` in a corpus is spelled in pieces.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer

WordMode = Literal["alone", "spaced", "sentence"]
"""How a word is encoded: by itself, with a space before it unless it is first, or not by words."""

# Stands before a special token's name in a Unigram model: no text has NUL, so none matches it.
_UNWRITABLE = "\0"


@dataclass(frozen=True)
class Encoded:
    """Token ids of a batch of sentences."""

    ids: NDArray[np.uint32]
    """All ids, sentence after sentence."""
    lengths: NDArray[np.int64]
    """Tokens in each sentence."""
    num_words: int
    """Words between spaces."""


class SentenceEncoder:
    """Encodes batches of sentences with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        description = json.loads(tokenizer.to_str())
        self.mode = word_mode(description)
        self._tokenizer = _without_special_tokens(description)

    def encode(self, sentences: Sequence[str]) -> Encoded:
        """Encode sentences whose words are separated by single spaces."""
        texts = pa.array(sentences, pa.large_string())
        words = pc.split_pattern(texts, " ")
        num_words = np.diff(words.offsets.to_numpy())
        flat = words.flatten()
        if self.mode == "sentence":
            ids, lengths = self._encode_texts(list(sentences))
            return Encoded(ids, lengths, len(flat))
        if self.mode == "spaced":
            flat = _put_spaces(flat, words.offsets.to_numpy()[:-1])
        distinct = flat.dictionary_encode()
        store, sizes = self._encode_texts(distinct.dictionary.to_pylist())
        chosen = distinct.indices.to_numpy()
        word_lengths = sizes[chosen]
        word_ends = np.cumsum(word_lengths)
        starts = (np.cumsum(sizes) - sizes)[chosen]
        # Where each id stands in the store: its word's start, plus its place within the word.
        places = np.repeat(starts - (word_ends - word_lengths), word_lengths)
        places += np.arange(len(places))
        ends = np.concatenate([[0], word_ends])[np.cumsum(num_words)]
        return Encoded(store[places], np.diff(ends, prepend=0), len(flat))

    def _encode_texts(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        total = int(lengths.sum())
        ids = np.fromiter((i for row in rows for i in row), np.uint32, total)
        return ids, lengths


def word_mode(description: dict[str, Any]) -> WordMode:
    """Say how words may be encoded on their own, by a tokenizer's pre-tokenizer.

    `description` is the content of `tokenizer.json`.
    """
    steps = description["pre_tokenizer"] or {"type": None}
    kinds = [step["type"] for step in steps.get("pretokenizers", [steps])]
    last = steps.get("pretokenizers", [steps])[-1]
    if kinds in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        whole = last.get("split", True) and last.get("prepend_scheme", "always") == "always"
        return "alone" if whole and last.get("replacement") == "▁" else "sentence"
    if kinds == ["BertPreTokenizer"]:
        return "alone"
    if kinds == ["ByteLevel"] and last.get("use_regex", True):
        return "alone" if last["add_prefix_space"] else "spaced"
    return "sentence"


def _without_special_tokens(description: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer with its special tokens taken out of what text can become."""
    special = {token["content"] for token in description["added_tokens"] if token["special"]}
    model = description["model"]
    if model["type"] == "Unigram":
        for entry in model["vocab"]:
            if entry[0] in special:
                entry[0] = _UNWRITABLE + entry[0]
    kept = [token for token in description["added_tokens"] if token["content"] not in special]
    return Tokenizer.from_str(json.dumps(description | {"added_tokens": kept}))


def _put_spaces(words: pa.Array, firsts: NDArray[np.int64]) -> pa.Array:
    """Put a space before every word but the first of each sentence."""
    prefix = np.full(len(words), " ", object)
    prefix[firsts[firsts < len(words)]] = ""
    kind = pa.large_string()
    return pc.binary_join_element_wise(pa.array(prefix, kind), words, pa.scalar("", kind))
