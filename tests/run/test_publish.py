"""A second run adds to a publication: what comes in, what stays, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from metaxlm.run.addition import add_run
from metaxlm.run.publication import publish, publish_more
from tests.analysis.paper_rows import make_comparison, make_row

from metaxlm.analysis.results import read_rows
from metaxlm.analysis.run_folder import read_run
from metaxlm.errors import MetaXLMError
from metaxlm.files import find_packed, read_json, write_json

RECIPE: dict[str, Any] = {
    "name": "tiny",
    "corpus": {"source": "text", "path": "here"},
    "model": {"layers": 2},
    "execution": {"log_every": 50},
    "variants": {"xlm": {"initialize": "none"}, "metaxlm": {"initialize": "both"}},
    "evaluation": {"data": "here/eval", "finetune": {"xnli": {"epochs": 3}}},
}
CellPlace = tuple[str, str, int]
"""Model, task, seed."""


def make_run(
    folder: Path,
    cells: list[CellPlace],
    *,
    score: float = 0.5,
    mark: str = "a",
    pairs: tuple[tuple[str, str], ...] = (("xlm", "metaxlm"),),
    **recipe: Any,
) -> Path:
    """Write the small files of a run with one score a cell."""
    folder.mkdir(parents=True)
    rows, made = [], []
    for number, (model, task, seed) in enumerate(cells):
        variant, _, step = model.partition("-step-")
        origin = f"{mark}{number}".ljust(64, "0")
        about = {"step": int(step or 12), "seed": seed, "origin": origin[:12]}
        rows.append(make_row(variant, task, "accuracy", "de", score, **about))
        rows.append(make_row(None, task, "majority", "de", 0.3, seed=seed, origin=origin[:12]))
        made.append({"model": model, "task": task, "source": "en", "seed": seed, "origin": origin})
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "results.jsonl").write_text(lines, encoding="utf-8")
    values = RECIPE | {"evaluation": RECIPE["evaluation"] | {"grid": [{"tasks": [mark]}]}} | recipe
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    names = sorted({model.partition("-step-")[0] for model, _, _ in cells})
    stages = [{"title": f"pretrain {name}", "seconds": 7 if mark == "a" else 8} for name in names]
    if mark == "b":
        stages = [{**stage, "weights": f"digest of {stage['title']}"} for stage in stages]
    facts = {"recipe": "tiny", "digest": mark, "torch": "2.0", "stages": stages, "cells": made}
    write_json(folder / "provenance.json", facts)
    test = make_comparison(cells[0][1], dict.fromkeys(pairs, (-0.05, 0.001)))
    write_json(folder / "comparisons.json", {mark: asdict(test)})
    for training in ("meta", *(f"variants/{name}" for name in names)):
        write_log(folder / training, speed=100.0 if mark == "a" else 90.0)
    return folder


def write_log(training: Path, speed: float = 100.0, loss: float = 3.0, steps: int = 3) -> None:
    rows: list[dict[str, Any]] = [
        {"step": step, "loss": loss / step, "tokens_per_second": speed, "seconds": step * speed}
        for step in range(1, steps + 1)
    ]
    rows.append({"step": steps, "held_out": {"en": loss}})
    training.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (training / "log.jsonl").write_text(lines, encoding="utf-8")


def list_seeds(folder: Path, model: str, task: str) -> dict[int, float]:
    """Return the scores of a cell's model and task by seed."""
    variant, _, step = model.partition("-step-")
    return {
        row["seed"]: row["value"]
        for row in read_rows(find_packed(folder / "results.jsonl"))
        if (row["variant"], row["step"], row["task"]) == (variant, int(step or 12), task)
    }


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = [("xlm", "xnli", 0), ("metaxlm", "xnli", 0), ("xlm-step-6", "xnli", 0)]
    folder = tmp_path_factory.mktemp("first")
    publish(make_run(folder / "run", cells), folder / "published")
    (folder / "published" / "data_notes.txt").write_text("By hand.\n")
    return folder / "published"


@pytest.fixture
def published(drawn: Path, tmp_path: Path) -> Path:
    return shutil.copytree(drawn, tmp_path / "published")


def test_cells_that_are_lacking_come_in_and_the_others_stay(
    published: Path, tmp_path: Path
) -> None:
    cells = [
        ("xlm-step-6", "xnli", 0), ("xlm-step-6", "xnli", 1), ("metaxlm", "pawsx", 0),
        ("mine", "xnli", 0),
    ]  # fmt: skip
    more = {"mine": {"initialize": "body"}}
    run = make_run(tmp_path / "second", cells, score=0.7, mark="b",
                   variants=RECIPE["variants"] | more)  # fmt: skip
    addition = publish_more(run, published)

    assert addition.describe() == (
        "added 3 cells; 1 stays as published (1 had other scores this time)"
    )
    assert list_seeds(published, "xlm-step-6", "xnli") == {0: 0.5, 1: 0.7}
    assert list_seeds(published, "metaxlm", "pawsx") == {0: 0.7}
    assert list_seeds(published, "metaxlm", "xnli") == {0: 0.5}
    levels = [
        row for row in read_rows(find_packed(published / "results.jsonl")) if row["variant"] is None
    ]
    assert {(row["task"], row["seed"]) for row in levels} == {
        ("xnli", 0), ("xnli", 1), ("pawsx", 0),
    }  # fmt: skip
    assert list(read_run(published).variants) == ["xlm", "metaxlm", "mine"]
    recipe = yaml.safe_load((published / "recipe.yaml").read_text("utf-8"))
    assert recipe["evaluation"]["grid"] == [{"tasks": ["a"]}, {"tasks": ["b"]}]
    assert recipe["corpus"] == RECIPE["corpus"]
    facts = read_json(published / "provenance.json")
    assert [cell["seed"] for cell in facts["cells"]] == [0, 0, 0, 1, 0, 0]
    seconds = {stage["title"]: stage["seconds"] for stage in facts["stages"]}
    assert seconds == {"pretrain metaxlm": 7, "pretrain xlm": 7, "pretrain mine": 8}
    weights = {stage["title"]: stage.get("weights") for stage in facts["stages"]}
    assert weights["pretrain xlm"] == "digest of pretrain xlm"
    assert weights["pretrain mine"] == "digest of pretrain mine"
    assert facts["digest"] not in ("a", "b")
    assert (published / "variants/mine/log.jsonl").is_file()
    assert '"tokens_per_second": 100.0' in (published / "variants/xlm/log.jsonl").read_text()
    assert (published / "data_notes.txt").read_text() == "By hand.\n"
    assert (published / "report" / "index.html").is_file()
    with pytest.raises(MetaXLMError, match=r"has no cell that .* lacks; nothing was changed"):
        publish_more(run, published)


def test_tests_come_in_only_for_scores_that_are_shown(published: Path, tmp_path: Path) -> None:
    cells = [("xlm", "xnli", 0), ("mine", "xnli", 0), ("ours", "xnli", 0)]
    pairs = (("xlm", "mine"), ("mine", "ours"), ("xlm", "metaxlm"))
    variants = RECIPE["variants"] | {"mine": {}, "ours": {}}

    def list_tests(score: float) -> list[list[tuple[str, str]]]:
        folder = tmp_path / f"measured-{score}"
        run = make_run(folder, cells, score=score, mark="b", pairs=pairs, variants=variants)
        tests = add_run(published, run).comparisons.values()
        return [[(pair["first"], pair["second"]) for pair in test["pairs"]] for test in tests]

    # XLM measured again is the one that stands there if its scores are.
    assert list_tests(0.7) == [[("xlm", "metaxlm")], [("mine", "ours")]]
    assert list_tests(0.5) == [[("xlm", "metaxlm")], [("xlm", "mine"), ("mine", "ours")]]


def test_a_test_of_published_cells_is_not_counted_twice(published: Path, tmp_path: Path) -> None:
    cells = [("xlm", "xnli", 0), ("metaxlm", "xnli", 0), ("metaxlm", "pawsx", 0)]
    addition = add_run(published, make_run(tmp_path / "second", cells, mark="b"))
    assert list(addition.comparisons) == ["a"]
    assert addition.describe() == (
        "added 1 cell; 2 stay as published (none had other scores this time)"
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"num_seeds": 4}, [(4, None)]),  # takes the place of the one of three seeds
        ({"num_seeds": 3}, [(3, None)]),
        ({"num_seeds": 1, "layer": 2}, [(3, None), (1, 2)]),
    ],
)
def test_the_test_of_more_seeds_is_kept(
    published: Path, tmp_path: Path, change: dict[str, Any], expected: list[tuple[int, int | None]]
) -> None:
    cells = [("xlm", "xnli", 0), ("metaxlm", "xnli", 0), ("metaxlm", "xnli", 1)]
    run = make_run(tmp_path / "second", cells, mark="b")
    [test] = read_json(run / "comparisons.json").values()
    write_json(run / "comparisons.json", {"b": test | change})
    found = add_run(published, run).comparisons.values()
    assert [(test["num_seeds"], test["layer"]) for test in found] == expected


def test_a_block_of_the_grid_stands_there_once(published: Path, tmp_path: Path) -> None:
    grid = [{"tasks": ["a"]}, {"tasks": ["b"]}]
    settings = RECIPE["evaluation"] | {"grid": grid}
    run = make_run(tmp_path / "second", [("xlm", "pawsx", 0)], mark="b", evaluation=settings)
    assert add_run(published, run).recipe["evaluation"]["grid"] == grid


def test_blocks_that_others_cover_are_dropped(published: Path, tmp_path: Path) -> None:
    def join(*grid: dict[str, Any]) -> list[dict[str, Any]]:
        recipe = yaml.safe_load((published / "recipe.yaml").read_text("utf-8"))
        recipe["evaluation"]["grid"] = [grid[0]]
        (published / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
        settings = RECIPE["evaluation"] | {"grid": list(grid[1:])}
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        run = make_run(folder, [("xlm", "pawsx", 0)], mark="b", evaluation=settings)
        return list(add_run(published, run).recipe["evaluation"]["grid"])

    reviews = {"tasks": ["amazon-books", "amazon-dvd", "amazon-music"], "variants": ["xlm"]}
    of_both = {"tasks": ["amazon", "xnli"], "steps": "kept"}
    assert join(reviews, of_both) == [of_both]  # a group, all variants, the finished model too
    halves = [{"tasks": ["amazon"], "variants": [name]} for name in ("xlm", "metaxlm")]
    assert join({"tasks": ["amazon"]}, *halves) == halves
    for other in (
        {"tasks": ["amazon"], "variants": ["metaxlm"]},
        {"tasks": ["amazon-books"]},
        {"tasks": ["amazon"], "seeds": 2},
        {"tasks": ["amazon"], "languages": ["de"]},
        {"tasks": ["amazon"], "sources": ["de"]},
    ):
        assert join(reviews, other) == [reviews, other]
    kept = reviews | {"steps": "kept"}
    assert join(kept, {"tasks": ["amazon"]}) == [kept, {"tasks": ["amazon"]}]


def test_other_machines_are_no_other_recipe(published: Path, tmp_path: Path) -> None:
    elsewhere = {
        "corpus": {"source": "text", "path": "there"},
        "execution": {"log_every": 50, "trackers": ["wandb"]},
        "evaluation": RECIPE["evaluation"] | {"data": "there/eval", "grid": []},
    }
    run = make_run(tmp_path / "second", [("xlm", "pawsx", 0)], mark="b", **elsewhere)
    assert add_run(published, run).num_added == 1


def change_settings(run: Path) -> None:
    recipe = yaml.safe_load((run / "recipe.yaml").read_text("utf-8"))
    recipe["evaluation"]["finetune"]["xnli"]["epochs"] = 5
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")


def change_variant(run: Path) -> None:
    recipe = yaml.safe_load((run / "recipe.yaml").read_text("utf-8"))
    recipe["variants"]["xlm"]["initialize"] = "body"
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")


def change_test_set(run: Path) -> None:
    path = run / "results.jsonl"
    path.write_text(path.read_text("utf-8").replace('"examples": 100', '"examples": 99'))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change_settings, r"evaluation\.finetune\.xnli\.epochs: 3 -> 5.*another folder"),
        (change_variant, r"variants\.xlm\.initialize: none -> body"),
        (lambda run: write_log(run / "meta", loss=3.5), r"meta: is another .*loss: 3\.0 -> 3\.5"),
        (
            lambda run: write_log(run / "variants/xlm", steps=2),
            r"variants/xlm: is another training",
        ),
        (change_test_set, "xnli test de has 99 examples, the published one 100"),
        (lambda run: (run / "recipe.yaml").write_text("name: tiny"), "has no variants"),
        (lambda run: write_json(run / "provenance.json", {}), "tells no stages and cells"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    published: Path, tmp_path: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    run = make_run(tmp_path / "second", [("xlm", "xnli", 1)], mark="b")
    assert add_run(published, run).num_added == 1
    spoil(run)
    before = find_packed(published / "results.jsonl").read_bytes()
    with pytest.raises(MetaXLMError, match=message):
        publish_more(run, published)
    assert find_packed(published / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize(("score", "expected"), [(0.5, [0.7, 0.2]), (0.6, None)])
def test_losses_that_are_not_known_come_with_equal_scores(
    published: Path, tmp_path: Path, score: float, expected: list[float] | None
) -> None:
    cells = [("xlm", "xnli", 0), ("xlm", "xnli", 1)]
    run = make_run(tmp_path / "second", cells, mark="b", score=score)
    facts = read_json(run / "provenance.json")
    facts["cells"][0]["losses"] = [0.7, 0.2]
    write_json(run / "provenance.json", facts)
    found = add_run(published, run).provenance["cells"]
    assert [cell.get("losses") for cell in found] == [expected, None, None, None]


def test_other_weights_are_another_training(published: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "second", [("xlm", "xnli", 1)], mark="b")
    publish_more(run, published)
    facts = read_json(run / "provenance.json")
    facts["stages"][0]["weights"] = "other"
    write_json(run / "provenance.json", facts)
    with pytest.raises(MetaXLMError, match="pretrain xlm ended with other weights than the publ"):
        add_run(published, run)


def test_a_shorter_log_that_agrees_so_far_is_named(published: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "second", [("xlm", "xnli", 1)], mark="b")
    log = run / "variants/xlm/log.jsonl"
    log.write_text("".join(log.read_text("utf-8").splitlines(keepends=True)[:-1]))
    with pytest.raises(MetaXLMError, match="rows of the log: 4 -> 3"):
        add_run(published, run)


def test_there_must_be_a_publication(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [("xlm", "xnli", 1)])
    with pytest.raises(MetaXLMError, match="nothing is published there yet; leave out --add"):
        publish_more(run, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
