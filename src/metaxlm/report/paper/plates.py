"""The report's figures with their words: title, how to read it, and its place in the paper."""

from __future__ import annotations

from metaxlm.report.figures import draw_layers, draw_loss
from metaxlm.report.palette import Look
from metaxlm.report.paper.courses import describe_courses, find_courses
from metaxlm.report.paper.figures import draw_curves, draw_directions, draw_overview
from metaxlm.report.paper.gains import draw_gains, list_gains
from metaxlm.report.paper.measurements import MAIN_VARIANTS, PAPER_VARIANTS, TASKS, Measurements
from metaxlm.report.paper.source import META, PaperSource
from metaxlm.report.plates import Plate

NO_NUMBERS = "the paper publishes no numbers with it"
TOP = "gains"
"""The figure on top of the page."""


def make_plates(
    source: PaperSource, found: Measurements, looks: dict[str, Look]
) -> tuple[list[Plate], list[str]]:
    """Draw every figure that there is data for, and name those that there is none for.

    They show the paper's models; of ideas beyond it, the tables tell.
    """
    shown = {variant: looks[variant] for variant in MAIN_VARIANTS if variant in found.variants}
    courses = find_courses(source.rows, found.variants)
    meta = source.logs.get(META, [])
    logs = {variant: source.logs[variant] for variant in PAPER_VARIANTS if variant in source.logs}
    candidates = [
        (TOP, "What is gained over XLM", describe_gains(found),
         "Tables 1 and 2 and Figures 3 and 4, in one",
         draw_gains(list_gains(found, source.comparisons), looks)),
        ("overview", "All tasks at a glance", _OVERVIEW, "Tables 1 and 2 and Figures 3 and 4",
         draw_overview(found, looks)),
        ("retrieval", "Sentence retrieval by layer", _RETRIEVAL, f"Figure 3; {NO_NUMBERS}",
         draw_layers(found.rows, shown, task="tatoeba", metric="accuracy", label="accuracy (%)")),
        ("alignment", "Word alignment by layer", _ALIGNMENT, f"Figure 4; {NO_NUMBERS}",
         draw_layers(found.rows, shown, task="alignment", metric="aer",
                     label="alignment error rate (%)")),
        ("curves", "MLQA along pretraining", f"{_CURVES} {describe_courses(courses)}",
         f"Figure 5; {NO_NUMBERS}, but names steps 14K (English) and 20K (others) for XLM",
         draw_curves(courses, looks)),
        ("directions", "16 transfer directions", _DIRECTIONS, f"Figure 6; {NO_NUMBERS}",
         draw_directions(found, looks)),
        ("loss", "Training loss", _LOSS, "no counterpart", draw_loss(meta, logs, looks)),
    ]  # fmt: skip
    plates = [
        Plate(name, title, caption, paper, figure)
        for name, title, caption, paper, figure in candidates
        if figure is not None
    ]
    missing = [
        f"{title} ({paper.split(';')[0]})" if "Figure" in paper else title
        for _, title, _, paper, figure in candidates
        if figure is None
    ]  # fmt: skip
    return plates, missing


_GAINS = (
    "How many points MetaXLM and +Dict score above XLM: F1 of questions, reviews where finetuned "
    "and tested in one language, features at each model's best layer. Thick whiskers are 95 % "
    "intervals of paired tests over the same test examples; thin ones tell what other seeds of "
    "finetuning would change as well, with an arrow where they go on. Features were not tested. "
    "Left of the line is worse than XLM."
)


def describe_gains(found: Measurements) -> str:
    """Tell how to read the figure, and which of its points a collapsed finetuning pulls down."""
    failed = found.list_failed(MAIN_VARIANTS, [facts.name for facts in TASKS])
    return " ".join([_GAINS, *(each.describe() for each in failed)])


_OVERVIEW = (
    "The same scores in full: a task whose points lie on the majority mark has not been learned, "
    "and tells nothing about the models."
)
_RETRIEVAL = (
    "How often the nearest sentence in the other language is the right translation, by the mean "
    "of one layer's hidden states. Thick lines are means over languages and both directions; thin "
    "lines, or a band, are single languages. Higher is better."
)
_ALIGNMENT = (
    "How far the word links found from one layer's hidden states are from the gold links. Thick "
    "lines are means over language pairs. Lower is better."
)
_CURVES = (
    "Each kept checkpoint is finetuned in English and tested on MLQA: F1 in the other languages, "
    "in English, and the difference; bands are deviations over seeds. Shaded is the "
    "stretch between two checkpoints in which a curve leaves its plateau."
)
_DIRECTIONS = (
    "Reviews: finetuned in one language (the panel), tested in each; mean over books, DVDs and "
    "music, whiskers are deviations over seeds. The same language on both sides is supervised."
)
_LOSS = (
    "Masked-language-model loss over training steps; lower is better. Meta-pretraining has a "
    "vocabulary of its own, so its height does not compare with the others'."
)
