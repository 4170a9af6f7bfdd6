"""Training pairs of a sentence encoder: a text for the student, and a sentence for the teacher."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Some training pairs."""

    texts: list[str]  # for the student
    languages: list[str]  # of the texts
    anchors: Ints  # for the teacher: indices into the source's `anchors`


class PairSource(Protocol):
    """Draws training pairs; thread-safe and without state."""

    @property
    def anchors(self) -> Sequence[str]:
        """The sentences in the teacher's language."""

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the texts."""

    def draw(self, numbers: Ints) -> Pairs:
        """Return the pairs with these numbers; a pair is a function of (seed, number)."""
