"""A run folder with invented numbers, complete in every file the report reads.

No model made these scores: they follow simple formulas (`retrieval_value` and its like), so that
tests can compute by hand what the report must show.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tests.analysis import rows

VARIANTS = ("xlm", "metaxlm", "metaxlm+dict")
LANGUAGES = ("de", "ru", "zh", "ar")
LAYERS = 5
BEST_LAYER = 3
EXAMPLES = 200

RECIPE = """\
name: fake
seed: 1
languages: [en, de, ru, zh, ar]
source_language: en
corpus:
  source: phrasebook
model:
  layers: 4
  hidden: 128
  heads: 4
vocabulary:
  size: 8000
variants:
  xlm:
    initialize: none
  metaxlm:
    initialize: both
  metaxlm+dict:
    initialize: both
    dictionaries: true
"""

_ENGLISH = ["The", "old", "teacher", "reads", "a", "book", "."]
_SENTENCES = {
    "de": ["Der", "alte", "Lehrer", "liest", "ein", "Buch", "."],
    "ru": ["Старый", "учитель", "читает", "книгу", "."],
    "zh": ["老", "老师", "在", "读", "一", "本", "书", "。"],
    "ar": ["يقرأ", "المعلم", "العجوز", "كتابا", "."],
}
_SURE = {
    "de": [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)],
    "ru": [(1, 0), (2, 1), (3, 2), (5, 3), (6, 4)],
    "zh": [(1, 0), (2, 1), (3, 3), (4, 4), (5, 6), (6, 7)],
    "ar": [(3, 0), (2, 1), (1, 2), (5, 3), (6, 4)],
}
_POSSIBLE = {"de": [], "ru": [(0, 0), (4, 3)], "zh": [(4, 5), (3, 2)], "ar": [(0, 1), (4, 3)]}
_TRANSLATIONS = {
    "de": "Der Bus ist heute leer.",
    "ru": "Автобус сегодня пустой.",
    "zh": "公共汽车今天是空的。",
    "ar": "الحافلة فارغة اليوم.",
}


def retrieval_value(variant: str, layer: int, language: str, seed: int = 1) -> float:
    """Invented retrieval accuracy: best at layer 3, better by variant, worse by language."""
    level = {"xlm": 0.2, "metaxlm": 0.45, "metaxlm+dict": 0.7}[variant]
    return level - 0.04 * abs(layer - BEST_LAYER) - 0.02 * LANGUAGES.index(language) + 0.01 * seed


def aer_value(variant: str, layer: int, language: str, seed: int = 1) -> float:
    """Invented alignment error: the mirror image of retrieval."""
    return 1 - retrieval_value(variant, layer, language, seed)


def make_run(
    folder: Path, *, seeds: int = 1, transfer: bool = True, alignment: bool = True
) -> Path:
    """Write a complete run folder, or one without transfer or alignment results."""
    made: list[dict[str, Any]] = []
    for seed in range(1, seeds + 1):
        for variant in VARIANTS:
            made += _feature_rows(variant, seed, alignment)
            if transfer:
                made += _transfer_rows(variant, seed)
    if transfer:
        made += [
            make_row(None, "xnli", "majority", language, 1 / 3, scenario="transfer")
            for language in ("en", *LANGUAGES)
        ]
    write_lines(folder / "results.jsonl", made)
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    write_lines(folder / "meta" / "log.jsonl", _log(8.0, 1.9))
    for number, variant in enumerate(VARIANTS):
        home = folder / "variants" / variant
        write_lines(home / "log.jsonl", _log(9.0 - 1.2 * number, 3.4 - 0.5 * number))
        examples = _examples(number, alignment)
        for task, name in (("tatoeba", "retrieval"), ("alignment", "alignment")):
            cell = folder / "cells" / variant / task / "en-0" / "cell.json"
            write_json(cell, {"examples": examples[name]})
        if number:
            write_json(home / "initialization" / "coverage.json", make_coverage(number == 2))
    return folder


def make_row(
    variant: str | None, task: str, metric: str, language: str, value: float, **more: Any
) -> dict[str, Any]:
    """Return a row of a feature, unless another scenario is given."""
    about = {"run": "fake", "scenario": "features", "examples": EXAMPLES, "seed": 1, "step": 1000}
    about |= {"metric": metric, "language": language, "origin": "", "version": "0.0.0"}
    return rows.make_row(task, variant, value, **about | more)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _feature_rows(variant: str, seed: int, alignment: bool) -> list[dict[str, Any]]:
    made = []
    for language in LANGUAGES:
        for layer in range(LAYERS):
            value = retrieval_value(variant, layer, language, seed)
            metrics = {"accuracy": 0.0, "accuracy_to_source": 0.02, "accuracy_from_source": -0.02}
            made += [
                make_row(variant, "tatoeba", m, language, value + d, layer=layer, seed=seed)
                for m, d in metrics.items()
            ]
            if alignment:
                error = aer_value(variant, layer, language, seed)
                values = {"aer": error, "precision": 1 - error, "recall": 0.9 - error / 2}
                made += [
                    make_row(variant, "alignment", m, language, v, layer=layer, seed=seed)
                    for m, v in values.items()
                ]
    return made


def _transfer_rows(variant: str, seed: int) -> list[dict[str, Any]]:
    """XNLI: alike in English, apart in the others."""
    k, about = VARIANTS.index(variant), {"scenario": "transfer", "seed": seed}
    values = {"en": 0.85 + 0.01 * k + 0.01 * seed}
    values |= {x: 0.36 + 0.15 * k - 0.01 * n + 0.01 * seed for n, x in enumerate(LANGUAGES)}
    return [make_row(variant, "xnli", "accuracy", x, v, **about) for x, v in values.items()]


def _log(start: float, end: float) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "loss": end + (start - end) * math.exp(-step / 250) + 0.05 * math.sin(step),
            "learning_rate": 1e-4, "gradient_norm": 1.0, "tokens": step * 4096,
            "seconds": step * 0.09,
        }
        for step in range(20, 1001, 20)
    ]  # fmt: skip


def _examples(quality: int, alignment: bool) -> dict[str, Any]:
    drawn, asked = [], []
    for language in LANGUAGES:
        sure = _SURE[language]
        wrong = [((i + 2) % len(_ENGLISH), j) for i, j in sure][: 4 - 2 * quality]
        right = sure[4 - 2 * quality :] + _POSSIBLE[language][:quality]
        drawn.append(
            {
                "language": language, "layer": BEST_LAYER, "source_words": _ENGLISH,
                "target_words": _SENTENCES[language], "sure": sure,
                "possible": _POSSIBLE[language], "predicted": sorted(right + wrong),
            }
        )  # fmt: skip
        expected = "The bus is empty today."
        found = expected if quality else "The bottle is empty <script>alert(1)</script> & gone."
        asked.append(
            {
                "language": language, "layer": BEST_LAYER, "query": _TRANSLATIONS[language],
                "expected": expected, "found": found, "similarity": 0.5 + 0.2 * quality,
            }
        )  # fmt: skip
    return {"alignment": drawn if alignment else [], "retrieval": asked}


def make_coverage(dictionary: bool) -> dict[str, Any]:
    """Return what a variant's rows start from."""
    found = 2600 if dictionary else 0
    by_rule = {"special": 5, "direct": 1495, "lower": 300, "accents": 200}
    shares = {"en": 0.97, "de": 0.31, "ru": 0.05, "zh": 0.04, "ar": 0.03}
    return {
        "rows": 8000,
        "by_rule": by_rule
        | {
            "dictionary": found - found // 13,
            "dictionary_tokens": found // 13,
            "filler": 6000 - found,
        },
        "by_script": {
            "Latin": {"rows": 4000, "matched": 1900 + found // 2},
            "Cyrillic": {"rows": 2000, "matched": found // 4},
            "Han": {"rows": 2000, "matched": found // 4},
        },
        "by_language": {
            language: {"tokens": 90_000, "matched": min(0.97, share + 0.5 * dictionary)}
            for language, share in shares.items()
        },
    }
