"""Steps 4 and 5 of cleaning: the text of a line, without links, bold and italic marks and entities.

Patterns replace plain links, `[[target|label]]` and `[http://... label]`, which almost all are.
mwparserfromhell reads the others: brackets in labels, nested links, all schemes. Its time is
quadratic in the number of unclosed links, so a line with many of them only loses its brackets.

`tidy` removes invisible characters and what the removed markup leaves behind. It changes empty
parentheses and repeated commas only around holes: `main()` in an article about programs stays.
"""

from __future__ import annotations

import re
from html import unescape

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from metaxlm.data.wikitext.elements import HOLE, protect, remove_marks, unprotect
from metaxlm.data.wikitext.site import Site, Target
from metaxlm.scripts import SOUTHEAST_ASIAN

MAX_OPEN, MAX_LENGTH = 30, 20_000
"""The most brackets and characters in a line for mwparserfromhell."""

_PLAIN_LINK = re.compile(r"\[\[([^\[\]{}|<>\n]+)(?:\|([^\[\]{}<>\n]*))?\]\]")
_PLAIN_EXTERNAL = re.compile(
    r"\[(?:https?|ftp)://[^\s\[\]<>\"{}|]+(?:[ \t\u3000]+([^\[\]<>{}]*))?\]"
)
_HARD = re.compile(r"\[\[|\]\]|\[[a-z]*:|\[//", re.IGNORECASE)
_OPENER = re.compile(r"\[|://")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31}|רלמ|رلم);")
_QUOTES = re.compile(r"'{2,}")
# Only links are left: hide what looks like a tag or template from the parser.
_SHIELD = str.maketrans("<&={}*#;", "\ufde8\ufde9\ufdea\ufdeb\ufdec\ufded\ufdee\ufdef")
_UNSHIELD = {mark: sign for sign, mark in _SHIELD.items()}
_PIPE_TRICK = re.compile(r"^:?(?:[^:]*:)?|\s*[(（][^()（）]*[)）]$|,\s.*$")

# Soft hyphens, direction marks, byte order marks, word joiners, invisible operators, interlinear
# annotation, object replacement, and control characters that are not white space.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffc"
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]"
)
# A zero-width space separates words in Thai, Lao, Burmese and Khmer and has no meaning elsewhere.
_ZERO_WIDTH_SPACE = re.compile(rf"(?<![{SOUTHEAST_ASIAN}])\u200b|\u200b(?![{SOUTHEAST_ASIAN}])")

_COMMAS = ",;،؛、，；"
_SEPARATORS = f" {_COMMAS}:：/–—·•-"
_PAIRS = {"(": ")", "（": "）", "[": "]"}
_CLOSING = tuple(_PAIRS.values())
# No language puts a space before these; French does before the rest.
_CLOSE = tuple(",.。，、،؛।۔»”") + _CLOSING
_REACH, _MAX_NESTING = 200, 10  # characters before a hole that are searched for punctuation
# Leftovers of links and templates that were never closed, or closed twice.
_BRACKETS = re.compile(r"[\[\]{}|]{2,}")
_PAIRED = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}")
_LETTER = re.compile(r"[^\W\d_]")


def render(line: str, site: Site) -> str:
    """Return the text of one line of wikitext."""
    if "''" in line:
        line = _drop_quotes(line)
    if "[" in line or "]]" in line:
        line = _PLAIN_LINK.sub(lambda match: show_link(match[1], match[2], site), line)
        line = _PLAIN_EXTERNAL.sub(lambda match: match[1] or HOLE, line)
        if _HARD.search(line):
            line = render_with_parser(line, site)
    return _ENTITY.sub(_decode, line) if "&" in line else line


def show_link(target: str, label: str | None, site: Site) -> str:
    """Return the visible text of a link."""
    kind = site.classify(target.strip())
    if kind not in (Target.PAGE, Target.SISTER):
        return HOLE
    if label is not None and label.strip():
        return label
    if label is not None:
        return _PIPE_TRICK.sub("", target.strip())
    if kind is Target.SISTER:
        return target.partition(":")[2].strip()
    return target.strip().lstrip(":#").replace("_", " ")


def render_with_parser(line: str, site: Site) -> str:
    """Return the text of a line, parsed by mwparserfromhell."""
    if len(line) > MAX_LENGTH or len(_OPENER.findall(line)) > MAX_OPEN:
        return line
    code = mwparserfromhell.parse(line.translate(_SHIELD), skip_style_tags=True)
    return _show_nodes(code, site).translate(_UNSHIELD)


def _show_nodes(code: Wikicode | None, site: Site) -> str:
    return "".join(_show_node(node, site) for node in code.nodes) if code is not None else ""


def _show_node(node: object, site: Site) -> str:
    if isinstance(node, Text):
        return str(node.value)
    if isinstance(node, Wikilink):
        label = None if node.text is None else _show_nodes(node.text, site)
        return show_link(str(node.title).translate(_UNSHIELD), label, site)
    if isinstance(node, ExternalLink):
        if not node.brackets:
            return str(node.url)
        return _show_nodes(node.title, site).lstrip() or HOLE
    return str(node)


def _decode(match: re.Match[str]) -> str:
    entity = match[0]
    if ord(entity[1]) > 0x7F:
        return ""  # Hebrew and Arabic names of the right-to-left mark
    return protect(remove_marks(unescape(entity)))  # the character of an entity is never markup


def _drop_quotes(line: str) -> str:
    """Drop the marks of bold and italic text; a surplus apostrophe is text.

    As in MediaWiki, if the numbers of bold and of italic marks are both odd, one bold mark is an
    apostrophe and an italic mark (`L'''Odissea''`).
    """
    runs = list(_QUOTES.finditer(line))
    lengths = [3 if len(run[0]) == 4 else min(len(run[0]), 5) for run in runs]
    num_bold = sum(length in (3, 5) for length in lengths)
    num_italic = sum(length in (2, 5) for length in lengths)
    if num_bold % 2 and num_italic % 2:
        lengths = _make_one_italic(line, runs, lengths)
    marks = iter(lengths)
    return _QUOTES.sub(lambda run: "'" * (len(run[0]) - next(marks)), line)


def _make_one_italic(line: str, runs: list[re.Match[str]], lengths: list[int]) -> list[int]:
    """Make one bold mark italic, preferably behind a single letter."""

    def rank(index: int) -> int:
        before = line[max(0, runs[index].start() - 2) : runs[index].start()]
        if not before or before.endswith(" "):
            return 2
        return 0 if len(before) < 2 or before[0] == " " else 1

    bold = [index for index, length in enumerate(lengths) if length == 3]
    chosen = min(bold, key=rank, default=None)
    return [2 if index == chosen else length for index, length in enumerate(lengths)]


def tidy(text: str) -> str:
    """Return plain text with single spaces; an empty string if no letter is left."""
    if HOLE in text:
        text = _close_holes(text)
    text = _BRACKETS.sub(lambda run: "" if _PAIRED.search(run[0]) else run[0], text)
    text = " ".join(text.split())
    if not text.isprintable():
        text = _ZERO_WIDTH_SPACE.sub("", _INVISIBLE.sub("", unprotect(text)))
        text = " ".join(text.split())
    return text if _LETTER.search(text) else ""


def _close_holes(text: str) -> str:
    done: list[str] = []
    left, *rest = " ".join(text.split()).split(HOLE)
    for right in rest:
        while done and not left.strip(_SEPARATORS):
            before = done.pop()
            done += [before[:-_REACH]] if len(before) > _REACH else []
            left = before[-_REACH:] + left
        left, right = _close_hole(left, right)
        done.append(left)
        left = right
    return "".join([*done, left])


def _close_hole(left: str, right: str) -> tuple[str, str]:
    before, after = left.rstrip(_SEPARATORS), right.lstrip(_SEPARATORS)
    for _ in range(_MAX_NESTING):
        if not before or _PAIRS.get(before[-1]) != after[:1]:
            break
        left, right = before[:-1], after[1:]
        before, after = left.rstrip(_SEPARATORS), right.lstrip(_SEPARATORS)
    if before[-1:] in _PAIRS:
        return before, after
    if after.startswith(_CLOSING):
        return left.rstrip(f" {_COMMAS}"), after
    if not before:
        return "", right.lstrip(f" {_COMMAS}:")
    left_end, right_start = left.rstrip(), right.lstrip()
    follows_comma = left_end.endswith(tuple(_COMMAS)) and right_start.startswith(tuple(_COMMAS))
    if follows_comma or right_start.startswith(_CLOSE):
        return left_end.rstrip(f" {_COMMAS}"), right_start
    return left, right
