"""The paper's published scores: its tables 1 to 5 and the appendix tables by language.

Out of `paper_scores.tsv`, which has them in percent as printed, come scores as fractions. Its
models have 270 million parameters and 200,000 steps: they stand beside other models' scores for
orientation, never as competitors. The printed means are those of unrounded scores: up to 0.1
points lie between them and the means of what is printed by language (PAWS-X of XLM 77.8, from its
languages 77.7; TyDiQA F1 of MetaXLM 39.7 and 39.8; Amazon of +Dict 85.0 and 84.9). Tables 3 to 5
(distillation, freezing, initialization) have means of five tasks only, of questions the F1. The
figures (retrieval and alignment by layer, curves, directions) are published without numbers.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

MEAN = "mean"
"""Language of a score that is the mean over languages."""
MODELS = ("XLM", "MetaXLM", "MetaXLM+Dict", "mBERT")
ABLATIONS = ("XLM+KD", "MetaXLM+freezing", "Body only", "Embeddings only")
"""The models of tables 3, 4 and 5 beside XLM (there also `None`) and MetaXLM (`Both`)."""
ABLATED = ("xquad", "mlqa", "tydiqa", "xnli", "pawsx")
"""The five tasks of tables 3 to 5, in their order."""
AVERAGED = ("udpos", "panx", "xquad", "mlqa", "tydiqa", "xnli", "pawsx")
"""The seven tasks of the paper's table 1, in its order; `Avg` is over them."""


@dataclass(frozen=True)
class PaperScore:
    """One published number."""

    model: str
    task: str
    """A task of ours, `xtreme` for table 1's average, or `amazon` for table 2's."""
    language: str
    metric: str
    value: float
    """As a fraction."""


@cache
def read_paper_scores() -> tuple[PaperScore, ...]:
    """Return all published scores, in the order of the paper's tables."""
    text = (files("metaxlm.experiments") / "paper_scores.tsv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines(), delimiter="\t")
    return tuple(
        PaperScore(
            row["model"], row["task"], row["language"], row["metric"], float(row["value"]) / 100
        )
        for row in rows
    )


def find_paper_scores(task: str, language: str = MEAN) -> dict[str, dict[str, float]]:
    """Return a task's published scores as `{model: {metric: fraction}}`."""
    found: dict[str, dict[str, float]] = {}
    for score in read_paper_scores():
        if (score.task, score.language) == (task, language):
            found.setdefault(score.model, {})[score.metric] = score.value
    return found


def list_paper_languages(task: str) -> list[str]:
    """Return the languages of a task in the paper's order; none for a task that it has not."""
    found = (score.language for score in read_paper_scores() if score.task == task)
    return [language for language in dict.fromkeys(found) if language != MEAN]


def find_paper_mean(task: str, model: str, metric: str, languages: Sequence[str]) -> float | None:
    """Return the published mean over these languages; None where one has no published score.

    Over all of the paper's languages it is the printed mean, where there is one.
    """
    if languages and set(languages) == set(list_paper_languages(task)):
        printed = find_paper_scores(task).get(model, {}).get(metric)
        if printed is not None:
            return printed
    values = [find_paper_scores(task, code).get(model, {}).get(metric) for code in languages]
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def average_tasks(scores: Mapping[str, Sequence[float]]) -> float | None:
    """Return the paper's `Avg`: questions count as (F1 + EM) / 2; None unless all seven are there.

    Each task brings its scores: one, or F1 and exact match.
    """
    if any(not scores.get(task) for task in AVERAGED):
        return None
    return statistics.fmean(statistics.fmean(scores[task]) for task in AVERAGED)
