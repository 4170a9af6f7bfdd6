"""Whose word a piece is: how much of its use falls to each language.

Comes in: how often the text of each language uses each piece. Goes out: `LanguageShares`. The paper
(section 3.2) takes the same-spelled English word first, so German `▁die` starts as English `die`.
With `precedence: frequency_weighted`, languages are weighted by their use of a token:
the source language speaks through the text match, the others through their dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metaxlm.errors import MetaXLMError
from metaxlm.init.canonical import Vocabulary
from metaxlm.scripts import UNSPACED, find_script

OWN_SHARE = 0.2
"""From this share of the source language on, a piece is its own: its text match stands alone."""
DOUBTFUL_SHARE = 0.03
"""Below this share of the source language a same-spelled source token is likely a false friend."""

# A language whose text never has the piece still counts where no other has it either.
_LEAST_SHARE = 1e-4


@dataclass(frozen=True)
class LanguageShares:
    """How much of a piece's use falls to each language, all languages taken as equally large."""

    source_language: str
    languages: tuple[str, ...]
    shares_LV: NDArray[np.float64]
    """For each piece that occurs at all, shares that sum to one."""

    def find(self, language: str, row: int) -> float:
        """Return the share of one language, never quite nothing."""
        if language not in self.languages:
            return _LEAST_SHARE
        return float(self.shares_LV[self.languages.index(language), row]) + _LEAST_SHARE

    def find_own(self, row: int) -> float:
        """Return the share of the source language."""
        return self.find(self.source_language, row)


def measure_shares(
    counts: Mapping[str, NDArray[np.int64]] | None, source_language: str
) -> LanguageShares:
    """Turn counts of pieces by language into shares."""
    if counts is None or source_language not in counts or not counts[source_language].any():
        found = "no text was counted" if counts is None else f"counted: {', '.join(counts)}"
        raise MetaXLMError(
            "matching.precedence: `frequency_weighted` needs text of the source language "
            f"{source_language} and of the others in the target's tokens ({found}); name a corpus, "
            "or choose `text`"
        )
    languages = tuple(sorted(language for language in counts if counts[language].any()))
    relative_LV = np.stack([counts[language] / counts[language].sum() for language in languages])
    total_V = relative_LV.sum(axis=0)
    shares_LV = np.divide(relative_LV, total_V, out=np.zeros_like(relative_LV), where=total_V > 0)
    return LanguageShares(source_language, languages, shares_LV)


def find_doubtful(
    target: Vocabulary,
    text_matches: Iterable[int],
    translated: Iterable[int],
    shares: LanguageShares,
) -> set[int]:
    """Return rows whose origin says less than the words they are a part of.

    All are letters that the source language hardly uses. Either only a text match speaks for them
    (Japanese `の` as BERT's rare `の`, Turkish `lar`), or they continue a word in a script with
    spaces, where being spelled like a word of the dictionary is chance. Such rows first try the
    dictionary words that are cut into them, and keep their origin if there are none.
    """
    translated = set(translated)
    doubtful = set()
    for row in translated.union(text_matches):
        form = target.forms[row]
        if form is None or not any(map(str.isalpha, form[0])):
            continue
        if shares.find_own(row) >= DOUBTFUL_SHARE:
            continue
        # In scripts without spaces, a piece inside a text may be a whole word.
        is_inside = not form[1] and find_script(form[0]) not in UNSPACED
        if is_inside or row not in translated:
            doubtful.add(row)
    return doubtful
