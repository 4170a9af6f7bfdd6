"""Step number in, pieces of a batch out: the walk from shards to what the device gets.

1. `sampling.Schedule` names the language and block of every row of the step;
2. `blocks.Blocks` reads those rows from the memory-mapped shards;
3. a step is cut into pieces of consecutive rows, for micro-batches and for processes;
4. `switching.Switching`, where a variant has it, puts translations in place of some words;
5. on the device, `masking.Masking` hides tokens with the step's own random numbers.

No part has a state that a checkpoint would need: `piece(step, ...)` may be called in any order, and
the rows of a step are the same however it is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.config import TrainingRecipe
from metaxlm.data.shards import Shard
from metaxlm.errors import MetaXLMError
from metaxlm.languages import rebalance
from metaxlm.pretraining.blocks import Blocks
from metaxlm.pretraining.sampling import CHUNK, Schedule, spread_held_out
from metaxlm.pretraining.schedules import value_at
from metaxlm.pretraining.switching import Switching
from metaxlm.randomness import derive_seed

Sample = tuple[str, int]
"""The language and the block that a row shows."""


class Extra(Protocol):
    """What a teacher prepared for a piece: tensors, whose shapes should repeat on a GPU."""

    def to(self, device: torch.device) -> Extra:
        """Return it on a device."""
        ...

    def tensors(self) -> list[Tensor]:
        """Return all that differs between two of the same shapes."""
        ...


@dataclass(frozen=True)
class Piece:
    """Some rows of a step, not yet masked."""

    ids_BL: Tensor
    """int32, padded to the full length."""
    lengths_B: Tensor
    """int32, the real tokens of each row."""
    rows_B: Tensor
    """int64, which rows of the step these are."""
    dropout_seed: int
    samples: list[Sample]
    num_tokens: int
    extra: Extra | None = None
    """What a teacher prepared for these rows."""

    def to(self, device: torch.device) -> Piece:
        """Return the piece on a device; the copies need not be complete when this returns."""
        if device.type == "cpu":
            return self
        ids, lengths, rows = (
            tensor.to(device, non_blocking=True)
            for tensor in (self.ids_BL, self.lengths_B, self.rows_B)
        )
        extra = None if self.extra is None else self.extra.to(device)
        return replace(self, ids_BL=ids, lengths_B=lengths, rows_B=rows, extra=extra)


class BatchSource:
    """All batches of a training run."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        tokenizer: PreTrainedTokenizerBase,
        recipe: TrainingRecipe,
        seed: int,
        prepare: Callable[[Piece, Sequence[Sample]], Extra | None] | None = None,
        switching: Switching | None = None,
    ) -> None:
        self.languages: Sequence[str] = tuple(shards)
        assert switching is None or switching.languages == self.languages
        assert switching is None or prepare is None, "a teacher cannot read switched text"
        self._recipe = recipe
        self._seed = seed
        self._prepare = prepare
        self._switching = switching
        self._sizes = {
            name: getattr(shard.counts, recipe.size_unit) for name, shard in shards.items()
        }
        self._blocks = Blocks(shards, tokenizer, recipe.length)
        num_blocks = self._blocks.num_blocks
        self._held_out = {
            name: spread_held_out(num_blocks[name], recipe.held_out) for name in self.languages
        }
        self._schedule = Schedule(
            self.probabilities, num_blocks, recipe.batch_size, seed, self._held_out
        )
        self._pin = torch.cuda.is_available()

    @property
    def padding_share(self) -> float:
        """The share of padding in all blocks."""
        return self._blocks.padding_share

    def probabilities(self, step: int) -> dict[str, float]:
        """Return how likely each language is at a step; alpha moves between chunks of steps."""
        return rebalance(self._sizes, value_at(self._recipe.alpha, step - step % CHUNK))

    def samples(self, step: int) -> list[Sample]:
        """Return the (language, block) of each row of a step, whoever computes it."""
        return self._name(*self._schedule.rows(step))

    def piece(self, step: int, index: int = 0, count: int = 1) -> Piece:
        """Return one of `count` equal pieces of a step; steps and pieces count from 0."""
        size, rest = divmod(self._recipe.batch_size, count)
        if rest:
            raise MetaXLMError(
                f"a batch of {self._recipe.batch_size} blocks cannot be cut into {count} equal "
                f"pieces; make batch_size a multiple of {count}"
            )
        assert 0 <= index < count, f"piece {index} of {count}"
        languages, blocks = self._schedule.rows(step)
        rows = slice(index * size, (index + 1) * size)
        seed = derive_seed(self._seed, "dropout", step, index, count)
        piece = self._read(languages[rows], blocks[rows], rows.start, seed)
        if self._switching is not None:
            key = derive_seed(self._seed, "switches", step)
            self._switching.switch(piece.ids_BL.numpy(), languages[rows], rows.start, key)
        if self._prepare is None:
            return piece
        # A teacher must know the whole step: its term is a mean over all rows of its language.
        return replace(piece, extra=self._prepare(piece, self._name(languages, blocks)))

    def mask_key(self, step: int) -> int:
        """Return what decides the masks of a step."""
        return derive_seed(self._seed, "masks", step)

    def held_out(self, language: str) -> Sequence[Piece]:
        """Return the blocks of a language that no step shows, a batch at a time."""
        blocks = self._held_out[language]
        languages = np.full(len(blocks), self.languages.index(language))
        size = self._recipe.batch_size
        return [
            self._read(languages[first : first + size], blocks[first : first + size], first, 0)
            for first in range(0, len(blocks), size)
        ]

    def _read(
        self,
        languages: NDArray[np.int64],
        blocks: NDArray[np.int64],
        first_row: int,
        dropout_seed: int,
    ) -> Piece:
        shape = (len(blocks), self._recipe.length)
        ids_BL = torch.empty(shape, dtype=torch.int32, pin_memory=self._pin)
        lengths_B = torch.empty(len(blocks), dtype=torch.int32, pin_memory=self._pin)
        rows_B = torch.empty(len(blocks), dtype=torch.int64, pin_memory=self._pin)
        lengths_B.numpy()[:] = self._blocks.read(languages, blocks, ids_BL.numpy())
        rows_B.numpy()[:] = np.arange(first_row, first_row + len(blocks))
        num_tokens = int(lengths_B.sum())
        samples = self._name(languages, blocks)
        return Piece(ids_BL, lengths_B, rows_B, dropout_seed, samples, num_tokens)

    def _name(self, languages: NDArray[np.int64], blocks: NDArray[np.int64]) -> list[Sample]:
        return [
            (self.languages[language], block)
            for language, block in zip(languages.tolist(), blocks.tolist(), strict=True)
        ]
