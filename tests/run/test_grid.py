"""The evaluation jobs of a run: which ones there are, who runs them, and their results."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Command
from tests.toy_runs import run, run_main, start, write_toy

from metaxlm import __version__
from metaxlm.analysis import results as results_file
from metaxlm.analysis.run_folder import read_run
from metaxlm.analysis.stats import read_comparisons
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file
from metaxlm.run.tallies import collect_tallies, list_tally_files, read_tallies

SQUAD = {"epochs": 1, "length": 48}
FINETUNE = {"xnli": {"epochs": 1, "length": 48, "seeds": 2}, "xquad": SQUAD, "mlqa": dict(SQUAD)}
GRID = [
    {"tasks": ["xnli", "tatoeba"], "variants": ["xlm", "metaxlm"], "languages": ["de"]},
    {"tasks": ["xquad", "mlqa"], "variants": ["metaxlm"]},
    {"tasks": ["mlqa", "alignment"], "variants": ["metaxlm"], "steps": "kept"},
]
CHANGES: dict[str, Any] = {
    "model": {"layers": 2},
    "pretraining": {"keep_steps": [4, 8, 20]},
    "variants": {
        "xlm": {"initialize": "none"},
        "metaxlm": {"initialize": "both"},
        "body": {"initialize": "body"},
    },
    "evaluation": {"finetune": FINETUNE, "grid": GRID},
}
JOBS_ONLY = ("--stage", "evaluate")
"""No report, which takes longer than all jobs."""
JOBS = {
    *(f"{v}/xnli/en-{seed}" for v in ("xlm", "metaxlm") for seed in range(2)),
    *(f"{v}/tatoeba/en-0" for v in ("xlm", "metaxlm")),
    "metaxlm/xquad/en-0",
    *(f"metaxlm{at}/{t}/en-0" for at in ("", "-step-4", "-step-8") for t in ("mlqa", "alignment")),
}


def find_jobs(folder: Path) -> set[str]:
    root = folder / "runs" / "toy" / "cells"
    return {str(path.parent.relative_to(root)) for path in root.glob("*/*/[!.]*/cell.json")}


def read_rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "runs/toy/results.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by one process."""
    folder = tmp_path_factory.mktemp("finished")
    write_toy(folder, **CHANGES)
    assert run(folder, "--quiet") == 0
    return folder


def test_blocks_become_jobs_and_nothing_else_is_trained(finished: Path) -> None:
    assert find_jobs(finished) == JOBS
    variants = {path.name for path in (finished / "runs/toy/variants").iterdir()}
    assert variants == {"xlm", "metaxlm"}  # no block names `body`


def test_rows_have_their_step_and_job(finished: Path) -> None:
    rows = [row for row in read_rows(finished) if row["variant"]]
    assert {row["step"] for row in rows if row["task"] == "mlqa"} == {4, 8, 12}
    assert {row["step"] for row in rows if row["task"] == "xnli"} == {12}
    assert {row["language"] for row in rows if row["task"] == "xnli"} == {"de"}
    provenance = json.loads((finished / "runs/toy/provenance.json").read_text("utf-8"))
    origins = {cell["origin"][:12]: cell for cell in provenance["cells"]}
    assert len(origins) == len(JOBS)
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


def test_tests_and_report_use_the_last_step(finished: Path) -> None:
    root = finished / "runs" / "toy"
    store = json.loads((root / "comparisons.json").read_text("utf-8"))
    pairs = {(c["task"], p["first"], p["second"]) for c in store.values() for p in c["pairs"]}
    assert pairs == {(task, "xlm", "metaxlm") for task in ("xnli", "tatoeba")}
    layers = [c["layer"] for c in store.values() if c["task"] == "tatoeba"]
    assert sorted(layers) == [0, 1, 2]
    page = (root / "report" / "index.html").read_text("utf-8")
    assert "Table 1. Cross-lingual understanding" in page
    assert set(read_run(root).results.final_steps.values()) == {12}


@pytest.fixture
def unevaluated(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run without its jobs."""
    folder = Path(shutil.copytree(finished, tmp_path / "unevaluated"))
    shutil.rmtree(folder / "runs/toy/cells")
    return folder


@pytest.mark.slow
def test_processes_share_a_run_and_one_may_be_killed(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_toy(tmp_path, **CHANGES)
    for name in ("corpus", "vocabulary", "shards", "meta"):
        shutil.copytree(finished / "runs/toy" / name, tmp_path / "runs/toy" / name)
    options = ("--shared", *JOBS_ONLY)
    killed = start(tmp_path, *options, SLURM_ARRAY_TASK_ID="0")
    stamps: dict[str, int] = {}

    def kill_later() -> None:
        while len(find_jobs(tmp_path)) < 3 and killed.poll() is None:
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        stamps.update({name: _stamp(tmp_path, name) for name in find_jobs(tmp_path)})

    # The other process is this one, which joins when the first has begun.
    while not list(tmp_path.glob("runs/toy/variants/*/.lock-model")) and killed.poll() is None:
        time.sleep(0.02)
    killer = threading.Thread(target=kill_later)
    killer.start()
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "5")
    assert run(tmp_path, *options) == 0
    killer.join()
    outputs = [killed.communicate()[0].decode(), capsys.readouterr().out]
    assert killed.returncode == -signal.SIGKILL, outputs
    before = set(stamps)
    assert 3 <= len(before) < len(JOBS)
    assert find_jobs(tmp_path) == JOBS
    assert {name: _stamp(tmp_path, name) for name in before} == stamps
    begun = [title for title in JOBS if f"{title.replace('/', ' ')}\n" in "".join(outputs)]
    assert sorted(begun) == sorted(JOBS)

    def values(folder: Path) -> dict[str, float]:
        rows = read_rows(folder)
        return {json.dumps({**row, "value": 0, "origin": ""}): row["value"] for row in rows}

    assert values(tmp_path) == values(finished)
    assert run(tmp_path, "--quiet", *options) == 0  # removes temporary files of the killed one
    assert not list((tmp_path / "runs").rglob(".tmp-*"))


def _stamp(folder: Path, name: str) -> int:
    return (folder / "runs/toy/cells" / name / "cell.json").stat().st_mtime_ns


def test_finished_results_are_collected_and_nothing_is_run(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Collect while another process runs, with a later metaxlm, and without the models."""
    from metaxlm.files import exclusive_folder
    from metaxlm.run import jobs, publish

    def read_alone(run_dir: Path) -> Any:
        with (run_dir / ".lock-tables").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return read_run(run_dir)

    monkeypatch.setattr(publish, "read_run", read_alone)
    monkeypatch.setattr(jobs, "__version__", "99.0")

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
    assert f"{len(JOBS) - 3} of {len(JOBS)} jobs are complete; missing: xnli 2, xquad 1\n" in (
        capsys.readouterr().out
    )
    assert find_jobs(tmp_path / "part") == JOBS - set(gone)
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


def test_another_run_adds_missing_jobs_to_a_publication(
    finished: Path,
    unevaluated: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("fill_report", "write_report"):  # drawing takes longer than all jobs
        monkeypatch.setattr(f"metaxlm.run.publish.{name}", lambda *_: None)
    shutil.copytree(finished, tmp_path / "early")
    for name in ("metaxlm/xnli/en-1", "metaxlm-step-4/mlqa/en-0"):
        shutil.rmtree(tmp_path / "early/runs/toy/cells" / name)
    (tmp_path / "early/runs/toy/comparisons.json").unlink()
    assert run(tmp_path / "early", "--collect", "--quiet") == 0
    published = tmp_path / "published"
    publish = Command(tmp_path, capsys)
    assert publish("publish", "early/runs/toy", published)[0] == 0

    # Another run evaluates only a part.
    tasks = "[{tasks: [xnli], variants: [xlm, metaxlm], languages: [de]}, "
    tasks += "{tasks: [mlqa], variants: [metaxlm], steps: kept}]"
    place = ("--set", f"evaluation.grid={tasks}", "--quiet", *JOBS_ONLY)
    assert run(unevaluated, *place) == 0
    code, printed, _ = publish("publish", unevaluated / "runs/toy", published, "--add")
    assert code == 0
    summary = "added 2 jobs; kept 5 as published (none had other scores this time)"
    assert printed.splitlines()[0] == summary

    # Fingerprints depend on the times of files; the scores are the same.
    found, whole = (
        sorted(str({**row, "origin": ""}) for row in rows)
        for rows in (results_file.read_rows(published / "results.jsonl.xz"), read_rows(finished))
    )
    assert found == whole
    tests = read_comparisons(published / "comparisons.json")
    expected = read_comparisons(finished / "runs/toy/comparisons.json")
    assert sorted(tests, key=str) == sorted(expected, key=str)


def test_added_models_are_tested_against_published_ones(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No run has both models with all seeds, but the publication has their tallies."""
    for name in ("fill_report", "write_report"):
        monkeypatch.setattr(f"metaxlm.run.publish.{name}", lambda *_: None)
    parts = {"early": "metaxlm*/[!x]*/en-? metaxlm*/x*/en-1", "late": "xlm/*/en-?"}
    for part, lost in parts.items():
        shutil.copytree(finished, tmp_path / part)
        cells = tmp_path / part / "runs/toy/cells"
        for folder in [found for name in lost.split() for found in cells.glob(name)]:
            shutil.rmtree(folder)
        (tmp_path / part / "runs/toy/comparisons.json").unlink()
        assert run(tmp_path / part, "--collect", "--quiet") == 0
    published = tmp_path / "published"
    publish = Command(tmp_path, capsys)
    assert publish("publish", "early/runs/toy", published, "--tallies")[0] == 0
    assert [test.num_seeds for test in read_comparisons(published / "comparisons.json")] == [1]
    code, _, errors = publish("publish", "late/runs/toy", published, "--add")
    assert code == 0, errors
    tests = read_comparisons(published / "comparisons.json")
    expected = read_comparisons(finished / "runs/toy/comparisons.json")
    assert sorted(tests, key=str) == sorted(expected, key=str)
    whole = collect_tallies(finished / "runs/toy")
    found = read_tallies(published)
    assert {key: {*found[key]} for key in found} == {key: {*whole[key]} for key in whole}
    assert [path.name for path in list_tally_files(published)] == [
        "tallies-2.npz.xz", "tallies.npz.xz"
    ]  # fmt: skip
    assert not any(name.startswith("dev") for key, names in found.items() for name in names)


def test_collecting_needs_finished_jobs(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_toy(tmp_path, **CHANGES)

    def complain(*options: str) -> str:
        assert run(tmp_path, "--collect", *options) == 2
        return capsys.readouterr().err

    assert "toy: no run to collect from" in complain()
    assert not (tmp_path / "runs").exists()
    shutil.copytree(finished / "runs", tmp_path / "runs", symlinks=True)
    assert "--collect runs no stage; leave out --stage evaluate" in complain(*JOBS_ONLY)
    shutil.rmtree(tmp_path / "runs" / "toy" / "cells")
    assert "toy: no job of this recipe is complete yet" in complain()


@pytest.mark.parametrize("mode", [(), ("--shared",)], ids=["alone", "shared"])
def test_a_diverged_finetuning_does_not_stop_the_others(
    mode: tuple[str, ...],
    unevaluated: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from metaxlm.errors import Diverged
    from metaxlm.finetune.trainer import train_model
    from metaxlm.run import evaluation as evaluation_module

    tried: list[str] = []

    def fail_at_squad(task: Any, *arguments: Any) -> Any:
        tried.append(task.name)
        if task.name == "xquad":
            raise Diverged("xquad: the loss was not finite; lower the learning rate")
        return train_model(task, *arguments)

    grid = "evaluation.grid=[{tasks: [xquad, mlqa, xnli], variants: [metaxlm]}]"
    monkeypatch.setattr(evaluation_module, "train_model", fail_at_squad)
    assert run(unevaluated, "--set", grid, *JOBS_ONLY, *mode) == 2
    assert tried.count("xquad") == 1
    assert find_jobs(unevaluated) == {"metaxlm/xnli/en-0", "metaxlm/xnli/en-1"}
    streams = capsys.readouterr()
    assert "metaxlm xquad en-0: failed (and 1 more): xquad: the loss was not" in streams.err
    monkeypatch.undo()
    assert run(unevaluated, "--set", grid, "--quiet", *JOBS_ONLY) == 0
    assert "metaxlm/mlqa/en-0" in find_jobs(unevaluated)


def test_switched_words_make_rows_of_their_own(
    unevaluated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several shares may be compared in one run; the same share is not finetuned again."""

    def evaluate(*shares: float) -> dict[str, int]:
        what = "tasks: [xnli], variants: [metaxlm], languages: [de]"
        blocks = [f"{{{what}}}", *(f"{{{what}, switch: {share}}}" for share in shares)]
        grid = f"evaluation.grid=[{', '.join(blocks)}]"
        assert run(unevaluated, "--set", grid, "--quiet", *JOBS_ONLY) == 0
        return {
            name: (cells / name / "cell.json").stat().st_mtime_ns for name in find_jobs(unevaluated)
        }

    cells, names = unevaluated / "runs/toy/cells", ["metaxlm", "metaxlm+switched-0.5"]
    first = evaluate(0.5)
    assert set(first) == {f"{name}/xnli/en-{seed}" for name in names for seed in range(2)}
    names.append("metaxlm+switched-1")
    again = evaluate(1.0, 0.5)
    assert set(again) == {f"{name}/xnli/en-{seed}" for name in names for seed in range(2)}
    assert first.items() <= again.items()
    records = [
        json.loads((cells / name / "xnli/en-0/cell.json").read_text("utf-8")) for name in names
    ]
    assert [found["settings"].get("switch") for found in records] == [None, 0.5, 1.0]
    assert len({found["epochs"][0]["loss"] for found in records}) == 3
    assert {row["variant"] for row in read_rows(unevaluated)} == {None, *names}
    tests = read_comparisons(unevaluated / "runs/toy/comparisons.json")
    pairs = {(p.first, p.second) for c in tests for p in c.pairs}
    assert ("metaxlm", "metaxlm+switched-0.5") in pairs
    capsys.readouterr()
    assert run_main("report", unevaluated / "runs/toy") == 0
    page = (unevaluated / "runs/toy/report/index.html").read_text("utf-8")
    assert "metaxlm+switched-0.5" in page


def test_words_are_switched_by_the_dictionaries_of_the_variant(unevaluated: Path) -> None:
    [given] = (unevaluated / "runs/toy").rglob("muse/en-de.txt")
    lines = given.read_text("utf-8").splitlines(keepends=True)
    own = unevaluated / "own" / "en-de.txt"
    own.parent.mkdir()
    own.write_text("".join(lines[: len(lines) // 2]), "utf-8")
    (unevaluated / "own.yaml").write_text(
        "extends: toy.yaml\n"
        "variants: {mine: {initialize: both, matching: {dictionaries: own}}}\n"
        "evaluation: {grid: [{tasks: [xnli], variants: [metaxlm, mine], seeds: 1, switch: 1}]}\n",
        "utf-8",
    )
    assert run(unevaluated, "--quiet", *JOBS_ONLY, recipe="own.yaml") == 0
    cells = unevaluated / "runs/toy/cells"
    facts = [
        json.loads((cells / f"{name}+switched-1/xnli/en-0/manifest.json").read_text("utf-8"))
        for name in ("metaxlm", "mine")
    ]
    sizes = [[file[:2] for file in found["inputs"]["dictionaries"]] for found in facts]
    assert [given.name, given.stat().st_size] in sizes[0]
    assert sizes[1] == [[own.name, own.stat().st_size]]


def test_switching_that_cannot_work_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def complain(**changes: Any) -> str:
        write_toy(tmp_path, **(CHANGES | changes))
        assert run(tmp_path) == 2
        return capsys.readouterr().err

    block = {"tasks": ["xnli", "tatoeba"], "variants": ["xlm"], "switch": 0.5}
    message = complain(evaluation={"finetune": FINETUNE, "grid": [block]})
    assert "tatoeba is not finetuned, so it has no switched words" in message
    message = complain(variants={"xlm+switched-1": {"initialize": "none"}}, evaluation={})
    assert "'xlm+switched-1' has the name of a finetuning with switched words" in message
    assert not (tmp_path / "runs").exists()


def test_a_smaller_recipe_of_the_run_keeps_all_rows(finished: Path) -> None:
    before = {row["task"] for row in read_rows(finished)}
    (finished / "less.yaml").write_text(
        "extends: toy.yaml\nvariants: [xlm]\nevaluation: {grid: [{tasks: [tatoeba]}]}\n", "utf-8"
    )
    assert run(finished, "--quiet", *JOBS_ONLY, recipe="less.yaml") == 0
    assert {row["task"] for row in read_rows(finished)} == before
    provenance = json.loads((finished / "runs/toy/provenance.json").read_text("utf-8"))
    titles = [stage["title"] for stage in provenance["stages"]]
    assert "pretrain xlm" in titles and "pretrain metaxlm" in titles
    assert provenance["stages"][-1]["steps"] == 12


def test_jobs_of_a_replaced_model_are_ignored(finished: Path) -> None:
    assert any(row["variant"] == "metaxlm" for row in read_rows(finished))
    other = ["--set", "pretraining.learning_rate=0.001", "--stage", "pretrain", "--quiet"]
    assert run(finished, "--variant", "metaxlm", *other) == 0
    assert run(finished, "--variant", "xlm", "--quiet", *JOBS_ONLY) == 0
    assert {row["variant"] for row in read_rows(finished) if row["variant"]} == {"xlm"}


def test_a_shared_folder_excludes_other_runs(finished: Path) -> None:
    from metaxlm.files import exclusive_folder, shared_folder

    root = finished / "runs" / "toy"
    prepared: list[int] = []
    with shared_folder(root, lambda: prepared.append(1)):
        with shared_folder(root, lambda: prepared.append(2)):
            pass
        with pytest.raises(MetaXLMError, match="in use by process"), exclusive_folder(root):
            pass
    assert prepared == [1]
