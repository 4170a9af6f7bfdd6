"""Steps 3 to 5 of cleaning: paragraphs and list items, and their text without links and marks.

Articles end in lists of links, books and names: an item is kept if it is long, or if it ends like a
sentence and has a few words. Of text in several scripts or spellings, such as
`-{zh-hans:计算机;zh-hant:電腦}-`, one is kept.

Patterns replace plain links, `[[target|label]]` and `[http://... label]`, which almost all are.
mwparserfromhell reads the others: brackets in labels, nested links, all schemes. Its time is
quadratic in the number of unclosed links, so a line with many of them only loses its brackets.

`tidy` removes invisible characters and what the removed markup leaves behind. It changes empty
parentheses and repeated commas only around holes: `main()` in an article about programs stays.
"""

import re
from collections.abc import Iterator
from html import unescape

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from metaxlm.data.wikitext.removal import HOLE, protect, remove_marks, unprotect
from metaxlm.data.wikitext.site import WORDS, Site, Target
from metaxlm.scripts import SOUTHEAST_ASIAN, UNSPACED_CHARACTERS

Block = tuple[str, bool]  # a paragraph as one line of wikitext, and whether it is a list item
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
_MAX_VARIANTS = 3

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
            yield _join_lines(paragraph), False
            paragraph = []
        yield from blocks
    if paragraph:
        yield _join_lines(paragraph), False


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
        return [(part, True) for part in parts]
    if first in " \t":
        return [(bare, True)]  # preformatted: code, or an accidental indent
    if first == "|" or (first == "=" and _HEADING.fullmatch(line)):
        return []
    if first == "'" and _BOLD.fullmatch(bare):
        return [(bare, True)]  # used as a heading
    if first == "-" and (rule := _RULE.match(line)):
        return [(line[rule.end() :], False)]
    return None


def _join_lines(lines: list[str]) -> str:
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
    for _ in range(_MAX_VARIANTS):
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
    if not text.isprintable():  # before brackets, which invisible characters may separate
        text = _ZERO_WIDTH_SPACE.sub("", _INVISIBLE.sub("", text))
    text = _BRACKETS.sub(lambda run: "" if _PAIRED.search(run[0]) else run[0], text)
    if not text.isprintable():
        text = unprotect(text)
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
