"""Rules that find a token of the target vocabulary in the source vocabulary.

Section 3.2 of the paper: "we first directly search the word in the monolingual vocabulary, and then
search the normalized word". The text rules define "normalized", in the order they are tried:

| rule | surface forms to look up |
|---|---|
| direct | the same text, the same word start |
| nfkc | Unicode's compatibility form |
| lower | the same in lower case |
| capitalized | the same capitalized |
| word_start | the word start removed or added, as it is or in lower case |
| accents | lower case without accents; the same with the word start added |

Rules for tokens without a text match combine several source embeddings: by dictionary
(`dictionary_rules`), by `segments` of known tokens, or by the `subwords` of the source tokenizer.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metaxlm.errors import MetaXLMError
from metaxlm.init.vocabulary import NormalizedVocab
from metaxlm.scripts import find_script
from metaxlm.vocab.tokens import Form

Propose = Callable[[str, bool], tuple[Form, ...]]


def normalize_text(text: str) -> str:
    """Return the text in Unicode's compatibility form, without surrounding white space."""
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).strip()


def spell_word(text: str) -> str:
    """Return the dictionary word that a token spells."""
    return normalize_text(text).lower()


def strip_accents(text: str) -> str:
    """Remove combining marks: é becomes e, й becomes и; ø stays."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _propose_word_start(text: str, starts: bool) -> tuple[Form, ...]:
    text = normalize_text(text)
    return (text, not starts), (text.lower(), not starts)


def _propose_accents(text: str, starts: bool) -> tuple[Form, ...]:
    # A token of marks only becomes empty here, and the empty word start is the bare space.
    text = strip_accents(normalize_text(text).lower())
    return (text, starts), (text, True)


TEXT_RULES: Mapping[str, Propose] = {
    "direct": lambda text, starts: ((text, starts),),
    "nfkc": lambda text, starts: ((normalize_text(text), starts),),
    "lower": lambda text, starts: ((normalize_text(text).lower(), starts),),
    "capitalized": lambda text, starts: ((normalize_text(text).capitalize(), starts),),
    "word_start": _propose_word_start,
    "accents": _propose_accents,
}
"""Rules that compare texts, in order: each proposes the surface forms to look up."""

# Translations of one token; mixed with a text match; of several tokens; of words that contain it.
DICTIONARY_RULES = ("dictionary", "dictionary_blend", "dictionary_tokens", "dictionary_part")
FILLER_RULES = ("subwords", "filler")  # no match: the mean of the source's subwords, or random

RULES = ("special", *TEXT_RULES, *DICTIONARY_RULES, "segments", *FILLER_RULES)
"""All origins of an embedding, in the order they are tried; a plan refers to them by index."""

TRANSLATION_RULES = tuple(rule for rule in TEXT_RULES if rule != "accents")
"""Rules for translations, whose accents belong to their spelling."""

UNMATCHED = RULES.index("filler")

# The shortest segment with a meaning, elsewhere 3: a single letter of an alphabet has none.
_SHORTEST = {"Han": 1, "Hangul": 2, "Kana": 2, "Thai": 2}
_LEAST_EXPLAINED = 0.8


@dataclass(frozen=True)
class Matches:
    """Rule and source token of each target token."""

    rules: NDArray[np.uint8]  # indices into `RULES`; `UNMATCHED` without a match
    sources: NDArray[np.int32]  # source ids; -1 without a match


class Composed(NamedTuple):
    """An embedding made of several source embeddings."""

    rule: str
    sources: tuple[int, ...]
    weights: tuple[float, ...]
    entries: tuple[tuple[str, str], ...] = ()  # dictionary entries: language and translation


def scale(
    rule: str, weights: Mapping[int, float], entries: Iterable[tuple[str, str]] = ()
) -> Composed:
    """Return an origin whose weights sum to one, with each entry once."""
    total = sum(weights.values())
    shares = tuple(weight / total for weight in weights.values())
    return Composed(rule, tuple(weights), shares, tuple(dict.fromkeys(entries)))


class Finder:
    """Looks surface forms up in the source vocabulary."""

    def __init__(self, source: NormalizedVocab) -> None:
        self.row_of: dict[Form, int] = {}
        for row, form in enumerate(source.forms):
            if form is not None:
                self.row_of.setdefault(form, row)

    def find(self, form: Form, rules: Sequence[str]) -> tuple[str, int] | None:
        """Return the first rule that finds a token, and the id of the token."""
        for rule in rules:
            for proposed in TEXT_RULES[rule](*form):
                row = self.row_of.get(proposed)
                if row is not None:
                    return rule, row
        return None


def match_vocabulary(
    target: NormalizedVocab, source: NormalizedVocab, rules: Sequence[str] = tuple(TEXT_RULES)
) -> Matches:
    """Match special tokens by role and all others by the given text rules."""
    codes = np.full(len(target), UNMATCHED, np.uint8)
    sources = np.full(len(target), -1, np.int32)
    finder = Finder(source)
    for row, form in enumerate(target.forms):
        found = None if form is None else finder.find(form, rules)
        if found is not None:
            codes[row], sources[row] = RULES.index(found[0]), found[1]
    row_of = {name: row for row, name in source.names.items()}
    for row, name in target.names.items():
        # Language tags may have the same name; bytes have one name in all notations.
        is_special = row in target.specials
        if name in row_of and (is_special or "direct" in rules):
            codes[row] = RULES.index("special" if is_special else "direct")
            sources[row] = row_of[name]
    for role, row in target.roles.items():
        if role in source.roles:
            codes[row], sources[row] = RULES.index("special"), source.roles[role]
    return Matches(codes, sources)


def cut_subwords(
    target: NormalizedVocab, rows: Sequence[int], source: NormalizedVocab
) -> dict[int, Composed]:
    """Compose tokens of the mean of the source tokenizer's subwords for their text."""
    if source.cut is None:
        raise MetaXLMError(
            "matching.filler: a plain list of tokens cannot cut a text into subwords; give the "
            "source tokenizer itself, or choose another filler"
        )
    filled = {}
    for starts in (True, False):
        texts = {row: form[0] for row in rows if (form := target.forms[row]) and form[1] is starts}
        texts = {row: text for row, text in texts.items() if text.strip()}
        for row, cut in zip(texts, source.cut_all(list(texts.values()), starts), strict=True):
            if cut:
                filled[row] = scale("subwords", Counter(cut))
    return filled


def join_segments(
    target: NormalizedVocab,
    rows: Iterable[int],
    origins: Mapping[int, tuple[tuple[int, ...], tuple[float, ...]]],
) -> dict[int, Composed]:
    """Compose phrases and compounds of the tokens in them (`origins`), weighted by length.

    Chinese `我不知道` is `我` + `不` + `知道`. The segmentation with the greatest sum of squared
    lengths wins; it must cover 80 % of the text.
    """
    pieces: dict[Form, int] = {}
    anywhere: dict[Form, int] = {}
    for row in sorted(origins):
        form = target.forms[row]
        if form is not None and (text := spell_word(form[0])):
            pieces.setdefault((text, form[1]), row)
            anywhere.setdefault((text, not form[1]), row)
    pieces = anywhere | pieces
    longest = max((len(text) for text, _ in pieces), default=0)
    joined = {}
    for row in rows:
        form = target.forms[row]
        if form is None or not (text := spell_word(form[0])):
            continue
        segments = _segment(text, form[1], pieces, longest)
        if sum(length for _, length in segments) < _LEAST_EXPLAINED * len(text):
            continue
        weights: dict[int, float] = defaultdict(float)
        for piece, length in segments:
            for source, weight in zip(*origins[piece], strict=True):
                weights[source] += length * weight
        joined[row] = scale("segments", weights)
    return joined


def _segment(
    text: str, starts: bool, pieces: Mapping[Form, int], longest: int
) -> list[tuple[int, int]]:
    shortest = _SHORTEST.get(find_script(text), 3)
    scores = [0] * (len(text) + 1)
    last: list[tuple[int, int] | None] = [None] * (len(text) + 1)
    for end in range(1, len(text) + 1):
        scores[end] = scores[end - 1]
        for start in range(max(0, end - longest), end - shortest + 1):
            score = scores[start] + (end - start) ** 2
            if score > scores[end]:
                row = pieces.get((text[start:end], starts and start == 0))
                if row is not None:
                    scores[end], last[end] = score, (row, start)
    segments = []
    end = len(text)
    while end > 0:
        if (step := last[end]) is None:
            end -= 1
        else:
            segments.append((step[0], end - step[1]))
            end = step[1]
    return segments[::-1]
