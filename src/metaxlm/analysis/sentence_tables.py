"""Tables and figures of sentence encoders: means, scores by language, scores along the steps.

The teacher is the first row of every table. Scores are fractions by data set and language, as in
`scores.json` of `metaxlm evaluate-sentences`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from metaxlm.analysis.style import GRID, assign_looks, drawing_style
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


@drawing_style()
def draw_languages(scores: Mapping[str, Scores]) -> Figure | None:
    """Draw the accuracy on Tatoeba by language, the languages of the last model's best first."""
    rows = {name: _take(found, "tatoeba") for name, found in scores.items() if not _read_step(name)}
    if not any(rows.values()):
        return None
    last = rows[list(rows)[-1]]
    languages = sorted(last, key=lambda code: -last[code])
    figure = Figure(figsize=(5.7, 1.2 + 0.22 * len(languages)))
    axis, looks = figure.subplots(), assign_looks(list(rows))
    for name, values in rows.items():
        places = [place for place, code in enumerate(languages) if code in values]
        found = [100 * values[languages[place]] for place in places]
        look = looks[name]
        axis.plot(found, places, look.marker, color=look.color, markersize=5, label=name)
    axis.set_yticks(range(len(languages)), languages)
    axis.set_ylim(len(languages) - 0.5, -0.5)
    axis.grid(axis="y", color=GRID.light)
    axis.set(title="Tatoeba", xlabel="accuracy, both directions (%)")
    figure.legend(loc="outside upper left", ncols=min(4, len(rows)))
    return figure


@drawing_style()
def draw_steps(scores: Mapping[str, Scores]) -> Figure | None:
    """Draw the means of the models named after a step, such as those of `keep_steps`."""
    rows = {step: _summarize(found) for name, found in scores.items() if (step := _read_step(name))}
    headings = ("Tatoeba", "mining F1", "English Spearman")
    if len(rows) < 2:
        return None
    figure, steps = Figure(figsize=(5.7, 3.2)), sorted(rows)
    axis, looks = figure.subplots(), assign_looks(headings)
    for heading in (one for one in headings if one in rows[steps[0]]):
        look, values = looks[heading], [100 * rows[step][heading] for step in steps]
        axis.plot(steps, values, look.dash, color=look.color, marker=look.marker, label=heading)
    axis.set(xlabel="step of the sentence phase", ylabel="%", ylim=(0, 100))
    figure.legend(loc="outside upper left", ncols=len(headings))
    return figure


def _read_step(name: str) -> int:
    """Return the step that a model is named after, or 0."""
    found = re.search(r"step-(\d+)$", name)
    return int(found[1]) if found else 0


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
