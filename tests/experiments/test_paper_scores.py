"""The published scores: whole, equal to the paper's source, and consistent with its averages."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from metaxlm.experiments.paper_scores import (
    ABLATED,
    ABLATIONS,
    AVERAGED,
    MEAN,
    MODELS,
    average_tasks,
    find_paper_scores,
    read_paper_scores,
)

PAPER = Path(__file__).parents[2] / ".." / "shared" / "paper" / "metaxlm.tex"
NUM_LANGUAGES = {
    "udpos": 33, "panx": 40, "xquad": 11, "mlqa": 7, "tydiqa": 9, "xnli": 15, "pawsx": 7,
    "amazon-books": 4, "amazon-dvd": 4, "amazon-music": 4,
}  # fmt: skip
ROUNDING = 0.0005
"""Of one printed score; a mean of such, against a printed mean, may be twice as far off."""


def test_every_language_of_every_task_is_there_once() -> None:
    scores = read_paper_scores()
    places = [(s.model, s.task, s.language, s.metric) for s in scores]
    assert len(set(places)) == len(places)
    for model in MODELS[:3]:
        for task, number in NUM_LANGUAGES.items():
            metrics = {s.metric for s in scores if s.task == task}
            for metric in metrics:
                found = [
                    s for s in scores
                    if (s.model, s.task, s.metric) == (model, task, metric) and s.language != MEAN
                ]  # fmt: skip
                assert len(found) == number
    assert all(0 < score.value < 1 for score in scores)


def test_means_over_languages_are_table_1() -> None:
    scores = read_paper_scores()
    beyond_own_rounding = set()
    for model in MODELS[:3]:
        for task in AVERAGED:
            for metric, printed in find_paper_scores(task)[model].items():
                values = [
                    s.value for s in scores
                    if (s.model, s.task, s.metric) == (model, task, metric) and s.language != MEAN
                ]  # fmt: skip
                assert statistics.fmean(values) == pytest.approx(printed, abs=2 * ROUNDING)
                if abs(statistics.fmean(values) - printed) > ROUNDING + 1e-9:
                    beyond_own_rounding.add((model, task, metric))
    assert beyond_own_rounding == {("XLM", "pawsx", "accuracy"), ("MetaXLM", "tydiqa", "f1")}


def test_the_amazon_average_is_over_twelve() -> None:
    for model in MODELS[:3]:
        values = [
            s.value for s in read_paper_scores()
            if s.model == model and s.task.startswith("amazon-")
        ]  # fmt: skip
        assert len(values) == 12
        printed = find_paper_scores("amazon")[model]["accuracy"]
        assert statistics.fmean(values) == pytest.approx(printed, abs=2 * ROUNDING)


def test_the_average_over_tasks_counts_questions_once() -> None:
    averages = {}
    for model in MODELS:
        by_task = {task: list(find_paper_scores(task)[model].values()) for task in AVERAGED}
        assert [len(by_task[task]) for task in AVERAGED] == [1, 1, 2, 2, 2, 1, 1]
        average = average_tasks(by_task)
        assert average is not None
        averages[model] = round(100 * average, 2)
        printed = find_paper_scores("xtreme")[model]["average"]
        assert average == pytest.approx(printed, abs=ROUNDING + 1e-9)
    assert averages == {"XLM": 49.19, "MetaXLM": 55.67, "MetaXLM+Dict": 59.3, "mBERT": 63.05}
    assert average_tasks({"xnli": [0.5]}) is None
    assert average_tasks({task: [0.5] for task in AVERAGED} | {"xnli": []}) is None


def test_every_number_stands_in_the_paper() -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's source is not here")
    text = PAPER.read_text("utf-8")
    rows = {line.strip() for line in text.splitlines() if "&" in line}
    printed = [number for row in rows for number in re.findall(r"(?<![\d.])\d+\.\d(?!\d)", row)]
    for score in read_paper_scores():
        assert f"{100 * score.value:.1f}" in printed
    # One row in full, in its order, questions' two scores among it.
    ours = [f"{100 * s.value:.1f}" for s in read_paper_scores() if (s.model, s.task) ==
            ("MetaXLM+Dict", "tydiqa") and s.language != MEAN]  # fmt: skip
    theirs = next(row for row in rows if row.startswith("~~~~$+$Dict & 67.6 / 54.2"))
    assert re.findall(r"\d+\.\d", theirs)[:-2] == ours


def test_ablations_have_five_means_each() -> None:
    scores = read_paper_scores()
    for model in ABLATIONS:
        mine = [score for score in scores if score.model == model]
        assert [score.task for score in mine] == list(ABLATED)
        assert {score.language for score in mine} == {MEAN}
        assert [score.metric for score in mine] == ["f1"] * 3 + ["accuracy"] * 2
    assert {score.model for score in scores} == {*MODELS, *ABLATIONS}


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("XLM+KD", "XLM$+$KD & 47.3"),
        ("MetaXLM+freezing", "~~~~$+$freezing & 45.2"),
        ("Body only", "Body & 43.5"),
        ("Embeddings only", "Emb & 46.8"),
    ],
)
def test_ablations_are_the_rows_of_tables_3_to_5(model: str, row: str) -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's source is not here")
    lines = (line.strip() for line in PAPER.read_text("utf-8").splitlines())
    printed = re.findall(r"\d+\.\d", next(line for line in lines if line.startswith(row)))
    ours = [f"{100 * s.value:.1f}" for s in read_paper_scores() if s.model == model]
    assert printed == ours
