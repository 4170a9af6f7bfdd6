"""Fourth step: links, bold and italic marks, entities.

Comes in: one line of wikitext. Goes out: the text a reader sees. Almost all links are of the plain
kinds `[[target|label]]` and `[http://... label]` and are replaced by patterns; whatever is left
with the bracket of a link goes to mwparserfromhell, which costs more and knows the rest: brackets
in labels, links in links, all schemes. It takes quadratic time for links that are not closed, so a
line with more than a few of them only loses its brackets.
"""

from __future__ import annotations

import re
from html import unescape

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from metaxlm.data.wikitext.marks import HOLE, protect, remove_marks
from metaxlm.data.wikitext.site import Site, Target

MAX_OPEN = 30
"""With more brackets than this left in a line, mwparserfromhell is not asked."""
MAX_LENGTH = 20_000
"""Nor for longer lines."""

_PLAIN_LINK = re.compile(r"\[\[([^\[\]{}|<>\n]+)(?:\|([^\[\]{}<>\n]*))?\]\]")
_PLAIN_EXTERNAL = re.compile(
    r"\[(?:https?|ftp)://[^\s\[\]<>\"{}|]+(?:[ \t\u3000]+([^\[\]<>{}]*))?\]"
)
_HARD = re.compile(r"\[\[|\]\]|\[[a-z]*:|\[//", re.IGNORECASE)
_OPENER = re.compile(r"\[|://")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31}|רלמ|رلم);")
_QUOTES = re.compile(r"'{2,}")
# Only links are left to find: tags and templates are gone, and what looks like one is text.
_SHIELD = str.maketrans("<&={}*#;", "\ufde8\ufde9\ufdea\ufdeb\ufdec\ufded\ufdee\ufdef")
_UNSHIELD = {mark: sign for sign, mark in _SHIELD.items()}
_PIPE_TRICK = re.compile(r"^:?(?:[^:]*:)?|\s*[(（][^()（）]*[)）]$|,\s.*$")


def render(line: str, site: Site) -> str:
    """Return the text of one line of wikitext."""
    if "''" in line:
        line = _drop_quotes(line)
    if "[" in line or "]]" in line:
        line = _render_links(line, site)
    return _ENTITY.sub(_decode, line) if "&" in line else line


def _render_links(line: str, site: Site) -> str:
    line = _PLAIN_LINK.sub(lambda match: show_link(match[1], match[2], site), line)
    line = _PLAIN_EXTERNAL.sub(lambda match: match[1] or HOLE, line)
    if _HARD.search(line):
        line = render_with_parser(line, site)
    return line


def show_link(target: str, label: str | None, site: Site) -> str:
    """Return what is seen of a link."""
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
    """Return the text of a line as mwparserfromhell reads it."""
    if len(line) > MAX_LENGTH or len(_OPENER.findall(line)) > MAX_OPEN:
        return line
    code = mwparserfromhell.parse(line.translate(_SHIELD), skip_style_tags=True)
    return _show_nodes(code, site).translate(_UNSHIELD)


def _show_nodes(code: Wikicode, site: Site) -> str:
    return "".join(_show_node(node, site) for node in code.nodes)


def _show_node(node: object, site: Site) -> str:
    if isinstance(node, Text):
        return str(node.value)
    if isinstance(node, Wikilink):
        label = None if node.text is None else _show_nodes(node.text, site)
        return show_link(str(node.title).translate(_UNSHIELD), label, site)
    if isinstance(node, ExternalLink):
        if not node.brackets:
            return str(node.url)
        label = _show_nodes(node.title, site) if node.title is not None else ""
        return label.lstrip() or HOLE
    return str(node)


def _decode(match: re.Match[str]) -> str:
    entity = match[0]
    if ord(entity[1]) > 0x7F:
        return ""  # Hebrew and Arabic names of the right-to-left mark
    shown = unescape(entity)
    return protect(remove_marks(shown))  # what an entity stands for is never markup


def _drop_quotes(line: str) -> str:
    """Drop the marks of bold and italic text; a surplus apostrophe is text.

    As in MediaWiki: four are an apostrophe and bold, and where both marks are odd in number one of
    the bold ones is an apostrophe and italic (`L'''Odissea''` shows "L'Odissea").
    """
    runs = list(_QUOTES.finditer(line))
    lengths = [_mark_length(len(run[0])) for run in runs]
    num_bold = sum(length in (3, 5) for length in lengths)
    num_italic = sum(length in (2, 5) for length in lengths)
    if num_bold % 2 and num_italic % 2:
        lengths = _make_one_italic(line, runs, lengths)
    pieces, position = [], 0
    for run, length in zip(runs, lengths, strict=True):
        pieces.append(line[position : run.start()] + "'" * (len(run[0]) - length))
        position = run.end()
    return "".join([*pieces, line[position:]])


def _mark_length(length: int) -> int:
    return 3 if length == 4 else min(length, 5)


def _make_one_italic(line: str, runs: list[re.Match[str]], lengths: list[int]) -> list[int]:
    """Take one bold mark for an apostrophe and an italic mark; best after a word of one letter."""

    def rank(index: int) -> int:
        before = line[max(0, runs[index].start() - 2) : runs[index].start()]
        if not before or before.endswith(" "):
            return 2
        return 0 if len(before) < 2 or before[0] == " " else 1

    bold = [index for index, length in enumerate(lengths) if length == 3]
    if not bold:
        return lengths
    chosen = min(bold, key=rank)
    return [2 if index == chosen else length for index, length in enumerate(lengths)]
