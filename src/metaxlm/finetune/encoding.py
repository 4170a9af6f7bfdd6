"""Tokenize pre-split words, and check that a tokenizer fits its encoder.

Pre-split words are joined by spaces and tokenized as that text, and each token is mapped to its
word by the characters that it covers: so the tokens are those of pretraining. (A RoBERTa tokenizer
that gets words one by one loses the space before them.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

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
    num_words_P = np.array([len(words) for words in sentences], dtype=np.int64)
    # One space before each word, the first ones too, so that all texts make up one long line.
    sizes_W = np.array([len(word) + 1 for words in sentences for word in words], dtype=np.int64)
    ends_W = np.cumsum(sizes_W)
    first_words_P = find_starts(num_words_P)
    text_starts_P = np.concatenate([[0], ends_W])[first_words_P] + 1
    # The word that holds the last character; a space belongs to the word after it.
    places_N = np.maximum(spans_N2[:, 1] - 1, spans_N2[:, 0])
    places_N += np.repeat(text_starts_P, lengths_P)
    words_N = np.searchsorted(ends_W, places_N, side="right") - np.repeat(first_words_P, lengths_P)
    # A token after the text's end belongs to the last word, which is empty then.
    words_N = np.minimum(words_N, np.repeat(num_words_P - 1, lengths_P))
    ids_N = np.array(list(chain.from_iterable(ids)), dtype=np.int64)
    return Pieces(ids_N, words_N, lengths_P, find_starts(lengths_P))


def find_starts(lengths: IntArray) -> IntArray:
    """Return the start of each of several concatenated sequences."""
    return np.cumsum(lengths) - lengths
