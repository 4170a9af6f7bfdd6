"""FULL-SENTENCES blocks: whole sentences fill a block until the next one does not fit.

A block reads `<s> A </s> B </s>` and has at most `length` tokens; it may cross documents. A
sentence that is longer than a block is cut and fills one alone. Comes in: a shard. Goes out: which
sentences make each block, and the token ids of any one of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metaxlm.corpus.shards import Shard


def pack(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """Return where each block starts among the sentences, plus their number at the end.

    `lengths` counts each sentence with its `</s>`; none may exceed `capacity`.
    """
    assert lengths.max(initial=0) <= capacity, "a sentence that fits no block would never be placed"
    ends = np.cumsum(lengths)
    starts = [0]
    while starts[-1] < len(lengths):
        start = starts[-1]
        used = ends[start - 1] if start else 0
        starts.append(int(np.searchsorted(ends, used + capacity, side="right")))
    return np.array(starts, np.int64)


class Blocks:
    """The blocks of one language."""

    def __init__(self, shard: Shard, length: int, bos_id: int, eos_id: int) -> None:
        self._shard = shard
        self._capacity = length - 1  # `<s>` takes one
        self._bos_id = bos_id
        self._eos_id = eos_id
        lengths = np.diff(shard.offsets.astype(np.int64)) + 1
        self._starts = pack(np.minimum(lengths, self._capacity), self._capacity)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """Return the token ids of one block, special tokens included."""
        first, last = int(self._starts[index]), int(self._starts[index + 1])
        offsets = self._shard.offsets[first : last + 1].astype(np.int64)
        begin = int(offsets[0])
        # Only a sentence that stands alone can be too long: it is cut to leave room for `</s>`.
        end = min(int(offsets[-1]), begin + self._capacity - (last - first))
        ends = np.minimum(offsets[1:] - begin, end - begin)
        tokens = self._shard.tokens[begin:end].astype(np.int64)
        return np.concatenate([[self._bos_id], np.insert(tokens, ends, self._eos_id)])
