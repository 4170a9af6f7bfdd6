"""The figures of a report with their words: title, how to read it, and its place in the paper."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from metaxlm.report.figures import draw_coverage, draw_layers, draw_loss, draw_transfer, list_drawn
from metaxlm.report.palette import Look
from metaxlm.report.run_folder import Run


@dataclass(frozen=True)
class Plate:
    """A figure with its caption; `name` is its files'."""

    name: str
    title: str
    caption: str
    paper: str
    figure: Figure
    section: str = "figures"
    """Where on the page it stands."""


def make_plates(run: Run, looks: dict[str, Look]) -> list[Plate]:
    """Draw every figure that the run has the data for."""
    retrieval = draw_layers(
        run.rows, looks, task="tatoeba", metric="accuracy", label="accuracy (%)"
    )
    alignment = draw_layers(
        run.rows, looks, task="alignment", metric="aer", label="alignment error rate (%)"
    )
    candidates = [
        ("retrieval", "Sentence retrieval by layer", _RETRIEVAL, "Figure 3", retrieval),
        ("alignment", "Word alignment by layer", _ALIGNMENT, "Figure 4", alignment),
        ("transfer", "Cross-lingual transfer by language", _describe_transfer(run, looks),
         "Table 1 and the tables of the appendix", draw_transfer(run.rows, looks)),
        ("loss", "Training loss", _LOSS,
         "no counterpart; Figure 5 follows scores instead of the loss along pretraining",
         draw_loss(run.meta_log, run.logs, looks)),
        ("coverage", "Copied rows, by rule and by language", _COVERAGE,
         "no counterpart; section 3.2 describes the matching",
         draw_coverage(run.coverage, looks)),
    ]  # fmt: skip
    return [
        Plate(name, title, caption, paper, figure, "start" if name == "coverage" else "figures")
        for name, title, caption, paper, figure in candidates
        if figure is not None
    ]


def _describe_transfer(run: Run, looks: dict[str, Look]) -> str:
    drawn = list_drawn(run.rows, looks)
    measured = {row["variant"] for row in run.rows if row.get("scenario") == "transfer"} - {None}
    if len(measured) == len(drawn):
        return _TRANSFER
    return f"{_TRANSFER} The first {len(drawn)} of {len(measured)} variants; the tables have all."


_RETRIEVAL = (
    "How often the nearest sentence in the other language is the right translation, when sentences "
    "are compared by the mean of one layer's hidden states. Thick lines are means over languages "
    "and both directions; thin lines, or a band, are single languages. Higher is better."
)
_ALIGNMENT = (
    "How far the word links found from one layer's hidden states are from the gold links. Thick "
    "lines are means over languages; thin lines, or a band, are single languages. Lower is better."
)
_TRANSFER = (
    "Each model is finetuned in the source language, which stands first, and tested in every "
    "language. A dashed line marks the score of always giving the most frequent label: a bar that "
    "does not rise above it has transferred nothing."
)
_LOSS = (
    "Masked-language-model loss over training steps; lower is better. Look at how low a variant "
    "begins, and whether the curves meet. Meta-pretraining has a vocabulary of its own, so its "
    "height does not compare with the others'."
)
_COVERAGE = (
    "Above: the share of vocabulary rows that each matching rule filled; filler rows have no match "
    "and start random. Below: how much of each language's running text is covered by copied rows. "
    "A variant that copies no rows is not drawn."
)
