"""Which language and which block stand in each row of each step (section 3.2 of the paper).

Language i is drawn with probability p_i = N_i^alpha / sum_j N_j^alpha. Within a language the blocks
are visited in an order shuffled anew each epoch, so that none repeats before all were seen. Both
are pure functions of (seed, step): the draws of `_CHUNK` steps come from one counter-based stream,
and how often a language was drawn before a step is counted from the draws, not kept as a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from metaxlm.randomness import generator

_CHUNK = 256
"""Steps whose languages are drawn together."""


class Schedule:
    """Says for every step which (language, block) fills each row of the batch."""

    def __init__(
        self,
        probabilities: Mapping[str, float],
        num_blocks: Mapping[str, int],
        batch_size: int,
        seed: int,
    ) -> None:
        self.languages: Sequence[str] = tuple(probabilities)
        self._probabilities = np.array([probabilities[name] for name in self.languages])
        self._num_blocks = [num_blocks[name] for name in self.languages]
        self._batch_size = batch_size
        self._seed = seed
        # Row c counts each language's draws before chunk c; grown as far as a step asks for.
        self._drawn_before = [np.zeros(len(self.languages), np.int64)]
        self._order = lru_cache(maxsize=4 * len(self.languages))(self._shuffle)
        self._draw = lru_cache(maxsize=2)(self._draw_chunk)

    def rows(self, step: int) -> list[tuple[int, int]]:
        """Return (index of the language, block) for each row of a step."""
        chunk, within = divmod(step, _CHUNK)
        languages = self._draw(chunk)
        before = self._count_before(chunk) + np.bincount(
            languages[:within].ravel(), minlength=len(self.languages)
        )
        rows = []
        for language in languages[within].tolist():
            epoch, place = divmod(int(before[language]), self._num_blocks[language])
            rows.append((language, int(self._order(language, epoch)[place])))
            before[language] += 1
        return rows

    def _count_before(self, chunk: int) -> NDArray[np.int64]:
        while len(self._drawn_before) <= chunk:
            draws = self._draw_chunk(len(self._drawn_before) - 1)
            counts = np.bincount(draws.ravel(), minlength=len(self.languages))
            self._drawn_before.append(self._drawn_before[-1] + counts)
        return self._drawn_before[chunk]

    def _draw_chunk(self, chunk: int) -> NDArray[np.int64]:
        random = generator(self._seed, "languages", chunk)
        shape = (_CHUNK, self._batch_size)
        return random.choice(len(self.languages), shape, p=self._probabilities)

    def _shuffle(self, language: int, epoch: int) -> NDArray[np.int64]:
        # By name, so that adding a language does not reorder the others.
        random = generator(self._seed, f"blocks-{self.languages[language]}", epoch)
        return random.permutation(self._num_blocks[language])
