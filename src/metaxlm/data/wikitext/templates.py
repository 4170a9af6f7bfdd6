"""Templates that stand for words of the sentence they are in.

Comes in: what stands between the braces of a template. Goes out: the text a reader sees instead, or
nothing, which is right for most: boxes, notes, navigation, coordinates. The ones below are
different; without them a sentence has a gap (`The river is {{convert|3|km|mi}} long`). They are
those whose text is among their arguments and whose name means the same in all wikis that have it.
What a template computes, such as the same length in miles, is left out.
"""

from __future__ import annotations

import re

from metaxlm.data.wikitext.words import fold

MAX_LENGTH = 4_000
"""Longer templates are boxes, and are not looked into."""

# `$1` is the first argument without a name; of the forms between bars the first that is not empty.
_FORMS = {
    "$1": """
        nowrap, nobr, nobreak, small, smaller, smallcaps, sc, big, larger, nobold, noitalic, nobots,
        abbr, abréviation, abk, tooltip, comment, hint, sub, sup, exp, serif, mono, code, kbd, em,
        ruby, ruby-ja, ふりがな, 読み仮名, nihongo, nihongo2, siglo, formatnum, lc, uc, ucfirst,
        lcfirst, nowiki, unicode, script, esd, okina, hebrew, arabic, polytonic, fremdsprache""",
    "$2": "lang, langue, langx, transl, transliteration, llang, rtl-lang",
    "$1 $2": "convert, cvt, convertir, unité, unit, nombre, num, val, ship",
    "$1 $2 $3": "date, date-, fecha",
    "$0 $1": "hms, uss, rms, hmas, hmcs, ss",
    "$1/$2": "frac, fraction, sfrac",
    "$lt|$label|$texte|$1": "ill, interlanguage link, lien, 仮リンク",
    "$2|$1": "нп, нп1, нп2, нп3, нп4, нп5, не переведено, не переведено 2, не переведено 3",
    "$name|$1": "flag, flagu, flagcountry, флаг, флагификация",
    "$text|$quote|$1": "quote, quotation, blockquote, cquote, zitat, cita, citat, цитата",
    "„$1“": '"',
    "«$1»": "«, «»",
    "c. $1": "circa, c.",
    "As of $1": "as of",
    "–": "ndash, –, en dash, snd, spnd, spaced ndash, spaced en dash",
    "—": "mdash, —, em dash",
    "·": "·, •, dot, middot, bullet",
    " ": "nbsp, space, spaces, thinsp, sp, clear-space",
    "'": "'",
    "'s": "'s",
    "=": "=",
    "|": "!",
    "||": "!!",
    "{|": "(!",
    "|}": "!)",
    "|-": "!-",
}
_FORM_OF = {fold(name): form for form, names in _FORMS.items() for name in names.split(",")}
_BLOCKS = frozenset(map(fold, _FORMS["$text|$quote|$1"].split(",")))
# `{{lang-de|...}}`, and links to articles that exist only in another wiki.
_FAMILIES = ((re.compile(r"lang-[a-z-]+2?"), "$1"), (re.compile(r"link-[a-z-]+"), "$1"))
_PLACE = re.compile(r"\$([a-z]+|\d)")
_BAR = re.compile(r"\[\[|\]\]|\|")
_NAMED = re.compile(r"\s*([\w -]{1,30}?)\s*=(?!=)")
_UNITS = {
    "km2": "km²",
    "m2": "m²",
    "m3": "m³",
    "sqmi": "sq mi",
    "sqkm": "km²",
    "C": "°C",
    "F": "°F",
}


def show_template(content: str) -> str:
    """Return the text a reader sees for a template; mostly nothing.

    `content` is what stands between the braces, with the templates inside it already replaced.
    """
    head, bar, rest = content.partition("|")
    name, colon, value = head.partition(":")
    if colon and "$1" in _FORM_OF.get(fold(name), ""):
        return value.strip()  # {{formatnum:1234}}
    folded = fold(head)
    form = _FORM_OF.get(folded)
    if form is None:
        form = next((form for family, form in _FAMILIES if family.fullmatch(folded)), None)
    if form is None:
        return ""
    arguments = _read_arguments(rest) if bar else {}
    arguments["0"] = head.strip()
    shown = _fill(form, arguments)
    return f"\n\n{shown}\n\n" if folded in _BLOCKS else shown


def _fill(form: str, arguments: dict[str, str]) -> str:
    """Put arguments into the first form whose places can be filled."""
    if "$" not in form:
        return form
    for choice in form.split("|"):
        names = _PLACE.findall(choice)
        if arguments.get(next((n for n in names if n != "0"), names[0])):
            shown = _PLACE.sub(lambda match: arguments.get(match[1], ""), choice)
            return " ".join(shown.split(" ")).strip()
    return ""


def _read_arguments(text: str) -> dict[str, str]:
    """Return arguments by name, or by number where they have none."""
    arguments: dict[str, str] = {}
    number = 0
    for part in _split_at_bars(text):
        named = _NAMED.match(part)
        if named:
            arguments[named[1]] = part[named.end() :].strip()
        else:
            number += 1
            arguments[str(number)] = _UNITS.get(part.strip(), part.strip())
    return arguments


def _split_at_bars(text: str) -> list[str]:
    """Split at the bars that are not those of a link."""
    parts, start, depth = [], 0, 0
    for match in _BAR.finditer(text):
        if match[0] == "|":
            if depth == 0:
                parts.append(text[start : match.start()])
                start = match.end()
        else:
            depth = max(0, depth + (1 if match[0] == "[[" else -1))
    return [*parts, text[start:]]
