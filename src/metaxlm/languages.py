"""The languages metaxlm knows by name, and how often each is drawn.

The two-letter codes are the ones the paper's tables use; the three-letter ones name Tatoeba's
files. A corpus may use any other code: it is then shown as the code itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """One row of the table below."""

    code: str
    name: str
    iso3: str
    script: str


_TABLE = """
af  Afrikaans   afr Latin
ar  Arabic      ara Arabic
bg  Bulgarian   bul Cyrillic
bn  Bengali     ben Bengali
de  German      deu Latin
el  Greek       ell Greek
en  English     eng Latin
es  Spanish     spa Latin
et  Estonian    est Latin
eu  Basque      eus Latin
fa  Persian     pes Arabic
fi  Finnish     fin Latin
fr  French      fra Latin
he  Hebrew      heb Hebrew
hi  Hindi       hin Devanagari
hu  Hungarian   hun Latin
id  Indonesian  ind Latin
it  Italian     ita Latin
ja  Japanese    jpn Japanese
jv  Javanese    jav Latin
ka  Georgian    kat Georgian
kk  Kazakh      kaz Cyrillic
ko  Korean      kor Hangul
ml  Malayalam   mal Malayalam
mr  Marathi     mar Devanagari
ms  Malay       zsm Latin
my  Burmese     mya Myanmar
nl  Dutch       nld Latin
pt  Portuguese  por Latin
ro  Romanian    ron Latin
ru  Russian     rus Cyrillic
sw  Swahili     swh Latin
ta  Tamil       tam Tamil
te  Telugu      tel Telugu
th  Thai        tha Thai
tl  Tagalog     tgl Latin
tr  Turkish     tur Latin
ur  Urdu        urd Arabic
vi  Vietnamese  vie Latin
yo  Yoruba      yor Latin
zh  Chinese     cmn Han
"""

LANGUAGES: dict[str, Language] = {
    fields[0]: Language(*fields) for fields in map(str.split, _TABLE.strip().splitlines())
}
"""All known languages by their two-letter code."""


def language_name(code: str) -> str:
    """Return the English name of a language, or its code when the table does not have it."""
    known = LANGUAGES.get(code)
    return known.name if known else code


def rebalance(sizes: Mapping[str, float], alpha: float) -> dict[str, float]:
    """Return the rebalanced distribution over languages, p_i = N_i^alpha / sum_j N_j^alpha."""
    weights = {language: size**alpha for language, size in sizes.items()}
    total = sum(weights.values())
    return {language: weight / total for language, weight in weights.items()}
