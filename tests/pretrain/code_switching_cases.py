"""Small vocabularies whose pieces a test chooses."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase

from metaxlm.vocab.tokens import FIRST_TOKENS, MASK_TOKEN, wrap_tokenizer


def list_tokenizer(pieces: Sequence[str]) -> PreTrainedTokenizerBase:
    """Make a SentencePiece tokenizer of the special tokens and some pieces."""
    rows = [(piece, -1.0) for piece in (*FIRST_TOKENS, *pieces, MASK_TOKEN)]
    tokenizer = Tokenizer(models.Unigram(rows, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return wrap_tokenizer(tokenizer)
