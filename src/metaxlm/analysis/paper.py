"""The paper's published scores: its tables 1 to 5 and the appendix tables by language.

`paper_scores.tsv` has them in percent as printed; here they are fractions. The paper's models have
270 million parameters and 200,000 steps: they are printed beside other models' scores for
orientation, never as competitors. The printed means are those of unrounded scores: up to 0.1 points
differ from the means of what is printed by language (PAWS-X of XLM 77.8, from its languages 77.7;
TyDiQA F1 of MetaXLM 39.7 and 39.8; Amazon of +Dict 85.0 and 84.9). Tables 3 to 5 (distillation,
freezing, initialization) have means of five tasks only, with F1 for questions. The figures
(retrieval and alignment by layer, curves, directions) are published without numbers.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

MODELS = ("XLM", "MetaXLM", "MetaXLM+Dict", "mBERT")
MAIN_VARIANTS = ("xlm", "metaxlm", "metaxlm+dict")
"""The rows of the paper's tables 1 and 2."""
AVERAGED = ("udpos", "panx", "xquad", "mlqa", "tydiqa", "xnli", "pawsx")
"""The seven tasks of table 1; `Avg` is over them."""
ABLATED = ("xquad", "mlqa", "tydiqa", "xnli", "pawsx")
"""The five tasks of tables 3 to 5."""
DOMAINS = {"amazon-books": "Book", "amazon-dvd": "DVD", "amazon-music": "Music"}
"""The review tasks with the headings of table 2."""
REVIEW_LANGUAGES = ("en", "de", "fr", "ja")
MEAN = "mean"
"""Language of a score that is the mean over languages."""
ANOTHER_SIZE = "270 million parameters, 200,000 steps: another size, for orientation only"
"""Said wherever the paper's numbers are beside ours."""


def read_table(name: str) -> list[dict[str, str]]:
    """Read one of the package's tables."""
    text = (files("metaxlm.analysis") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))


@cache
def paper_scores() -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """Return all published scores as `{(task, language): {model: {metric: fraction}}}`.

    The task is one of ours, `xtreme` for table 1's average, or `amazon` for table 2's.
    """
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for row in read_table("paper_scores.tsv"):
        models = found.setdefault((row["task"], row["language"]), {})
        models.setdefault(row["model"], {})[row["metric"]] = float(row["value"]) / 100
    return found


def find_paper_scores(task: str, language: str = MEAN) -> dict[str, dict[str, float]]:
    """Return a task's published scores as `{model: {metric: fraction}}`."""
    return paper_scores().get((task, language), {})


@cache
def list_paper_languages(task: str) -> list[str]:
    """Return the languages of a task in the paper's order; none for a task that it lacks."""
    return [code for name, code in paper_scores() if name == task and code != MEAN]


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


def average_tasks(scores: Iterable[Sequence[float]]) -> float | None:
    """Return the paper's `Avg` of the scores of its tasks; None unless all of them are there.

    A task has one score, or F1 and exact match, which count as their mean.
    """
    many = list(scores)
    return statistics.fmean(map(statistics.fmean, many)) if many and all(many) else None
