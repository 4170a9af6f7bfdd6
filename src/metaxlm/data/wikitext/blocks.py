"""Third step: tables, headings, lists and paragraphs.

Comes in: wikitext without tags and templates. Goes out: its blocks, each one line of wikitext: a
paragraph (lines that follow each other are one paragraph) or an item of a list. Tables, headings
and rows of tables that a template began are gone. It works line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from metaxlm.data.wikitext.marks import HOLE

_HEADING = re.compile(r"=.*=[ \t]*")
_BOLD = re.compile(r"'''(?:(?!''').)*'''[:：]?")
_RULE = re.compile(r"-{4,}")
_TABLE_START = re.compile(r"[ \t:*#]*\{\|")
_TABLE_LINE = re.compile(r"[ \t]*[|!]")
_TABLE_END = re.compile(r"[ \t]*\|\}")
_ITEM = re.compile(r"[*#:;]+[ \t]*")
_DEFINITION = re.compile(r"(?<!//) ?:(?!//)(?=[ \t])|[ \t]+:")
_SWITCH = re.compile(r"__(?=[^\W\d_])[^\sa-z<>\[\]{}|'\"()=.,;:]{2,40}?__")
_MACROS = frozenset(["__FILE__", "__LINE__", "__DATE__", "__TIME__", "__STDC__", "__VA_ARGS__"])
# Scripts that put no space between words; their lines join without one.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff60"
)
_UNSPACED_JOIN = re.compile(rf"(?<=[{_UNSPACED}])\n(?=[{_UNSPACED}])")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph or an item of a list, as one line of wikitext."""

    text: str
    is_item: bool = False


def split_blocks(text: str) -> Iterator[Block]:
    """Yield the paragraphs and list items of a page."""
    paragraph: list[str] = []
    for line in _drop_tables(_drop_switches(text).split("\n")):
        blocks = _read_line(line)
        if blocks is None:
            paragraph.append(line.strip())
            continue
        if paragraph:
            yield Block(_join(paragraph))
            paragraph = []
        yield from blocks
    if paragraph:
        yield Block(_join(paragraph))


def _read_line(line: str) -> list[Block] | None:
    """Return the blocks of a line that ends a paragraph; None for a line of a paragraph."""
    bare = line.strip()
    if not bare.strip(f"{HOLE} "):
        return []
    first = line[0]
    if first in "*#:;":
        return [Block(part, is_item=True) for part in _split_item(line)]
    if first in " \t":
        return [Block(bare, is_item=True)]  # shown as typed: code, or an indent by mistake
    if first == "|" or (first == "=" and _HEADING.fullmatch(line)):
        return []
    if first == "'" and _BOLD.fullmatch(bare):
        return [Block(bare, is_item=True)]  # a heading in all but name
    if first == "-" and (rule := _RULE.match(line)):
        return [Block(line[rule.end() :])]
    return None


def _join(lines: list[str]) -> str:
    return _UNSPACED_JOIN.sub("", "\n".join(lines)).replace("\n", " ")


def _split_item(line: str) -> list[str]:
    """Return the text of an item; a term and its definition on one line are two."""
    text = _ITEM.sub("", line, count=1)
    if line.startswith(";"):
        return [part for part in _DEFINITION.split(text, maxsplit=1) if part.strip()]
    return [text]


def _drop_switches(text: str) -> str:
    """Drop `__NOTOC__` and the like, which every language has words of its own for."""
    if "__" not in text:
        return text
    return _SWITCH.sub(lambda match: match[0] if match[0] in _MACROS else "", text)


def _drop_tables(lines: list[str]) -> Iterator[str]:
    """Yield the lines that stand outside of tables.

    A table without an end goes on as long as its lines look like rows: to the first heading, or to
    the first line after a blank one that is not a row.
    """
    unclosed = _find_unclosed(lines)
    depth, after_blank = 0, False
    for number, line in enumerate(lines):
        if _TABLE_START.match(line):
            depth += 1
        elif depth and _TABLE_END.match(line):
            depth -= 1
            rest = line.partition("|}")[2]
            yield f"{HOLE}{rest}" if not depth else ""
        elif not depth:
            yield line
        elif unclosed and number >= unclosed[0]:
            is_row = _TABLE_LINE.match(line) or not line.strip()
            if _HEADING.fullmatch(line) or (after_blank and not is_row):
                depth = 0
                unclosed = [start for start in unclosed if start > number]
                yield HOLE
                yield line
        after_blank = not line.strip()


def _find_unclosed(lines: list[str]) -> list[int]:
    """Return the numbers of the lines where tables start that never end."""
    starts: list[int] = []
    for number, line in enumerate(lines):
        if _TABLE_START.match(line):
            starts.append(number)
        elif starts and _TABLE_END.match(line):
            starts.pop()
    return starts
