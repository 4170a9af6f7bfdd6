"""Labeled texts and pairs of texts: a file of tab-separated values comes in, examples go out.

The layouts of XNLI and PAWS-X (the paper's Section 4.2): XTREME's `first TAB second TAB label`
without a header, blanked test sets with two columns, and releases with a header that names the
columns. What is wrong with a line is an error with file and line; unlabeled lines are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.lines import read_lines, tell_unknown, tell_unlabeled
from metaxlm.finetune.task import Examples

LABEL_COLUMNS = ("gold_label", "label")
PAIR_COLUMNS = (("premise", "hypothesis"), ("sentence1", "sentence2"))
"""What headers call the two texts; otherwise they are the first two columns that are no label."""

UNDECIDED = "-"
"""Gold label of MultiNLI's and XNLI's tables where the annotators did not agree."""


@dataclass(frozen=True)
class LabeledText:
    """A text or a pair of texts, and its class."""

    first: str
    second: str | None
    label: str | None
    """None where it is not known."""


@dataclass(frozen=True)
class _Columns:
    """Where the texts and the label stand."""

    width: int
    first: int
    second: int
    label: int | None
    language: int | None = None
    start: int = 0
    """Lines of header."""

    @property
    def least(self) -> int:
        """Columns that a line needs; the wide tables of MultiNLI leave out trailing ones."""
        used = (self.first, self.second, self.label or 0, self.language or 0)
        return max(used) + 1 if self.start and self.width > 4 else self.width


def read_labeled_pairs(
    path: Path,
    labels: Collection[str],
    synonyms: Mapping[str, str] | None = None,
    language: str = "",
) -> Examples[LabeledText]:
    """Read pairs between tabs; `synonyms` maps other spellings of a label to ours.

    A file without a label column is a blanked test set: its labels are None. Of a table with a
    column `language` only the lines of `language` are taken.
    """
    lines = read_lines(path)
    columns = _find_columns(path, lines)
    pairs: list[LabeledText] = []
    unlabeled: list[int] = []
    undecided: list[int] = []
    for number, line in enumerate(lines[columns.start :], start=columns.start + 1):
        fields = line.split("\t")
        if not columns.least <= len(fields) <= columns.width:
            raise MetaXLMError(
                f"{path}:{number}: found {len(fields)} columns, expected {columns.width} between "
                f"tabs"
            )
        if columns.language is not None and fields[columns.language] != language:
            continue
        first, second = fields[columns.first], fields[columns.second]
        if not first.strip() or not second.strip():
            raise MetaXLMError(f"{path}:{number}: a text is empty; fill it or delete the line")
        label = "" if columns.label is None else fields[columns.label].strip()
        label = (synonyms or {}).get(label, label)
        if label == UNDECIDED and columns.start:
            undecided.append(number)
            continue
        if not label:
            unlabeled.append(number)
        elif label not in labels:
            raise MetaXLMError(tell_unknown(label, labels, f"{path}:{number}"))
        pairs.append(LabeledText(first, second, label or None))
    if not pairs:
        what = f"no line of {language!r}" if columns.language is not None else "no line"
        raise MetaXLMError(f"{path}:1: a header and {what}; restore the file")
    notices = tell_unlabeled(path, unlabeled, len(pairs), "pairs")
    if undecided:
        notices += (
            f"{path}:{undecided[0]}: no agreed label, as in {len(undecided):,} pairs; left out",
        )
    return Examples(pairs, notices)


def _find_columns(path: Path, lines: Sequence[str]) -> _Columns:
    header = lines[0].split("\t")
    places = {name.strip(): k for k, name in enumerate(header)}
    label = next((places[name] for name in LABEL_COLUMNS if name in places), None)
    named = next((pair for pair in PAIR_COLUMNS if places.keys() >= set(pair)), ())
    texts = named or [name for name in places if name not in (*LABEL_COLUMNS, "id", "language")]
    if named or (label is not None and len(texts) >= 2):
        first, second = (places[name] for name in texts[:2])
        return _Columns(len(header), first, second, label, places.get("language"), start=1)
    if len(header) not in (2, 3):
        raise MetaXLMError(
            f"{path}:1: found {len(header)} columns, expected two texts and a label between tabs, "
            f"or a header that names them"
        )
    return _Columns(len(header), 0, 1, 2 if len(header) == 3 else None)
