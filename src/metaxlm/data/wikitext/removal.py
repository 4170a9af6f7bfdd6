"""Steps 1 and 2 of cleaning: remove elements and tags, templates, and links without text.

Elements: the text is read from left to right, as MediaWiki does. Elements without readable text
leave a `HOLE`, inline tags nothing, and block tags a line break.

Brackets: one pass matches them with a stack. A heading ends all open brackets: an unclosed one
costs at most its section, and only what looks like a template or a caption. Most templates show
nothing that belongs to a sentence. The ones in `templates.tsv` do (`{{convert|3|km|mi}}`): their
text is an argument, and their name means the same in every wiki that has it.

While a page is cleaned, the noncharacters U+FDD0 to U+FDEF are marks. Text may not contain them:
`remove_marks` takes them out of a page first, and `unprotect` removes the last ones at the end.
"""

import re
from dataclasses import dataclass

from metaxlm.data.wikitext.site import WORDS, Site, Target, fold, read_data

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
_TAG = re.compile(
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

MAX_TEMPLATE = 4_000  # a longer template is a box and shows nothing

# In `templates.tsv`, `$1` is the first unnamed argument, and the first nonempty form between bars
# is shown.
_FORMS = dict(line.split("\t") for line in read_data("templates.tsv").splitlines())
_FORM_OF = {fold(name): form for form, names in _FORMS.items() for name in names.split(",")}
_BLOCKS = frozenset(map(fold, _FORMS["$text|$quote|$1"].split(",")))
# `{{lang-de|...}}`, and links to articles that exist only in another wiki.
_FAMILY = re.compile(r"lang-[a-z-]+2?|link-[a-z-]+")
_PLACE = re.compile(r"\$([a-z]+|\d)")
_BAR = re.compile(r"\[\[|\]\]|\|")
_NAMED = re.compile(r"\s*([\w -]{1,30}?)\s*=(?!=)")
_UNITS = {
    "km2": "km²", "m2": "m²", "m3": "m³", "sqmi": "sq mi", "sqkm": "km²", "C": "°C", "F": "°F",
}  # fmt: skip
# Each branch starts with another character, so that the search can skip all others.
_BRACKET = re.compile(r"\{\{+|\}\}+|\[\[|\]\]+|\n==[^\n]*==[ \t]*(?=\n|\Z)")
# An unclosed template continues as long as lines look like its parameters.
_BROKEN = re.compile(
    rf"{BROKEN_TEMPLATE}[^\n{BROKEN_TEMPLATE}]*(?:\n[ \t]*[|!}}][^\n]*)*|{BROKEN_LINK}[^\n]*"
)
_KEPT = (Target.PAGE, Target.SISTER)


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

    def run(self) -> str:
        pieces, position = [], 0
        while match := _TAG.search(self._text, position):
            pieces.append(self._text[position : match.start()])
            if match["comment"]:
                position = self._skip_comment(match)
            else:
                replacement, position = self._replace(match, match["name"].lower())
                pieces.append(replacement)
        return "".join([*pieces, self._text[position:]])

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


@dataclass(slots=True)
class _Frame:
    index: int  # of the bracket in the output
    braces: int  # that are open; 0 for a link


def remove_brackets(text: str, site: Site) -> str:
    """Remove or show templates, and remove links without text; keep other links unchanged."""
    if "{{" not in text and "[[" not in text:
        return text.replace("}}", "")
    out: list[str] = []
    frames: list[_Frame] = []
    text, position = f"\n{text}", 0
    for match in _BRACKET.finditer(text):
        out.append(text[position : match.start()])
        position = match.end()
        token = match[0]
        if token == "[[":
            frames.append(_Frame(len(out), 0))
            out.append("[[")
        elif token[0] == "]":
            _close_links(out, frames, len(token), site)
        elif token[0] == "{":
            frames.append(_Frame(len(out), len(token)))
            out.append(token)
        elif token[0] == "}":
            _close_templates(out, frames, len(token))
        else:
            _break_open(out, frames, site)
            out.append(token)
    out.append(text[position:])
    _break_open(out, frames, site)
    return _BROKEN.sub(HOLE, "".join(out))


def _close_links(out: list[str], frames: list[_Frame], brackets: int, site: Site) -> None:
    """Match closing brackets in twos; a third one closes an external link, if one is open."""
    is_web = brackets % 2 == 1 and "[" in out[-1]
    out.append("]" if is_web else "")
    for _ in range(brackets // 2):
        _close_link(out, frames, site)
    out.append("]" if brackets % 2 == 1 and not is_web else "")


def _close_link(out: list[str], frames: list[_Frame], site: Site) -> None:
    """Close the innermost link, unless it is outside of an open template."""
    is_open = bool(frames) and not frames[-1].braces
    index = frames.pop().index if is_open else 0
    if not is_open or _classify(out, index, site) in _KEPT:
        out.append("]]")
    else:
        out[index:] = [HOLE]


def _classify(out: list[str], index: int, site: Site) -> Target:
    """Return the kind of the link at an index; its target is in the part after its brackets."""
    if index + 1 >= len(out):
        return Target.PAGE
    return site.classify(out[index + 1].partition("|")[0].strip())


def _close_templates(out: list[str], frames: list[_Frame], braces: int) -> None:
    """Match closing braces with open ones, in twos and threes as MediaWiki does."""
    while braces >= 2:
        # Unclosed links inside a template do not keep it open.
        depth = len(frames) - 1
        while depth >= 0 and not frames[depth].braces:
            depth -= 1
        if depth < 0:
            return
        del frames[depth + 1 :]
        frame = frames[-1]
        matched = 3 if braces >= 3 and frame.braces >= 3 else 2
        braces -= matched
        frame.braces -= matched
        shown = _show(out, frame.index) if matched == 2 else ""
        del out[frame.index :]
        if frame.braces < 2:
            frames.pop()
        out += ["{" * frame.braces, shown or HOLE]
    out.append("}" * braces)  # `{{!}}}` is the end of a table


def _show(out: list[str], index: int) -> str:
    pieces = out[index + 1 :]
    is_short = sum(map(len, pieces)) <= MAX_TEMPLATE
    return show_template("".join(pieces).replace(HOLE, "")) if is_short else ""


def _break_open(out: list[str], frames: list[_Frame], site: Site) -> None:
    """Mark open templates and links as broken; links with text lose only their brackets, later."""
    for frame in frames:
        if frame.braces:
            out[frame.index] = BROKEN_TEMPLATE
        elif _classify(out, frame.index, site) not in _KEPT:
            out[frame.index] = BROKEN_LINK
    frames.clear()


def show_template(content: str) -> str:
    """Return the text that a reader sees for the text between a template's braces, mostly none."""
    head, bar, rest = content.partition("|")
    name, colon, value = head.partition(":")
    if colon and "$1" in _FORM_OF.get(fold(name), ""):
        return value.strip()  # {{formatnum:1234}}
    folded = fold(head)
    form = _FORM_OF.get(folded) or ("$1" if _FAMILY.fullmatch(folded) else None)
    if form is None:
        return ""
    arguments = _read_arguments(rest) if bar else {}
    arguments["0"] = head.strip()
    shown = _fill(form, arguments)
    return f"\n\n{shown}\n\n" if folded in _BLOCKS else shown


def _fill(form: str, arguments: dict[str, str]) -> str:
    if "$" not in form:
        return form
    for choice in form.split("|"):
        names = _PLACE.findall(choice)
        if arguments.get(next((n for n in names if n != "0"), names[0])):
            shown = _PLACE.sub(lambda match: arguments.get(match[1], ""), choice)
            return shown.strip()
    return ""


def _read_arguments(text: str) -> dict[str, str]:
    arguments: dict[str, str] = {}
    number = 0
    for part in _split_at_bars(text):
        if named := _NAMED.match(part):
            arguments[named[1]] = part[named.end() :].strip()
        else:
            number += 1
            arguments[str(number)] = _UNITS.get(part.strip(), part.strip())
    return arguments


def _split_at_bars(text: str) -> list[str]:
    parts, start, depth = [], 0, 0
    for match in _BAR.finditer(text):
        if match[0] == "|":
            if depth == 0:
                parts.append(text[start : match.start()])
                start = match.end()
        else:
            depth = max(0, depth + (1 if match[0] == "[[" else -1))
    return [*parts, text[start:]]
