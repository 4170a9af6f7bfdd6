"""Tokenize texts, pairs of texts and pre-split words.

Pre-split words are joined by spaces and tokenized as that text, and each token is mapped to its
word by the characters that it covers: so the tokens are those of pretraining. (A RoBERTa tokenizer
that gets words one by one loses the space before them.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from metaxlm.errors import MetaXLMError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from metaxlm.model.encoder import EncoderConfig

Ids = npt.NDArray[np.int32]
"""Token ids, types or labels of one sequence."""
IntArray = npt.NDArray[np.int64]

MAX_CHARACTERS = 1 << 20
"""Longer texts are truncated to this before tokenization; encoders read far less."""


@dataclass(frozen=True)
class EncodedTexts:
    """Texts with special tokens around them."""

    ids: list[Ids]
    token_types: list[Ids]
    """0 for the first text and 1 for the second, if the tokenizer distinguishes them."""
    num_truncated: int


@dataclass(frozen=True)
class WordPieces:
    """The tokens of one sentence, and the word of each token."""

    ids: list[int]
    words: list[int]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Pieces:
    """The tokens of many sentences in flat arrays, and the word of each token."""

    ids_N: IntArray
    words_N: IntArray
    lengths_P: IntArray
    starts_P: IntArray


def check_tokenizer(tokenizer: Tokenizer, config: EncoderConfig) -> None:
    """Reject a tokenizer that cannot belong to this encoder."""
    if len(tokenizer) > config.vocab_size:
        raise MetaXLMError(
            f"the tokenizer has {len(tokenizer)} tokens and the encoder {config.vocab_size} "
            f"embeddings; load both from one model folder"
        )
    for name in ("cls_token", "sep_token", "unk_token"):
        if getattr(tokenizer, name) is None:
            raise MetaXLMError(f"the tokenizer has no {name}; add it to its special tokens")


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    others: Sequence[str] | None = None,
    *,
    max_length: int,
) -> EncodedTexts:
    """Encode texts or pairs of texts; truncate the longer side of a pair first."""
    if not texts:
        return EncodedTexts([], [], 0)
    options: dict[str, Any] = {
        "return_token_type_ids": True,
        "return_attention_mask": False,
        "verbose": False,
    }
    given = (texts,) if others is None else (texts, others)
    sides = [[text[:MAX_CHARACTERS] for text in side] for side in given]
    encoded = tokenizer(*sides, **options)
    ids: list[list[int]] = encoded["input_ids"]
    types: list[list[int]] = encoded["token_type_ids"]
    long = [k for k, row in enumerate(ids) if len(row) > max_length]
    limits = {"truncation": True, "max_length": max_length}
    for k in long:
        row = tokenizer(*(side[k] for side in sides), **options, **limits)
        ids[k], types[k] = row["input_ids"], row["token_type_ids"]
    if long:
        # The tokenizer keeps the truncation, which would affect its next caller.
        tokenizer.backend_tokenizer.no_truncation()
    all_ids, all_types = ([np.array(row, dtype=np.int32) for row in rows] for rows in (ids, types))
    return EncodedTexts(all_ids, all_types, len(long))


def tokenize_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[WordPieces]:
    """Tokenize sentences given as words, without special tokens; one result per sentence."""
    if not sentences:
        return []
    pieces = tokenize_flat(tokenizer, sentences)
    ids, words = (np.split(a, pieces.starts_P[1:]) for a in (pieces.ids_N, pieces.words_N))
    return [WordPieces(i.tolist(), w.tolist()) for i, w in zip(ids, words, strict=True)]


def tokenize_flat(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> Pieces:
    """Tokenize sentences into flat arrays; a word that the tokenizer drops has no token."""
    encoded = tokenizer(
        [" ".join(words) for words in sentences],
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    ids, spans = encoded["input_ids"], encoded["offset_mapping"]
    lengths_P = np.array([len(row) for row in ids], dtype=np.int64)
    spans_N2 = np.array(list(chain.from_iterable(spans)), dtype=np.int64).reshape(-1, 2)
    return Pieces(
        np.array(list(chain.from_iterable(ids)), dtype=np.int64),
        find_words(sentences, lengths_P, spans_N2),
        lengths_P,
        find_starts(lengths_P),
    )


def find_starts(lengths: IntArray) -> IntArray:
    """Return the start of each of several concatenated sequences."""
    return np.cumsum(lengths) - lengths


def find_words(
    sentences: Sequence[Sequence[str]], lengths_P: IntArray, spans_N2: IntArray
) -> IntArray:
    """Return the word that holds the last character of each span.

    A word-start mark may cover the space before the word: a space belongs to the word after it.
    """
    num_words_P = np.array([len(words) for words in sentences], dtype=np.int64)
    # One space before each word, the first ones too, so that all texts make up one long line.
    sizes_W = np.array([len(word) + 1 for words in sentences for word in words], dtype=np.int64)
    ends_W = np.cumsum(sizes_W)
    first_words_P = find_starts(num_words_P)
    text_starts_P = np.concatenate([[0], ends_W])[first_words_P] + 1
    places_N = np.maximum(spans_N2[:, 1] - 1, spans_N2[:, 0])
    places_N += np.repeat(text_starts_P, lengths_P)
    words_N = np.searchsorted(ends_W, places_N, side="right")
    return words_N - np.repeat(first_words_P, lengths_P)
