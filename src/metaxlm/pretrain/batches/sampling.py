"""Sample the language and block of each row of each step (section 3.2 of the paper).

Language i is drawn with probability p_i = N_i^alpha / sum_j N_j^alpha. Within a language, the
blocks are shuffled in every epoch and visited without replacement. Both are pure functions of
(seed, step): the draws of `CHUNK` steps come from one counter-based stream, and the number of
earlier draws of a language is recomputed instead of stored. Held-out blocks are never drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from metaxlm.randomness import generator

CHUNK = 256  # steps whose languages are drawn together, with the probabilities of the first one
Ints = NDArray[np.int64]


def spread_held_out(num_blocks: int, wanted: int) -> Ints:
    """Return the blocks to hold out: at most 5 %, evenly spread over the language."""
    count = min(wanted, num_blocks // 20)
    return (2 * np.arange(count, dtype=np.int64) + 1) * num_blocks // (2 * max(count, 1))


class Schedule:
    """The (language, block) of each row of every step."""

    def __init__(
        self,
        probabilities: Callable[[int], Mapping[str, float]],
        num_blocks: Mapping[str, int],
        batch_size: int,
        seed: int,
        held_out: Mapping[str, Ints] | None = None,
    ) -> None:
        self.languages: Sequence[str] = tuple(num_blocks)
        none = np.zeros(0, np.int64)
        self._held_out = [(held_out or {}).get(name, none) for name in self.languages]
        self._num_drawn = [
            num - len(held) for num, held in zip(num_blocks.values(), self._held_out, strict=True)
        ]
        self._probabilities = probabilities
        self._batch_size = batch_size
        self._seed = seed
        # Entry c counts each language's draws before chunk c; extended on demand.
        self._drawn_before = [np.zeros(len(self.languages), np.int64)]
        self._lock = Lock()
        self._order = lru_cache(maxsize=2 * len(self.languages))(self._shuffle)
        self._chunk = lru_cache(maxsize=4)(self._fill_chunk)

    def rows(self, step: int) -> tuple[Ints, Ints]:
        """Return the language index and the block of each row of a step."""
        chunk, within = divmod(step, CHUNK)
        with self._lock:
            languages, blocks = self._chunk(chunk)
        return languages[within], blocks[within]

    def _fill_chunk(self, chunk: int) -> tuple[Ints, Ints]:
        while len(self._drawn_before) <= chunk:
            counts, _ = self._count(len(self._drawn_before) - 1)
            self._drawn_before.append(self._drawn_before[-1] + counts)
        counts, random = self._count(chunk)
        languages = np.repeat(np.arange(len(counts)), counts)
        places = random.permutation(len(languages))
        blocks = np.empty_like(languages)
        first = 0
        for language, count in enumerate(counts.tolist()):
            number = self._drawn_before[chunk][language] + np.arange(count)
            # In the order of the steps, so that an epoch covers consecutive steps.
            blocks[np.sort(places[first : first + count])] = self._blocks(language, number)
            first += count
        drawn = np.empty_like(languages)
        drawn[places] = languages
        shape = (CHUNK, self._batch_size)
        return drawn.reshape(shape), blocks.reshape(shape)

    def _count(self, chunk: int) -> tuple[Ints, np.random.Generator]:
        """Draw the number of rows of each language in a chunk; also return the generator."""
        random = generator(self._seed, "languages", chunk)
        by_name = self._probabilities(chunk * CHUNK)
        probabilities = np.array([by_name[name] for name in self.languages])
        return random.multinomial(CHUNK * self._batch_size, probabilities), random

    def _blocks(self, language: int, number: Ints) -> Ints:
        """Return the blocks of the n-th draws of a language, for consecutive n."""
        size = self._num_drawn[language]
        epochs, places = np.divmod(number, size)
        parts = np.split(places, np.flatnonzero(np.diff(epochs)) + 1)
        drawn = [
            self._order(language, int(epochs[0]) + index)[part]
            for index, part in enumerate(parts)
            if len(part)
        ]
        if not drawn:
            return number
        kept = np.concatenate(drawn).astype(np.int64)
        held = self._held_out[language]
        return kept + np.searchsorted(held - np.arange(len(held)), kept, side="right")

    def _shuffle(self, language: int, epoch: int) -> NDArray[np.uint32]:
        # By name, so that adding a language does not reorder the others.
        random = generator(self._seed, f"blocks-{self.languages[language]}", epoch)
        order = np.arange(self._num_drawn[language], dtype=np.uint32)
        random.shuffle(order)
        return order
