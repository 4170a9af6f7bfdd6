"""Better sentence vectors without training: SIF weights, centering, removal of components.

The vectors of one language share a direction that says more about the language than about the text.
All three corrections are fitted on the texts of one side, so each language or file has its own.

1. SIF (Arora, Liang and Ma, 2017): weight each token by a / (a + p), where p is its share of the
   tokens of these texts. Frequent tokens, such as `<s>` and punctuation, count little.
2. Centering: subtract the mean vector.
3. Components: remove the projection on the first right singular vectors of what is left.

Shapes: N texts, D hidden, C texts of a chunk, Y tables (layers), K components, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError

if TYPE_CHECKING:
    from metaxlm.finetune.encoding import Ids

SMOOTHING = 1e-3  # a of SIF; the paper of SIF found values from 1e-4 to 1e-3 equally good
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True)
class Corrections:
    """Which corrections are applied, each after the one before."""

    sif: bool = False
    center: bool = False
    remove_components: int = 0

    @property
    def needs_all_vectors(self) -> bool:
        """Whether no vector is final before all of them are known."""
        return self.center or self.remove_components > 0

    def check(self, num_texts: int, width: int) -> None:
        """Raise an error if too few texts or numbers per vector would leave nothing."""
        if self.center and num_texts == 1:
            raise MetaXLMError("centering: the vector of a single text would become 0; add texts")
        most = min(num_texts - self.center, width) - 1
        if num_texts and self.remove_components > most:
            raise MetaXLMError(
                f"removing {self.remove_components} components: {num_texts:,} vectors of {width} "
                f"numbers allow at most {max(0, most)}; remove fewer"
            )


NONE = Corrections()


def weigh_tokens(texts: Iterable[Ids], vocab_size: int) -> Tensor:
    """Return the SIF weight of each token, [V], in float32; tokens of no text have 1."""
    counts_V = np.zeros(vocab_size, dtype=np.int64)
    for ids in texts:
        np.add.at(counts_V, ids, 1)
    shares_V = counts_V / max(1, counts_V.sum())
    return torch.from_numpy(SMOOTHING / (SMOOTHING + shares_V)).float()


class Moments:
    """Means and second moments of vectors in float64, from which the corrections are fitted."""

    def __init__(self, corrections: Corrections) -> None:
        self.corrections, self.num_vectors = corrections, 0
        self.sum_YD = self.squares_YDD = torch.zeros(())

    def add(self, vectors_YCD: Tensor) -> None:
        """Count further vectors of each table."""
        exact_YCD = vectors_YCD.double()
        self.sum_YD = self.sum_YD + exact_YCD.sum(dim=1)
        if self.corrections.remove_components:
            self.squares_YDD = self.squares_YDD + exact_YCD.mT @ exact_YCD
        self.num_vectors += vectors_YCD.shape[1]

    def fit(self) -> Fitted:
        """Return the mean and the components of each table."""
        self.corrections.check(self.num_vectors, self.sum_YD.shape[-1])
        number = self.corrections.remove_components
        mean_YD = self.sum_YD / self.num_vectors
        if not self.corrections.center:
            mean_YD = torch.zeros_like(mean_YD)
        components_YKD = mean_YD.new_zeros(len(mean_YD), 0, mean_YD.shape[1])
        if number:
            spread_YDD = self.squares_YDD - self.num_vectors * mean_YD[..., None] * mean_YD[:, None]
            # Eigenvalues are in ascending order.
            components_YKD = torch.linalg.eigh(spread_YDD).eigenvectors[..., -number:].mT
        return Fitted(mean_YD.float(), components_YKD.float())


@dataclass(frozen=True)
class Fitted:
    """The corrections of one set of texts; a mean of 0 or 0 components change nothing."""

    mean_YD: Tensor
    components_YKD: Tensor

    def apply(self, vectors_YCD: Tensor) -> Tensor:
        """Return corrected vectors in float32."""
        shifted_YCD = vectors_YCD.float() - self.mean_YD[:, None]
        if not self.components_YKD.shape[1]:
            return shifted_YCD
        return shifted_YCD - shifted_YCD @ self.components_YKD.mT @ self.components_YKD


def correct_vectors(
    vectors_ND: Tensor | np.ndarray[Any, Any], corrections: Corrections
) -> Tensor | np.ndarray[Any, Any]:
    """Center vectors of one side and remove components; vectors that need neither are returned."""
    if not corrections.needs_all_vectors:
        return vectors_ND
    moments = Moments(corrections)
    starts = range(0, len(vectors_ND), _ROWS_AT_ONCE)
    for start in starts:
        moments.add(_read(vectors_ND, start))
    fitted = moments.fit()
    return torch.cat([fitted.apply(_read(vectors_ND, start))[0] for start in starts])


def _read(vectors_ND: Tensor | np.ndarray[Any, Any], start: int) -> Tensor:
    rows = vectors_ND[start : start + _ROWS_AT_ONCE]
    # A copy: torch warns of read-only memory, such as a mapped file's.
    return (rows if isinstance(rows, Tensor) else torch.from_numpy(np.array(rows)))[None]
