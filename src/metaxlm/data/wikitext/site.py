"""A wiki, as far as cleaning its pages needs to know it.

Comes in: the head of a dump, up to the end of its `<siteinfo>`. Goes out: a `Site`, which knows the
wiki's language and what the part of a link's target before the colon means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from xml.etree import ElementTree

from metaxlm.data.wikitext import words

_LANGUAGE = re.compile(rb"""<mediawiki\b[^>]*?\bxml:lang=["']([\w-]+)["']""")
_SITEINFO = re.compile(rb"<siteinfo>.*?</siteinfo>", re.DOTALL)
# These are the same in every wiki, whatever its language.
_CANONICAL = {
    "media": -2,
    "special": -1,
    "talk": 1,
    "user": 2,
    "user talk": 3,
    "project": 4,
    "project talk": 5,
    "file": 6,
    "file talk": 7,
    "mediawiki": 8,
    "mediawiki talk": 9,
    "template": 10,
    "template talk": 11,
    "help": 12,
    "help talk": 13,
    "category": 14,
    "category talk": 15,
}
_FILE, _CATEGORY = 6, 14


class Target(Enum):
    """What a link points at."""

    PAGE = "page"
    """An article or any other page: the link's label is part of the text."""
    FILE = "file"
    CATEGORY = "category"
    LANGUAGE = "language"
    """The same article in another language; shown beside the text, not in it."""
    SISTER = "sister"
    """A page of another project, such as a dictionary entry."""


@dataclass(frozen=True)
class Site:
    """A wiki: its language and the names of its namespaces."""

    language: str = ""
    """Its code, or nothing when the dump does not say; then words of all languages count."""
    namespaces: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Folded names (`words.fold`) and their numbers."""

    def namespace(self, title: str) -> int:
        """Return the number of the namespace a title is in; 0 for articles."""
        prefix, colon, _ = title.partition(":")
        return self._number(words.fold(prefix)) or 0 if colon else 0

    def classify(self, target: str) -> Target:
        """Say what the target of a link is; a leading colon makes any target a plain page."""
        prefix, colon, _ = target.partition(":")
        if not colon:
            return Target.PAGE
        name = words.fold(prefix)
        number = self._number(name)
        if number == _FILE:
            return Target.FILE
        if number == _CATEGORY:
            return Target.CATEGORY
        if number is not None:
            return Target.PAGE
        if name in words.LANGUAGES and name != self.language:
            return Target.LANGUAGE
        return Target.SISTER if name in words.SISTERS else Target.PAGE

    def _number(self, name: str) -> int | None:
        """Return the number of a namespace by its folded name, in the wiki's language or others."""
        number = self.namespaces.get(name, _CANONICAL.get(name))
        if number is None and name in words.FILES:
            number = _FILE
        if number is None and name in words.CATEGORIES:
            number = _CATEGORY
        return number


def read_site(head: bytes) -> Site:
    """Read the wiki's language and namespaces from the head of a dump.

    Only the `<siteinfo>` element is parsed: a document type with entities before it is not seen. A
    head without it, or with a broken one, gives a site that knows the names of all languages.
    """
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
                namespaces[words.fold(element.text)] = int(key)
    code = language[1].decode().lower() if language else ""
    return Site(code, MappingProxyType(namespaces))
