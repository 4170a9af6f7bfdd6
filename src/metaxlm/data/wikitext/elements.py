"""Step 1 of cleaning: remove comments, `<ref>`, `<math>`, `<nowiki>` and all other tags.

The text is read from left to right, as MediaWiki does. Elements without readable text leave a
`HOLE`, inline tags nothing, and block tags a line break. The time is linear in the length.

While a page is cleaned, the noncharacters U+FDD0 to U+FDEF are marks. Text may not contain them:
`remove_marks` takes them out of a page first, and `unprotect` removes the last ones at the end.
"""

from __future__ import annotations

import re

from metaxlm.data.wikitext.site import WORDS

HOLE = "\ufdd0"  # the place of a removed part; `tidy` closes it
BROKEN_TEMPLATE = "\ufdd1"  # a template starts here and never ends
BROKEN_LINK = "\ufdd2"  # a link to a file or a category starts here and never ends
NOTHING = "\ufdd3"  # an invisible separator, as `<nowiki />`

_PROTECTED = "[]{}<>|'=*#:;&_-!~"
_FIRST = 0xFDD4
_TO_MARKS = {ord(sign): chr(_FIRST + index) for index, sign in enumerate(_PROTECTED)}
_FROM_MARKS = {chr(_FIRST + index): sign for index, sign in enumerate(_PROTECTED)}
_ANY = re.compile("[\ufdd0-\ufdef]")
_MARKED = re.compile(f"[{NOTHING}-\ufdef]")

# These are not part of a sentence. `pre` and code are text, but not in a natural language.
_DROPPED_BLOCKS, _DROPPED_SILENTLY = WORDS["dropped_blocks"], WORDS["dropped_silently"]
_DROPPED = _DROPPED_BLOCKS | WORDS["dropped_inline"] | _DROPPED_SILENTLY
# Replacements of elements; the default is a hole in the line.
_HOLES = {
    **dict.fromkeys(_DROPPED_BLOCKS, f"\n{HOLE}\n"),
    **dict.fromkeys(_DROPPED_SILENTLY, ""),
    "nowiki": NOTHING,
}
_TOKEN = re.compile(
    r"(?P<comment><!--)|<(?P<slash>/?)(?P<name>[A-Za-z][A-Za-z0-9]*)(?P<rest>(?=[\s/>])[^<>]{0,2000})>"
)
_CLOSED = {
    name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in (*_DROPPED, "nowiki", "poem")
}
_TABLE_TAG = re.compile(r"<(/?)table\b[^<>]{0,2000}>", re.IGNORECASE)
_OPEN_REFERENCE = re.compile(r"<ref\b[^<>]*(?<!/)>", re.IGNORECASE)
_BREAKS = re.compile(r"<br[^<>]{0,200}>\s*(?:<br[^<>]{0,200}>\s*)+", re.IGNORECASE)
_VERSE = re.compile(r"^[ \t:*#]+", re.MULTILINE)
_START_OF_LINE = re.compile(r"(?:^|\n)[ \t]*\Z")
_REST_OF_LINE = re.compile(r"[ \t]{0,99}\n")
_PARAGRAPH_BREAK = re.compile(r"\n[ \t]*\n")


def remove_marks(text: str) -> str:
    """Remove the characters that cleaning uses as marks."""
    return _ANY.sub("", text)


def protect(text: str) -> str:
    """Replace the characters of wikitext markup by marks, so that they stay plain text."""
    return text.translate(_TO_MARKS)


def unprotect(text: str) -> str:
    """Restore protected characters."""
    return _MARKED.sub(lambda match: _FROM_MARKS.get(match[0], ""), text)


def remove_elements(text: str) -> str:
    """Remove comments, elements without readable text, and tags."""
    return _Remover(text).run() if "<" in text else text


class _Remover:
    def __init__(self, text: str) -> None:
        self._text = _BREAKS.sub("\n\n", text)
        self._closers: dict[str, re.Match[str] | None] = {}
        self._pieces: list[str] = []

    def run(self) -> str:
        position = 0
        while match := _TOKEN.search(self._text, position):
            self._pieces.append(self._text[position : match.start()])
            if match["comment"]:
                position = self._skip_comment(match)
            else:
                replacement, position = self._replace(match, match["name"].lower())
                self._pieces.append(replacement)
        self._pieces.append(self._text[position:])
        return "".join(self._pieces)

    def _skip_comment(self, match: re.Match[str]) -> int:
        """Return where the text continues; a line with nothing but comments vanishes."""
        end = self._text.find("-->", match.end())
        if end < 0:
            return len(self._text)
        rest = _REST_OF_LINE.match(self._text, end + 3)
        if rest and _START_OF_LINE.search(self._text, max(0, match.start() - 99), match.start()):
            return rest.end()
        return end + 3

    def _replace(self, match: re.Match[str], name: str) -> tuple[str, int]:
        opening = not match["slash"] and not match["rest"].endswith("/")
        if name == "nowiki" or name in _DROPPED:
            return self._replace_element(match, name, opening)
        if name == "br":
            return " ", match.end()
        if name == "poem" and opening:
            return self._replace_poem(match)
        if name in WORDS["items"]:  # a cell outside of a table counts as a list item
            return ("\n* " if opening else "\n"), match.end()
        if name in WORDS["blocks"]:
            return "\n\n", match.end()
        return ("" if name in WORDS["inline"] else match[0]), match.end()

    def _replace_element(self, match: re.Match[str], name: str, opening: bool) -> tuple[str, int]:
        hole = _HOLES.get(name, HOLE)
        if not opening:
            return ("" if match["slash"] else hole), match.end()
        closer = self._find_table_end(match) if name == "table" else self._find_closer(name, match)
        if name == "ref" and self._is_unclosed(match, closer):
            end = self._text.find("\n", match.end())
            return hole, end if end >= 0 else len(self._text)
        if closer is None:
            return ("\n" if name in _DROPPED_BLOCKS else ""), match.end()
        if name == "nowiki":
            inside = self._text[match.end() : closer.start()]
            return f"{NOTHING}{protect(inside)}{NOTHING}", closer.end()
        return hole, closer.end()

    def _replace_poem(self, match: re.Match[str]) -> tuple[str, int]:
        """Remove the indents of verses, which would make them list items."""
        closer = self._find_closer("poem", match)
        if closer is None:
            return "\n\n", match.end()
        verses = _VERSE.sub("", self._text[match.end() : closer.start()])
        return f"\n\n{remove_elements(verses)}\n\n", closer.end()

    def _find_closer(self, name: str, opener: re.Match[str]) -> re.Match[str] | None:
        """Return the next closing tag; each is searched once, so that the time stays linear."""
        known = self._closers.get(name)
        if name not in self._closers or (known is not None and known.start() < opener.end()):
            known = self._closers[name] = _CLOSED[name].search(self._text, opener.end())
        return known

    def _find_table_end(self, opener: re.Match[str]) -> re.Match[str] | None:
        if self._find_closer("table", opener) is None:
            return None
        depth = 1
        for tag in _TABLE_TAG.finditer(self._text, opener.end()):
            depth += -1 if tag[1] else 1
            if depth == 0:
                return tag
        self._closers["table"] = None  # unclosed: the tables after it are not matched either
        return None

    def _is_unclosed(self, opener: re.Match[str], closer: re.Match[str] | None) -> bool:
        """Return whether the closing tag belongs to a later reference in another paragraph."""
        if closer is None:
            return True
        start, end = opener.end(), closer.start()
        after = _OPEN_REFERENCE.search(self._text, start, end)
        return after is not None and bool(_PARAGRAPH_BREAK.search(self._text, start, after.start()))
