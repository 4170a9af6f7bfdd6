"""Rows made of several source rows where nothing matches as a whole.

Comes in: target rows without an origin. Goes out: for some of them source rows and weights. Both
ways answer what the paper leaves open (section 3.2). A dictionary word that is several pieces in
the target vocabulary may lend its translation to its pieces (`lend_to_parts`); and a row that is
left to the filler may start from the source's own tokens for its text (`cut_subwords`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from metaxlm.errors import MetaXLMError
from metaxlm.initialization.canonical import Vocabulary
from metaxlm.initialization.translation import Translated, Translator

# A piece of many words takes the first of each language, which in MUSE are the most frequent ones.
_MOST_WORDS = 8
_CUT_AT_ONCE = 50_000


def lend_to_parts(
    target: Vocabulary,
    rows: Iterable[int],
    translator: Translator,
    pieces: Literal["first", "all"],
) -> dict[int, Translated]:
    """Give rows the mean of the translations of the dictionary words they are a part of."""
    if target.cut is None:
        raise MetaXLMError(
            "matching.split_words: a plain list of tokens cannot cut a dictionary word into "
            "pieces; give the target tokenizer itself, or set split_words to none"
        )
    # Single characters are parts of too many words to say anything.
    wanted = {row for row in rows if (form := target.forms[row]) and len(form[0]) > 1}
    words_of: dict[int, dict[str, None]] = {}
    for language in sorted(translator.dictionaries.by_language):
        dictionary = translator.dictionaries.by_language[language]
        words = list(dict.fromkeys(word for word, _ in dictionary))
        num_words: Counter[int] = Counter()
        for word, cut in zip(words, _cut_all(target, words), strict=True):
            if len(cut) < 2:
                continue
            for row in wanted.intersection(cut[:1] if pieces == "first" else cut):
                if num_words[row] < _MOST_WORDS:
                    num_words[row] += 1
                    words_of.setdefault(row, {})[word] = None
    origins = translator.translate({word for words in words_of.values() for word in words})
    found = {row: [origins[w] for w in words if w in origins] for row, words in words_of.items()}
    return {row: _average("dictionary_part", many) for row, many in found.items() if many}


def cut_subwords(
    target: Vocabulary, rows: Sequence[int], source: Vocabulary
) -> dict[int, Translated]:
    """Give rows the mean of the source's own tokens for their text, where it has any."""
    if source.cut is None:
        raise MetaXLMError(
            "matching.filler: a plain list of tokens cannot cut a text into subwords; give the "
            "source tokenizer itself, or choose another filler"
        )
    filled = {}
    for starts in (True, False):
        texts = {row: form[0] for row in rows if (form := target.forms[row]) and form[1] is starts}
        texts = {row: text for row, text in texts.items() if text.strip()}
        for row, cut in zip(texts, _cut_all(source, list(texts.values()), starts), strict=True):
            if cut:
                weights: dict[int, float] = {}
                for subword in cut:
                    weights[subword] = weights.get(subword, 0.0) + 1 / len(cut)
                filled[row] = Translated("subwords", tuple(weights), tuple(weights.values()), ())
    return filled


def _cut_all(vocabulary: Vocabulary, texts: Sequence[str], starts: bool = True) -> list[list[int]]:
    assert vocabulary.cut is not None
    cuts: list[list[int]] = []
    for start in range(0, len(texts), _CUT_AT_ONCE):
        cuts += vocabulary.cut(texts[start : start + _CUT_AT_ONCE], starts)
    return cuts


def _average(rule: str, origins: Sequence[Translated]) -> Translated:
    """Return the mean of several origins, each entry once."""
    weights: dict[int, float] = {}
    for origin in origins:
        for row, weight in zip(origin.sources, origin.weights, strict=True):
            weights[row] = weights.get(row, 0.0) + weight / len(origins)
    entries = dict.fromkeys(entry for origin in origins for entry in origin.entries)
    return Translated(rule, tuple(weights), tuple(weights.values()), tuple(entries))
