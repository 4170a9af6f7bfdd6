"""Characters that stand for something while a page is cleaned.

They are taken from the noncharacters U+FDD0 to U+FDEF, which no text may hold; a page that does
loses them first. None is left in a cleaned paragraph.
"""

from __future__ import annotations

import re

HOLE = "\ufdd0"
"""Something was removed here; what stood around it may need tidying."""
BROKEN_TEMPLATE = "\ufdd1"
"""A template starts here and never ends."""
BROKEN_LINK = "\ufdd2"
"""A link to a file or a category starts here and never ends."""
NOTHING = "\ufdd3"
"""Parts what stands on either side of it, and is nothing itself: `<nowiki />`."""

_PROTECTED = "[]{}<>|'=*#:;&_-!~"
_FIRST = 0xFDD4
_TO_MARKS = {ord(sign): chr(_FIRST + index) for index, sign in enumerate(_PROTECTED)}
_FROM_MARKS = {chr(_FIRST + index): sign for index, sign in enumerate(_PROTECTED)}
_ANY = re.compile("[\ufdd0-\ufdef]")
_MARKED = re.compile(f"[{NOTHING}-\ufdef]")


def remove_marks(text: str) -> str:
    """Remove what a page holds of these characters."""
    return _ANY.sub("", text)


def protect(text: str) -> str:
    """Write the signs of wikitext so that they are plain text."""
    return text.translate(_TO_MARKS)


def unprotect(text: str) -> str:
    """Write protected signs as themselves again."""
    return _MARKED.sub(lambda match: _FROM_MARKS.get(match[0], ""), text)
