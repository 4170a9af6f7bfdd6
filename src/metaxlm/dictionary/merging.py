"""Merge entries of several sources: clean and check them, count votes, put the best first.

A source gives a translation 1 / rank votes, where the rank is its place among the translations of
the word there. With word counts of target-language text, an entry's score is its votes times a
power of the translation's count. Entries of single words are before phrases.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from metaxlm.data.clean import MIN_SCRIPT_SHARE
from metaxlm.dictionary.entries import Entries, Entry
from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionary, WordPairs
from metaxlm.languages import LANGUAGES, language_name
from metaxlm.scripts import measure_share
from metaxlm.sentences.translations import FREQUENCY_POWER

_UNSEEN = 0.1  # occurrences of a translation that the text does not have
_COPY = 0.1  # of the score, for a word that is its own translation beside others
_MOST_WORDS = 4
_TITLE_SHARE = 0.6  # from this share of capitalized words on, capitals say nothing
_MOST_PIVOTED = 2  # translations per step through a third language
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\ufeff]")
_VOWEL_MARKS = re.compile("[\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u0652\u0670]")  # not in text
_STRESS = re.compile("[\u0300\u0301]")  # Wiktionary marks it in Cyrillic
_SYMBOLS = re.compile(r"[/|<>{}\[\]()=\\_&#@*~+]|\d{3}")
_EDGES = ' \t.,;:!?…"«»„“”‘‹›¿¡、。「」『』（）！？：；，،؛؟۔।॥'
_SPACED_WORDS = frozenset({"vi"})  # languages with spaces within words


@dataclass(slots=True)
class MergedEntry:
    """An entry, and which of the sources have it."""

    source: str
    target: str
    votes: float = 0.0
    origins: tuple[int, ...] = ()  # positions in `MergedDictionary.sources`
    score: float = 0.0

    @property
    def is_copy(self) -> bool:
        """Whether the translation is the word itself."""
        return self.source.lower() == self.target.lower()

    def add(self, place: int, votes: float, entry: Entry) -> None:
        """Add the votes of a source; capitals win, because some lists have none."""
        self.votes += votes
        self.origins = (*self.origins, place)
        if entry.source != entry.source.lower():
            self.source = entry.source
        if entry.target != entry.target.lower():
            self.target = entry.target


@dataclass(frozen=True)
class SourceFacts:
    """What a source gave."""

    name: str
    entries: int  # that were read
    kept: int  # distinct ones
    only_here: int  # that no other source has
    dropped: Mapping[str, int]  # by reason


@dataclass(frozen=True)
class MergedDictionary:
    """Entries in the order of a dictionary file."""

    source_language: str
    language: str
    entries: Sequence[MergedEntry]
    sources: Sequence[SourceFacts]

    def rank(self, target_counts: Mapping[str, int] | None) -> "MergedDictionary":
        """Return the entries ordered by word counts of text in the target language.

        Without counts, source words stay in the order in which they were read first.
        """
        _score(self.entries, target_counts)
        place_of: dict[str, int] = {}
        for one in self.entries:
            place_of.setdefault(one.source.lower(), len(place_of))

        def order(one: MergedEntry) -> tuple[bool, int, float]:
            place = 0 if target_counts else place_of[one.source.lower()]
            return self._is_phrase(one), place, -one.score

        return replace(self, entries=sorted(self.entries, key=order))

    def _is_phrase(self, one: MergedEntry) -> bool:
        is_spaced = " " in one.target and self.language not in _SPACED_WORDS
        return " " in one.source or is_spaced

    @property
    def num_phrases(self) -> int:
        """Number of entries with a phrase on either side."""
        return sum(map(self._is_phrase, self.entries))

    def as_dictionary(self) -> Dictionary:
        """Return the entries as +Dict and the rewriting of sentences read them from a file."""
        words = "\n".join(one.target for one in self.entries)
        pairs = WordPairs("", words.lower(), "\n".join(one.source for one in self.entries), words)
        return Dictionary(self.language, (pairs,))


def merge(
    sources: Sequence[Entries], target_counts: Mapping[str, int] | None = None
) -> MergedDictionary:
    """Read all sources, and merge entries that differ only in capitals; none at all is an error."""
    pool: dict[tuple[str, str], MergedEntry] = {}
    read, kept, dropped = [], [], []
    for place, source in enumerate(sources):
        cleaner = _Cleaner(source.source_language, source.target_language)
        num_kept = 0
        cleaned = cleaner.clean_all(source.entries, is_kept=source.is_kept)
        for key, votes, entry in _rank_in_source(cleaned):
            if key not in pool:
                pool[key] = MergedEntry(entry.source, entry.target)
            pool[key].add(place, votes, entry)
            num_kept += 1
        read.append(cleaner.num_read)
        kept.append(num_kept)
        # Readers have counted all lines only now.
        dropped.append(dict((source.dropped + cleaner.dropped).most_common()))
    languages = {(one.source_language, one.target_language) for one in sources}
    assert len(languages) == 1, languages
    [(source_language, language)] = languages
    alone = Counter(one.origins[0] for one in pool.values() if len(one.origins) == 1)
    facts = [
        SourceFacts(source.name, read[place], kept[place], alone[place], dropped[place])
        for place, source in enumerate(sources)
    ]
    require_entries(facts, language)
    merged = MergedDictionary(source_language, language, list(pool.values()), facts)
    del pool  # it takes more memory than the entries
    return merged.rank(target_counts)


class _Cleaner:
    """Cleans entries, and counts those that are none by reason."""

    def __init__(self, source_language: str, language: str) -> None:
        known = (LANGUAGES.get(source_language), LANGUAGES.get(language))
        self._scripts = [one.scripts if one else None for one in known]
        self.dropped: Counter[str] = Counter()
        self.num_read = 0

    def clean_all(self, entries: Iterable[Entry], *, is_kept: bool) -> Iterator[Entry]:
        for entry in entries:
            self.num_read += 1
            if is_kept:
                yield entry
                continue
            source, target = self._clean(entry.source, 0), self._clean(entry.target, 1)
            reason = self._find_fault(source, 0) or self._find_fault(target, 1)
            if reason:
                self.dropped[reason] += 1
            else:
                yield Entry(source, target, entry.weight)

    def _clean(self, text: str, side: int) -> str:
        if not text.isascii():
            text = unicodedata.normalize("NFC", _INVISIBLE.sub("", text)).replace("’", "'")
            text = _VOWEL_MARKS.sub("", text)
            if "Cyrillic" in (self._scripts[side] or ()):
                text = _STRESS.sub("", text)
        return " ".join(text.split()).strip(_EDGES)

    def _find_fault(self, text: str, side: int) -> str | None:
        if text.isascii() and text.isalpha() and "Latin" in (self._scripts[side] or ("Latin",)):
            return None  # as nearly all English words
        if not any(map(str.isalpha, text)):
            return "no letters"
        if text[0] in "-–~" or text[-1] in "-–~":
            return "part of a word"
        if _SYMBOLS.search(text):
            return "symbols"
        if text.count(" ") >= _MOST_WORDS:
            return f"more than {_MOST_WORDS} words"
        scripts = self._scripts[side]
        if scripts and measure_share(text, scripts) < MIN_SCRIPT_SHARE:
            return ("word", "translation")[side] + " in another script"
        return None


def _rank_in_source(
    entries: Iterable[Entry],
) -> Iterator[tuple[tuple[str, str], float, Entry]]:
    """Yield each entry of a source once: its key in lower case, its votes, and how it is written.

    Words are written in lower case if nearly all are capitalized.
    """
    best: dict[tuple[str, str], Entry] = {}
    num_titles = 0
    for one in entries:
        key = (_lower(one.source), _lower(one.target))
        if key not in best or one.weight > best[key].weight:
            num_titles += key not in best and one.source[0].isupper()
            best[key] = one
    has_titles = num_titles > _TITLE_SHARE * len(best)
    num_before: Counter[str] = Counter()
    # Stable: entries of equal weight stay in the order of the source.
    for key in sorted(best, key=lambda key: -best[key].weight):
        num_before[key[0]] += 1
        entry = best.pop(key)
        if has_titles:
            entry = replace(entry, source=key[0])
        yield key, 1 / num_before[key[0]], entry


def _lower(text: str) -> str:
    lower = text.lower()
    return text if lower == text else lower  # not a second string of the same letters


def _score(entries: Sequence[MergedEntry], target_counts: Mapping[str, int] | None) -> None:
    counts: Counter[str] = Counter()
    for word, count in (target_counts or {}).items():
        counts[word.lower()] += count
    num_choices = Counter(one.source.lower() for one in entries)
    for one in entries:
        frequency = counts[one.target.lower()] + _UNSEEN if counts else 1.0
        one.score = one.votes * math.pow(frequency, FREQUENCY_POWER)
        if one.is_copy and num_choices[one.source.lower()] > 1:
            one.score *= _COPY


def require_entries(sources: Sequence[SourceFacts], language: str) -> None:
    """Raise an error if no source gave an entry."""
    if any(one.kept for one in sources):
        return
    total: Counter[str] = Counter()
    for one in sources:
        total.update(one.dropped)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in total.most_common(4))
    raise MetaXLMError(
        f"{', '.join(one.name for one in sources)}: no entry for {language_name(language)} "
        f"({language}); found {reasons or 'nothing that names the language'}; check the language "
        "and the file"
    )


@dataclass(frozen=True)
class PivotLoss:
    """What is lost through a third language."""

    pivot: str
    words: int  # of the target language in its dictionary into the pivot
    joined: int  # of them with a translation into the source language
    pairs: int
    agreeing: float | None = None  # share of pairs that a direct dictionary has, of those it could


def join(
    first: MergedDictionary, second: MergedDictionary, direct: MergedDictionary | None
) -> tuple[Entries, PivotLoss]:
    """Join a dictionary into a third language with one from there into the target language.

    The two best translations of each step are used. An entry's weight is the product of their
    shares, added over all words of the third language that connect it. An entry is left out if the
    direct dictionary has both words, but not together.
    """
    pivot = first.language
    sources = _list_best(first, lambda one: (one.target.lower(), one.source))
    middles = _list_best(second, lambda one: (one.target, one.source.lower()))
    weights: Counter[tuple[str, str]] = Counter()
    for target, words in middles.items():
        for middle, share in words:
            for source, other in sources.get(middle, ()):
                weights[source, target] += share * other  # type: ignore[assignment]
    found = [Entry(source, target, weight) for (source, target), weight in weights.items()]
    entries, agreeing = check_entries(found, direct)
    num_joined = len({target for _, target in weights})
    loss = PivotLoss(pivot, len(middles), num_joined, len(weights), agreeing)
    name = f"through {pivot}: " + ", ".join(one.name for one in (*first.sources, *second.sources))
    return Entries(name, first.source_language, second.language, entries), loss


def check_entries(
    entries: Iterable[Entry], direct: MergedDictionary | None
) -> tuple[list[Entry], float | None]:
    """Leave out entries of which a dictionary has both words, but not together.

    Also return which share of the entries the dictionary has, of those whose source word it has.
    """
    known: dict[str, set[str]] = defaultdict(set)
    for one in direct.entries if direct else ():
        known[one.source.lower()].add(one.target.lower())
    targets = {target for found in known.values() for target in found}
    kept, checks = [], []
    for entry in entries:
        target, of_source = entry.target.lower(), known.get(entry.source.lower())
        if of_source is not None:
            checks.append(target in of_source)
        if of_source is None or target in of_source or target not in targets:
            kept.append(entry)
    return kept, sum(checks) / len(checks) if checks else None


def _list_best(
    dictionary: MergedDictionary, order: Callable[[MergedEntry], tuple[str, str]]
) -> dict[str, list[tuple[str, float]]]:
    by_word: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for one in dictionary.entries:
        word, translation = order(one)
        by_word[word].append((translation, one.votes))
    best = {}
    for word, found in by_word.items():
        chosen = sorted(found, key=lambda pair: -pair[1])[:_MOST_PIVOTED]
        total = sum(votes for _, votes in found)
        best[word] = [(text, votes / total) for text, votes in chosen]
    return best
