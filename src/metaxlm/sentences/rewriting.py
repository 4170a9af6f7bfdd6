"""Rewrite English sentences word by word with dictionaries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries
from metaxlm.randomness import derive_seed
from metaxlm.sentences.pairs import Ints, Pairs, choose, uniform

MIN_COVERAGE = 0.1


@dataclass(frozen=True)
class Rewriting:
    """How sentences are rewritten."""

    replaced: float = 0.9  # share of the words with a translation that are replaced
    unchanged: float = 0.15  # share of the sentences that stay English
    shuffled: float = 0.5  # share of the sentences with local noise in the word order
    reach: int = 3  # places that a word of these moves at most


class DictionaryPairs:
    """English sentences, rewritten into a random language."""

    def __init__(
        self,
        sentences: Sequence[str],
        dictionaries: Dictionaries,
        seed: int,
        settings: Rewriting = Rewriting(),
        word_counts: Mapping[str, Mapping[str, int]] | None = None,
        language_weights: Mapping[str, float] | None = None,
    ) -> None:
        self._sentences = sentences
        self._settings = settings
        self._targets = tuple(dictionaries.by_language)
        self._weights = [(language_weights or {}).get(code, 1.0) for code in self._targets]
        self._source = dictionaries.source_language
        self._key = derive_seed(seed, "dictionary pairs")
        self._tables: list[dict[str, str]] = [{} for _ in self._targets]
        for table, dictionary in zip(self._tables, dictionaries.by_language.values(), strict=True):
            for word, english in dictionary:
                table.setdefault(english.lower(), word)

    @property
    def anchors(self) -> Sequence[str]:
        """The English sentences."""
        return self._sentences

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the texts."""
        return tuple(sorted({self._source, *self._targets}))

    def draw(self, numbers: Ints) -> Pairs:
        """Return the pairs with these numbers."""
        anchors = (uniform(self._key, numbers, 0) * len(self._sentences)).astype(np.int64)
        which = choose(self._weights, uniform(self._key, numbers, 1))
        is_kept = uniform(self._key, numbers, 2) < self._settings.unchanged
        texts, languages = [], []
        for anchor, number, kept in zip(anchors.tolist(), which.tolist(), is_kept.tolist()):
            text = self._sentences[anchor]
            table = self._tables[number]
            texts.append(text if kept else " ".join(table.get(w, w) for w in text.lower().split()))
            languages.append(self._source if kept else self._targets[number])
        return Pairs(texts, languages, anchors)


def check_coverage(sentences: Sequence[str], dictionaries: Dictionaries) -> dict[str, float]:
    """Return the share of running words with a translation, by language."""
    words = [word for sentence in sentences for word in sentence.lower().split()]
    shares = {}
    for language, dictionary in dictionaries.by_language.items():
        known = {english.lower() for _, english in dictionary}
        shares[language] = sum(word in known for word in words) / max(len(words), 1)
    if max(shares.values(), default=0.0) < MIN_COVERAGE:
        raise MetaXLMError("dictionaries cover less than a tenth of the words")
    return shares
