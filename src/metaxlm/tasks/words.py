"""Pre-split words to vocabulary pieces: sentences in words come in, pieces with their words go out.

Word alignment and tagging need to know which word a piece belongs to. The words are joined by
spaces and tokenized as that text, and each piece finds its word by the characters it covers. So the
pieces are exactly those the model saw in pretraining, for SentencePiece, byte-level BPE and
WordPiece alike. (Handing words one by one to a RoBERTa tokenizer loses the space before them and
with it the tokens the model knows.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class WordPieces:
    """The pieces of one sentence, and for each piece the word it is part of, in rising order."""

    ids: list[int]
    words: list[int]

    def __len__(self) -> int:
        return len(self.ids)


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
        return_token_type_ids=False,
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
