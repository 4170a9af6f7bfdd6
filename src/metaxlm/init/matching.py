"""The rules that find a token of one vocabulary in another, in the order they are tried.

Comes in: two vocabularies in canonical form. Goes out: for each target row the rule that matched it
and the source row it found. This is the vocabulary matching of section 3.2 of the paper: "we first
directly search the word in the monolingual vocabulary, and then search the normalized word". What
"normalized" means is spelled out here, one rule a step, because each step finds other rows:

| rule | forms that are looked for |
|---|---|
| direct | the same text, the same word start |
| nfkc | Unicode's compatibility form |
| lower | the same in lower case |
| capitalized | the same capitalized |
| word_start | the word start dropped or added, as it is or in lower case |
| accents | lower case without accents; the same with the word start added |
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metaxlm.init.canonical import Vocabulary
from metaxlm.vocab.token_forms import Form

Propose = Callable[[str, bool], tuple[Form, ...]]


def normalize_text(text: str) -> str:
    """Return the text in Unicode's compatibility form, without white space around it."""
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).strip()


def strip_accents(text: str) -> str:
    """Remove the marks that combine with a letter: é becomes e, й becomes и; ø stays."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _propose_direct(text: str, starts: bool) -> tuple[Form, ...]:
    return ((text, starts),)


def _propose_nfkc(text: str, starts: bool) -> tuple[Form, ...]:
    return ((normalize_text(text), starts),)


def _propose_lower(text: str, starts: bool) -> tuple[Form, ...]:
    return ((normalize_text(text).lower(), starts),)


def _propose_capitalized(text: str, starts: bool) -> tuple[Form, ...]:
    return ((normalize_text(text).capitalize(), starts),)


def _propose_word_start(text: str, starts: bool) -> tuple[Form, ...]:
    text = normalize_text(text)
    return (text, not starts), (text.lower(), not starts)


def _propose_accents(text: str, starts: bool) -> tuple[Form, ...]:
    # A piece of nothing but marks becomes empty here, and the empty word start is the bare space.
    text = strip_accents(normalize_text(text).lower())
    return (text, starts), (text, True)


TEXT_RULES: Mapping[str, Propose] = {
    "direct": _propose_direct,
    "nfkc": _propose_nfkc,
    "lower": _propose_lower,
    "capitalized": _propose_capitalized,
    "word_start": _propose_word_start,
    "accents": _propose_accents,
}
"""The rules that compare texts, in order: each proposes the canonical forms to look for."""

DICTIONARY_RULES = (
    "dictionary", "dictionary_blend", "dictionary_tokens", "dictionary_part",
)  # fmt: skip
"""Through translations: of one token; mixed with a text match; of several tokens; of words that the
piece is a part of."""

FILLER_RULES = ("subwords", "filler")
"""What is no match: the mean of the source's tokens for the text, or random numbers."""

RULES = ("special", *TEXT_RULES, *DICTIONARY_RULES, "segments", *FILLER_RULES)
"""All origins a row can have, in the order they are tried; a plan refers to them by place."""

TRANSLATION_RULES = tuple(rule for rule in TEXT_RULES if rule != "accents")
"""The rules for a dictionary's translation; its accents belong to its spelling and stay."""

UNMATCHED = RULES.index("filler")


@dataclass(frozen=True)
class Matches:
    """Which rule found which source row, by target row."""

    rules: NDArray[np.uint8]
    """Places in `RULES`; `UNMATCHED` where no rule found anything."""
    sources: NDArray[np.int32]
    """Source rows; -1 where no rule found anything."""


class Finder:
    """Looks canonical forms up in the source vocabulary."""

    def __init__(self, source: Vocabulary) -> None:
        self.row_of: dict[Form, int] = {}
        for row, form in enumerate(source.forms):
            if form is not None:
                self.row_of.setdefault(form, row)

    def find(self, form: Form, rules: Sequence[str]) -> tuple[str, int] | None:
        """Return the first rule that finds a token, and that token's row."""
        for rule in rules:
            for proposed in TEXT_RULES[rule](*form):
                row = self.row_of.get(proposed)
                if row is not None:
                    return rule, row
        return None


def match_vocabulary(
    target: Vocabulary, source: Vocabulary, rules: Sequence[str] = tuple(TEXT_RULES)
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
        # Special tokens such as language tags may be named alike, and bytes are, in all notations.
        is_special = row in target.specials
        if name in row_of and (is_special or "direct" in rules):
            codes[row] = RULES.index("special" if is_special else "direct")
            sources[row] = row_of[name]
    for role, row in target.roles.items():
        if role in source.roles:
            codes[row], sources[row] = RULES.index("special"), source.roles[role]
    return Matches(codes, sources)
