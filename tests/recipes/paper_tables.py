"""Models and tasks of each table and figure of the paper.

Names are those of the recipes (`udpos` is POS, `panx` NER, `body` the initialization table's Body).
The numbers of the tables are in `metaxlm.analysis.paper`.
"""

from __future__ import annotations

from dataclasses import dataclass

XTREME = ("udpos", "panx", "xquad", "mlqa", "tydiqa", "xnli", "pawsx")
AMAZON = ("amazon-books", "amazon-dvd", "amazon-music")
FIVE = ("xquad", "mlqa", "tydiqa", "xnli", "pawsx")  # the columns of tables 3, 4 and 5
FEATURES = ("tatoeba", "alignment")
THREE = ("xlm", "metaxlm", "metaxlm+dict")
OTHERS = ("xlm+kd", "freeze", "body", "embeddings")  # the further models of tables 3, 4 and 5


@dataclass(frozen=True)
class Table:
    variants: tuple[str, ...]
    tasks: tuple[str, ...]
    along_steps: bool = False  # whether kept checkpoints are evaluated too


PAPER_TABLES = {
    "xtreme": Table(THREE, XTREME),  # table 1
    "amazon": Table(THREE, AMAZON),  # table 2
    "distillation": Table(("xlm", "xlm+kd", "metaxlm"), FIVE),  # table 3
    "freezing": Table(("xlm", "metaxlm", "freeze"), FIVE),  # table 4
    "initialization": Table(("xlm", "body", "embeddings", "metaxlm"), FIVE),  # table 5
    # Figures 3 and 4 have XLM and MetaXLM; +Dict is ours.
    "retrieval": Table(THREE, ("tatoeba",)),
    "alignment": Table(THREE, ("alignment",)),
    "curves": Table(("xlm", "metaxlm"), ("mlqa",), along_steps=True),  # figure 5
    "directions": Table(("xlm", "metaxlm"), AMAZON),  # figure 6
}
# The twin's curves also have tasks without finetuning.
CURVES = Table(("xlm", "metaxlm"), ("mlqa", *FEATURES), along_steps=True)
TABLES = {"paper": PAPER_TABLES, "twin": PAPER_TABLES | {"curves": CURVES}}
IDEAS = ("dict+use", "dict+switch")  # our variants, which the twin compares with the paper's +Dict
