"""What trimming a vocabulary costs, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from metaxlm.languages import language_name
from metaxlm.vocabulary.trimming_loss import TrimLoss


def loss_table(
    losses: Mapping[str, TrimLoss], similarities: Mapping[str, float] | None = None
) -> Table:
    """Return a line a language; `similarities` are mean cosines of vectors before and after."""
    rows = next(iter(losses.values()))
    share = 100 * rows.rows_after / rows.rows_before
    title = f"{rows.rows_after:,} of {rows.rows_before:,} rows stay ({share:.1f} %)"
    table = Table(title=title, title_justify="left", caption="on sentences held out")
    headings = ["language", "sentences", "same cut", "tokens", "unknown"]
    headings += ["cosine"] if similarities else []
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for language, loss in losses.items():
        unknown = [
            100 * count / max(1, total)
            for count, total in (
                (loss.unknown_before, loss.tokens_before),
                (loss.unknown_after, loss.tokens_after),
            )
        ]
        cells = [
            language_name(language),
            f"{loss.sentences:,}",
            f"{100 * loss.same_share:.2f} %",
            f"{100 * loss.growth:+.3f} %",
            f"{unknown[0]:.3f} → {unknown[1]:.3f} %",
        ]
        table.add_row(*cells, *([f"{similarities[language]:.5f}"] if similarities else []))
    return table
