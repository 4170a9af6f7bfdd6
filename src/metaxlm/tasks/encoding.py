"""Text to token ids: texts or pre-split words come in, ids that fit the encoder go out.

Two ways in. Whole texts and pairs of texts (retrieval, classification) go through the tokenizer's
own templates. Pre-split words (word alignment, tagging) are joined by spaces, tokenized as that
text, and each piece finds its word by the characters it covers: the pieces are exactly those the
model saw in pretraining, for SentencePiece, byte-level BPE and WordPiece alike. (Handing words one
by one to a RoBERTa tokenizer loses the space before them, and with it the tokens the model knows.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig

Ids = npt.NDArray[np.int32]
"""Token ids, types or labels of one sequence."""


@dataclass(frozen=True)
class EncodedTexts:
    """Texts with special tokens around them."""

    ids: list[Ids]
    token_types: list[Ids]
    """0 for the first text and 1 for the second where the tokenizer tells them apart."""
    num_cut: int
    """How many were too long."""


@dataclass(frozen=True)
class WordPieces:
    """The pieces of one sentence, and for each piece the word it is part of."""

    ids: list[int]
    words: list[int]

    def __len__(self) -> int:
        return len(self.ids)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: EncoderConfig) -> None:
    """Refuse a tokenizer that cannot belong to this encoder, before it fails somewhere inside."""
    if len(tokenizer) > config.vocab_size:
        raise MetaXLMError(
            f"the tokenizer has {len(tokenizer)} tokens and the encoder {config.vocab_size} word "
            f"rows; load both from one model folder"
        )
    for name in ("cls_token", "sep_token", "unk_token"):
        if getattr(tokenizer, name) is None:
            raise MetaXLMError(f"the tokenizer has no {name}; add it to its special tokens")


def encode_texts(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    others: Sequence[str] | None = None,
    *,
    max_length: int,
) -> EncodedTexts:
    """Encode texts, or pairs of texts; of a pair that is too long the longer side is cut first."""
    if not texts:
        return EncodedTexts([], [], 0)
    options = {"return_token_type_ids": True, "return_attention_mask": False, "verbose": False}
    sides = [list(texts)] if others is None else [list(texts), list(others)]
    encoded = tokenizer(*sides, **options)
    ids: list[list[int]] = encoded["input_ids"]
    types: list[list[int]] = encoded["token_type_ids"]
    long = [k for k, row in enumerate(ids) if len(row) > max_length]
    for k in long:
        row = tokenizer(
            *(side[k] for side in sides), truncation=True, max_length=max_length, **options
        )
        ids[k], types[k] = row["input_ids"], row["token_type_ids"]
    if long:
        # The tokenizer remembers truncation, and would cut the texts of whoever uses it next.
        tokenizer.backend_tokenizer.no_truncation()
    return EncodedTexts(
        [np.array(row, dtype=np.int32) for row in ids],
        [np.array(row, dtype=np.int32) for row in types],
        len(long),
    )


def tokenize_words(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]]
) -> list[WordPieces]:
    """Tokenize sentences given in words, without special tokens.

    A word of characters that the tokenizer drops (a zero-width space, say) has no piece.
    """
    if not sentences:
        return []
    encoded = tokenizer(
        [" ".join(words) for words in sentences],
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        verbose=False,
    )
    return [
        WordPieces(ids, _find_words(words, spans))
        for words, ids, spans in zip(
            sentences, encoded["input_ids"], encoded["offset_mapping"], strict=True
        )
    ]


def _find_words(words: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the word that holds the last character of each span.

    Tokenizers disagree whether a word-start mark covers the space before the word, nothing, or the
    word's first character; a space counts to the word after it, so all three come out the same.
    """
    ends = list(accumulate(len(word) + (index > 0) for index, word in enumerate(words)))
    return [bisect_right(ends, max(end - 1, start)) for start, end in spans]
