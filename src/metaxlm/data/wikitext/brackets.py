"""Second step: templates, and links to files and categories.

Comes in: wikitext without tags. Goes out: wikitext in which templates are gone or replaced by their
text, and links to files, categories and other languages are gone with all that is inside them. It
matches brackets with a stack in one pass, so depth costs nothing. A heading ends whatever is open:
an unclosed bracket costs at most its section, and is removed as far as it looks like a template or
a caption.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from metaxlm.data.wikitext.marks import BROKEN_LINK, BROKEN_TEMPLATE, HOLE
from metaxlm.data.wikitext.site import Site, Target
from metaxlm.data.wikitext.templates import MAX_LENGTH, show_template

# Each branch starts with a letter of its own, so that the search can skip all others.
_TOKEN = re.compile(r"\{\{+|\}\}+|\[\[|\]\]+|\n==[^\n]*==[ \t]*(?=\n|\Z)")
# An unclosed template goes on as long as lines look like its parameters.
_BROKEN = re.compile(
    rf"{BROKEN_TEMPLATE}[^\n{BROKEN_TEMPLATE}]*(?:\n[ \t]*[|!}}][^\n]*)*|{BROKEN_LINK}[^\n]*"
)
_KEPT = (Target.PAGE, Target.SISTER)


@dataclass(slots=True)
class _Frame:
    """An open bracket: where it stands in the output, and how many braces it still has."""

    index: int
    braces: int


def remove_brackets(text: str, site: Site) -> str:
    """Remove templates and links that are no text; keep other links as they are."""
    if "{{" not in text and "[[" not in text:
        return text.replace("}}", "")
    out: list[str] = []
    frames: list[_Frame] = []
    text = f"\n{text}"
    position = 0
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
    """Match closing brackets in twos; a third one ends a link to the web, if one is open."""
    is_web = brackets % 2 == 1 and "[" in out[-1]
    out.append("]" if is_web else "")
    for _ in range(brackets // 2):
        _close_link(out, frames, site)
    out.append("]" if brackets % 2 == 1 and not is_web else "")


def _close_link(out: list[str], frames: list[_Frame], site: Site) -> None:
    """Close the innermost link, if it is not outside of an open template."""
    if not frames or frames[-1].braces:
        out.append("]]")
        return
    index = frames.pop().index
    if _classify(out, index, site) in _KEPT:
        out.append("]]")
    else:
        del out[index:]
        out.append(HOLE)


def _classify(out: list[str], index: int, site: Site) -> Target:
    """Say what the link at an index is; its target stands in the piece after its brackets."""
    if index + 1 >= len(out):
        return Target.PAGE
    return site.classify(out[index + 1].partition("|")[0].strip())


def _close_templates(out: list[str], frames: list[_Frame], braces: int) -> None:
    """Match closing braces with open ones, in twos and threes as MediaWiki does."""
    while braces >= 2:
        # Links left open inside a template do not keep it open.
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
        if frame.braces >= 2:
            out.append("{" * frame.braces)
        else:
            frames.pop()
            out.append("{" * frame.braces)
        out.append(shown or HOLE)
    out.append("}" * braces)  # `{{!}}}` is the end of a table


def _show(out: list[str], index: int) -> str:
    """Return the text of the template whose braces stand at an index of the output."""
    length = 0
    for piece in out[index + 1 :]:
        length += len(piece)
        if length > MAX_LENGTH:
            return ""
    return show_template("".join(out[index + 1 :]).replace(HOLE, ""))


def _break_open(out: list[str], frames: list[_Frame], site: Site) -> None:
    """Mark what is still open as broken; other links lose only their brackets, later."""
    for frame in frames:
        if frame.braces:
            out[frame.index] = BROKEN_TEMPLATE
        elif _classify(out, frame.index, site) not in _KEPT:
            out[frame.index] = BROKEN_LINK
    frames.clear()
