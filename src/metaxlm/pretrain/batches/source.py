"""Read the micro-batches of a training run from packed shards.

`sampling.Schedule` selects the language and block of every row, `PackedBlocks` reads these rows
from the memory-mapped shards, `code_switching.Switching` replaces some words with translations if
the variant has it, and `masking.Masking` masks tokens on the device. Nothing has state that a
checkpoint would need, and the rows of a step are the same for every number of micro-batches.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.data.shards import Shard
from metaxlm.errors import MetaXLMError
from metaxlm.languages import rebalance
from metaxlm.pretrain.batches.packing import pack
from metaxlm.pretrain.batches.sampling import CHUNK, Schedule, spread_held_out
from metaxlm.pretrain.code_switching import Switching
from metaxlm.pretrain.optimizer import value_at
from metaxlm.randomness import derive_seed
from metaxlm.recipe import TrainingRecipe
from metaxlm.vocab.tokens import boundary_ids

Ints = NDArray[np.int64]
Sample = tuple[str, int]  # language and block of a row
_MEASURED_AT_ONCE = 1 << 20
_BOTH_ENDS = np.array([0, 1])


class Extra(Protocol):
    """Tensors that a teacher prepares for a micro-batch; on a GPU their shapes should repeat."""

    def to(self, device: torch.device) -> Self:
        """Return a copy on a device."""

    def tensors(self) -> list[Tensor]:
        """Return all tensors that differ between two instances of the same shapes."""


@dataclass(frozen=True)
class MicroBatch:
    """Consecutive rows of a step before masking."""

    ids_BL: Tensor  # int32, padded to the full length
    lengths_B: Tensor  # int32, real tokens of each row
    rows_B: Tensor  # int64, row numbers within the step
    dropout_seed: int
    samples: list[Sample]
    num_tokens: int
    extra: Extra | None = None  # inputs of a teacher for these rows

    def to(self, device: torch.device) -> Self:
        """Return a copy on a device; the copies may still be in progress on return."""
        if device.type == "cpu":
            return self
        tensors = (self.ids_BL, self.lengths_B, self.rows_B)
        ids, lengths, rows = (t.to(device, non_blocking=t.is_pinned()) for t in tensors)
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
        prepare: Callable[[MicroBatch, Sequence[Sample]], Extra | None] | None = None,
        switching: Switching | None = None,
    ) -> None:
        self.languages: Sequence[str] = tuple(shards)
        assert switching is None or switching.languages == self.languages
        assert switching is None or prepare is None, "a teacher cannot read switched text"
        self._recipe, self._seed = recipe, seed
        self._prepare, self._switching = prepare, switching
        self._sizes = {
            name: getattr(shard.counts, recipe.size_unit) for name, shard in shards.items()
        }
        self._blocks = PackedBlocks(shards, tokenizer, recipe.length)
        self.padding_share = self._blocks.padding_share
        num_blocks = self._blocks.num_blocks
        self._held_out = {
            name: spread_held_out(num, recipe.held_out) for name, num in num_blocks.items()
        }
        self._schedule = Schedule(
            self.probabilities, num_blocks, recipe.batch_size, seed, self._held_out
        )
        self._pin = torch.cuda.is_available()

    def probabilities(self, step: int) -> dict[str, float]:
        """Return the sampling probability of each language; alpha changes between chunks."""
        return rebalance(self._sizes, value_at(self._recipe.alpha, step - step % CHUNK))

    def samples(self, step: int) -> list[Sample]:
        """Return the (language, block) of each row of a step, over all processes."""
        return self._name(*self._schedule.rows(step))

    def micro_batch(self, step: int, index: int = 0, count: int = 1) -> MicroBatch:
        """Return one of `count` equal micro-batches of a step; steps and indices start at 0."""
        size, rest = divmod(self._recipe.batch_size, count)
        assert not rest and 0 <= index < count, f"micro-batch {index} of {count}"
        languages, blocks = self._schedule.rows(step)
        rows = slice(index * size, (index + 1) * size)
        seed = derive_seed(self._seed, "dropout", step, index, count)
        batch = self._read(languages[rows], blocks[rows], rows.start, seed)
        if self._switching is not None:
            key = derive_seed(self._seed, "switches", step)
            self._switching.switch(batch.ids_BL.numpy(), languages[rows], rows.start, key)
        if self._prepare is None:
            return batch
        # A teacher needs the samples of the whole step: its loss is a mean over all its rows.
        return replace(batch, extra=self._prepare(batch, self._name(languages, blocks)))

    def mask_key(self, step: int) -> int:
        """Return the random key of the masks of a step."""
        return derive_seed(self._seed, "masks", step)

    def held_out(self, language: str) -> Sequence[MicroBatch]:
        """Return the held-out blocks of a language in batches as large as a micro-batch."""
        blocks, size = self._held_out[language], self._recipe.batch_size
        size //= self._recipe.micro_batches
        languages = np.full(len(blocks), self.languages.index(language))
        parts = (slice(first, first + size) for first in range(0, len(blocks), size))
        return [self._read(languages[part], blocks[part], part.start, 0) for part in parts]

    def _read(self, languages: Ints, blocks: Ints, first_row: int, dropout_seed: int) -> MicroBatch:
        shape = (len(blocks), self._recipe.length)
        ids_BL = torch.empty(shape, dtype=torch.int32, pin_memory=self._pin)
        lengths_B = torch.empty(len(blocks), dtype=torch.int32, pin_memory=self._pin)
        rows_B = torch.empty(len(blocks), dtype=torch.int64, pin_memory=self._pin)
        lengths_B.numpy()[:] = self._blocks.read(languages, blocks, ids_BL.numpy())
        rows_B.numpy()[:] = np.arange(first_row, first_row + len(blocks))
        num_tokens = int(lengths_B.sum())
        samples = self._name(languages, blocks)
        return MicroBatch(ids_BL, lengths_B, rows_B, dropout_seed, samples, num_tokens)

    def _name(self, languages: Ints, blocks: Ints) -> list[Sample]:
        names = map(self.languages.__getitem__, languages.tolist())
        return list(zip(names, blocks.tolist(), strict=True))


Batch = TypeVar("Batch")
ReadBatch = TypeVar("ReadBatch", covariant=True)


class MicroBatches(Protocol[ReadBatch]):
    """The batches of a training run, which are functions of the step."""

    def micro_batch(self, step: int, index: int, count: int) -> ReadBatch:
        """Return one of `count` equal micro-batches of a step; thread-safe."""

    def samples(self, step: int) -> Sequence[Any]:
        """Return the samples of a step over all processes, as JSON values."""


class Prefetcher(Generic[Batch]):
    """Reads the micro-batches of one process ahead in threads; a context manager."""

    def __init__(
        self,
        source: MicroBatches[Batch],
        first_step: int,
        last_step: int,
        indices: Sequence[int],
        count: int,
        workers: int,
        depth: int = 4,
    ) -> None:
        self._source, self._indices, self._count = source, tuple(indices), count
        self._depth = max(depth, workers)
        self._steps = iter(range(first_step, last_step))
        self._ready: dict[int, Future[list[Batch]]] = {}
        self._pool = ThreadPoolExecutor(workers, "prefetch") if workers else None

    def __enter__(self) -> Self:
        self._read_ahead(self._depth)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def get(self, step: int) -> list[Batch]:
        """Return the micro-batches of a step; call once per step, in order."""
        if self._pool is None:
            return self._make(step)
        batches = self._ready.pop(step).result()
        self._read_ahead(1)
        return batches

    def _read_ahead(self, count: int) -> None:
        if self._pool is not None:
            for step in islice(self._steps, count):
                self._ready[step] = self._pool.submit(self._make, step)

    def _make(self, step: int) -> list[Batch]:
        return [self._source.micro_batch(step, index, self._count) for index in self._indices]


class PackedBlocks:
    """The token ids of the packed blocks of all languages, as padded rows `<s> A </s> B </s>`."""

    def __init__(
        self, shards: Mapping[str, Shard], tokenizer: PreTrainedTokenizerBase, length: int
    ) -> None:
        if length < 3:
            raise MetaXLMError(
                f"length is {length}, which leaves no token between <s> and </s>; set 3 or more"
            )
        # Plain arrays over the same memory maps: np.memmap makes every access slower.
        self._tokens = [np.asarray(shard.tokens) for shard in shards.values()]
        self._offsets = [np.asarray(shard.offsets) for shard in shards.values()]
        self._length = length
        self._capacity = length - 1  # `<s>` takes one
        self._bos_id, self._eos_id = boundary_ids(tokenizer)
        self._pad_id = tokenizer.pad_token_id
        streams = [_measure(offsets, self._capacity) for offsets in self._offsets]
        packings = pack(streams, self._capacity)
        self.num_blocks = {name: len(p) for name, p in zip(shards, packings, strict=True)}
        self._lane = packings[0].lane
        self._order = np.concatenate([p.order for p in packings])
        sizes = np.array([len(p.order) for p in packings])
        self._first_place = np.cumsum(sizes) - sizes
        self._starts = np.concatenate(
            [p.starts + first for p, first in zip(packings, self._first_place, strict=True)]
        )
        num_starts = np.array([len(p.starts) for p in packings])
        self._first_block = np.cumsum(num_starts) - num_starts
        num_blocks = sum(self.num_blocks.values())
        num_tokens = num_blocks + sum(int(stream.sum(dtype=np.int64)) for stream in streams)
        self.padding_share = 1 - num_tokens / (num_blocks * length)

    def read(self, languages: Ints, blocks: Ints, output: NDArray[np.int32]) -> Ints:
        """Write the rows into `output` [rows, length]; return the number of tokens of each row."""
        # R counts rows and S their sentences, both grouped by language; T counts tokens.
        row_R = np.argsort(languages, kind="stable")
        language_R = languages[row_R]
        sentence_S, num_sentences_R = self._list_sentences(language_R, blocks[row_R])
        until_R = np.cumsum(num_sentences_R)
        edges = np.searchsorted(language_R, np.arange(len(self._tokens) + 1))
        cuts = np.concatenate([[0], until_R])[edges].tolist()
        slices = enumerate(slice(first, last) for first, last in pairwise(cuts))
        spans = [(index, span) for index, span in slices if span.stop > span.start]
        bounds_S2 = np.empty((len(sentence_S), 2), np.int64)
        for index, span in spans:
            bounds_S2[span] = self._offsets[index][sentence_S[span, None] + _BOTH_ENDS]
        begin_S = bounds_S2[:, 0]
        size_S = np.minimum(bounds_S2[:, 1] - begin_S + 1, self._capacity)

        until_S = np.cumsum(size_S)
        place_T = np.arange(until_S[-1])
        source_T = place_T + np.repeat(begin_S - until_S + size_S, size_S)
        # The last position of a sentence is overwritten with `</s>`; keep its index in range.
        source_T[until_S - 1] -= 1
        token_T = np.empty(len(place_T), np.int32)
        token_cuts = np.concatenate([[0], until_S]).tolist()
        for index, span in spans:
            tokens = slice(token_cuts[span.start], token_cuts[span.stop])
            token_T[tokens] = self._tokens[index][source_T[tokens]]
        token_T[until_S - 1] = self._eos_id

        ends_R = until_S[until_R - 1]
        size_R = np.diff(ends_R, prepend=0)
        output.fill(self._pad_id)
        output[:, 0] = self._bos_id
        shift_R = row_R * self._length + 1 - ends_R + size_R
        output.reshape(-1)[place_T + np.repeat(shift_R, size_R)] = token_T
        lengths = np.empty_like(size_R)
        lengths[row_R] = size_R + 1
        return lengths

    def _list_sentences(self, language_R: Ints, block_R: Ints) -> tuple[Ints, Ints]:
        """Return the sentence numbers of blocks within their languages, and counts per block."""
        block_R = block_R + self._first_block[language_R]
        start_R = self._starts[block_R]
        count_R = self._starts[block_R + 1] - start_R
        until_R = np.cumsum(count_R)
        place_S = np.arange(until_R[-1]) + np.repeat(start_R - until_R + count_R, count_R)
        place_in_lane_S = self._order[place_S]
        place_S -= np.repeat(self._first_place[language_R], count_R)
        return place_S - place_S % self._lane + place_in_lane_S, count_R


def _measure(offsets: NDArray[np.uint64], capacity: int) -> NDArray[np.integer]:
    """Return the length of each sentence in a block, including `</s>`, in a small dtype."""
    lengths = np.empty(len(offsets) - 1, np.min_scalar_type(capacity))
    for first in range(0, len(lengths), _MEASURED_AT_ONCE):
        sizes = np.diff(offsets[first : first + _MEASURED_AT_ONCE + 1]) + np.uint64(1)
        lengths[first : first + len(sizes)] = np.minimum(sizes, np.uint64(capacity))
    return lengths
