"""Sentence pairs for retrieval: Tatoeba's line-parallel files come in, checked pairs go out.

The data of the paper's Section 4.4, in the layout of LASER's release: the paper's 36 languages, or
all 112 of the release when their files are there. A language that our table has goes by its code
there; the others (dialects, small and constructed languages) by the three letters of their file.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.lines import read_sides, tell_missing
from metaxlm.languages import LANGUAGES, suggest_code

OTHER_LANGUAGES = {
    "ang": "Old English", "arq": "Algerian Arabic", "arz": "Egyptian Arabic", "ast": "Asturian",
    "awa": "Awadhi", "ber": "Berber", "cbk": "Chavacano", "ceb": "Cebuano", "cha": "Chamorro",
    "cor": "Cornish", "csb": "Kashubian", "dsb": "Lower Sorbian", "dtp": "Central Dusun",
    "fao": "Faroese", "gsw": "Swiss German", "hsb": "Upper Sorbian", "ido": "Ido",
    "ile": "Interlingue", "ina": "Interlingua", "kab": "Kabyle", "kzj": "Coastal Kadazan",
    "lfn": "Lingua Franca Nova", "max": "North Moluccan Malay", "mhr": "Meadow Mari",
    "nds": "Low German", "nov": "Novial", "oci": "Occitan", "orv": "Old East Slavic",
    "pam": "Kapampangan", "pms": "Piedmontese", "swg": "Swabian", "tuk": "Turkmen",
    "tzl": "Talossan", "war": "Waray", "wuu": "Wu Chinese", "yue": "Cantonese",
}  # fmt: skip
"""Languages of LASER's release that `languages.tsv` does not have, by the code of their files."""


@dataclass(frozen=True)
class ParallelSentences:
    """Sentences of one language and their English translations, line by line."""

    language: str
    foreign: tuple[str, ...]
    english: tuple[str, ...]


def list_tatoeba(data_dir: Path) -> list[str]:
    """List the languages that have a Tatoeba file, those of our table first."""
    paths = (data_dir / "tatoeba").glob("tatoeba.*-eng.*")
    present = {path.name.split(".")[1].split("-")[0] for path in paths}
    known = [code for code, entry in LANGUAGES.items() if entry.iso3 in present]
    return known + [code for code in OTHER_LANGUAGES if code in present]


def read_tatoeba(data_dir: Path, language: str) -> ParallelSentences:
    """Read `tatoeba/tatoeba.XXX-eng.XXX` and `.eng`, named by ISO 639-3 codes as in LASER."""
    folder, code = data_dir / "tatoeba", _find_file_code(language)
    foreign_path = folder / f"tatoeba.{code}-eng.{code}"
    english_path = folder / f"tatoeba.{code}-eng.eng"
    if not foreign_path.exists():
        raise MetaXLMError(tell_missing(foreign_path, list_tatoeba(data_dir)))
    foreign, english = read_sides(foreign_path, english_path)
    return ParallelSentences(language, tuple(foreign), tuple(english))


def _find_file_code(language: str) -> str:
    """Return the three letters in a language's file names."""
    if language in OTHER_LANGUAGES:
        return language
    if language in LANGUAGES and language != "en":
        return LANGUAGES[language].iso3
    if language == "en":
        raise MetaXLMError("tatoeba: 'en' is the other side of every pair; name another language")
    meant = suggest_code(language) or _find_similar(language)
    if meant is not None and meant != "en":
        raise MetaXLMError(f"tatoeba: unknown language {language!r}; did you mean {meant!r}?")
    known = [code for code in LANGUAGES if code != "en"] + list(OTHER_LANGUAGES)
    raise MetaXLMError(f"tatoeba: unknown language {language!r}; known: {' '.join(known)}")


def _find_similar(language: str) -> str | None:
    """Return the code of the other language with the nearest name."""
    names = {name.lower(): code for code, name in OTHER_LANGUAGES.items()}
    close = difflib.get_close_matches(language.strip().lower(), names, n=1, cutoff=0.8)
    return names[close[0]] if close else None
