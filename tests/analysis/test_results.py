"""One rule for splits, steps and layers, and nothing else that has one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from metaxlm.analysis.results import FEATURES, TASKS, choose_splits, make_frame, select
from metaxlm.analysis.scores import Results
from metaxlm.finetune.catalog import TASKS as REGISTERED
from tests.analysis.fake_run import make_row as make_feature
from tests.analysis.rows import make_results, make_row, make_scores

SOURCE = Path(__file__).parents[2] / "src" / "metaxlm"


def values(rows: list[dict[str, Any]], **about: Any) -> list[float]:
    return select(make_frame(rows), **about)["value"].tolist()


@pytest.mark.parametrize("name", ["dev-de-subset", "validation", "train-10"])
def test_test_sets_count_before_dev_sets(name: str) -> None:
    rows = [
        make_row("xnli", "xlm", 0.9, split=name, language="de"),
        make_row("xnli", "xlm", 0.5, split="test", language="de"),
    ]
    assert values(rows, task="xnli") == [0.5]
    assert make_results(rows).scores("xnli", "xlm") == {("en", "de"): {0: 0.5}}
    assert values(rows, task="xnli", split=name) == [0.9]
    assert choose_splits(("m", row["split"], "de") for row in rows) == {("m", "de"): "test"}


def test_dev_sets_count_where_more_languages_have_them() -> None:
    rows = [make_row("xnli", "xlm", 0.9, split="dev", language=code) for code in ("de", "fr")]
    rows += [make_row("xnli", "xlm", 0.5, split="test", language="de")]
    rows += [make_row("xnli", None, 0.3, split="test", language="fr", metric="majority")]
    assert values(rows, task="xnli") == [0.9, 0.9]


def test_each_model_has_one_file_per_language() -> None:
    rows = [make_row("xnli", "xlm", 0.5, split="test-first-64")]
    rows += [make_row("xnli", "metaxlm", 0.6 + k / 10, split="test", seed=k) for k in range(2)]
    rows += [make_row("xnli", "metaxlm", 0.1, split="test-hard")]
    assert values(rows, task="xnli") == [0.5, 0.6, 0.7]


def test_only_the_last_step_of_each_variant_is_final() -> None:
    rows = [make_row("xnli", "xlm", step / 1000, step=step) for step in (100, 300, 200)]
    rows += [make_row("xnli", "metaxlm", 0.9, step=50), make_row("xnli", "own", 0.7, step=None)]
    rows += [make_row("xnli", None, 0.3, metric="majority")]
    assert values(rows, task="xnli", metric="accuracy") == [0.3, 0.9, 0.7]
    assert values(rows, task="xnli", variants=["xlm"], step="all") == [0.1, 0.3, 0.2]
    assert make_results(rows).final_steps == {"xlm": 300, "metaxlm": 50, "own": None}


def test_the_best_layer_is_over_common_languages() -> None:
    rows = [
        make_feature(variant, "tatoeba", "accuracy", language, value, layer=layer)
        for variant, language, scores in (
            ("xlm", "de", (0.1, 0.3, 0.3)), ("xlm", "fr", (0.9, 0.1, 0.1)),
            ("metaxlm", "de", (0.2, 0.1, 0.4)),
        )
        for layer, value in enumerate(scores)
    ]  # fmt: skip
    assert Results(make_frame(rows)).best_layers("tatoeba", ["xlm", "metaxlm"]) == {
        "xlm": 1,  # the lowest of equals
        "metaxlm": 2,
    }
    assert values(rows, task="tatoeba", layer="best", variants=["metaxlm"]) == [0.4]
    assert values(rows, task="tatoeba", layer=0, variants=["xlm"]) == [0.1, 0.9]
    errors = [{**row, "task": "alignment", "metric": "aer"} for row in rows]
    assert Results(make_frame(errors)).best_layers("alignment", ["xlm", "metaxlm"]) == {
        "xlm": 0, "metaxlm": 1,
    }  # fmt: skip


def test_collapsed_finetunings() -> None:
    rows = [
        make_row("xnli", None, 1 / 3, metric="majority", language=code) for code in ("en", "de")
    ]
    rows += make_scores("xnli", "xlm", {"en": [0.6, 0.34, 0.62], "de": [0.5, 0.33, 0.52]})
    rows += make_scores("xnli", "metaxlm", {"en": [0.34, 0.33], "de": [0.5, 0.5]})  # none learned
    [found] = make_results(rows).collapsed
    assert (found.variant, found.seeds, found.num_seeds) == ("xlm", (1,), 3)
    assert (found.value, found.others) == pytest.approx((0.34, 0.56))
    assert "XNLI: 1 of 3 finetunings of XLM collapsed (seed 1: 34.0 in English)" in found.describe()


def test_seeds_that_not_all_languages_have_are_left_out() -> None:
    rows = make_scores("xnli", "xlm", {"en": [0.6, 0.8], "de": [0.4]})
    section = make_results(rows).section("xnli", "transfer", ["xlm"])
    assert section is not None
    assert section.series("xlm") == pytest.approx({0: 0.5})
    apart = [make_row("xnli", "xlm", 0.6), make_row("xnli", "xlm", 0.4, language="de", seed=1)]
    section = make_results(apart).section("xnli", "transfer", ["xlm"])
    assert section is not None and section.series("xlm") == pytest.approx({0: 0.5})


def test_the_table_of_tasks_agrees_with_the_tasks() -> None:
    assert [*REGISTERED, *FEATURES] == [*TASKS]
    for name, task in REGISTERED.items():
        info = TASKS[name]
        assert (info.title, info.metric) == (task.title, task.metric)
        assert info.trained_in_each == name.startswith("amazon")


def test_only_select_filters_by_split_step_or_layer() -> None:
    """Outside results.py nothing compares these fields of a row or of the frame."""
    fields = r"""\[["'](?:split|step|layer)["']\]|\.get\(["'](?:split|layer)["']\)"""
    pattern = re.compile(
        rf"(?:row|rows|frame|result|df)\w*(?:{fields})\s*(?:==|!=|in\b|not in\b|\.isin)"
        r"|\bis_tuning\b"
    )
    texts = {path.name: path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    assert not [n for n, text in texts.items() if n != "results.py" and pattern.search(text)]
    assert pattern.search('if row["split"] == "test"') and pattern.search('rows["step"].isin(x)')
