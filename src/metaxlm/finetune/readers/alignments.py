"""Gold word alignments: a folder with two texts and their links comes in, checked pairs go out.

The four sets of the paper's word alignment (its Section 4.4), in the layout of XLM-Align's release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.lines import read_lines, read_sides, tell_missing
from metaxlm.progress import say

Link = tuple[int, int]
"""A word of one side and a word of the other, counted from 0."""

TOLERATED_BAD_LINKS = 0.001
"""Share of gold links outside their sentence that is left out and said, instead of refused.

Two of the published sets have one such link each (`-99` in de-en, a word too far in en-hi); a file
read in the wrong direction or counted from 0 has many more.
"""


@dataclass(frozen=True)
class AlignedPair:
    """Two sentences in words, with gold links (source word, target word) counted from 0."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[Link]
    possible: frozenset[Link]
    """All links that are not wrong; the sure ones are among them."""


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
    names = sorted(path.name for path in (data_dir / "wordalign").glob("*-*"))
    return [code for name in names for code in name.split("-") if code != "en"]


def read_word_alignment(data_dir: Path, language: str) -> AlignmentSet:
    """Read `wordalign/XX-en` or `wordalign/en-XX`: `test.XX`, `test.en` and `alignv2.txt`."""
    folders = [data_dir / "wordalign" / name for name in (f"{language}-en", f"en-{language}")]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        present = (path.name for path in (data_dir / "wordalign").glob("*-*"))
        raise MetaXLMError(tell_missing(folders[0], sorted(present)))
    source, target = folder.name.split("-")
    source_path = folder / f"test.{source}"
    source_lines, target_lines = read_sides(source_path, folder / f"test.{target}")
    sides = [
        (tuple(a.split()), tuple(b.split()))
        for a, b in zip(source_lines, target_lines, strict=True)
    ]
    pairs = read_naacl_links(folder / "alignv2.txt", source_path.name, sides)
    return AlignmentSet(source, target, tuple(pairs))


def read_naacl_links(
    path: Path, name: str, sides: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]
) -> list[AlignedPair]:
    """Read `sentence source target [S|P]`; words count from 1, the k-th new sentence is line k.

    `name` is what messages call the file with the sentences.
    """
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
                f"{path}:{number}: link {i} {j} of sentence {sentence} lies outside its "
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
    if len(outside) > TOLERATED_BAD_LINKS * len(lines):
        raise MetaXLMError(
            f"{outside[0]} ({len(outside)} of {len(lines)} links do); words count from 1, and the "
            f"source's number comes first (in a folder de-en, German is the source)"
        )
    for complaint in outside:
        say(f"{complaint}; left out")
    return [
        AlignedPair(words, others, frozenset(certain), frozenset(allowed))
        for (words, others), certain, allowed in zip(sides, sure, possible, strict=True)
    ]


def _parse_link(line: str, where: str) -> tuple[int, int, int, bool]:
    fields = line.split()
    if len(fields) not in (3, 4):
        raise MetaXLMError(
            f"{where}: found {len(fields)} columns, expected `sentence source target [S|P]`"
        )
    try:
        sentence, i, j = (int(field) for field in fields[:3])
    except ValueError as error:
        raise MetaXLMError(
            f"{where}: {' '.join(fields[:3])!r} are not three whole numbers"
        ) from error
    kind = fields[3] if len(fields) == 4 else "S"
    if kind not in ("S", "P"):
        raise MetaXLMError(f"{where}: unknown link type {kind!r}; known: S (sure), P (possible)")
    return sentence, i, j, kind == "S"
