"""The result in five seconds: one sentence, three numbers, and how the claims were judged.

Measurements, paired tests and verdicts come in. The numbers are the paper's `Avg` of seven tasks
(Table 1), or the mean over the tasks that the shown models share where not all are measured, which
is then said. The sentence has the differences, its support how many of them the tests confirm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metaxlm.experiments.claims import Outcome, Verdict
from metaxlm.experiments.claims.contrast import FEWEST_SEEDS
from metaxlm.experiments.comparison import TaskComparison
from metaxlm.experiments.names import display_name
from metaxlm.experiments.paper_scores import AVERAGED, find_paper_scores
from metaxlm.experiments.series import average_series
from metaxlm.experiments.statistics import correct_holm
from metaxlm.experiments.wins import find_mean_difference
from metaxlm.report.comparison import SIGNIFICANT
from metaxlm.report.paper.measurements import (
    MAIN_VARIANTS,
    Measurements,
    average_scores,
    is_learned,
)
from metaxlm.report.scores import Score, score_series
from metaxlm.report.sections import TaskSection

OUTCOMES: tuple[Outcome, ...] = ("holds", "fails", "cannot be told")


@dataclass(frozen=True)
class HeadlineNumber:
    """One model of the strip."""

    variant: str
    score: Score
    paper: float | None
    """The paper's own average, where the same seven tasks are averaged."""


@dataclass(frozen=True)
class Headline:
    """What stands on top of the page."""

    sentence: str
    """The finding in a dozen words."""
    support: str
    """On how many tasks it rests."""
    measure: str
    numbers: tuple[HeadlineNumber, ...] = ()
    counts: tuple[tuple[Outcome, int], ...] = ()
    """Of the claims, by verdict."""


def find_headline(
    found: Measurements, comparisons: Sequence[TaskComparison], verdicts: Sequence[Verdict]
) -> Headline:
    """Write the headline of whatever has been measured."""
    counted = Counter(verdict.outcome for verdict in verdicts)
    counts = tuple((outcome, counted[outcome]) for outcome in OUTCOMES) if verdicts else ()
    sections = found.sections(MAIN_VARIANTS, AVERAGED)
    having = [v for v in MAIN_VARIANTS if any(v in s.scores.variants for s in sections.values())]
    tasks = [
        task
        for task in AVERAGED
        if task in sections and all(average_scores(sections, v, task) for v in having)
    ]
    if not tasks:
        return Headline("No finetuned task has been measured yet.", "", "", (), counts)
    is_whole = len(tasks) == len(AVERAGED)
    numbers = []
    for variant in having:
        score = score_series(average_series([average_scores(sections, variant, t) for t in tasks]))
        printed = find_paper_scores("xtreme").get(display_name(variant), {}).get("average")
        if score is not None:
            numbers.append(HeadlineNumber(variant, score, printed if is_whole else None))
    scores = {number.variant: number.score for number in numbers}
    return Headline(
        _write_sentence(scores, sections, tasks),
        _write_support(scores, sections, comparisons, tasks, found),
        _name_measure(sections, tasks),
        tuple(numbers),
        counts,
    )


def _name_measure(sections: Mapping[str, TaskSection], tasks: Sequence[str]) -> str:
    seeds = max(sections[task].scores.num_seeds for task in tasks)
    about = f"questions as (F1 + EM) / 2; {seeds} seed{'s' if seeds > 1 else ''}"
    if len(tasks) == len(AVERAGED):
        return f"Average over the paper's seven XTREME tasks, finetuned in English; {about}"
    names = ", ".join(sections[task].facts.title for task in tasks)
    what = "task" if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"Average over the {what} measured so far ({names}), finetuned in English; {about}"


def _list_steps(scores: Mapping[str, Score]) -> list[tuple[str, str]]:
    """List who is compared with whom: each with the one before it."""
    having = [variant for variant in MAIN_VARIANTS if variant in scores]
    return list(zip(having[1:], having, strict=False))


def _write_sentence(
    scores: Mapping[str, Score], sections: Mapping[str, TaskSection], tasks: Sequence[str]
) -> str:
    """Write the finding; one seed, or a part of the tasks, is said in the same breath."""
    steps = _list_steps(scores)
    if not steps:
        names = " and ".join(map(display_name, scores))
        return f"Only {names} has been measured: there is nothing to compare with yet."
    parts = [
        _describe_gain(variant, base, 100 * (scores[variant].mean - scores[base].mean))
        for variant, base in steps
    ]
    sentence = ", and ".join(parts)
    if len(tasks) < len(AVERAGED):
        what = sections[tasks[0]].facts.title if len(tasks) == 1 else f"{len(tasks)} of seven tasks"
        sentence = f"On {what}, {sentence}"
    if min(sections[task].scores.num_seeds for task in tasks) < FEWEST_SEEDS:
        return f"{sentence}, in one seed: too little to tell."
    return f"{sentence}."


def _describe_gain(variant: str, base: str, gain: float) -> str:
    name, other = display_name(variant), display_name(base)
    points = f"{abs(gain):.1f}"
    if points == "0.0":
        return f"{name} scores the same as {other}"
    return f"{name} scores {points} points {'above' if gain > 0 else 'below'} {other}"


def _write_support(
    scores: Mapping[str, Score],
    sections: Mapping[str, TaskSection],
    comparisons: Sequence[TaskComparison],
    tasks: Sequence[str],
    found: Measurements,
) -> str:
    steps = _list_steps(scores)
    if not steps:
        return ""
    flat = [sections[task].facts.title for task in tasks if not is_learned(sections[task])]
    if any(sum(_count_tasks(comparisons, tasks, *step)) for step in steps):
        parts = [describe_tests(comparisons, tasks, *step) for step in steps]
        text = f"By paired tests over examples (p < 0.05 after Holm). {'. '.join(parts)}."
    else:
        text = "There are no paired tests of these differences yet."
    if flat:
        text += f" On {', '.join(flat)} no model is clearly above the most frequent answer."
    return " ".join([text, *(each.describe() for each in found.list_failed(scores, tasks))])


def describe_tests(
    comparisons: Sequence[TaskComparison], tasks: Sequence[str], variant: str, base: str
) -> str:
    """Say on how many tasks one variant beats another, by paired tests corrected over them."""
    better, worse, undecided = _count_tasks(comparisons, tasks, variant, base)
    untested = len(tasks) - better - worse - undecided
    counts = [f"better on {better}", f"worse on {worse}", f"undecided on {undecided}"]
    counts += [f"untested on {untested}"] if untested else []
    number = f"{len(tasks)} task{'s' if len(tasks) > 1 else ''}"
    return f"{display_name(variant)} against {display_name(base)}: {', '.join(counts)} of {number}"


def _count_tasks(
    comparisons: Sequence[TaskComparison], tasks: Sequence[str], variant: str, base: str
) -> tuple[int, int, int]:
    """Count tasks that are better, worse, and undecided; p-values are corrected over the tasks."""
    found = [find_mean_difference(comparisons, task, variant, base, "transfer") for task in tasks]
    tested = [difference for difference in found if difference is not None]
    corrected = correct_holm([difference.p_value for difference in tested])
    clear = [d.value for d, p in zip(tested, corrected, strict=True) if p < SIGNIFICANT]
    better = sum(value > 0 for value in clear)
    worse = sum(value < 0 for value in clear)
    return better, worse, len(tested) - better - worse
