"""The token ids of packed blocks, for the rows of a step at once.

Comes in: the shards of all languages, and which (language, block) stands in each row. Goes out:
`<s> A </s> B </s>` for every row, padded to the full length. A sentence that is longer than a block
is cut and fills one alone. Rows are read together: two reads of memory maps for each language, the
rest in a few operations over all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.data.shards import Shard
from metaxlm.errors import MetaXLMError
from metaxlm.pretraining.packing import Packing, pack
from metaxlm.vocabulary.special_tokens import boundary_ids

_MEASURED_AT_ONCE = 1 << 20
_BOTH_ENDS = np.array([0, 1])


class Blocks:
    """All blocks of all languages."""

    def __init__(
        self, shards: Mapping[str, Shard], tokenizer: PreTrainedTokenizerBase, length: int
    ) -> None:
        if length < 3:
            raise MetaXLMError(
                f"length is {length}, which leaves no token between <s> and </s>; set length to 3 "
                "or more"
            )
        # Plain arrays over the same memory maps: their class makes every access slower.
        self._tokens = [np.asarray(shard.tokens) for shard in shards.values()]
        self._offsets = [np.asarray(shard.offsets) for shard in shards.values()]
        self._length = length
        self._capacity = length - 1  # `<s>` takes one
        self._bos_id, self._eos_id = boundary_ids(tokenizer)
        self._pad_id = tokenizer.pad_token_id
        streams = [_measure(offsets, self._capacity) for offsets in self._offsets]
        packings = pack(streams, self._capacity)
        self.num_blocks = {name: len(p) for name, p in zip(shards, packings, strict=True)}
        self._join(packings)
        num_blocks = sum(self.num_blocks.values())
        num_tokens = num_blocks + sum(int(stream.sum(dtype=np.int64)) for stream in streams)
        self.padding_share = 1 - num_tokens / (num_blocks * length)

    def _join(self, packings: list[Packing]) -> None:
        """Put the packings of all languages one behind the other."""
        self._lane = packings[0].lane
        self._order = np.concatenate([p.order for p in packings])
        sizes = np.array([len(p.order) for p in packings])
        self._first_place = np.cumsum(sizes) - sizes
        self._starts = np.concatenate(
            [p.starts + first for p, first in zip(packings, self._first_place, strict=True)]
        )
        num_starts = np.array([len(p.starts) for p in packings])
        self._first_block = np.cumsum(num_starts) - num_starts

    def read(
        self, languages: NDArray[np.int64], blocks: NDArray[np.int64], output: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Write the rows into `output` [rows, length]; return how many tokens each has.

        R counts rows and S their sentences, both language by language; T counts tokens.
        """
        row_R = np.argsort(languages, kind="stable")
        language_R = languages[row_R]
        sentence_S, num_sentences_R = self._list_sentences(language_R, blocks[row_R])
        until_R = np.cumsum(num_sentences_R)
        edges = np.searchsorted(language_R, np.arange(len(self._tokens) + 1))
        cuts = np.concatenate([[0], until_R])[edges].tolist()
        spans = [
            (index, slice(first, last))
            for index, (first, last) in enumerate(pairwise(cuts))
            if last > first
        ]
        bounds_S2 = np.empty((len(sentence_S), 2), np.int64)
        for index, span in spans:
            bounds_S2[span] = self._offsets[index][sentence_S[span, None] + _BOTH_ENDS]
        begin_S = bounds_S2[:, 0]
        size_S = np.minimum(bounds_S2[:, 1] - begin_S + 1, self._capacity)

        until_S = np.cumsum(size_S)
        place_T = np.arange(until_S[-1])
        source_T = place_T + np.repeat(begin_S - until_S + size_S, size_S)
        # A sentence's last place is for `</s>`: until then it repeats a token that exists.
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

    def _list_sentences(
        self, language_R: NDArray[np.int64], block_R: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sentences of blocks, as their language counts them, and how many each has."""
        block_R = block_R + self._first_block[language_R]
        start_R = self._starts[block_R]
        count_R = self._starts[block_R + 1] - start_R
        until_R = np.cumsum(count_R)
        place_S = np.arange(until_R[-1]) + np.repeat(start_R - until_R + count_R, count_R)
        place_in_lane_S = self._order[place_S]
        place_S -= np.repeat(self._first_place[language_R], count_R)
        return place_S - place_S % self._lane + place_in_lane_S, count_R


def _measure(offsets: NDArray[np.uint64], capacity: int) -> NDArray[np.integer]:
    """Return the room that each sentence takes in a block, `</s>` included, in few bytes."""
    lengths = np.empty(len(offsets) - 1, np.min_scalar_type(capacity))
    for first in range(0, len(lengths), _MEASURED_AT_ONCE):
        sizes = np.diff(offsets[first : first + _MEASURED_AT_ONCE + 1]) + np.uint64(1)
        lengths[first : first + len(sizes)] = np.minimum(sizes, np.uint64(capacity))
    return lengths
