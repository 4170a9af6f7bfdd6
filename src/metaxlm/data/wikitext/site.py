"""What cleaning has to know about a wiki: its language, and the names of namespaces and templates.

`names.tsv` has, for each language, the names of the file and category namespaces (the current names
and the older ones, as in `[[Bild:...]]` for `[[Datei:...]]`), the words of redirects, and the
templates that mark a disambiguation page.
"""

from __future__ import annotations

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


def read_words(words: str) -> frozenset[str]:
    """Return words that are separated by white space."""
    return frozenset(words.split())


# Prefixes of links to the same article in another language.
_LANGUAGES = read_words(
    """
    aa ab ace ady af ak als alt am ami an ang ann anp ar arc ary arz as ast atj av avk awa ay az
    azb ba ban bar bat-smg bbc bcl bdr be be-tarask be-x-old bew bg bh bi bjn blk bm bn bo bpy
    br bs btm bug bxr ca cbk-zam cdo ce ceb ch cho chr chy ckb co cr crh cs csb cu cv cy da dag
    de dga din diq dsb dtp dty dv dz ee el eml en eo es et eu ext fa fat ff fi fiu-vro fj fo fon
    fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gsw gu guc gur guw gv ha hak
    haw he hi hif ho hr hsb ht hu hy hyw hz ia iba id ie ig igl ii ik ilo inh io is it iu ja jam
    jbo jv ka kaa kab kbd kbp kcg kg kge ki kj kk kl km kn knc ko koi kr krc ks ksh ku kus kv kw
    ky la lad lb lbe lez lfn lg li lij lld lmo ln lo lrc lt ltg lv lzh mad mai map-bms mdf mg mh
    mhr mi min mk ml mn mni mnw mo mos mr mrj ms mt mus mwl my myv mzn na nah nan nap nb nds
    nds-nl ne new ng nia nl nn no nov nqo nr nrm nso nup nv ny oc olo om or os pa pag pam pap
    pcd pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy rn ro roa-rup roa-tara rsk ru rue
    rup rw sa sah sat sc scn sco sd se sg sgs sh shi shn shy si simple sk skr sl sm smn sn so sq
    sr srn ss st stq su sv sw szl szy ta tay tcy tdd te tet tg th ti tig tk tl tly tn to tpi tr
    trv ts tt tum tw ty tyv udm ug uk ur uz ve vec vep vi vls vo vro wa war wo wuu xal xh xmf yi
    yo yue za zea zgh zh zh-classical zh-min-nan zh-yue zu
    """
)
# Prefixes of links to other projects.
_SISTERS = read_words(
    """
    b betawikiversity bugzilla c commons d doi foundation incubator m mail mediazilla meta
    metawiki metawikipedia mw n outreach phab phabricator q s species strategy test toollabs
    tools v voy w wikibooks wikidata wikimedia wikinews wikipedia wikiquote wikisource
    wikispecies wikitech wikiversity wikivoyage wikt wiktionary wmf
    """
)


def fold(name: str) -> str:
    """Return a name as MediaWiki compares it: underscores are spaces, and case is ignored."""
    # Turkish İ folds to two characters, and direction marks are not part of a name.
    name = _DIRECTION_MARKS.sub("", name).replace("_", " ").replace("İ", "i")
    return " ".join(name.split()).casefold()


def _read_names() -> dict[str, dict[str, frozenset[str]]]:
    """Return the folded names by column and language."""
    text = files(__package__).joinpath("names.tsv").read_text(encoding="utf-8")
    rows = {row.pop("language"): row for row in csv.DictReader(text.split("\n"), delimiter="\t")}
    return {
        column: {
            language: frozenset(map(fold, row[column].split(", ")))
            for language, row in rows.items()
            if row[column]
        }
        for column in ("file", "category", "redirect", "disambiguation")
    }


_NAMES = _read_names()
# Namespaces and redirects have the names of all languages together: they hardly ever clash.
_FILES = frozenset().union(*_NAMES["file"].values())
_CATEGORIES = frozenset().union(*_NAMES["category"].values())
_REDIRECTS = frozenset().union(*_NAMES["redirect"].values())
_DISAMBIGUATIONS = frozenset().union(*_NAMES["disambiguation"].values())


class Target(Enum):
    """The kind of page that a link points to."""

    PAGE = "page"
    """An article or another page of the wiki. The label of the link is part of the text."""
    FILE = "file"
    CATEGORY = "category"
    LANGUAGE = "language"
    """The same article in another language, which a wiki shows outside of the text."""
    SISTER = "sister"
    """A page of another project, such as a dictionary entry."""


@dataclass(frozen=True)
class Site:
    """A wiki: its language and the names of its namespaces."""

    language: str = ""
    """Its code. Empty if the dump does not have one; then the names of all languages count."""
    namespaces: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Numbers of the namespaces by folded name."""

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
        if name in _LANGUAGES and name != self.language:
            return Target.LANGUAGE
        return Target.SISTER if name in _SISTERS else Target.PAGE

    def _number(self, name: str) -> int | None:
        """Return the number of a namespace by its folded name in any language."""
        number = self.namespaces.get(name, _CANONICAL.get(name))
        if number is None and name in _FILES:
            return _FILE
        if number is None and name in _CATEGORIES:
            return _CATEGORY
        return number


def read_site(head: bytes) -> Site:
    """Read the wiki's language and namespaces from the head of a dump.

    The function parses only the `<siteinfo>` element, not a document type before it. Without a
    valid element, the site knows the names of all languages.
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
                namespaces[fold(element.text)] = int(key)
    code = language[1].decode().lower() if language else ""
    return Site(code, MappingProxyType(namespaces))


def is_redirect(wikitext: str) -> bool:
    """Return whether a page only points to another one, in the words of any language.

    Dumps mark redirects; this finds those in dumps that do not.
    """
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
    for match in _TEMPLATE.finditer(wikitext):
        name = _PREFIX.sub("", fold(match[1]), count=1)
        if name in names or name.endswith(" disambiguation"):
            return True
    return False
