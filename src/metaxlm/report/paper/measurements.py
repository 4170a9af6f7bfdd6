"""The rows of results.jsonl as the paper's tables need them: the finished models, task by task.

Rows come in; out come cells with our mean and deviation over seeds, the paper's number over the
same languages, and a trace: the fields by which the rows behind a number are found again. A
variant's finished model is its largest step; kept checkpoints are left to the curves (Figure 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from metaxlm.experiments.failed_trainings import FailedTrainings, choose_failed, find_failed
from metaxlm.experiments.names import display_name, title_task
from metaxlm.experiments.paper_scores import AVERAGED, average_tasks, find_paper_mean
from metaxlm.experiments.results import find_final_steps, select_final
from metaxlm.experiments.score_table import MARGIN
from metaxlm.experiments.series import Series, average_series
from metaxlm.report.cells import Cell, make_score_cell
from metaxlm.report.comparison import find_paper_cell
from metaxlm.report.scores import Row, score_series
from metaxlm.report.sections import TaskFacts, TaskSection, make_sections

MAIN_VARIANTS = ("xlm", "metaxlm", "metaxlm+dict")
"""The three rows of the paper's tables 1 and 2."""
PAPER_VARIANTS = (*MAIN_VARIANTS, "xlm+kd", "freeze", "body", "embeddings")
"""All models that the paper trained; any other variant is an idea beyond it."""
DOMAINS = {"amazon-books": "Book", "amazon-dvd": "DVD", "amazon-music": "Music"}
"""The reviews' tasks with the paper's headings."""
REVIEW_LANGUAGES = ("en", "de", "fr", "ja")

TASKS = (
    TaskFacts("udpos", "POS", "tagging", "f1"),
    TaskFacts("panx", "NER", "tagging", "f1"),
    TaskFacts("xquad", "XQuAD", "span", "f1"),
    TaskFacts("mlqa", "MLQA", "span", "f1"),
    TaskFacts("tydiqa", "TyDiQA", "span", "f1"),
    TaskFacts("xnli", "XNLI", "classification", "accuracy"),
    TaskFacts("pawsx", "PAWS-X", "classification", "accuracy"),
    *(
        TaskFacts(name, title_task(name), "classification", "accuracy", trained_in_each=True)
        for name in DOMAINS
    ),
    TaskFacts("tatoeba", "Tatoeba", "features", "accuracy"),
    TaskFacts("alignment", "Word alignment", "features", "aer"),
)
"""The paper's ten tasks, the reviews by domain, with the headings of its tables."""
_FACTS = {facts.name: facts for facts in TASKS}
ONLY_FIRST = "only the first score"
"""Kind of a question task in a table that shows F1 alone (tables 3 to 5)."""


@dataclass(frozen=True)
class Trace:
    """Where a number comes from: fields of results.jsonl; several values are those averaged."""

    variant: str
    task: str
    metric: str
    scenario: str = ""
    sources: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    layer: int | None = None
    step: int | None = None
    seeds: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    """Fingerprints of the cells."""

    def describe(self) -> str:
        """Write the fields that are known, as they stand in results.jsonl."""
        known: list[tuple[str, object]] = [
            ("variant", self.variant), ("step", self.step), ("task", self.task),
            ("scenario", self.scenario), ("source", " ".join(self.sources)),
            ("language", _shorten(self.languages)), ("metric", self.metric),
            ("layer", self.layer), ("split", " ".join(self.splits)),
            ("seed", " ".join(map(str, self.seeds))),
        ]  # fmt: skip
        return "; ".join(f"{name}: {value}" for name, value in known if value not in (None, ""))


@dataclass(frozen=True)
class PaperCell(Cell):
    """A cell of ours with the paper's number and where ours comes from."""

    paper: Cell | None = None
    traces: tuple[Trace, ...] = ()
    """One for each number: F1, then exact match."""


class Measurements:
    """The finished models of a run, with kept checkpoints left out."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.steps = find_final_steps(rows)
        self.rows = select_final(rows)
        self._failed = find_failed(self.rows)
        self._origins: dict[tuple[str, str, str], set[str]] = {}
        for row in self.rows:
            if row.get("variant") is not None and row.get("origin"):
                key = (str(row["variant"]), str(row["task"]), str(row["source"]))
                self._origins.setdefault(key, set()).add(str(row["origin"]))

    @property
    def variants(self) -> list[str]:
        """Variants with any score: the paper's in its order, then the others."""
        found = dict.fromkeys(str(r["variant"]) for r in self.rows if r["variant"] is not None)
        named = [variant for variant in PAPER_VARIANTS if variant in found]
        return [*named, *(variant for variant in found if variant not in PAPER_VARIANTS)]

    def list_failed(self, variants: Iterable[str], tasks: Iterable[str]) -> list[FailedTrainings]:
        """Return the finetunings of some variants on some tasks that learned nothing."""
        return choose_failed(self._failed, variants, tasks)

    def sections(
        self, variants: Sequence[str], tasks: Iterable[str], only_first: bool = False
    ) -> dict[str, TaskSection]:
        """Sort the scores of some variants on some tasks; means are over what these all have.

        Sections of Amazon reviews are named `amazon-books-supervised` and `...-transfer`.
        """
        chosen = {*variants, None}
        rows = [row for row in self.rows if row["variant"] in chosen]
        facts = [_FACTS[task] for task in tasks]
        if only_first:
            facts = [replace(one, kind=ONLY_FIRST) for one in facts]
        return {section.name: section for section in make_sections(rows, facts)}

    def cell(
        self, section: TaskSection, variant: str, units: Sequence[str] | None = None
    ) -> PaperCell:
        """Return a variant's mean over units (all common ones by default), with the paper's."""
        units = section.scores.common_languages() if units is None else units
        ours = section.cell(variant, units)
        published = find_paper_cell(section, display_name(variant), units)
        second = section.facts.second
        metrics = [section.facts.metric, *([second] if second else [])]
        traces = [self._trace(section, variant, units, metric) for metric in metrics]
        return make_paper_cell(ours, published, traces if ours.value is not None else ())

    def _trace(
        self, section: TaskSection, variant: str, units: Sequence[str], metric: str
    ) -> Trace:
        pairs = [unit.split("→") if "→" in unit else ["", unit] for unit in units]
        supervised = section.scenario == "supervised"
        sources = {source or (language if supervised else "en") for source, language in pairs}
        series = section.scores.mean(variant, None, units)
        return Trace(
            variant=variant,
            task=section.facts.name,
            metric=metric,
            scenario=section.scenario,
            sources=tuple(sorted(sources)),
            languages=tuple(language for _, language in pairs),
            splits=tuple(sorted({section.splits[u] for u in units if u in section.splits})),
            layer=section.layers.get(variant),
            step=self.steps.get(variant),
            seeds=tuple(sorted(seed for seed in series if seed is not None)),
            origins=self.list_origins(variant, [section.facts.name], sources),
        )

    def list_origins(
        self, variant: str, tasks: Iterable[str], sources: Iterable[str]
    ) -> tuple[str, ...]:
        """Return the fingerprints of the evaluations behind some scores of a variant."""
        keys = [(variant, task, source) for task in tasks for source in sources]
        return tuple(sorted({o for key in keys for o in self._origins.get(key, ())}))

    def average_cell(self, sections: Mapping[str, TaskSection], variant: str) -> PaperCell:
        """Return the paper's `Avg` of seven tasks; empty unless all of them are there."""
        by_task = {task: average_scores(sections, variant, task) for task in AVERAGED}
        series = average_series(list(by_task.values()))
        published = average_tasks(
            {task: _list_paper_values(sections.get(task), variant) for task in AVERAGED}
        )
        trace = Trace(variant, "seven tasks", "average", step=self.steps.get(variant))
        ours = make_score_cell(score_series(series))
        return make_paper_cell(ours, Cell(published), [trace] if series else ())


def average_scores(sections: Mapping[str, TaskSection], variant: str, task: str) -> Series:
    """Return a task's one score by seed: F1 and exact match of questions are averaged."""
    return average_series(sections[task].series(variant)) if task in sections else {}


def is_learned(section: TaskSection) -> bool:
    """Say whether any model is clearly above the most frequent answer, and above a random one."""
    units = section.scores.common_languages()
    means = [score_series(section.scores.mean(v, None, units)) for v in section.scores.variants]
    best = max((score.mean for score in means if score is not None), default=0.0)
    for levels in (section.majority, section.chance):
        known = [value for u in units if u in levels and (value := levels[u].value) is not None]
        if known and best < sum(known) / len(known) + MARGIN:
            return False
    return True


def make_paper_cell(ours: Cell, published: Cell, traces: Iterable[Trace]) -> PaperCell:
    """Join our cell, the paper's and the trace."""
    paper = published if published.value is not None else None
    values: dict[str, Any] = dict(vars(ours))
    return PaperCell(**{**values, "paper": paper, "traces": tuple(traces)})


def _list_paper_values(section: TaskSection | None, variant: str) -> list[float]:
    if section is None:
        return []
    units = section.scores.common_languages()
    metrics = (section.facts.metric, section.facts.second)
    found = [
        find_paper_mean(section.facts.name, display_name(variant), metric, units)
        for metric in metrics
        if metric
    ]
    return [value for value in found if value is not None]


def _shorten(codes: Sequence[str]) -> str:
    return " ".join(codes) if len(codes) <= 4 else f"{len(codes)} languages"
