from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from metaxlm.analysis.report import write_report
from metaxlm.analysis.run_folder import collect_examples, read_run
from metaxlm.errors import MetaXLMError
from metaxlm.recipe.schema import name_switched
from tests.analysis.fake_run import BEST_LAYER, LANGUAGES, RECIPE, VARIANTS, make_row, write_lines


@pytest.mark.parametrize("content", [None, ""])
def test_no_results_is_a_clear_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "results.jsonl").write_text(content)
    with pytest.raises(MetaXLMError, match=r"results\.jsonl.*metaxlm run"):
        write_report(tmp_path)
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{oops", "not valid JSON"),
        ("[1]", "JSON object"),
        ('{"a": 1}, {"b": 2}', "not valid JSON"),
        (json.dumps(make_row("xlm", "tatoeba", "accuracy", "de", float("nan"))), "not a number"),
        (json.dumps({"task": "tatoeba", "value": 1.0}), "needs `task` and `metric`"),
    ],
)
def test_broken_row_is_named(run_dir: Path, line: str, problem: str) -> None:
    path = run_dir / "results.jsonl"
    first = path.read_text().splitlines()[0]
    path.write_text(f"{first}\n" * 2000 + f"{line}\n")  # lines are parsed in batches
    with pytest.raises(MetaXLMError, match=rf"results\.jsonl:2001: .*{problem}"):
        read_run(run_dir)


def test_missing_pieces_are_named(run_dir: Path) -> None:
    rows = [
        row
        for line in (run_dir / "results.jsonl").read_text().splitlines()
        if (row := json.loads(line))["variant"] != "metaxlm+dict" and row["task"] == "tatoeba"
    ]
    write_lines(run_dir / "results.jsonl", rows)
    shutil.rmtree(run_dir / "variants" / "metaxlm+dict")
    shutil.rmtree(run_dir / "variants" / "metaxlm" / "initialization")
    (run_dir / "variants" / "xlm" / "log.jsonl").unlink()
    (run_dir / "meta" / "log.jsonl").unlink()
    told = " ".join(read_run(run_dir).missing)
    assert "MetaXLM+Dict has not run." in told
    assert "no word-alignment results" in told
    assert "no cross-lingual transfer results" in told
    assert "no training log for XLM." in told
    assert "no vocabulary-matching record for MetaXLM." in told
    assert "no meta-pretraining log" in told
    assert "sentence-retrieval" not in told


def test_only_what_the_grid_asks_for_is_missing(run_dir: Path) -> None:
    """A candidate that no block names, and a row of switched words, which was not pretrained."""
    grid = "evaluation:\n  grid:\n    - {{tasks: [xnli], variants: [xlm, metaxlm{0}]}}\n"
    more = "  {0}:\n    initialize: none\n".format
    rows = [make_row(name_switched("metaxlm", 0.5), "xnli", "accuracy", "de", 0.5)]
    with (run_dir / "results.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    for named, is_missing in (("", False), (", candidate", True)):
        text = RECIPE + more("candidate") + grid.format(named)
        (run_dir / "recipe.yaml").write_text(text, encoding="utf-8")
        lines = " ".join(read_run(run_dir).missing)
        assert ("candidate has not run" in lines) == is_missing
        assert "switched" not in lines


@pytest.mark.parametrize("place", ["model/training_log.jsonl", "checkpoints/log.jsonl"])
def test_logs_and_complete_runs(run_dir: Path, place: str) -> None:
    """A log is found where training leaves it, without rows that have no loss."""
    run = read_run(run_dir)
    assert (run.name, run.missing, run.variants) == ("fake", [], list(VARIANTS))
    home = run_dir / "variants" / "xlm"
    (home / place).parent.mkdir()
    (home / "log.jsonl").rename(home / place)
    with (home / place).open("a", encoding="utf-8") as file:
        file.write('{"step": 7, "held_out": {"en": 2.5}}\n{"step": 7, "spike": {"loss": 9.0}}\n')
        file.write('{"step": 8, "loss": null, "skipped": 3}\n')
    assert read_run(run_dir).logs["xlm"] == run.logs["xlm"]
    (run_dir / "meta" / "log.jsonl").unlink()
    (run_dir / "recipe.yaml").write_text(RECIPE + "meta:\n  model: roberta-base\n")
    assert read_run(run_dir).missing == []  # an imported encoder needs no log


def test_record_of_rows_that_were_not_copied_is_left_out(run_dir: Path) -> None:
    text = RECIPE.replace("  metaxlm:\n    initialize: both", "  metaxlm:\n    initialize: body")
    text = text.replace("initialize: none", "initialize: {words: false, head: false}")
    (run_dir / "recipe.yaml").write_text(text)
    run = read_run(run_dir)
    assert list(run.coverage) == ["metaxlm+dict"]
    assert run.missing == []
    assert run.describe_initialization("metaxlm").endswith("its word embeddings are random.")
    assert "dictionaries" in run.describe_initialization("metaxlm+dict")
    assert "initialized at random" in run.describe_initialization("xlm")


def test_broken_recipe_and_examples_are_named(run_dir: Path) -> None:
    (run_dir / "recipe.yaml").write_text("a: [")
    with pytest.raises(MetaXLMError, match=r"recipe\.yaml:1: not valid YAML"):
        read_run(run_dir)
    (run_dir / "recipe.yaml").write_text(RECIPE)
    (run_dir / "cells/xlm/tatoeba/en-0/cell.json").write_text("{")
    with pytest.raises(MetaXLMError, match=r"cell\.json:1: not valid JSON"):
        read_run(run_dir)


def test_examples_of_all_variants_are_grouped_by_sentence(run_dir: Path) -> None:
    run = read_run(run_dir)
    aligned = collect_examples(run, "alignment", ("source_words", "target_words"), 2)
    assert list(aligned) == list(LANGUAGES)
    [german] = aligned["de"]
    assert [example["layer"] for example in german.values()] == [BEST_LAYER] * len(VARIANTS)
    assert german["metaxlm+dict"]["summary"] == "7 right, 0 wrong, 0 missed"
    assert german["xlm"]["summary"] == "3 right, 4 wrong, 4 missed"
    assert german["metaxlm+dict"]["matrix"][0] == ("The", ["sure", *[""] * 6])
    [query] = collect_examples(run, "tatoeba", ("query", "expected"), 2)["de"]
    assert [answer["is_right"] for answer in query.values()] == [False, True, True]
    # The best layer is shown, and the first sentences of each language.
    stored = run.examples["xlm"]["tatoeba"]
    first = stored[0] | {"layer": 1, "found": "another layer"}
    run.examples["xlm"]["tatoeba"] = [first, *stored, stored[0] | {"query": "a second one"}]
    [query] = collect_examples(run, "tatoeba", ("query",), 1)["de"]
    assert query["xlm"]["layer"] == BEST_LAYER


def test_repeated_evaluation_counts_once(tmp_path: Path) -> None:
    rows = [make_row("xlm", "tatoeba", "accuracy", "de", value, layer=1) for value in (0.1, 0.2)]
    write_lines(tmp_path / "results.jsonl", rows)
    assert read_run(tmp_path).results.frame["value"].tolist() == [0.2]


def test_variants_that_differ_in_their_seed_alone_are_repetitions(run_dir: Path) -> None:
    settings = {"initialize": "both", "seed": None}
    variants = {
        "metaxlm": settings,
        "metaxlm-2": {"initialize": "both", "seed": 2},
        "slow": {**settings, "seed": 2, "learning_rate": 1e-4},
        "same": settings,
    }
    recipe = {"name": "test", "languages": ["en", "de"], "variants": variants}
    (run_dir / "recipe.yaml").write_text(json.dumps(recipe))
    switched = [name_switched(name, 0.5) for name in ("metaxlm", "metaxlm-2", "slow")]
    rows = [make_row(name, "xnli", "accuracy", "de", 0.5) for name in switched]
    write_lines(run_dir / "results.jsonl", rows)
    results = read_run(run_dir).results
    assert results.repeated == {
        "metaxlm-2": "metaxlm",
        "metaxlm-2+switched-0.5": "metaxlm+switched-0.5",
    }
    assert results.text_languages == {"en", "de"}
