"""Sentence pairs for retrieval: Tatoeba's line-parallel files come in, checked pairs go out.

The data of the paper's Section 4.4, in the layout of LASER's release.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.languages import LANGUAGES
from metaxlm.tasks.readers.lines import read_sides, tell_missing


@dataclass(frozen=True)
class ParallelSentences:
    """Sentences of one language and their English translations, line by line."""

    language: str
    foreign: tuple[str, ...]
    english: tuple[str, ...]


def list_tatoeba(data_dir: Path) -> list[str]:
    """List the languages that have a Tatoeba file."""
    paths = (data_dir / "tatoeba").glob("tatoeba.*-eng.*")
    present = {path.name.split(".")[1].split("-")[0] for path in paths}
    return [code for code, entry in LANGUAGES.items() if entry.iso3 in present]


def read_tatoeba(data_dir: Path, language: str) -> ParallelSentences:
    """Read `tatoeba/tatoeba.XXX-eng.XXX` and `.eng`, named by ISO 639-3 codes as in LASER."""
    if language not in LANGUAGES or language == "en":
        known = " ".join(code for code in LANGUAGES if code != "en")
        raise MetaXLMError(f"tatoeba: unknown language {language!r}; known: {known}")
    folder, code = data_dir / "tatoeba", LANGUAGES[language].iso3
    foreign_path = folder / f"tatoeba.{code}-eng.{code}"
    english_path = folder / f"tatoeba.{code}-eng.eng"
    if not foreign_path.exists():
        raise MetaXLMError(tell_missing(foreign_path, list_tatoeba(data_dir)))
    foreign, english = read_sides(foreign_path, english_path)
    return ParallelSentences(language, tuple(foreign), tuple(english))
