"""The command line as a user meets it: real processes, exit codes, one line for each mistake."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from metaxlm import __version__

RECIPE = "name: toy\nlanguages: [en, de]\nvariants: {xlm: {initialize: none}}\n"


def metaxlm(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "metaxlm", *map(str, arguments)]
    environment = os.environ | {"COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def complaint(*arguments: str | Path, cwd: Path) -> str:
    """Run a command that must fail with one line on standard error and exit code 2."""
    result = metaxlm(*arguments, cwd=cwd)
    assert result.returncode == 2, result
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("metaxlm: ")
    return lines[0]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_version_and_help(tmp_path: Path) -> None:
    assert metaxlm("--version", cwd=tmp_path).stdout == f"metaxlm {__version__}\n"
    text = metaxlm("--help", cwd=tmp_path).stdout
    for word in ("run", "demo", "report", "--install-completion"):
        assert word in text
    assert "--variant" in metaxlm("run", "--help", cwd=tmp_path).stdout


def test_completion_offers_the_recipes_variants(tmp_path: Path, recipe: Path) -> None:
    environment = os.environ | {
        "_METAXLM_COMPLETE": "complete_bash",
        "COMP_WORDS": f"metaxlm run {recipe.name} --variant ",
        "COMP_CWORD": "4",
    }
    result = subprocess.run(
        [Path(sys.executable).parent / "metaxlm"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.split() == ["xlm"]


def test_mistakes_on_the_command_line(tmp_path: Path, recipe: Path) -> None:
    assert "No such option: --stge" in complaint("run", recipe, "--stge", "x", cwd=tmp_path)
    assert "no such file" in complaint("run", "absent.yaml", cwd=tmp_path)
    assert "'trian' is not one of" in complaint("run", recipe, "--stage", "trian", cwd=tmp_path)
    assert "No such command 'rnu'" in complaint("rnu", cwd=tmp_path)
    assert "not a run folder" in complaint("report", tmp_path, cwd=tmp_path)
    message = complaint("run", recipe, "--set", "pretraining.stepps=3", cwd=tmp_path)
    assert "did you mean 'steps'?" in message
    message = complaint("run", recipe, "--variant", "metaxlm", cwd=tmp_path)
    assert "not in the recipe, which has xlm" in message
    assert "found 0 CUDA devices" in complaint("run", recipe, "--device", "cuda:9", cwd=tmp_path)


def test_mistakes_in_the_recipe_are_found_before_any_work(tmp_path: Path, recipe: Path) -> None:
    text = ["--set", "corpus.source=text", "--set"]
    message = complaint("run", recipe, *text, "corpus.path=absent", cwd=tmp_path)
    assert "evaluation.data is not set" in message
    data = ["--set", f"evaluation.data={tmp_path}"]
    message = complaint("run", recipe, *text, "corpus.path=absent", *data, cwd=tmp_path)
    assert "absent: no such folder" in message
    message = complaint("run", recipe, "--set", "evaluation.finetune.xnil={}", cwd=tmp_path)
    assert "unknown task; known: " in message
    dictionaries = "variants.d.dictionaries=true"
    message = complaint(
        *("run", recipe, *text, "corpus.path=.", *data, "--set", dictionaries), cwd=tmp_path
    )
    assert "matching.dictionaries names no folder" in message
    message = complaint("run", recipe, "--set", "meta.model=absent/folder", cwd=tmp_path)
    assert "absent/folder" in message
    assert not list(tmp_path.glob("runs/*/*/*"))


def test_an_output_folder_in_use_is_refused(tmp_path: Path, recipe: Path) -> None:
    run_dir = tmp_path / "runs" / "toy"
    run_dir.mkdir(parents=True)
    with (run_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4242")
        lock.flush()
        message = complaint("run", recipe, cwd=tmp_path)
    assert "in use by process 4242" in message


def test_an_output_folder_that_cannot_be_written(tmp_path: Path, recipe: Path) -> None:
    (tmp_path / "runs").write_text("a file", encoding="utf-8")
    message = complaint("run", recipe, cwd=tmp_path)
    assert "runs" in message
