"""The grid of a run: which cells there are, who makes them, and what counts as a result."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from metaxlm.run.grid import list_blocks, list_measured
from tests.commands import Command
from tests.toy_runs import run, start

from metaxlm import __version__
from metaxlm.analysis import results as results_file
from metaxlm.analysis.stats import read_comparisons
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file
from metaxlm.recipe.load import load_recipe

RECIPE = """\
name: toy
languages: [en, de]
corpus:
  phrasebook:
    {source_sentences: 600, sentences: 300, test_pairs: 12, aligned_pairs: 8,
     train_examples: 48, test_examples: 8}
vocabulary: {size: 500, monolingual_size: 400}
model: {layers: 2, hidden: 32, heads: 2, ffn: 64, max_positions: 64}
meta: &training
  {steps: 12, batch_size: 8, length: 32, learning_rate: 3e-3, warmup_steps: 2}
pretraining:
  <<: *training
  keep_steps: [4, 8, 20]
variants:
  xlm: {initialize: none}
  metaxlm: {initialize: both}
  body: {initialize: body}
evaluation:
  finetune:
    xnli: {epochs: 1, length: 48, seeds: 2}
    xquad: &squad {epochs: 1, length: 48}
    mlqa: *squad
  grid:
    - {tasks: [xnli, tatoeba], variants: [xlm, metaxlm], languages: [de]}
    - {tasks: [xquad, mlqa], variants: [metaxlm]}
    - {tasks: [mlqa, alignment], variants: [metaxlm], steps: kept}
"""
CELLS_ONLY = ("--stage", "evaluate")
"""No report, which takes longer than all cells."""
CELLS = {
    *(f"{v}/xnli/en-{seed}" for v in ("xlm", "metaxlm") for seed in range(2)),
    *(f"{v}/tatoeba/en-0" for v in ("xlm", "metaxlm")),
    "metaxlm/xquad/en-0",
    *(f"metaxlm{at}/{t}/en-0" for at in ("", "-step-4", "-step-8") for t in ("mlqa", "alignment")),
}


def list_cells(folder: Path) -> set[str]:
    root = folder / "runs" / "toy" / "cells"
    return {str(path.parent.relative_to(root)) for path in root.glob("*/*/[!.]*/cell.json")}


def read_rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "runs/toy/results.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process has done it all."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "toy.yaml").write_text(RECIPE, encoding="utf-8")
    assert run(folder, "--quiet") == 0
    return folder


def test_the_blocks_become_cells_and_nothing_else_is_trained(finished: Path) -> None:
    assert list_cells(finished) == CELLS
    variants = {path.name for path in (finished / "runs/toy/variants").iterdir()}
    assert variants == {"xlm", "metaxlm"}  # no block names `body`


def test_what_two_blocks_lack_is_told_once(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(finished, *CELLS_ONLY) == 0
    assert capsys.readouterr().out.count("mlqa: no dev or test file for") == 1


def test_every_row_tells_its_step_and_its_cell(finished: Path) -> None:
    rows = [row for row in read_rows(finished) if row["variant"]]
    assert {row["step"] for row in rows if row["task"] == "mlqa"} == {4, 8, 12}
    assert {row["step"] for row in rows if row["task"] == "xnli"} == {12}
    assert {row["language"] for row in rows if row["task"] == "xnli"} == {"de"}
    provenance = json.loads((finished / "runs/toy/provenance.json").read_text("utf-8"))
    origins = {cell["origin"][:12]: cell for cell in provenance["cells"]}
    assert len(origins) == len(CELLS)
    for row in rows:
        cell = origins[row["origin"]]
        assert (cell["task"], cell["seed"]) == (row["task"], row["seed"])
        assert cell["model"].partition("-step-")[0] == row["variant"]
        losses = cell.get("losses", [])
        assert len(losses) == (row["task"] not in ("tatoeba", "alignment"))  # one epoch each
        assert all(0 < loss < 10 for loss in losses)
    titles = {stage["title"]: stage for stage in provenance["stages"]}
    assert titles["pretrain xlm"]["steps"] == 12
    assert titles["pretrain xlm"]["tokens"] > 12 * 8 * 16
    assert titles["pretrain xlm"]["device"].startswith("cpu")
    weights = finished / "runs/toy/variants/xlm/model/model.safetensors"
    assert titles["pretrain xlm"]["weights"] == digest_file(weights)
    assert "weights" not in titles["shards"]


def test_variants_are_compared_at_their_last_step_only(finished: Path) -> None:
    store = json.loads((finished / "runs/toy/comparisons.json").read_text("utf-8"))
    pairs = {(c["task"], p["first"], p["second"]) for c in store.values() for p in c["pairs"]}
    assert pairs == {(task, "xlm", "metaxlm") for task in ("xnli", "tatoeba")}
    layers = [c["layer"] for c in store.values() if c["task"] == "tatoeba"]
    assert sorted(layers) == [0, 1, 2]


def test_the_report_shows_the_last_step(finished: Path) -> None:
    from metaxlm.analysis.run_folder import read_run

    report = finished / "runs" / "toy" / "report"
    assert "Table 1. Cross-lingual understanding" in (report / "index.html").read_text("utf-8")
    results = read_run(finished / "runs" / "toy").results
    assert set(results.final_steps.values()) == {12}


def test_processes_share_a_run_and_one_may_be_killed(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(RECIPE, encoding="utf-8")
    options = ("--shared", *CELLS_ONLY)
    killed, left = (start(tmp_path, *options, SLURM_ARRAY_TASK_ID=number) for number in "05")
    deadline = time.monotonic() + 120
    while len(list_cells(tmp_path)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    before = list_cells(tmp_path)
    stamps = {name: _stamp(tmp_path, name) for name in before}
    outputs = [killed.communicate()[0].decode(), left.communicate()[0].decode()]
    assert (killed.returncode, left.returncode) == (-signal.SIGKILL, 0), outputs
    assert 3 <= len(before) < len(CELLS)
    assert list_cells(tmp_path) == CELLS
    assert {name: _stamp(tmp_path, name) for name in before} == stamps
    begun = [title for title in CELLS if f"{title.replace('/', ' ')}\n" in "".join(outputs)]
    assert sorted(begun) == sorted(CELLS)

    def values(folder: Path) -> dict[str, float]:
        rows = read_rows(folder)
        return {json.dumps({**row, "value": 0, "origin": ""}): row["value"] for row in rows}

    assert values(tmp_path) == values(finished)
    assert run(tmp_path, "--quiet", *options) == 0  # the first to come sweeps what the killed left
    assert not list((tmp_path / "runs").rglob(".tmp-*"))


def _stamp(folder: Path, name: str) -> int:
    return (folder / "runs/toy/cells" / name / "cell.json").stat().st_mtime_ns


def test_what_is_there_so_far_is_collected_and_nothing_is_made(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also while another process is at the run, by a later metaxlm, and without the models."""
    from metaxlm.files import exclusive_folder
    from metaxlm.run import cells, publication

    read_run = publication.read_run

    def read_alone(run_dir: Path) -> Any:
        with (run_dir / ".lock-tables").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return read_run(run_dir)

    monkeypatch.setattr(publication, "read_run", read_alone)
    monkeypatch.setattr(cells, "__version__", "99.0")

    root = tmp_path / "part" / "runs" / "toy"
    shutil.copytree(finished, tmp_path / "part", symlinks=True)
    shutil.rmtree(root / "report")
    for weights in root.glob("**/model.safetensors"):
        weights.unlink()
    gone = ("xlm/xnli/en-1", "metaxlm/xnli/en-1", "metaxlm/xquad/en-0")
    for name in gone:
        shutil.rmtree(root / "cells" / name)
    (root / "recipe.yaml").write_text("# of a smaller recipe of the same run\n", "utf-8")
    with exclusive_folder(root):
        assert run(tmp_path / "part", "--collect") == 0
    recipes = [folder / "runs/toy/recipe.yaml" for folder in (tmp_path / "part", finished)]
    assert recipes[0].read_text("utf-8") == recipes[1].read_text("utf-8")
    assert f"so far {len(CELLS) - 3} of {len(CELLS)} cells; to come: xnli 2, xquad 1\n" in (
        capsys.readouterr().out
    )
    assert list_cells(tmp_path / "part") == CELLS - set(gone)
    found = {(row["task"], row["seed"]) for row in read_rows(tmp_path / "part") if row["variant"]}
    assert ("xnli", 0) in found and ("xnli", 1) not in found and ("xquad", 0) not in found
    provenance, whole = (
        json.loads((folder / "runs/toy/provenance.json").read_text("utf-8"))
        for folder in (tmp_path / "part", finished)
    )
    assert provenance["stages"] == whole["stages"]
    made = {cell["origin"]: cell for cell in whole["cells"]}
    assert all(made[cell["origin"]] == cell for cell in provenance["cells"])
    assert {row["version"] for row in read_rows(tmp_path / "part")} == {__version__}
    assert (root / "report" / "claims.json").is_file()


def test_a_run_made_elsewhere_adds_what_a_publication_lacks(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path / "early")
    for name in ("metaxlm/xnli/en-1", "metaxlm-step-4/mlqa/en-0"):
        shutil.rmtree(tmp_path / "early/runs/toy/cells" / name)
    (tmp_path / "early/runs/toy/comparisons.json").unlink()
    assert run(tmp_path / "early", "--collect", "--quiet") == 0
    published = tmp_path / "published"
    publish = Command(tmp_path, capsys)
    assert publish("publish", "early/runs/toy", published)[0] == 0

    # Everything from the start, but only a part is measured.
    (tmp_path / "later").mkdir()
    (tmp_path / "later/toy.yaml").write_text(RECIPE, encoding="utf-8")
    tasks = "[{tasks: [xnli], variants: [xlm, metaxlm], languages: [de]}, "
    tasks += "{tasks: [mlqa], variants: [metaxlm], steps: kept}]"
    place = ("--set", f"evaluation.grid={tasks}", "--quiet", *CELLS_ONLY)
    assert run(tmp_path / "later", *place) == 0
    code, told, _ = publish("publish", "later/runs/toy", published, "--add")
    assert code == 0
    told = told.splitlines()[0]
    assert told == "added 2 cells; 5 stay as published (none had other scores this time)"

    # Files of another time have other fingerprints; the scores are the same.
    found, whole = (
        sorted(str({**row, "origin": ""}) for row in rows)
        for rows in (results_file.read_rows(published / "results.jsonl.xz"), read_rows(finished))
    )
    assert found == whole
    tests = read_comparisons(published / "comparisons.json")
    expected = read_comparisons(finished / "runs/toy/comparisons.json")
    assert sorted(tests, key=str) == sorted(expected, key=str)


def test_there_must_be_something_to_collect(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "toy.yaml").write_text(RECIPE, encoding="utf-8")

    def complain(*options: str) -> str:
        assert run(tmp_path, "--collect", *options) == 2
        return capsys.readouterr().err

    assert "toy: no run to collect from" in complain()
    assert not (tmp_path / "runs").exists()
    shutil.copytree(finished / "runs", tmp_path / "runs", symlinks=True)
    assert "--collect makes no stage, so --stage evaluate has no meaning" in complain(*CELLS_ONLY)
    shutil.rmtree(tmp_path / "runs" / "toy" / "cells")
    assert "toy: no cell of this recipe is complete yet" in complain()


def test_a_moved_run_keeps_its_cells(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy without the times of files has new ones for the data of its tasks."""
    copy_bytes = shutil.copyfile
    shutil.copytree(finished, tmp_path / "moved", symlinks=True, copy_function=copy_bytes)
    assert run(tmp_path / "moved", *CELLS_ONLY) == 0
    assert "again" not in capsys.readouterr().out


def test_a_changed_setting_repeats_its_cells_alone(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stamps = {name: _stamp(finished, name) for name in CELLS}
    assert run(finished, *CELLS_ONLY, "--set", "evaluation.finetune.xnli.learning_rate=0.001") == 0
    changed = {name for name in CELLS if _stamp(finished, name) != stamps[name]}
    assert changed == {name for name in CELLS if "/xnli/" in name}
    assert "again, changed: settings.learning_rate" in capsys.readouterr().out


@pytest.mark.parametrize("mode", [(), ("--shared",)], ids=["alone", "shared"])
def test_a_training_that_diverges_leaves_the_others_alone(
    mode: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from metaxlm.errors import Diverged
    from metaxlm.run import evaluation

    train_model = evaluation.train_model
    tried: list[str] = []

    def fail_at_squad(task: Any, *arguments: Any) -> Any:
        tried.append(task.name)
        if task.name == "xquad":
            raise Diverged("xquad: the loss was not finite; lower the learning rate")
        return train_model(task, *arguments)

    (tmp_path / "toy.yaml").write_text(RECIPE, encoding="utf-8")
    grid = "evaluation.grid=[{tasks: [xquad, mlqa, xnli], variants: [metaxlm]}]"
    monkeypatch.setattr(evaluation, "train_model", fail_at_squad)
    assert run(tmp_path, "--set", grid, *CELLS_ONLY, *mode) == 2
    assert tried.count("xquad") == 1
    assert list_cells(tmp_path) == {"metaxlm/xnli/en-0", "metaxlm/xnli/en-1"}
    streams = capsys.readouterr()
    assert "metaxlm xquad en-0: not made (and 1 more): xquad: the loss was not" in streams.err
    monkeypatch.undo()
    assert run(tmp_path, "--set", grid, "--quiet", *CELLS_ONLY) == 0
    assert "metaxlm/mlqa/en-0" in list_cells(tmp_path)


def test_a_smaller_recipe_of_the_same_run_loses_no_rows(finished: Path) -> None:
    before = {row["task"] for row in read_rows(finished)}
    (finished / "less.yaml").write_text(
        "extends: toy.yaml\nvariants: [xlm]\nevaluation: {grid: [{tasks: [tatoeba]}]}\n", "utf-8"
    )
    assert run(finished, "--quiet", *CELLS_ONLY, recipe="less.yaml") == 0
    assert {row["task"] for row in read_rows(finished)} == before
    provenance = json.loads((finished / "runs/toy/provenance.json").read_text("utf-8"))
    titles = [stage["title"] for stage in provenance["stages"]]
    assert "pretrain xlm" in titles and "pretrain metaxlm" in titles
    assert provenance["stages"][-1]["steps"] == 12


def test_cells_of_a_model_that_is_gone_do_not_count(finished: Path) -> None:
    assert any(row["variant"] == "metaxlm" for row in read_rows(finished))
    other = ["--set", "pretraining.learning_rate=0.001", "--stage", "pretrain", "--quiet"]
    assert run(finished, "--variant", "metaxlm", *other) == 0
    assert run(finished, "--variant", "xlm", "--quiet", *CELLS_ONLY) == 0
    assert {row["variant"] for row in read_rows(finished) if row["variant"]} == {"xlm"}


def test_blocks_that_contradict_each_other_are_refused(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RECIPE + "    - {tasks: [mlqa], variants: [metaxlm], languages: [de]}\n"
    (finished / "toy.yaml").write_text(text, encoding="utf-8")
    try:
        assert run(finished) == 2
        assert "two blocks name metaxlm mlqa en-0" in capsys.readouterr().err
    finally:
        (finished / "toy.yaml").write_text(RECIPE, encoding="utf-8")


def test_unknown_names_are_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, complaint in (
        ("{tasks: [xnil]}", "unknown task 'xnil'"),
        ("{tasks: [xnli], variants: [metaxml]}", "no variant 'metaxml'"),
        ("{tasks: [xnli], steps: [4]}", "steps"),
    ):
        (tmp_path / "toy.yaml").write_text(f"{RECIPE}    - {line}\n", encoding="utf-8")
        assert run(tmp_path) == 2
        assert complaint in capsys.readouterr().err
        assert not (tmp_path / "runs").exists()


def test_without_a_grid_everything_is_measured_on_every_variant(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE[: RECIPE.index("  grid:")], encoding="utf-8")
    recipe = load_recipe(path)
    [block] = list_blocks(recipe)
    assert block.tasks == ["tatoeba", "alignment", "xnli", "xquad", "mlqa"]
    assert (block.languages, block.sources) == (["en", "de"], ["en"])
    assert list_measured(recipe) == ["xlm", "metaxlm", "body"]
    nothing = load_recipe(path, ["evaluation={retrieval: null, alignment: null}"])
    assert list_blocks(nothing) == []
    assert list_measured(nothing) == ["xlm", "metaxlm", "body"]


def test_a_run_that_is_not_shared_stays_alone(finished: Path) -> None:
    from metaxlm.files import exclusive_folder, shared_folder

    root = finished / "runs" / "toy"
    prepared: list[int] = []
    with shared_folder(root, lambda: prepared.append(1)):
        with shared_folder(root, lambda: prepared.append(2)):
            pass
        with pytest.raises(MetaXLMError, match="in use by process"), exclusive_folder(root):
            pass
    assert prepared == [1]
