"""Pack sentences into FULL-SENTENCES blocks with almost no padding.

A block is a run of consecutive sentences. The remaining space is filled with the longest of the
next few sentences that fit, with or without the last sentence of the run, whichever fills the block
better. Each sentence is in exactly one block, close to its neighbors in the text.

Sentences are split into lanes, of which NumPy packs a thousand in parallel, one block per lane at a
time: about two microseconds per block.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LOOK_AHEAD = 64  # next sentences considered for a block
_LANE_BLOCKS = 16  # sentences per lane / capacity; the last block of a lane stays partly empty
_LARGEST_LANE = 1 << 16  # a position within a lane fits into 16 bits
_LANES_AT_ONCE = 1024

Lengths = NDArray[np.integer]
Signed = NDArray[np.signedinteger]


@dataclass(frozen=True)
class Packing:
    """The sentences of each block of a language: 2 bytes per sentence and 8 bytes per block."""

    starts: NDArray[np.int64]  # of each block in `order`, plus the end
    order: NDArray[np.uint16]  # sentences by block, as offsets from the start of their lane
    lane: int  # sentences per lane: entry k of `order` belongs to lane k // lane

    def __len__(self) -> int:
        return len(self.starts) - 1

    def sentences(self, block: int) -> list[int]:
        """Return the sentences of a block in text order."""
        places = np.arange(self.starts[block], self.starts[block + 1])
        found: list[int] = (places - places % self.lane + self.order[places]).tolist()
        return found


def pack(streams: Sequence[Lengths], capacity: int) -> list[Packing]:
    """Pack each stream of sentence lengths (with `</s>`, 1 to `capacity`) into separate blocks."""
    size = min(_LANE_BLOCKS * capacity, _LARGEST_LANE)
    orders = [np.empty(len(stream), np.uint16) for stream in streams]
    counts: list[list[NDArray[np.int64]]] = [[np.zeros(1, np.int64)] for _ in streams]
    places = [(i, first) for i, s in enumerate(streams) for first in range(0, len(s), size)]
    for start in range(0, len(places), _LANES_AT_ONCE):
        group = places[start : start + _LANES_AT_ONCE]
        stretches = [streams[index][first : first + size] for index, first in group]
        block_of, order = _pack_lanes(stretches, capacity)
        for (index, first), blocks, sorted_places in zip(group, block_of, order, strict=True):
            length = min(size, len(streams[index]) - first)
            orders[index][first : first + length] = sorted_places[:length]
            counts[index].append(np.bincount(blocks[:length]))
    return [
        Packing(np.cumsum(np.concatenate(count)), order, size)
        for count, order in zip(counts, orders, strict=True)
    ]


def _pack_lanes(
    stretches: Sequence[Lengths], capacity: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the block of every sentence of each lane, and the sentences in block order."""
    num_lanes, size = len(stretches), max(map(len, stretches))
    width = size + _LOOK_AHEAD
    # Sentences that are already packed and the padding after the last one have length 0.
    lengths = np.zeros(num_lanes * width, np.int16 if capacity < 1 << 14 else np.int32)
    block_of = np.full(num_lanes * width, 0xFFFF, np.uint16)
    for row, stretch in zip(lengths.reshape(num_lanes, width), stretches, strict=True):
        assert stretch.min() > 0, "an empty sentence would never be placed"
        assert stretch.max() <= capacity, "a sentence longer than a block would never be placed"
        row[: len(stretch)] = stretch
    windows = np.lib.stride_tricks.sliding_window_view(lengths, _LOOK_AHEAD)
    # Per unfinished lane: first unpacked sentence, end, current block, free space in the block.
    at = np.arange(num_lanes) * width
    end = at + size
    block = np.zeros(num_lanes, np.uint16)
    room = np.full(num_lanes, capacity, lengths.dtype)
    while len(at):
        taken, left, room, is_full = _fill(windows[at], room)
        lane, column = np.nonzero(taken)
        sentence = at[lane] + column
        lengths[sentence] = 0
        block_of[sentence] = block[lane]
        at = at + np.where(left.any(axis=1), left.argmax(axis=1), _LOOK_AHEAD)
        block = block + is_full.astype(np.uint16)
        room[is_full] = capacity
        going = at < end
        if not going.all():
            at, end, block, room = at[going], end[going], block[going], room[going]
    blocks = block_of.reshape(num_lanes, width)[:, :size]
    return blocks, np.argsort(blocks, axis=1, kind="stable").astype(np.uint16)


def _fill(
    near: Signed, room: Signed
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Signed, NDArray[np.bool_]]:
    """Choose sentences for the open block of each lane among the next ones [lanes, look-ahead].

    Return the chosen ones, those left for later, the remaining space, and whether it is complete.
    """
    lanes = np.arange(len(near))
    total = np.cumsum(near, axis=1, dtype=np.int32)
    in_run = total <= room[:, None]
    count = in_run.sum(axis=1)
    is_full = count < _LOOK_AHEAD
    run = np.where(count > 0, total[lanes, count - 1], 0).astype(room.dtype)
    rest = np.where(in_run, near.dtype.type(0), near)
    room = room - run

    column, size = _find_longest(rest, room)
    # Alternative: leave out the last sentence of the run, which then begins the next block.
    last = np.minimum((total < run[:, None]).sum(axis=1), _LOOK_AHEAD - 1)
    last_size = near[lanes, last]
    other_column, other_size = _find_longest(rest, (room + last_size) * is_full)
    is_better = is_full & (last > 0) & (last_size < other_size - size)
    rest[lanes, last] = np.where(is_better, last_size, rest[lanes, last])
    column = np.where(is_better, other_column, column)
    size = np.where(is_better, other_size, size)
    rest[lanes, column] -= size
    room = room + last_size * is_better - size

    column, size = _find_longest(rest, room)
    rest[lanes, column] -= size
    left = rest > 0
    return (near > 0) & ~left, left, room - size, is_full


def _find_longest(lengths: Signed, room: Signed) -> tuple[NDArray[np.int64], Signed]:
    """Return column and length of the longest fitting sentence of each lane; 0 if none fits."""
    fitting = np.where(lengths <= room[:, None], lengths, lengths.dtype.type(0))
    column = fitting.argmax(axis=1)
    return column, fitting[np.arange(len(fitting)), column]
