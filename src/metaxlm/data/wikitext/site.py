"""The language of a wiki, and the names of its namespaces and templates.

`names.tsv` has, for each language, the current and older names of the file and category namespaces,
the words of redirects, and the templates that mark a disambiguation page. `words.tsv` has lists
that all wikis share.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.resources import files
from types import MappingProxyType
from xml.etree import ElementTree

_DIRECTION_MARKS = re.compile("[\u200e\u200f\u202a-\u202e]")
_LANGUAGE = re.compile(rb"""<mediawiki\b[^>]*?\bxml:lang=["']([\w-]+)["']""")
_SITEINFO = re.compile(rb"<siteinfo>.*?</siteinfo>", re.DOTALL)
_REDIRECT = re.compile(r"\s*#\s*([^\s\[\]:#][^\[\]:#\n]{0,40}?)\s*:?\s*\[\[[^\[\]\n]+\]\]")
_SWITCH = re.compile(r"__disambig__", re.IGNORECASE)
_TEMPLATE = re.compile(r"\{\{\s*([^\s{}|<>\[\]][^{}|<>\[\]\n]{0,80})(?=[|}\n])")
_PREFIX = re.compile(r"(?:template|msg|subst)\s*:\s*")
_NAMESPACES = ("user", "project", "file", "mediawiki", "template", "help", "category")
# The English names of namespaces are valid in every wiki.
_CANONICAL = {"media": -2, "special": -1, "talk": 1} | {
    f"{name}{talk}": 2 * number + bool(talk)
    for number, name in enumerate(_NAMESPACES, 1)
    for talk in ("", " talk")
}
_FILE, _CATEGORY = _CANONICAL["file"], _CANONICAL["category"]


def fold(name: str) -> str:
    """Return a name as MediaWiki compares it: underscores are spaces, and case is ignored."""
    # Turkish İ folds to two characters, and direction marks are not part of a name.
    name = _DIRECTION_MARKS.sub("", name).replace("_", " ").replace("İ", "i")
    return " ".join(name.split()).casefold()


def read_data(name: str) -> str:
    """Return a data file of this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _read_names() -> dict[str, dict[str, frozenset[str]]]:
    text = read_data("names.tsv")
    rows = {row.pop("language"): row for row in csv.DictReader(text.split("\n"), delimiter="\t")}
    return {
        column: {
            language: frozenset(map(fold, row[column].split(", ")))
            for language, row in rows.items()
            if row[column]
        }
        for column in ("file", "category", "redirect", "disambiguation")
    }


WORDS = {
    key: frozenset(words.split())
    for key, words in (line.split("\t") for line in read_data("words.tsv").splitlines())
}
"""Prefixes of links to other wikis, kinds of HTML tags, and languages with variants."""
_NAMES = _read_names()
# Namespaces and redirects have the names of all languages together: they hardly ever clash.
_FILES, _CATEGORIES, _REDIRECTS, _DISAMBIGUATIONS = (
    frozenset[str]().union(*by_language.values()) for by_language in _NAMES.values()
)


class Target(Enum):
    """The kind of page that a link points to."""

    PAGE = "page"
    FILE = "file"
    CATEGORY = "category"
    LANGUAGE = "language"  # the same article in another language, outside of the text
    SISTER = "sister"  # a page of another project, such as a dictionary entry


@dataclass(frozen=True)
class Site:
    """A wiki: its language and the names of its namespaces."""

    language: str = ""  # empty if the dump does not have one: the names of all languages count
    namespaces: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def namespace(self, title: str) -> int:
        """Return the number of a title's namespace; 0 for articles."""
        prefix, colon, _ = title.partition(":")
        return self._number(fold(prefix)) or 0 if colon else 0

    def classify(self, target: str) -> Target:
        """Return the kind of a link's target; a leading colon makes any target a plain page."""
        prefix, colon, _ = target.partition(":")
        if not colon:
            return Target.PAGE
        name = fold(prefix)
        number = self._number(name)
        if number is not None:
            return {_FILE: Target.FILE, _CATEGORY: Target.CATEGORY}.get(number, Target.PAGE)
        if name in WORDS["languages"] and name != self.language:
            return Target.LANGUAGE
        return Target.SISTER if name in WORDS["sisters"] else Target.PAGE

    def _number(self, name: str) -> int | None:
        other = _FILE if name in _FILES else _CATEGORY if name in _CATEGORIES else None
        return self.namespaces.get(name, _CANONICAL.get(name, other))


def read_site(head: bytes) -> Site:
    """Read the wiki's language and namespaces from the `<siteinfo>` in the head of a dump."""
    language = _LANGUAGE.search(head)
    siteinfo = _SITEINFO.search(head)
    namespaces: dict[str, int] = {}
    if siteinfo:
        try:
            root = ElementTree.fromstring(siteinfo[0])
        except (ElementTree.ParseError, ValueError):
            root = ElementTree.Element("siteinfo")
        for element in root.iter("namespace"):
            key = element.get("key", "")
            if element.text and re.fullmatch(r"-?\d{1,6}", key):
                namespaces[fold(element.text)] = int(key)
    code = language[1].decode().lower() if language else ""
    return Site(code, MappingProxyType(namespaces))


def is_redirect(wikitext: str) -> bool:
    """Return whether a page only points to another one, for dumps that do not mark redirects."""
    match = _REDIRECT.match(wikitext)
    return match is not None and fold(match[1]) in _REDIRECTS


def is_disambiguation(wikitext: str, site: Site) -> bool:
    """Return whether a template marks the page as a list of the meanings of its title."""
    if _SWITCH.search(wikitext):
        return True
    names = _DISAMBIGUATIONS
    if site.language:
        by_language = _NAMES["disambiguation"]
        names = by_language.get(site.language, frozenset()) | by_language["en"]
    found = (_PREFIX.sub("", fold(match[1]), count=1) for match in _TEMPLATE.finditer(wikitext))
    return any(name in names or name.endswith(" disambiguation") for name in found)
