"""Tables of sentence encoders: one of means, and one by language for each data set.

The teacher is the first row of every table. Scores are fractions by data set and language, as in
`scores.json` of `metaxlm evaluate-sentences`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from metaxlm.analysis.tables import Cell, Column, Group, Line, Table, mark_best

Scores = Mapping[str, Any]
Values = Mapping[str, float]
"""A row: values by the heading of their column."""

_DATA_SETS = {
    "tatoeba": ("Tatoeba accuracy by language", "mean"),
    "mining": ("Mining F1 by language", "f1"),
    "xnli": ("XNLI accuracy by language", ""),
    "reviews": ("Accuracy of reviews by language", ""),
}
"""Title of the table, and the score of a language that it shows, if there are several."""
_MEANS = {"tatoeba": "Tatoeba", "mining": "mining F1"}
_ENGLISH = {"cosine": "English cosine", "spearman": "English Spearman"}
_ZERO_SHOT = {"xnli": "XNLI", "reviews": "reviews"}


def make_sentence_tables(scores: Mapping[str, Scores], lines: str) -> list[Table]:
    """Return the tables of models by name; the first one is the teacher."""
    queries = "all lines" if lines == "all" else f"the {lines} lines (counted from 0) among all"
    note = (
        f"Percent, means over languages. Tatoeba: {queries}, both directions. Mining: half of the "
        "sentences have no partner; half of the lines choose the threshold, the others are scored. "
        "XNLI and reviews: linear heads over frozen vectors, trained in English. English: cosine "
        "to the teacher's vectors, and correlation of the similarities of all pairs."
    )
    rows = {name: _summarize(found) for name, found in scores.items()}
    tables = [_make_table("sentences", "Sentence encoders", rows, [note])]
    for name, (title, _) in _DATA_SETS.items():
        rows = {model: _take(found, name) for model, found in scores.items()}
        if any(rows.values()):
            tables.append(_make_table(name, title, rows))
    return tables


def _summarize(found: Scores) -> Values:
    row = {heading: list(_take(found, name).values()) for name, heading in _MEANS.items()}
    for name, heading in _ZERO_SHOT.items():
        values = dict(_take(found, name))
        row[f"{heading} en"] = [values.pop("en")] if "en" in values else []
        row[f"{heading} others"] = list(values.values())
    english = found.get("english", {})
    row |= {h: [english[name]] for name, h in _ENGLISH.items() if name in english}
    row |= {f"STS {name}": [value] for name, value in found.get("sts", {}).items()}
    return {heading: fmean(values) for heading, values in row.items() if values}


def _take(found: Scores, name: str) -> Values:
    """Return the score of each language."""
    key = _DATA_SETS[name][1]
    return {code: one[key] if key else one for code, one in found.get(name, {}).items()}


def _make_table(
    name: str, title: str, rows: Mapping[str, Values], notes: Sequence[str] = ()
) -> Table:
    headings = _unite(rows.values())
    lines = [
        Line(f"{model} (teacher)" if k == 0 else model, [Cell(row.get(h)) for h in headings])
        for k, (model, row) in enumerate(rows.items())
    ]
    columns = [Column(heading, better="higher") for heading in headings]
    return mark_best(Table(name, title, columns, [Group(lines)], notes))


def _unite(rows: Iterable[Values]) -> list[str]:
    return list(dict.fromkeys(heading for row in rows for heading in row))
