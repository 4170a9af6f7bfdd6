"""Which paragraphs of a language's corpus are kept, and why the others are not.

Comes in: a paragraph, the language it should be in, and the recipe's `corpus.cleaning`. Goes out:
None, or the reason to drop it, under which it is counted. Script and language are judged so that a
paragraph of another language goes and hardly any of the right one does; lists of foreign names and
romanized text are what is dropped by mistake.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from metaxlm.config import CleaningRecipe
from metaxlm.languages import LANGUAGES
from metaxlm.scripts import drop_foreign, measure_share

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

REASONS = ("too_short", "too_long", "wrong_script", "wrong_language")
"""Why a paragraph is dropped, in the order in which it is judged."""

MIN_SCRIPT_SHARE = 0.5
"""So much of a paragraph is in the language's scripts."""

# py3langid walks over every byte in Python, so a paragraph is heard only as long as it takes: most
# are known by their beginning, and beyond the longer sample nothing changes.
_SHORT_SAMPLE, _LONG_SAMPLE = 100, 200
# How much better than the right language another one has to be: a difference of log-probabilities
# over the root of the sample's bytes, the scale that py3langid itself takes for its confidence.
_MARGIN = 1.0
# Prose has more letters than this, in scripts with many vowel signs, too.
_MIN_LETTERS = 0.4
# The same language to py3langid under another code.
_LABELS = {"zh-Hant": "zh"}
# py3langid's labels that are no mistake: varieties and stages of the language, and languages that
# it takes for each other beyond the margin. `zxx` is its label for what is no language.
_ACCEPTED = {
    "ar": ("ary", "arz"),
    "bs": ("hr", "sr"),
    "da": ("nn", "no"),
    "el": ("grc",),
    "en": ("pcm",),
    "es": ("an", "ext"),
    "he": ("hbo",),
    "hr": ("bs", "sr"),
    "id": ("ace", "ms"),
    "it": ("lij", "vec"),
    "lv": ("ltg",),
    "ms": ("id",),
    "nn": ("da", "no"),
    "no": ("da", "nn"),
    "sr": ("bs", "hr"),
    "uz": ("uzs",),
    "xh": ("zu",),
    "zh": ("wuu", "yue"),
}
_NO_LANGUAGE = "zxx"


class ParagraphFilter:
    """Judges the paragraphs of one language.

    A language that the table does not have is not judged by its script, and one that py3langid does
    not know (of the table's: ckb, sd, su, yi) not by its language.
    """

    def __init__(self, language: str, recipe: CleaningRecipe) -> None:
        self._recipe = recipe
        known = LANGUAGES.get(language)
        self._scripts = known.scripts if known else ()
        self._label = _LABELS.get(language, language)
        self._accepted = frozenset({self._label, _NO_LANGUAGE, *_ACCEPTED.get(self._label, ())})
        self._proof = _find_proof(language)

    def judge(self, paragraph: str) -> str | None:
        """Return why a paragraph is dropped, or None if it is kept."""
        recipe = self._recipe
        if len(paragraph) < recipe.min_characters:
            return "too_short"
        if len(paragraph) > recipe.max_characters:
            return "too_long"
        if recipe.script and not self._is_in_script(paragraph):
            return "wrong_script"
        if recipe.language and len(paragraph) >= recipe.min_language_characters:
            return None if self._is_in_language(paragraph) else "wrong_language"
        return None

    def _is_in_script(self, paragraph: str) -> bool:
        if not self._scripts:
            return True
        return measure_share(paragraph, self._scripts) >= MIN_SCRIPT_SHARE

    def _is_in_language(self, paragraph: str) -> bool:
        if self._label not in _known_labels():
            return True
        if self._proof:
            scripts, share = self._proof
            if measure_share(paragraph, scripts) >= share:
                return True
        if _identifier().classify(paragraph[:_SHORT_SAMPLE])[0] in self._accepted:
            return True
        if self._sounds_right(paragraph[:_LONG_SAMPLE]):
            return True
        # Figures and formulas are of no language, but py3langid finds one.
        if sum(map(str.isalpha, paragraph)) < _MIN_LETTERS * len(paragraph):
            return True
        # The first paragraph of an article often begins with the name in three languages and their
        # scripts; so its end is heard, too, without foreign letters.
        if not self._is_in_script(paragraph):
            return False
        end = paragraph[-_LONG_SAMPLE:]
        return self._sounds_right(drop_foreign(end, self._scripts) if self._scripts else end)

    def _sounds_right(self, sample: str) -> bool:
        best, score = _identifier().classify(sample)
        if best in self._accepted:
            return True
        ranking = _identifier().rank(sample)
        own = max(points for label, points in ranking if label in self._accepted)
        return bool((score - own) / math.sqrt(len(sample.encode())) <= _MARGIN)


def _find_proof(language: str) -> tuple[tuple[str, ...], float] | None:
    """Return scripts, and a share of them in a paragraph, that only this language has, if any."""
    # Kana stand in every Japanese sentence, so what is nearly all Han is Chinese.
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
def _identifier() -> LanguageIdentifier:
    # Imported here: the recipe rarely asks for it, and it takes most of a second and 200 MB.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    # Half-precision tables save memory and cost twice the time.
    identifier.nb_ptc = identifier.nb_ptc.astype(np.float32)
    return identifier


@cache
def _known_labels() -> frozenset[str]:
    return frozenset(_identifier().labels)
