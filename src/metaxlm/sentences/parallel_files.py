"""Read parallel text: tables, pairs of files, and the pairs that `metaxlm mine` writes.

| layout | files | language |
|---|---|---|
| table | `en-de.tsv`: `english TAB translation`; `de-en.tsv`: the reverse | the name |
| table of several languages | `any.tsv`: `english TAB translation TAB code` | the last column |
| Moses | `name.en`, `name.de`: line by line | the ending |
| Tatoeba | `tatoeba.deu-eng.deu`, `tatoeba.deu-eng.eng` | the ending |
| mined | `en-de.tsv`: `score TAB english TAB translation`; two ids may follow the score | name |

A path is a table, one file of a pair or their common name without the ending, or a folder with any
of these.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.files import walk_files
from metaxlm.finetune.readers.input_lines import read_lines, read_sides
from metaxlm.finetune.readers.parallel import OTHER_LANGUAGES
from metaxlm.languages import LANGUAGES, suggest_code
from metaxlm.sentences.pairs import ParallelPairs

_ISO3 = {entry.iso3: code for code, entry in LANGUAGES.items()}
_CODES = re.compile(r"(?:^|[._])([A-Za-z]{2,3})-([A-Za-z]{2,3})(?=[._]|$)")
_LAYOUTS = "parallel text is en-de.tsv, or two files such as name.en and name.de"


@dataclass(frozen=True)
class _Row:
    language: str
    text: str
    anchor: str


def load_parallel(
    path: Path, source_language: str = "en", languages: Sequence[str] | None = None, seed: int = 0
) -> ParallelPairs:
    """Load the parallel text of a file or a folder, in the given languages (default: all)."""
    reader = _Reader(source_language, frozenset(languages or ()))
    rows = [row for file in reader.list_files(path) for row in reader.read(file)]
    if not rows:
        raise MetaXLMError(f"{path}: no parallel text; {_LAYOUTS}")
    kept = [row for row in rows if languages is None or row.language in languages]
    if not kept:
        found = " ".join(sorted({row.language for row in rows}))
        wanted = " ".join(languages or ())
        raise MetaXLMError(f"{path}: has pairs in {found}, but none in {wanted}")
    return ParallelPairs(
        texts=[row.text for row in kept],
        anchors=[row.anchor for row in kept],
        languages=[row.language for row in kept],
        seed=seed,
    )


class _Reader:
    def __init__(self, source: str, extra: Collection[str]) -> None:
        self._source = source
        self._extra = extra  # codes outside our table that the caller names

    def list_files(self, path: Path) -> list[Path]:
        """Return the tables, and for each pair of files the one that is not the source's."""
        if path.is_dir():
            files = walk_files(path)
            # `metaxlm mine` writes an empty table if no pair reaches the threshold.
            tables = [f for f in files if f.suffix == ".tsv" and f.stat().st_size]
            others = [file for file in files if self._is_source(file)]
            return tables + [partner for file in others for partner in self._find_partners(file)]
        if path.is_file():
            return self._find_partners(path) if self._is_source(path) else [path]
        named = [
            file for file in path.parent.glob(f"{escape(path.name)}.*") if self._is_source(file)
        ]
        if not named:
            raise MetaXLMError(f"{path}: no such file or folder; {_LAYOUTS}")
        return [partner for file in named for partner in self._find_partners(file)]

    def read(self, path: Path) -> Iterator[_Row]:
        """Read a table, or one file of a pair together with the source's."""
        source_file = self._find_source_file(path)
        if source_file is None:
            yield from self._read_table(path)
            return
        language = self._name_language(path.suffix[1:], str(path))
        for text, anchor in zip(*read_sides(path, source_file), strict=True):
            yield _Row(language, text.strip(), anchor.strip())

    def _read_table(self, path: Path) -> Iterator[_Row]:
        lines = read_lines(path)
        width = len(lines[0].split("\t"))
        has_score = width == 5 or (width == 3 and _is_number(lines[0].split("\t")[0]))
        has_codes = width == 3 and not has_score
        if width not in (2, 3, 5):
            raise MetaXLMError(
                f"{path}:1: {width} columns; a line is `english TAB translation`, and a third "
                "column may be the language code"
            )
        language, is_reversed = ("", False) if has_codes else self._parse_name(path)
        for number, line in enumerate(lines, start=1):
            fields = [field.strip() for field in line.split("\t")]
            if len(fields) != width:
                raise MetaXLMError(
                    f"{path}:{number}: {len(fields)} columns, but the first line has {width}; "
                    "remove the line or its extra tabs"
                )
            if has_codes:
                language = self._name_language(fields.pop(), f"{path}:{number}")
            anchor, text = fields[-2:][:: -1 if is_reversed else 1]
            if not (anchor and text):
                raise MetaXLMError(f"{path}:{number}: one side is empty; every line is a pair")
            yield _Row(language, text, anchor)

    def _parse_name(self, path: Path) -> tuple[str, bool]:
        """Return the language in a file's name, and whether its column is the first."""
        for first, second in reversed(_CODES.findall(path.name)):
            if self._means_source(first) != self._means_source(second):
                is_reversed = self._means_source(second)
                return self._name_language(first if is_reversed else second, path), is_reversed
        raise MetaXLMError(
            f"{path}: the name does not tell the language; rename it to "
            f"{self._source}-XX.tsv, or add a third column with the language code"
        )

    def _name_language(self, code: str, where: Path | str) -> str:
        language = self._find_language(code)
        if language is None or language == self._source:
            meant = suggest_code(code)
            advice = f"did you mean {meant!r}?" if meant else "use an ISO 639 code such as 'de'"
            if language is not None:
                advice = f"that is the language of the other side; {_LAYOUTS}"
            raise MetaXLMError(f"{where}: unknown language {code!r}; {advice}")
        return language

    def _find_language(self, code: str) -> str | None:
        if code in LANGUAGES or code in OTHER_LANGUAGES or code in self._extra:
            return code
        return _ISO3.get(code)

    def _means_source(self, code: str) -> bool:
        return self._find_language(code) == self._source

    def _is_source(self, path: Path) -> bool:
        return self._means_source(path.suffix[1:])

    def _find_source_file(self, path: Path) -> Path | None:
        if self._find_language(path.suffix[1:]) is None:
            return None
        endings = (self._source, getattr(LANGUAGES.get(self._source), "iso3", self._source))
        files = [path.with_suffix(f".{ending}") for ending in endings]
        found = next((file for file in files if file.is_file()), None)
        if found is None:
            raise MetaXLMError(f"{path}: {files[0].name} is not beside it; {_LAYOUTS}")
        return found

    def _find_partners(self, path: Path) -> list[Path]:
        partners = [
            file
            for file in sorted(path.parent.glob(f"{escape(path.stem)}.*"))
            if file != path and self._find_language(file.suffix[1:]) not in (None, self._source)
        ]
        if not partners:
            raise MetaXLMError(f"{path}: no translation beside it; {_LAYOUTS}")
        return partners


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?", text.strip()) is not None
