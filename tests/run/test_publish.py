"""Publications of runs, and additions from another run of the same recipe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.analysis.fake_run import make_coverage
from tests.analysis.paper_rows import make_comparison, make_row

from metaxlm.analysis.report import write_report
from metaxlm.analysis.results import read_rows
from metaxlm.analysis.run_folder import read_run
from metaxlm.errors import MetaXLMError
from metaxlm.files import find_packed, read_json, write_json
from metaxlm.run.publish import add_run, publish, publish_more

RECIPE: dict[str, Any] = {
    "name": "tiny",
    "corpus": {"source": "text", "path": "here"},
    "model": {"layers": 2},
    "execution": {"log_every": 50},
    "variants": {"xlm": {"initialize": "none"}, "metaxlm": {"initialize": "both"}},
    "evaluation": {"data": "here/eval", "finetune": {"xnli": {"epochs": 3}}},
}
LOG = "variants/xlm/log.jsonl"
JobPlace = tuple[str, str, int]
"""Model, task, seed."""
JOBS: list[JobPlace] = [("xlm", "xnli", 0), ("metaxlm", "xnli", 0), ("xlm-step-6", "xnli", 0)]


def make_run(
    folder: Path,
    jobs: list[JobPlace],
    *,
    score: float = 0.5,
    mark: str = "a",
    pairs: tuple[tuple[str, str], ...] = (("xlm", "metaxlm"),),
    **recipe: Any,
) -> Path:
    """Write the small files of a run with one score per job."""
    folder.mkdir(parents=True)
    rows, made = [], []
    for number, (model, task, seed) in enumerate(jobs):
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
    names = sorted({model.partition("-step-")[0] for model, _, _ in jobs})
    stages = [{"title": f"pretrain {name}", "seconds": 7 if mark == "a" else 8} for name in names]
    if mark == "b":
        stages = [{**stage, "weights": f"digest of {stage['title']}"} for stage in stages]
    facts = {"recipe": "tiny", "digest": mark, "torch": "2.0", "stages": stages, "cells": made}
    write_json(folder / "provenance.json", facts)
    test = make_comparison(jobs[0][1], dict.fromkeys(pairs, (-0.05, 0.001)))
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
    """Return the scores of a model and task by seed."""
    variant, _, step = model.partition("-step-")
    return {
        row["seed"]: row["value"]
        for row in read_rows(find_packed(folder / "results.jsonl"))
        if (row["variant"], row["step"], row["task"]) == (variant, int(step or 12), task)
    }


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaxlm.run.publish.write_report", lambda folder: None)
        publish(make_run(folder / "run", JOBS), folder / "published")
    (folder / "published" / "data_notes.txt").write_text("By hand.\n")
    return folder / "published"


@pytest.fixture
def published(drawn: Path, tmp_path: Path) -> Path:
    return shutil.copytree(drawn, tmp_path / "published")


def test_missing_jobs_are_added_and_published_ones_kept(published: Path, tmp_path: Path) -> None:
    jobs = [
        ("xlm-step-6", "xnli", 0), ("xlm-step-6", "xnli", 1), ("metaxlm", "pawsx", 0),
        ("mine", "xnli", 0),
    ]  # fmt: skip
    more = {"mine": {"initialize": "body"}}
    run = make_run(tmp_path / "second", jobs, score=0.7, mark="b",
                   variants=RECIPE["variants"] | more)  # fmt: skip
    addition = publish_more(run, published)

    assert addition.describe() == (
        "added 3 jobs; kept 1 as published (1 had other scores this time)"
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
    with pytest.raises(MetaXLMError, match=r"has no job that .* lacks; nothing was changed"):
        publish_more(run, published)


def test_tests_are_added_only_for_published_scores(published: Path, tmp_path: Path) -> None:
    jobs = [("xlm", "xnli", 0), ("mine", "xnli", 0), ("ours", "xnli", 0)]
    pairs = (("xlm", "mine"), ("mine", "ours"), ("xlm", "metaxlm"))
    variants = RECIPE["variants"] | {"mine": {}, "ours": {}}

    def list_tests(score: float) -> list[list[tuple[str, str]]]:
        folder = tmp_path / f"measured-{score}"
        run = make_run(folder, jobs, score=score, mark="b", pairs=pairs, variants=variants)
        tests = add_run(published, run).comparisons.values()
        return [[(pair["first"], pair["second"]) for pair in test["pairs"]] for test in tests]

    # Tests with XLM are valid if its scores are the published ones.
    assert list_tests(0.7) == [[("xlm", "metaxlm")], [("mine", "ours")]]
    assert list_tests(0.5) == [[("xlm", "metaxlm")], [("xlm", "mine"), ("mine", "ours")]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"num_seeds": 4}, [(4, None)]),  # replaces the one of three seeds
        ({"num_seeds": 3}, [(3, None)]),
        ({"num_seeds": 1, "layer": 2}, [(3, None), (1, 2)]),
    ],
)
def test_the_test_of_more_seeds_is_kept(
    published: Path, tmp_path: Path, change: dict[str, Any], expected: list[tuple[int, int | None]]
) -> None:
    jobs = [("xlm", "xnli", 0), ("metaxlm", "xnli", 0), ("metaxlm", "xnli", 1)]
    run = make_run(tmp_path / "second", jobs, mark="b")
    [test] = read_json(run / "comparisons.json").values()
    write_json(run / "comparisons.json", {"b": test | change})
    found = add_run(published, run).comparisons.values()
    assert [(test["num_seeds"], test["layer"]) for test in found] == expected


def test_paths_trackers_and_old_names_may_differ(published: Path, tmp_path: Path) -> None:
    edit_recipe(published, lambda recipe: recipe.update(matching={"precedence": "use"}))
    elsewhere = {
        "corpus": {"source": "text", "path": "there"},
        "matching": {"precedence": "frequency_weighted"},
        "execution": {"log_every": 50, "trackers": ["wandb"]},
        "evaluation": RECIPE["evaluation"] | {"data": "there/eval", "grid": []},
    }
    run = make_run(tmp_path / "second", [("xlm", "pawsx", 0)], mark="b", **elsewhere)
    assert add_run(published, run).num_added == 1


def edit_recipe(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text("utf-8"))
    change(recipe)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")


def replace_text(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new))


def change(name: str, old: str, new: str) -> Callable[[Path], None]:
    return lambda run: replace_text(run / name, old, new)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change("recipe.yaml", "epochs: 3", "epochs: 5"), r"epochs: 3 -> 5.*another folder"),
        (change("recipe.yaml", "initialize: none", "initialize: body"), "initialize: none -> body"),
        (lambda run: write_log(run / "meta", loss=3.5), r"meta: differs from .*loss: 3\.0 -> 3\.5"),
        (change(LOG, '{"step": 3, "held_out": {"en": 3.0}}\n', ""), "rows of the log: 4 -> 3"),
        (change("results.jsonl", '"examples": 100', '"examples": 99'), "xnli test de has 99 exam"),
        (lambda run: (run / "recipe.yaml").write_text("name: tiny"), "has no variants"),
        (lambda run: write_json(run / "provenance.json", {}), "has no stages and cells"),
    ],
)
def test_a_run_that_is_not_comparable_is_rejected(
    published: Path, tmp_path: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    run = make_run(tmp_path / "second", [("xlm", "xnli", 1)], mark="b")
    assert add_run(published, run).num_added == 1
    spoil(run)
    before = find_packed(published / "results.jsonl").read_bytes()
    with pytest.raises(MetaXLMError, match=message):
        publish_more(run, published)
    assert find_packed(published / "results.jsonl").read_bytes() == before


def test_other_weights_are_rejected(published: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "second", [("xlm", "xnli", 1)], mark="b")
    facts = read_json(published / "provenance.json")
    facts["stages"] = [stage | {"weights": "other"} for stage in facts["stages"]]
    write_json(published / "provenance.json", facts)
    with pytest.raises(MetaXLMError, match="pretrain xlm has other weights than the published"):
        add_run(published, run)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The run of `drawn`, with files that are not published."""
    run_dir = make_run(tmp_path / "run", JOBS)
    (run_dir / "variants/xlm/model").mkdir()
    (run_dir / "variants/xlm/log.jsonl").rename(run_dir / "variants/xlm/model/training_log.jsonl")
    (run_dir / "variants/xlm/model/model.safetensors").write_bytes(bytes(1000))
    (run_dir / "cells").mkdir()
    write_json(run_dir / "variants/metaxlm/initialization/coverage.json", make_coverage(False))
    return run_dir


def list_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_publication_is_replaced_and_has_the_report_of_its_run(
    run_dir: Path, published: Path
) -> None:
    first = (published / "results.jsonl.xz").read_bytes()
    publish(run_dir, published)
    assert (published / "results.jsonl.xz").read_bytes() == first
    small = {name for name in list_files(published) if not name.startswith("report/")}
    assert small == {
        "results.jsonl.xz", "comparisons.json.xz", "recipe.yaml", "provenance.json",
        "data_notes.txt", "manifest.json", "meta/log.jsonl", "variants/xlm/log.jsonl",
        "variants/metaxlm/log.jsonl", "variants/metaxlm/initialization/coverage.json",
    }  # fmt: skip
    shutil.copyfile(published / "data_notes.txt", run_dir / "data_notes.txt")
    write_report(run_dir)
    before = {
        name: (run_dir / "report" / name).read_bytes() for name in list_files(run_dir / "report")
    }
    assert "claims.json" in before
    names = list_files(published / "report")
    assert {name: (published / "report" / name).read_bytes() for name in names} == before


def test_published_jobs_are_not_lost(published: Path, tmp_path: Path) -> None:
    before = {name: (published / name).read_bytes() for name in list_files(published)}
    lost = r"has results that .*run lacks \(1, such as xlm xnli en-0 at step 6\); use --add"
    with pytest.raises(MetaXLMError, match=lost):
        publish(make_run(tmp_path / "run", JOBS[:2]), published)
    assert {name: (published / name).read_bytes() for name in list_files(published)} == before


def test_only_a_publication_is_replaced(run_dir: Path, published: Path) -> None:
    with pytest.raises(MetaXLMError, match="inside the run"):
        publish(run_dir, run_dir / "report")
    (published / "recipe.yaml").write_text("name: mine")
    with pytest.raises(MetaXLMError, match=r"is not a publication of|should be"):
        publish(run_dir, published)
    assert (published / "recipe.yaml").read_text() == "name: mine"
