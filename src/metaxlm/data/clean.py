"""Choose the paragraphs of a corpus: filters by length, script and language, and deduplication.

Paragraphs of another language go and hardly any of the right one do; lists of foreign names and
romanized text are the typical mistakes. Deduplication compares 64-bit hashes of the paragraphs of a
language, range by range, so that memory grows by only one byte per paragraph. The first occurrence
stays. Two different paragraphs share a hash once in 10^4 corpora of the size of English Wikipedia.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metaxlm.languages import LANGUAGES
from metaxlm.recipe import CleaningRecipe
from metaxlm.scripts import drop_foreign, measure_share

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

Hashes = NDArray[np.uint64]

_RANGE = 1 << 21  # hashes that are compared at once; some 100 MB

MIN_SCRIPT_SHARE = 0.5  # of a paragraph's letters in the scripts of the language

# py3langid loops over bytes in Python. The first characters suffice for most paragraphs, and more
# than the longer sample changes nothing.
_SHORT_SAMPLE, _LONG_SAMPLE = 100, 200
# How much better than the right language another one has to be: a difference of log-probabilities
# over the root of the sample's bytes, which is the scale of py3langid's own confidence.
_MARGIN = 1.0
# The least share of letters in prose, also in scripts with many vowel signs.
_MIN_LETTERS = 0.4
# Codes of py3langid that differ from ours.
_LABELS = {"zh-Hant": "zh"}
# Labels of py3langid that count as right: varieties and stages of the language, and languages that
# it confuses beyond the margin. Its label `zxx` means "not a language".
_ACCEPTED = {
    "ar": ("ary", "arz"), "bs": ("hr", "sr"), "da": ("nn", "no"), "el": ("grc",), "en": ("pcm",),
    "es": ("an", "ext"), "he": ("hbo",), "hr": ("bs", "sr"), "id": ("ace", "ms"),
    "it": ("lij", "vec"), "lv": ("ltg",), "ms": ("id",), "nn": ("da", "no"), "no": ("da", "nn"),
    "sr": ("bs", "hr"), "uz": ("uzs",), "xh": ("zu",), "zh": ("wuu", "yue"),
}  # fmt: skip


class ParagraphFilter:
    """The filter of a language; a language or script that is not known is not checked."""

    def __init__(self, language: str, recipe: CleaningRecipe) -> None:
        self._recipe = recipe
        known = LANGUAGES.get(language)
        self._scripts = known.scripts if known else ()
        self._label = _LABELS.get(language, language)
        self._accepted = frozenset({self._label, "zxx", *_ACCEPTED.get(self._label, ())})
        self._proof = _find_proof(language)

    def find_fault(self, paragraph: str) -> str | None:
        """Return the reason to drop a paragraph, or None to keep it."""
        recipe = self._recipe
        if not recipe.min_characters <= len(paragraph) <= recipe.max_characters:
            return "too_short" if len(paragraph) < recipe.min_characters else "too_long"
        if recipe.script and not self._is_in_script(paragraph):
            return "wrong_script"
        if recipe.language and len(paragraph) >= recipe.min_language_characters:
            return None if self._is_in_language(paragraph) else "wrong_language"
        return None

    def _is_in_script(self, paragraph: str) -> bool:
        scripts = self._scripts
        return not scripts or measure_share(paragraph, scripts) >= MIN_SCRIPT_SHARE

    def _is_in_language(self, paragraph: str) -> bool:
        if self._label not in load_identifier().labels:
            return True
        if self._proof and measure_share(paragraph, self._proof[0]) >= self._proof[1]:
            return True
        if load_identifier().classify(paragraph[:_SHORT_SAMPLE])[0] in self._accepted:
            return True
        if self._sounds_right(paragraph[:_LONG_SAMPLE]):
            return True
        # py3langid finds a language in figures and formulas, too.
        if sum(map(str.isalpha, paragraph)) < _MIN_LETTERS * len(paragraph):
            return True
        # The first paragraph of an article often begins with the name in several languages and
        # scripts: check its end, too, without foreign letters.
        if not self._is_in_script(paragraph):
            return False
        end = paragraph[-_LONG_SAMPLE:]
        return self._sounds_right(drop_foreign(end, self._scripts) if self._scripts else end)

    def _sounds_right(self, sample: str) -> bool:
        best, score = load_identifier().classify(sample)
        if best in self._accepted:
            return True
        ranking = load_identifier().rank(sample)
        own = max(points for label, points in ranking if label in self._accepted)
        return bool((score - own) / math.sqrt(len(sample.encode())) <= _MARGIN)


def _find_proof(language: str) -> tuple[tuple[str, ...], float] | None:
    """Return scripts, and a share of letters in them, that prove the language, if any."""
    # Every Japanese sentence has Kana, so text with almost only Han is Chinese.
    if _LABELS.get(language, language) == "zh":
        return ("Han", "Bopomofo"), 0.9
    if language == "ja":
        return ("Kana",), 0.15
    known = LANGUAGES.get(language)
    if known is None:
        return None
    others = {s for entry in LANGUAGES.values() if entry is not known for s in entry.scripts}
    alone = tuple(script for script in known.scripts if script not in others)
    return (alone, MIN_SCRIPT_SHARE) if alone else None


@cache
def load_identifier() -> LanguageIdentifier:
    """Load py3langid's model once per process."""
    # Imported here: few recipes use it, and it takes most of a second and 200 MB.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    # Half-precision tables would save memory, and take twice the time.
    identifier.nb_ptc = identifier.nb_ptc.astype(np.float32)
    return identifier


def hash_paragraph(paragraph: str) -> bytes:
    """Return the hash of a paragraph, 8 bytes."""
    return hashlib.blake2b(paragraph.encode(), digest_size=8).digest()


def find_duplicates(parts: Sequence[Hashes], range_size: int = _RANGE) -> list[NDArray[np.bool_]]:
    """Return for each part a boolean per paragraph: whether it occurred before."""
    total = sum(map(len, parts))
    num_ranges = max(1, -(-total // range_size))
    bounds = [(1 << 64) * i // num_ranges for i in range(num_ranges + 1)]
    duplicates = np.zeros(total, bool)
    for low, high in pairwise(bounds):
        hashes, places = _select(parts, low, high - 1)
        _, firsts = np.unique(hashes, return_index=True)
        repeated = np.ones(len(hashes), bool)
        repeated[firsts] = False
        duplicates[places[repeated]] = True
    return np.split(duplicates, np.cumsum([len(part) for part in parts])[:-1])


def _select(parts: Sequence[Hashes], low: int, high: int) -> tuple[Hashes, NDArray[np.int64]]:
    chosen, places, before = [], [], 0
    for part in parts:
        within = np.flatnonzero((part >= np.uint64(low)) & (part <= np.uint64(high)))
        chosen.append(part[within])
        places.append(within + before)
        before += len(part)
    return np.concatenate(chosen), np.concatenate(places)
