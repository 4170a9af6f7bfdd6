"""Which layers give the features: what a user writes comes in, checked numbers go out.

The paper's figures 3 and 4 go through all layers one by one; layer 0 is the embedding output. A
choice is one layer, or the mean of several.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError

_HINT = "write 8, -1 (the last), 6..8 (their mean), 1+12 (their mean), all, or several with commas"


@dataclass(frozen=True)
class LayerChoice:
    """One layer, or several whose mean is taken; counted from 0, the embedding output."""

    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return "+".join(str(number) for number in self.numbers)

    def pick(self, states: Sequence[Tensor]) -> Tensor:
        """Return the chosen state, or the mean of the chosen ones."""
        chosen = [states[number] for number in self.numbers]
        return chosen[0] if len(chosen) == 1 else torch.stack(chosen).mean(dim=0)


def every_layer(num_layers: int) -> tuple[LayerChoice, ...]:
    """Return each layer by itself, the embedding output first."""
    return tuple(LayerChoice((number,)) for number in range(num_layers + 1))


def find_deepest(choices: Sequence[LayerChoice]) -> int:
    """Return the last layer that must be computed."""
    return max(number for choice in choices for number in choice.numbers)


def parse_layers(text: str, num_layers: int) -> tuple[LayerChoice, ...]:
    """Read choices such as `8`, `-1`, `6..8`, `1+12`, `all` or `0,4,8` for an encoder's layers."""
    if text.strip() == "all":
        return every_layer(num_layers)
    choices = tuple(_parse_choice(part.strip(), num_layers) for part in text.split(","))
    if len(set(choices)) < len(choices):
        raise MetaXLMError(f"layers {text!r}: one of them stands there twice; name each once")
    return choices


def _parse_choice(text: str, num_layers: int) -> LayerChoice:
    numbers: list[int] = []
    for part in text.split("+"):
        match = re.fullmatch(r"(-?\d+)(?:\.\.(-?\d+))?", part.strip())
        if match is None:
            raise MetaXLMError(f"layer {text!r} cannot be read; {_HINT}")
        first = _count_from_zero(int(match[1]), num_layers)
        last = first if match[2] is None else _count_from_zero(int(match[2]), num_layers)
        if last < first:
            raise MetaXLMError(f"layer {text!r}: {first} comes after {last}; write {last}..{first}")
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise MetaXLMError(f"layer {text!r}: a layer stands there twice; name each once")
    return LayerChoice(tuple(sorted(numbers)))


def _count_from_zero(number: int, num_layers: int) -> int:
    if not -num_layers - 1 <= number <= num_layers:
        raise MetaXLMError(
            f"layer {number}: the encoder has {num_layers} layers; name one from 0 (the embedding "
            f"output) to {num_layers}"
        )
    return number % (num_layers + 1)
