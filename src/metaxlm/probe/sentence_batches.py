"""Sentences to batches without waste: texts come in, batches of token ids of like length go out.

What the feature-based scenario of the paper (Section 4.4) computes for each sentence is small, so
what is spent around it counts: texts are tokenized many at a time without offsets, and sequences
of one length are computed together, without padding, wherever there are enough of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.batches import split_batch
from metaxlm.finetune.encoding import MAX_CHARACTERS, Ids

# The tokenizer's own records of a text are some kB, so they are made for few texts at a time.
_TOKENIZED_AT_ONCE = 2_048


@dataclass(frozen=True)
class Frame:
    """How many special tokens a tokenizer puts before and after a text."""

    before: int
    after: int

    @property
    def size(self) -> int:
        """Tokens of a text that has none of its own."""
        return self.before + self.after


NO_FRAME = Frame(0, 0)


@dataclass(frozen=True)
class Sentences:
    """Texts as token ids, special tokens included."""

    ids: list[Ids]
    cut: list[int]
    """Indices of those that were too long; of them the beginning is kept."""


def find_frame(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """Return where the special tokens stand: `<s>` before and `</s>` after, as a rule."""
    mask = tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
    assert 0 in mask, "the tokenizer has no token for the letter a, not even the unknown one"
    return Frame(mask.index(0), mask[::-1].index(0))


def take_texts(texts: Iterable[str], most: int, most_characters: int) -> Iterator[list[str]]:
    """Yield texts in order, some at a time; fewer than `most` where they are long."""
    group: list[str] = []
    num_characters = 0
    for text in texts:
        group.append(text)
        num_characters += len(text)
        if len(group) == most or num_characters >= most_characters:
            yield group
            group, num_characters = [], 0
    if group:
        yield group


def tokenize_texts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], frame: Frame, max_length: int
) -> Sentences:
    """Tokenize texts as `tokenizer(texts)` does; those longer than `max_length` are cut."""
    backend = tokenizer.backend_tokenizer
    # A length or a padding that a file or an earlier call asked for is not asked for here.
    backend.no_truncation()
    backend.no_padding()
    ids: list[Ids] = []
    cut: list[int] = []
    for group in take_texts(texts, _TOKENIZED_AT_ONCE, MAX_CHARACTERS):
        # Without offsets, which nobody needs here, a third of the time is saved.
        beginnings = [text[:MAX_CHARACTERS] for text in group]
        for text, found in zip(group, backend.encode_batch_fast(beginnings), strict=True):
            row = np.array(found.ids, dtype=np.int32)
            if len(row) > max_length or len(text) > MAX_CHARACTERS:
                cut.append(len(ids))
                tail = row[len(row) - frame.after :]
                row = np.concatenate([row[: max_length - frame.after], tail])
            ids.append(row)
    return Sentences(ids, cut)


def plan_sentences(lengths: Sequence[int], max_tokens: int, group_cost: int) -> list[list[int]]:
    """Group indices by length, longest first, into batches of at most `max_tokens` with padding.

    Where another length begins, a new batch begins if that saves more padding than a batch costs
    by itself, `group_cost` in tokens. A text longer than `max_tokens` is a batch of its own.
    """
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
    batches: list[list[int]] = []
    first = 0
    for size in split_batch([lengths[k] for k in order], group_cost):
        group = order[first : first + size]
        most = max(1, max_tokens // max(1, lengths[group[0]]))
        # Batches of even size: a last one of a few sentences would cost as much as a full one.
        for part in np.array_split(np.array(group), -(-size // most)):
            batches.append(part.tolist())
        first += size
    return batches
