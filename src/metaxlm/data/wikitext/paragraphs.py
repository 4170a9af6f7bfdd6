"""Step 3 of cleaning: paragraphs and list items, without tables and headings.

Articles end in lists of links, books and names: an item is kept if it is long, or if it ends like a
sentence and has a few words. Of text in several scripts or spellings, such as
`-{zh-hans:计算机;zh-hant:電腦}-`, one is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from metaxlm.data.wikitext.elements import HOLE
from metaxlm.data.wikitext.site import WORDS
from metaxlm.scripts import UNSPACED_CHARACTERS

MIN_SENTENCE_WORDS = 4  # of a list item that ends like a sentence
MIN_WORDS = 12  # of another list item

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
# With the punctuation of these scripts; between such characters, lines join without a space.
_UNSPACED_SIGN = rf"[{UNSPACED_CHARACTERS}\u3000-\u303f\uff00-\uff60]"
_UNSPACED_JOIN = re.compile(rf"(?<={_UNSPACED_SIGN})\n(?={_UNSPACED_SIGN})")
_UNSPACED = re.compile(f"[{UNSPACED_CHARACTERS}]")
_LETTERS_PER_WORD = 2  # in scripts without spaces
_SENTENCE_END = re.compile(r"[.!?;…。！？；｡।॥۔؟؛։።།၊။៕๚។][\"'”’»«“)）\]」』]*$")
_CATALOG_NUMBER = re.compile(r"\b(?:ISBN|ISSN|OCLC|LCCN|ASIN|PMID|ISMN)\b[\s:]*[\dX]|\bdoi:", re.I)
_LETTER = re.compile(r"[^\W\d_]")

_VARIANT_LANGUAGES = WORDS["variant_languages"]
_MARKUP = re.compile(r"-\{([^{}]*)\}-")
_VARIANT = re.compile(r"(?:^|;)\s*([a-z]{2,3}(?:-[a-z]+)*)\s*:")
# Rules for the conversion of other text, which show nothing themselves.
_SILENT = re.compile(r"^[\sA-Z;-]*[HT-][\sA-Z;-]*$")
_PREFERRED = ("zh-hans", "zh-cn", "zh", "zh-hant", "zh-tw", "zh-hk", "sr-ec", "kk-cyrl")
_MAX_NESTING = 3


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph or a list item, as one line of wikitext."""

    text: str
    is_item: bool = False


def split_blocks(text: str) -> Iterator[Block]:
    """Yield the paragraphs and list items of a page."""
    paragraph: list[str] = []
    if "__" in text:  # `__NOTOC__` and similar switches, which have other names in each language
        text = _SWITCH.sub(lambda match: match[0] if match[0] in _MACROS else "", text)
    for line in _drop_tables(text.split("\n")):
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
        parts = [_ITEM.sub("", line, count=1)]
        if first == ";":  # a term and its definition on one line are two items
            parts = [part for part in _DEFINITION.split(parts[0], maxsplit=1) if part.strip()]
        return [Block(part, is_item=True) for part in parts]
    if first in " \t":
        return [Block(bare, is_item=True)]  # preformatted: code, or an accidental indent
    if first == "|" or (first == "=" and _HEADING.fullmatch(line)):
        return []
    if first == "'" and _BOLD.fullmatch(bare):
        return [Block(bare, is_item=True)]  # used as a heading
    if first == "-" and (rule := _RULE.match(line)):
        return [Block(line[rule.end() :])]
    return None


def _join(lines: list[str]) -> str:
    return _UNSPACED_JOIN.sub("", "\n".join(lines)).replace("\n", " ")


def _drop_tables(lines: list[str]) -> Iterator[str]:
    """Yield the lines outside of tables; a heading or a new paragraph ends an unclosed table."""
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
    starts: list[int] = []
    for number, line in enumerate(lines):
        if _TABLE_START.match(line):
            starts.append(number)
        elif starts and _TABLE_END.match(line):
            starts.pop()
    return starts


def is_prose(text: str) -> bool:
    """Return whether a list item reads like running text; a book with its ISBN does not."""
    if _CATALOG_NUMBER.search(text):
        return False
    # In scripts without spaces, two letters count as a word.
    num_words = len(_UNSPACED.findall(text)) // _LETTERS_PER_WORD
    num_words += sum(bool(_LETTER.search(word)) for word in _UNSPACED.sub(" ", text).split())
    # Thai and Lao have no mark at the end of a sentence: only the length counts.
    return num_words >= (MIN_SENTENCE_WORDS if _SENTENCE_END.search(text) else MIN_WORDS)


def choose_variants(text: str, language: str) -> str:
    """Replace each choice between variants by one of them, always by the same rule."""
    if "-{" not in text or (language and language not in _VARIANT_LANGUAGES):
        return text
    for _ in range(_MAX_NESTING):
        text = _MARKUP.sub(_choose, text)
    return text


def _choose(match: re.Match[str]) -> str:
    content = match[1]
    flags, bar, rest = content.partition("|")
    if bar and not re.search(r"[:\[\]]", flags):
        content = "" if _SILENT.match(flags) else rest
    parts = _VARIANT.split(content)
    if len(parts) < 3:
        return content
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    code = next((code for code in _PREFERRED if code in texts), parts[1])
    return texts[code].strip().removesuffix(";")
