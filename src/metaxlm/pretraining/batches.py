"""Step number in, batch out: the walk from shards to what the model sees.

1. `sampling.Schedule` names the language and block of every row of the step;
2. `packing.Blocks` reads those blocks from the memory-mapped shards;
3. rows are padded to the longest, rounded up to a multiple of 8;
4. `masking.mask_tokens` hides 15 % with the step's own random numbers.

No part has a state that a checkpoint would need: `batch(step)` may be called in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.config import TrainingRecipe
from metaxlm.corpus.shards import Shard
from metaxlm.languages import rebalance
from metaxlm.pretraining.masking import mask_tokens
from metaxlm.pretraining.packing import Blocks
from metaxlm.pretraining.sampling import Schedule
from metaxlm.randomness import generator

_MULTIPLE = 8


@dataclass(frozen=True)
class Batch:
    """One step's input on a device."""

    ids_BL: Tensor
    mask_BL: Tensor | None
    """True for real tokens; None when nothing is padding."""
    rows_M: Tensor
    labels_M: Tensor
    num_tokens: int
    samples: list[tuple[str, int]]
    """(language, block) of each row."""

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        mask = None if self.mask_BL is None else self.mask_BL.to(device)
        ids, rows, labels = (t.to(device) for t in (self.ids_BL, self.rows_M, self.labels_M))
        return Batch(ids, mask, rows, labels, self.num_tokens, self.samples)


class BatchSource:
    """All batches of a training run."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        tokenizer: PreTrainedTokenizerBase,
        recipe: TrainingRecipe,
        seed: int,
    ) -> None:
        self._recipe = recipe
        self._seed = seed
        self._pad_id = tokenizer.pad_token_id
        self._mask_id = tokenizer.mask_token_id
        self._special_ids = np.array(sorted(tokenizer.all_special_ids))
        self._ordinary_ids = np.setdiff1d(np.arange(len(tokenizer)), self._special_ids)
        first, last = _boundary_ids(tokenizer)
        self._blocks = {
            language: Blocks(shard, recipe.length, first, last)
            for language, shard in shards.items()
        }
        sizes = {name: getattr(shard.counts, recipe.size_unit) for name, shard in shards.items()}
        self.probabilities = rebalance(sizes, recipe.alpha)
        num_blocks = {language: len(blocks) for language, blocks in self._blocks.items()}
        self._schedule = Schedule(self.probabilities, num_blocks, recipe.batch_size, seed)

    def batch(self, step: int) -> Batch:
        """Return the batch of one step, counted from 0."""
        languages = self._schedule.languages
        samples = [(languages[index], block) for index, block in self._schedule.rows(step)]
        rows = [self._blocks[language][block] for language, block in samples]
        longest = max(map(len, rows))
        width = min(-(-longest // _MULTIPLE) * _MULTIPLE, self._recipe.length)
        ids = np.full((len(rows), width), self._pad_id, np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        real = np.arange(width) < np.array([len(row) for row in rows])[:, None]
        candidates = (
            real & ~np.isin(ids, self._special_ids) if self._recipe.exclude_special else real
        )
        masked = mask_tokens(
            ids,
            candidates,
            self._recipe.mask_probability,
            self._mask_id,
            self._ordinary_ids,
            generator(self._seed, "masks", step),
        )
        return Batch(
            torch.from_numpy(masked.ids),
            None if real.all() else torch.from_numpy(real),
            torch.from_numpy(masked.rows),
            torch.from_numpy(masked.labels),
            int(real.sum()),
            samples,
        )


def _boundary_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Return the ids of `<s>` and `</s>`; BERT's vocabularies call them `[CLS]` and `[SEP]`."""
    first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
    return (
        tokenizer.cls_token_id if first is None else first,
        tokenizer.sep_token_id if last is None else last,
    )
