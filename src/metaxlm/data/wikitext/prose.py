"""Which items of lists are prose.

Comes in: the text of a list item. Goes out: whether to keep it. Articles end in lists of links,
books and names, and no wiki marks them as such. An item is kept if it is a sentence (it ends in the
mark of one, or of a clause, and has a few words) or long; a book with its ISBN is neither.
"""

from __future__ import annotations

import re

MIN_SENTENCE_WORDS = 4
"""An item that ends like a sentence needs so many words."""
MIN_WORDS = 12
"""An item that does not needs so many."""

_SENTENCE_END = re.compile(r"[.!?;…。！？；｡।॥۔؟؛։።།၊။៕๚។][\"'”’»«“)）\]」』]*$")
_CATALOG_NUMBER = re.compile(r"\b(?:ISBN|ISSN|OCLC|LCCN|ASIN|PMID|ISMN)\b[\s:]*[\dX]|\bdoi:", re.I)
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_LETTER = re.compile(r"[^\W\d_]")
_LETTERS_A_WORD = 2


def is_prose(text: str) -> bool:
    """Say whether a list item reads like running text."""
    if _CATALOG_NUMBER.search(text):
        return False
    num_words = _count_words(text)
    # Thai and Lao end sentences with nothing; their items are judged by length.
    return num_words >= (MIN_SENTENCE_WORDS if _SENTENCE_END.search(text) else MIN_WORDS)


def _count_words(text: str) -> int:
    """Count words; in scripts without spaces, two letters are taken for one."""
    num_unspaced = len(_UNSPACED.findall(text))
    spaced = _UNSPACED.sub(" ", text).split()
    return sum(bool(_LETTER.search(word)) for word in spaced) + num_unspaced // _LETTERS_A_WORD
