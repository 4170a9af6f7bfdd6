"""The result in five seconds: one sentence, three numbers, and how the claims were judged.

Measurements, paired tests and verdicts come in. The numbers are the paper's `Avg` of seven tasks
(Table 1), or the mean over the tasks that the shown models share where not all are measured, which
is then said. The sentence has the differences, its support how many of them the tests confirm: the
same tests over examples and seeds that the claims are judged by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from metaxlm.experiments.claims import Outcome, Verdict
from metaxlm.experiments.claims.claim import MissingEvidenceError
from metaxlm.experiments.claims.contrast import FEWEST_SEEDS, Contrast, contrast
from metaxlm.experiments.claims.evidence import Evidence, Part
from metaxlm.experiments.claims.sentences import name_basis
from metaxlm.experiments.failed_trainings import FailedTrainings
from metaxlm.experiments.names import display_name
from metaxlm.experiments.paper_scores import AVERAGED, find_paper_scores
from metaxlm.experiments.score_table import list_metrics
from metaxlm.experiments.series import average_series
from metaxlm.experiments.statistics import correct_holm
from metaxlm.experiments.task_comparison import TaskComparison
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
    evidence = Evidence(found.rows, comparisons)
    tested = [TaskTests(evidence, tasks, *step) for step in _list_steps(scores)]
    return Headline(
        _write_sentence(scores, sections, tasks),
        _write_support(tested, sections, tasks, found.list_failed(scores, tasks)),
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
    tested: Sequence[TaskTests],
    sections: Mapping[str, TaskSection],
    tasks: Sequence[str],
    failed: Sequence[FailedTrainings],
) -> str:
    if not tested:
        return ""
    flat = [sections[task].facts.title for task in tasks if not is_learned(sections[task])]
    known = [one for tests in tested for one in tests.contrasts]
    if known:
        parts = ". ".join(tests.describe() for tests in tested)
        text = f"Tested {name_basis(known)} (p < 0.05). {parts}."
    else:
        text = "There are no tests of these differences yet."
    if flat:
        text += f" On {', '.join(flat)} no model is clearly above the most frequent answer."
    return " ".join([text, *(each.describe() for each in failed)])


@dataclass(frozen=True)
class TaskTests:
    """One variant against another on some tasks, as the claims are judged."""

    evidence: Evidence
    tasks: Sequence[str]
    variant: str
    base: str

    @cached_property
    def contrasts(self) -> list[Contrast]:
        """Those that could be tested."""
        found = [self._compare(task) for task in self.tasks]
        return [one for one in found if one is not None and one.p_value is not None]

    def _compare(self, task: str) -> Contrast | None:
        try:
            return contrast(self.evidence, self.variant, self.base, [Part(task)])
        except MissingEvidenceError:
            return None

    @cached_property
    def average(self) -> Contrast | None:
        """Compare their means over all tasks; None where one of them misses a task."""
        parts = [Part(task, metrics=list_metrics(task)) for task in self.tasks]
        try:
            return contrast(self.evidence, self.variant, self.base, parts)
        except MissingEvidenceError:
            return None

    def describe(self) -> str:
        """Say on how many tasks one beats the other, and on how many corrected for their number."""
        corrected = correct_holm([one.p_value or 0.0 for one in self.contrasts])
        clear = [
            (one.direction, p_value < SIGNIFICANT)
            for one, p_value in zip(self.contrasts, corrected, strict=True)
            if one.direction
        ]
        better, worse = ([sure for sign, sure in clear if sign == one] for one in (1, -1))
        undecided = len(self.contrasts) - len(clear)
        untested = len(self.tasks) - len(self.contrasts)
        counts = [
            f"better on {_count_sure(better)}",
            f"worse on {_count_sure(worse)}",
            f"undecided on {undecided}",
        ]
        counts += [f"untested on {untested}"] if untested else []
        number = f"{len(self.tasks)} task{'s' if len(self.tasks) > 1 else ''}"
        names = f"{display_name(self.variant)} against {display_name(self.base)}"
        mean = f"{self.average.describe()} on average, " if self.average and self.tasks[1:] else ""
        return f"{names}: {mean}{', '.join(counts)} of {number}"


def _count_sure(clear: Sequence[bool]) -> str:
    """Write how many are clear, and how many of them still are after Holm's correction."""
    return f"{len(clear)} ({sum(clear)} after Holm)" if clear else "0"
