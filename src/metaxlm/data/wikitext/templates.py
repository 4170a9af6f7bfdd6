"""Step 2 of cleaning: templates, and links to files, categories and other languages.

One pass matches the brackets with a stack. A heading ends all open brackets: an unclosed one costs
at most its section, and only what looks like a template or a caption. Most templates show nothing
that belongs to a sentence. The ones in `templates.tsv` do (`{{convert|3|km|mi}}`): their text is an
argument, and their name means the same in every wiki that has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from metaxlm.data.wikitext.elements import BROKEN_LINK, BROKEN_TEMPLATE, HOLE
from metaxlm.data.wikitext.site import Site, Target, fold, read_data

MAX_LENGTH = 4_000  # a longer template is a box and shows nothing

# In `templates.tsv`, `$1` is the first unnamed argument, and the first nonempty form between bars
# is shown.
_FORMS = dict(line.split("\t") for line in read_data("templates.tsv").splitlines())
_FORM_OF = {fold(name): form for form, names in _FORMS.items() for name in names.split(",")}
_BLOCKS = frozenset(map(fold, _FORMS["$text|$quote|$1"].split(",")))
# `{{lang-de|...}}`, and links to articles that exist only in another wiki.
_FAMILIES = ((re.compile(r"lang-[a-z-]+2?"), "$1"), (re.compile(r"link-[a-z-]+"), "$1"))
_PLACE = re.compile(r"\$([a-z]+|\d)")
_BAR = re.compile(r"\[\[|\]\]|\|")
_NAMED = re.compile(r"\s*([\w -]{1,30}?)\s*=(?!=)")
_UNITS = {"km2": "km²", "m2": "m²", "m3": "m³", "sqmi": "sq mi", "sqkm": "km²"}
_UNITS |= {"C": "°C", "F": "°F"}
# Each branch starts with another character, so that the search can skip all others.
_TOKEN = re.compile(r"\{\{+|\}\}+|\[\[|\]\]+|\n==[^\n]*==[ \t]*(?=\n|\Z)")
# An unclosed template continues as long as lines look like its parameters.
_BROKEN = re.compile(
    rf"{BROKEN_TEMPLATE}[^\n{BROKEN_TEMPLATE}]*(?:\n[ \t]*[|!}}][^\n]*)*|{BROKEN_LINK}[^\n]*"
)
_KEPT = (Target.PAGE, Target.SISTER)


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
    for match in _TOKEN.finditer(text):
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
    is_short = sum(map(len, pieces)) <= MAX_LENGTH
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
    families = (form for family, form in _FAMILIES if family.fullmatch(folded))
    form = _FORM_OF.get(folded) or next(families, None)
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
            return " ".join(shown.split(" ")).strip()
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
