"""Read sentence pairs for retrieval and gold word alignments (the paper's Section 4.4).

Tatoeba's files are those of LASER's release, gold alignments those of XLM-Align's. A language that
is not in our table (dialects, small and constructed ones) has the three letters of its file.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.input_lines import (
    describe_missing,
    read_lines,
    read_sides,
    split_at_spaces,
)
from metaxlm.languages import LANGUAGES, list_iso3, suggest_code
from metaxlm.progress import say

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

Link = tuple[int, int]
"""A word of one side and a word of the other, counted from 0."""

TOLERATED_BAD_LINKS = 0.001
"""Share of gold links outside their sentence that are left out with a warning; two of the published
sets have one, a file read in the wrong direction or counted from 0 has many more."""


@dataclass(frozen=True)
class ParallelSentences:
    """Sentences of one language and their English translations, line by line."""

    language: str
    foreign: tuple[str, ...]
    english: tuple[str, ...]


def list_tatoeba(data_dir: Path) -> list[str]:
    """List the languages with a Tatoeba file, those of our table first."""
    paths = (data_dir / "tatoeba").glob("tatoeba.*-eng.*")
    present = {path.name.split(".")[1].split("-")[0] for path in paths}
    known = [code for code in LANGUAGES if present.intersection(list_iso3(code))]
    return known + [code for code in OTHER_LANGUAGES if code in present]


def read_tatoeba(data_dir: Path, language: str) -> ParallelSentences:
    """Read `tatoeba/tatoeba.XXX-eng.XXX` and `.eng`, named by ISO 639-3 codes as in LASER."""
    codes = _find_file_codes(language)
    paths = [data_dir / "tatoeba" / f"tatoeba.{code}-eng.{code}" for code in codes]
    path = next((path for path in paths if path.exists()), paths[0])
    if not path.exists():
        raise MetaXLMError(describe_missing(path, list_tatoeba(data_dir)))
    foreign, english = read_sides(path, path.with_suffix(".eng"))
    return ParallelSentences(language, tuple(foreign), tuple(english))


def _find_file_codes(language: str) -> list[str]:
    """Return the three letters in a language's file names, LASER's first."""
    if language == "en":
        raise MetaXLMError("tatoeba: 'en' is the other side of every pair; name another language")
    if language in OTHER_LANGUAGES or language in LANGUAGES:
        return [language] if language in OTHER_LANGUAGES else list_iso3(language)
    names = {name.lower(): code for code, name in OTHER_LANGUAGES.items()}
    close = difflib.get_close_matches(language.strip().lower(), names, n=1, cutoff=0.8)
    meant = suggest_code(language) or next((names[name] for name in close), "en")
    if meant != "en":
        raise MetaXLMError(f"tatoeba: unknown language {language!r}; did you mean {meant!r}?")
    known = [code for code in LANGUAGES if code != "en"] + list(OTHER_LANGUAGES)
    raise MetaXLMError(f"tatoeba: unknown language {language!r}; known: {' '.join(known)}")


@dataclass(frozen=True)
class AlignedPair:
    """Two sentences in words, with gold links; the sure ones are among the possible."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentSet:
    """Gold alignments of one language pair, in the direction in which it was published."""

    source_language: str
    target_language: str
    pairs: tuple[AlignedPair, ...]

    @property
    def language(self) -> str:
        """The language of the pair that is not English."""
        return self.target_language if self.source_language == "en" else self.source_language


def list_word_alignment(data_dir: Path) -> list[str]:
    """List the languages that have gold alignments with English."""
    names = _list_pairs(data_dir)
    return [code for name in names for code in name.split("-") if code != "en"]


def _list_pairs(data_dir: Path) -> list[str]:
    """List the folders named `XX-en` or `en-XX`."""
    folders = (path.name for path in (data_dir / "wordalign").glob("*-*") if path.is_dir())
    return sorted(name for name in folders if name.count("-") == 1 and "en" in name.split("-"))


def read_word_alignment(data_dir: Path, language: str) -> AlignmentSet:
    """Read `wordalign/XX-en` or `wordalign/en-XX`: `test.XX`, `test.en` and `alignv2.txt`."""
    folders = [data_dir / "wordalign" / name for name in (f"{language}-en", f"en-{language}")]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        raise MetaXLMError(describe_missing(folders[0], _list_pairs(data_dir)))
    return read_alignment_folder(folder)


def read_alignment_folder(folder: Path) -> AlignmentSet:
    """Read the gold alignments of a folder `XX-en` or `en-XX`."""
    source, target = folder.name.split("-")
    source_path = folder / f"test.{source}"
    lines = read_sides(source_path, folder / f"test.{target}")
    sides = [(split_at_spaces(a), split_at_spaces(b)) for a, b in zip(*lines, strict=True)]
    pairs = read_naacl_links(folder / "alignv2.txt", source_path.name, sides)
    return AlignmentSet(source, target, tuple(pairs))


def read_naacl_links(
    path: Path, name: str, sides: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]
) -> list[AlignedPair]:
    """Read `sentence source target [S|P]`; words count from 1, the k-th new sentence is line k."""
    order: dict[int, int] = {}
    sure: list[set[Link]] = [set() for _ in sides]
    possible: list[set[Link]] = [set() for _ in sides]
    outside: list[str] = []
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        sentence, i, j, is_sure = _parse_link(line, f"{path}:{number}")
        k = order.setdefault(sentence, len(order))
        if k >= len(sides):
            raise MetaXLMError(
                f"{path}:{number}: sentence {sentence} is number {k + 1}, but {name} "
                f"has {len(sides)} lines; use the files of one release"
            )
        words, others = sides[k]
        if not (1 <= i <= len(words) and 1 <= j <= len(others)):
            outside.append(
                f"{path}:{number}: link {i} {j} of sentence {sentence} is outside its "
                f"{len(words)} and {len(others)} words"
            )
            continue
        possible[k].add((i - 1, j - 1))
        if is_sure:
            sure[k].add((i - 1, j - 1))
    if len(order) < len(sides):
        raise MetaXLMError(
            f"{path}:{len(lines)}: links for {len(order)} sentences, but {name} has "
            f"{len(sides)} lines; every sentence needs a link"
        )
    hint = "words count from 1, and the source's number is first (in a folder de-en, German is the "
    tolerate_outside(outside, len(lines), f"{hint}source)")
    return [
        AlignedPair(words, others, frozenset(certain), frozenset(allowed))
        for (words, others), certain, allowed in zip(sides, sure, possible, strict=True)
    ]


def tolerate_outside(outside: Sequence[str], num_links: int, hint: str) -> None:
    """Warn once about links outside their sentence that are left out; reject too many of them."""
    if not outside:
        return
    count = f"{outside[0]} ({len(outside)} of {num_links:,} links are)"
    if len(outside) > TOLERATED_BAD_LINKS * num_links:
        raise MetaXLMError(f"{count}; {hint}")
    say(f"{count}; left out")


def _parse_link(line: str, where: str) -> tuple[int, int, int, bool]:
    fields = line.split()
    if len(fields) not in (3, 4):
        found = f"found {len(fields)} columns"
        raise MetaXLMError(f"{where}: {found}, expected `sentence source target [S|P]`")
    try:
        sentence, i, j = map(int, fields[:3])
    except ValueError as error:
        numbers = " ".join(fields[:3])
        raise MetaXLMError(f"{where}: {numbers!r} are not three whole numbers") from error
    kind = fields[3] if len(fields) == 4 else "S"
    if kind not in ("S", "P"):
        raise MetaXLMError(f"{where}: unknown link type {kind!r}; known: S (sure), P (possible)")
    return sentence, i, j, kind == "S"
