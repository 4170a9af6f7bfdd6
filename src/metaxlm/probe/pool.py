"""Layers, tokens and batches of sentence vectors: which hidden states are pooled, and how.

The paper's Section 4.4 averages the hidden states of a layer over all tokens of a sentence. Layer 0
is the embedding output. Shapes: B batch, L length, D hidden.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.batches import split_batch
from metaxlm.finetune.encoding import MAX_CHARACTERS, Ids
from metaxlm.progress import say

Item = TypeVar("Item")

_HINT = "write 8, -1 (the last), 6..8 (their mean), 1+12 (their mean), all, or several with commas"
_TOKENIZED_AT_ONCE = 2_048  # the tokenizer's records of one text take some kB


@dataclass(frozen=True)
class LayerChoice:
    """One layer, or the mean of several; 0 is the embedding output."""

    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return "+".join(str(number) for number in self.numbers)

    def pick(self, states: Sequence[Tensor]) -> Tensor:
        """Return the hidden states of the layer, or the mean over the layers."""
        chosen = [states[number] for number in self.numbers]
        return chosen[0] if len(chosen) == 1 else torch.stack(chosen).mean(dim=0)


def every_layer(num_layers: int) -> tuple[LayerChoice, ...]:
    """Return each layer by itself, the embedding output first."""
    return tuple(LayerChoice((number,)) for number in range(num_layers + 1))


def find_deepest(choices: Sequence[LayerChoice]) -> int:
    """Return the last layer that must be computed."""
    return max(number for choice in choices for number in choice.numbers)


def choose_middle(num_layers: int) -> LayerChoice:
    """Return the layer at two thirds of the depth, the best one for most encoders."""
    return LayerChoice((round(num_layers * 2 / 3),))


def default_layer(num_layers: int) -> tuple[LayerChoice]:
    """Return the layer at two thirds of the depth, and log it."""
    choice = choose_middle(num_layers)
    say(f"layer {choice} of {num_layers}, two thirds of the depth; --layer chooses another")
    return (choice,)


def parse_layers(text: str, num_layers: int) -> tuple[LayerChoice, ...]:
    """Parse choices such as `8`, `-1`, `6..8`, `1+12`, `all` or `0,4,8`."""
    if text.strip() == "all":
        return every_layer(num_layers)
    choices = tuple(_parse_choice(part.strip(), num_layers) for part in text.split(","))
    if len(set(choices)) < len(choices):
        raise MetaXLMError(f"layers {text!r}: one of them is listed twice; name each once")
    return choices


def parse_layer(layer: int | str, num_layers: int) -> LayerChoice:
    """Parse one choice, such as -1, `8` or `6..8`."""
    choices = parse_layers(str(layer), num_layers)
    if len(choices) != 1:
        raise MetaXLMError(f"layer {layer!r}: {len(choices)} layers; choose one")
    return choices[0]


def _parse_choice(text: str, num_layers: int) -> LayerChoice:
    numbers: list[int] = []
    for part in text.split("+"):
        match = re.fullmatch(r"(-?\d+)(?:\.\.(-?\d+))?", part.strip())
        if match is None:
            raise MetaXLMError(f"layer {text!r} cannot be read; {_HINT}")
        ends = [int(end) for end in match.groups() if end is not None]
        if wrong := [end for end in ends if not -num_layers - 1 <= end <= num_layers]:
            raise MetaXLMError(
                f"layer {wrong[0]}: the encoder has {num_layers} layers; name one from 0 (the "
                f"embedding output) to {num_layers}"
            )
        first, last = (end % (num_layers + 1) for end in (ends[0], ends[-1]))
        if last < first:
            raise MetaXLMError(f"layer {text!r}: {first} comes after {last}; write {last}..{first}")
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise MetaXLMError(f"layer {text!r}: a layer is listed twice; name each once")
    return LayerChoice(tuple(sorted(numbers)))


@dataclass(frozen=True)
class Frame:
    """The number of special tokens that a tokenizer puts before and after a text."""

    before: int
    after: int

    @property
    def size(self) -> int:
        """The number of tokens of an empty text."""
        return self.before + self.after


NO_FRAME = Frame(0, 0)


def find_frame(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """Count the special tokens around a text: usually `<s>` before and `</s>` after."""
    mask = tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
    assert 0 in mask, "the tokenizer has no token for the letter a, not even the unknown one"
    return Frame(mask.index(0), mask[::-1].index(0))


def take_texts(texts: Iterable[str], most: int, most_characters: int) -> Iterator[list[str]]:
    """Yield texts in order in groups of `most`, or fewer if they are long."""
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


def run_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield each item after the next one was made, so that the work on both overlaps."""
    last: list[Item] = []
    for item in items:
        yield from last
        last = [item]
    yield from last


def tokenize_texts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], frame: Frame, max_length: int
) -> tuple[list[Ids], list[int]]:
    """Tokenize as `tokenizer(texts)` does; also return the indices of truncated texts."""
    backend = tokenizer.backend_tokenizer
    # Reset what the tokenizer's file or an earlier call has set.
    backend.no_truncation()
    backend.no_padding()
    ids: list[Ids] = []
    cut: list[int] = []
    for group in take_texts(texts, _TOKENIZED_AT_ONCE, MAX_CHARACTERS):
        # The fast variant computes no offsets and saves a third of the time.
        beginnings = [text[:MAX_CHARACTERS] for text in group]
        for text, found in zip(group, backend.encode_batch_fast(beginnings), strict=True):
            row = np.array(found.ids, dtype=np.int32)
            if len(row) > max_length or len(text) > MAX_CHARACTERS:
                cut.append(len(ids))
                tail = row[len(row) - frame.after :]
                row = np.concatenate([row[: max_length - frame.after], tail])
            ids.append(row)
    return ids, cut


def plan_sentences(lengths: Sequence[int], max_tokens: int, group_cost: int) -> list[list[int]]:
    """Group indices by length, longest first, into batches of at most `max_tokens` with padding.

    A batch ends at a change of length if that saves more padding than `group_cost`, in tokens.
    """
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
    batches: list[list[int]] = []
    first = 0
    for size in split_batch([lengths[k] for k in order], group_cost):
        group = order[first : first + size]
        most = max(1, max_tokens // max(1, lengths[group[0]]))
        # Batches of even size: a small last one would cost as much as a full one.
        batches += [part.tolist() for part in np.array_split(np.array(group), -(-size // most))]
        first += size
    return batches


def pool_mean(
    hidden_BLD: Tensor,
    mask_BL: Tensor | None,
    frame: Frame = NO_FRAME,
    weights_BL: Tensor | None = None,
) -> Tensor:
    """Return the (weighted) mean over the real tokens outside the frame in float32, [B, D]."""
    hidden_BLD = hidden_BLD.float()
    length = hidden_BLD.shape[1]
    if mask_BL is None and weights_BL is None:
        return hidden_BLD[:, frame.before : length - frame.after].mean(dim=1)
    if mask_BL is None:
        mask_BL = hidden_BLD.new_ones(hidden_BLD.shape[:2], dtype=torch.bool)
    columns_L = torch.arange(length, device=mask_BL.device)
    counts_B = mask_BL.sum(dim=1)
    inner_BL = (columns_L >= frame.before) & (columns_L < (counts_B - frame.after)[:, None])
    if weights_BL is None:
        shares_BL = inner_BL.float() / (counts_B - frame.size)[:, None]
    else:
        shares_BL = inner_BL * weights_BL
        shares_BL = shares_BL / shares_BL.sum(dim=1, keepdim=True)
    return torch.bmm(shares_BL[:, None], hidden_BLD).squeeze(1)
