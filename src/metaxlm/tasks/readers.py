"""The task data as it lies on the disk: files come in, checked examples go out.

One reader per layout: Tatoeba's line-parallel files, the four gold alignment folders, pair
classification (XNLI) and tagging (UD POS, WikiAnn) as tab-separated values. The data sets are those
of the paper's Section 4; the layouts are the ones their authors publish. Whatever is wrong with a
file is an error that names file and line: nothing is skipped silently and nothing becomes a zero.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.files import decode_text
from metaxlm.languages import LANGUAGES
from metaxlm.progress import say

Link = tuple[int, int]
"""A word of one side and a word of the other, counted from 0."""

TOLERATED_BAD_LINKS = 0.001
"""Share of gold links outside their sentence that is left out and said, instead of refused.

Two of the published sets have one such link each (`-99` in de-en, a word too far in en-hi); a file
read in the wrong direction or counted from 0 has many more.
"""


@dataclass(frozen=True)
class ParallelSentences:
    """Sentences of one language and their English translations, line by line."""

    language: str
    foreign: tuple[str, ...]
    english: tuple[str, ...]


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


@dataclass(frozen=True)
class LabeledPair:
    """Two texts and the relation between them."""

    first: str
    second: str
    label: str


@dataclass(frozen=True)
class TaggedSentence:
    """Words and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file without their ends; LF and CRLF both end a line.

    Only those two: real test sets have U+2028 and U+0085 inside their sentences.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise MetaXLMError(f"{path}: no such file") from error
    except OSError as error:
        raise MetaXLMError(f"{path}: cannot be read ({error.strerror})") from error
    lines = [line.removesuffix("\r") for line in decode_text(content, path).split("\n")]
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise MetaXLMError(f"{path}:1: the file is empty; restore it")
    return lines


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
        raise MetaXLMError(_tell_missing(foreign_path, list_tatoeba(data_dir)))
    foreign, english = _read_sides(foreign_path, english_path)
    return ParallelSentences(language, tuple(foreign), tuple(english))


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
        raise MetaXLMError(_tell_missing(folders[0], sorted(present)))
    source, target = folder.name.split("-")
    source_path = folder / f"test.{source}"
    source_lines, target_lines = _read_sides(source_path, folder / f"test.{target}")
    sides = [
        (tuple(a.split()), tuple(b.split()))
        for a, b in zip(source_lines, target_lines, strict=True)
    ]
    sure, possible = _read_gold_links(folder / "alignv2.txt", source_path, sides)
    pairs = tuple(
        AlignedPair(words, others, frozenset(certain), frozenset(allowed))
        for (words, others), certain, allowed in zip(sides, sure, possible, strict=True)
    )
    return AlignmentSet(source, target, pairs)


def _read_gold_links(
    path: Path, source_path: Path, sides: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]
) -> tuple[list[set[Link]], list[set[Link]]]:
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
                f"{path}:{number}: sentence {sentence} is number {k + 1}, but {source_path.name} "
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
            f"{path}:{len(lines)}: links for {len(order)} sentences, but {source_path.name} has "
            f"{len(sides)} lines; every sentence needs a link"
        )
    if len(outside) > TOLERATED_BAD_LINKS * len(lines):
        raise MetaXLMError(
            f"{outside[0]} ({len(outside)} of {len(lines)} links do); words count from 1, and the "
            f"language named first in the folder comes first"
        )
    for complaint in outside:
        say(f"{complaint}; left out")
    return sure, possible


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


def read_labeled_pairs(
    path: Path, labels: Collection[str], synonyms: Mapping[str, str] | None = None
) -> list[LabeledPair]:
    """Read `first TAB second TAB label`; a header with `label` in it may name and reorder columns.

    `synonyms` maps other spellings of a label to the one in `labels`.
    """
    lines = read_lines(path)
    columns, width, start = (0, 1, 2), 3, 0
    header = lines[0].split("\t")
    if "label" in header and len(header) >= 3:
        texts = [index for index, name in enumerate(header) if name != "label"]
        columns, width, start = (texts[0], texts[1], header.index("label")), len(header), 1
    pairs: list[LabeledPair] = []
    for number, line in enumerate(lines[start:], start=start + 1):
        fields = line.split("\t")
        if len(fields) != width:
            raise MetaXLMError(
                f"{path}:{number}: found {len(fields)} columns, expected {width} between tabs"
            )
        first, second, label = (fields[column] for column in columns)
        if not first.strip() or not second.strip():
            raise MetaXLMError(f"{path}:{number}: a text is empty; fill it or delete the line")
        label = (synonyms or {}).get(label, label)
        _check_label(label, labels, f"{path}:{number}")
        pairs.append(LabeledPair(first, second, label))
    if not pairs:
        raise MetaXLMError(f"{path}:1: a header and nothing else; restore the file")
    return pairs


def read_tagged_sentences(path: Path, tags: Collection[str]) -> list[TaggedSentence]:
    """Read `word TAB tag` lines with blank lines between sentences (UD POS, WikiAnn)."""
    sentences: list[TaggedSentence] = []
    words: list[str] = []
    word_tags: list[str] = []

    def finish() -> None:
        if words:
            sentences.append(TaggedSentence(tuple(words), tuple(word_tags)))
            words.clear()
            word_tags.clear()

    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            finish()
            continue
        fields = line.split("\t")
        if len(fields) != 2:
            raise MetaXLMError(
                f"{path}:{number}: found {len(fields)} columns, expected a word, a tab and a tag"
            )
        if not fields[0]:
            raise MetaXLMError(f"{path}:{number}: the word is empty; restore it")
        _check_label(fields[1], tags, f"{path}:{number}")
        words.append(fields[0])
        word_tags.append(fields[1])
    finish()
    if not sentences:
        raise MetaXLMError(f"{path}:1: the file has blank lines and nothing else; restore it")
    return sentences


def find_split(data_dir: Path, folder: str, split: str, language: str) -> Path:
    """Return the path of `FOLDER/SPLIT-XX.tsv`; a missing one is told with what is there."""
    path = data_dir / folder / f"{split}-{language}.tsv"
    if not path.exists():
        raise MetaXLMError(_tell_missing(path, list_split(data_dir, folder, split)))
    return path


def list_split(data_dir: Path, folder: str, split: str) -> list[str]:
    """List the languages that have a file for this split, in alphabetical order."""
    paths = sorted((data_dir / folder).glob(f"{split}-*.tsv"))
    return [path.stem.removeprefix(f"{split}-") for path in paths]


def _read_sides(path: Path, other_path: Path) -> tuple[list[str], list[str]]:
    """Read two line-parallel files; no line may be empty, and both have equally many."""
    lines, others = read_lines(path), read_lines(other_path)
    if len(lines) != len(others):
        raise MetaXLMError(
            f"{path}:{len(lines)}: has {len(lines)} lines, {other_path.name} has {len(others)}; "
            f"parallel files need equally many"
        )
    for file, content in ((path, lines), (other_path, others)):
        for number, line in enumerate(content, start=1):
            if not line.strip():
                raise MetaXLMError(f"{file}:{number}: the line is empty; every line is a sentence")
    return lines, others


def _check_label(label: str, labels: Collection[str], where: str) -> None:
    if label in labels:
        return
    known = ", ".join(labels)
    if not label.strip():
        raise MetaXLMError(f"{where}: the label is blank, as in unlabeled releases; known: {known}")
    raise MetaXLMError(f"{where}: unknown label {label!r}; known: {known}")


def _tell_missing(path: Path, present: Sequence[str]) -> str:
    if not path.parent.is_dir():
        return f"{path.parent}: no such folder; unpack the task's data there"
    return f"{path}: no such file; found here: {' '.join(present) or 'nothing'}"
