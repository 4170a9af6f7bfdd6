from __future__ import annotations

import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from metaxlm.data.documents import tidy_document, tidy_lines

from .conftest import thorough


def is_removed(character: str) -> bool:
    is_control = unicodedata.category(character) == "Cc" and not character.isspace()
    return is_control or character == "\ufeff"


def tidy_one(line: str) -> str:
    """What a tidy line is, said in Python's own words."""
    return " ".join("".join(c for c in line if not is_removed(c)).split())


def test_every_character_of_unicode_is_kept_or_goes_as_it_should() -> None:
    surrogates = range(0xD800, 0xE000)
    characters = [chr(code) for code in range(sys.maxunicode + 1) if code not in surrogates]
    characters.remove("\n")
    tidy = tidy_lines("".join(f"a{character}b\n" for character in characters)).split("\n")
    changed = {c: tidy_one(f"a{c}b") for c in characters if c.isspace() or is_removed(c)}
    assert tidy == [changed.get(character, f"a{character}b") for character in characters]


lines = st.lists(st.text("ab \t\xa0\x01\ufeff\u3000é\u200c", max_size=8), max_size=6)


@given(lines)
@thorough
def test_lines_are_tidy_and_none_is_empty(lines: list[str]) -> None:
    assert tidy_lines("\n".join(lines)) == "\n".join(filter(None, map(tidy_one, lines)))


def test_documents_end_lines_at_every_separator_of_unicode() -> None:
    text = "a\r\nb\rc\x0bd\x0ce\x85f\u2028g\u2029 h  \n\n\ni\tj"
    assert tidy_document(text) == "a\nb\nc\nd\ne\nf\ng\nh\ni j"


def test_lines_of_text_end_at_newlines_only() -> None:
    assert tidy_lines("\ufeffa\x0cb\u2028c\r\nd") == "a b c\nd"


def test_half_a_character_is_replaced() -> None:
    assert tidy_document("a\ud800b") == "a\ufffdb"
