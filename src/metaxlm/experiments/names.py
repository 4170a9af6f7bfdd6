"""Names for readers: a variant of a recipe or a task comes in, the paper's name for it goes out.

Recipes and results.jsonl have short keys (`metaxlm+dict`, `pawsx`); reports and verdicts have the
names of the paper's tables. A report needs no torch, so this asks no task for its title.
"""

from __future__ import annotations

_VARIANTS = {
    "xlm": "XLM",
    "metaxlm": "MetaXLM",
    "metaxlm+dict": "MetaXLM+Dict",
    "body": "Body only",
    "embeddings": "Embeddings only",
    "freeze": "MetaXLM+freezing",
    "xlm+kd": "XLM+KD",
}
_TASKS = {
    "udpos": "POS",
    "panx": "NER",
    "xquad": "XQuAD",
    "mlqa": "MLQA",
    "tydiqa": "TyDiQA",
    "xnli": "XNLI",
    "pawsx": "PAWS-X",
    "amazon-books": "Amazon Books",
    "amazon-dvd": "Amazon DVD",
    "amazon-music": "Amazon Music",
    "tatoeba": "Tatoeba",
    "alignment": "word alignment",
}


def display_name(variant: str) -> str:
    """Return the name the paper gives a variant, or the variant's own."""
    return _VARIANTS.get(variant, variant)


def title_task(task: str) -> str:
    """Return the heading of a task in the paper's tables, or the task's own name."""
    return _TASKS.get(task, task)
