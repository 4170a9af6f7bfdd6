"""The command line: real processes, exit codes, one line per error."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metaxlm import __version__
from tests.commands import Command

SCRIPT = Path(sys.executable).parent / "metaxlm"
RECIPE = "name: toy\nlanguages: [en, de]\nvariants: {xlm: {initialize: none}}\n"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_version_and_help(metaxlm: Command) -> None:
    assert metaxlm("--version") == (0, f"metaxlm {__version__}\n", "")
    _, text, _ = metaxlm("--help")
    assert metaxlm() == (0, text, "")
    for word in ("run", "demo", "report", "--install-completion"):
        assert word in text
    assert "--variant" in metaxlm("run", "--help")[1]


def test_an_error_is_one_line_with_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "metaxlm", "run", "absent.yaml"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "metaxlm: absent.yaml: no such file\n"


def test_a_stop_wrapped_in_an_import_error_is_a_stop(
    metaxlm: Command, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException as error:
            raise ImportError("initialization failed") from error

    monkeypatch.setattr("metaxlm.recipe.load.load_recipe", load)
    line = "metaxlm: stopped; the same command continues\n"
    assert metaxlm("run", recipe) == (75, "", line)


@pytest.mark.skipif(not SCRIPT.exists(), reason="metaxlm is on the path but not installed")
def test_completion_offers_the_recipes_variants(tmp_path: Path, recipe: Path) -> None:
    environment = os.environ | {
        "_METAXLM_COMPLETE": "complete_bash",
        "COMP_WORDS": f"metaxlm run {recipe.name} --variant ",
        "COMP_CWORD": "4",
    }
    result = subprocess.run(
        [SCRIPT], check=False, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.stdout.split() == ["xlm"]


def test_errors_on_the_command_line(metaxlm: Command, tmp_path: Path, recipe: Path) -> None:
    assert "No such option: --stge" in metaxlm.complaint("run", recipe, "--stge", "x")
    assert "no such file" in metaxlm.complaint("run", "absent.yaml")
    assert "'trian' is not one of" in metaxlm.complaint("run", recipe, "--stage", "trian")
    assert "No such command 'rnu'" in metaxlm.complaint("rnu")
    assert "not a run folder" in metaxlm.complaint("report", tmp_path)
    message = metaxlm.complaint("run", recipe, "--set", "pretraining.stepps=3")
    assert "did you mean 'steps'?" in message
    message = metaxlm.complaint("run", recipe, "--variant", "metaxlm")
    assert "not in the recipe, which has xlm" in message
    message = metaxlm.complaint("run", recipe, "--device", "cuda:99")
    assert re.search(r"--device cuda:99: found \d+ CUDA devices", message)


def test_errors_in_the_recipe_are_reported_before_any_work(
    metaxlm: Command, tmp_path: Path, recipe: Path
) -> None:
    text = ["--set", "corpus.source=text", "--set"]
    message = metaxlm.complaint("run", recipe, *text, "corpus.path=absent")
    assert "evaluation.data is not set" in message
    data = ["--set", f"evaluation.data={tmp_path}"]
    message = metaxlm.complaint("run", recipe, *text, "corpus.path=absent", *data)
    assert "absent: no such folder" in message
    message = metaxlm.complaint("run", recipe, "--set", "evaluation.finetune.xnil={}")
    assert "unknown task; known: " in message
    dictionaries = "variants.d.dictionaries=true"
    message = metaxlm.complaint(
        *("run", recipe, *text, "corpus.path=.", *data, "--set", dictionaries)
    )
    assert "matching.dictionaries names no folder" in message
    message = metaxlm.complaint("run", recipe, "--set", "meta.model=absent/folder")
    assert "absent/folder" in message
    message = metaxlm.complaint("run", recipe, "--set", f"meta.model={tmp_path}")
    assert f"{tmp_path}: " in message
    assert "config.json" in message
    assert not list(tmp_path.glob("runs/*/corpus"))


def test_an_unusable_output_folder_is_rejected(
    metaxlm: Command, tmp_path: Path, recipe: Path
) -> None:
    run_dir = tmp_path / "runs" / "toy"
    run_dir.mkdir(parents=True)
    with (run_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4242")
        lock.flush()
        assert "in use by process 4242" in metaxlm.complaint("run", recipe)
    (tmp_path / "file").write_text("a file", encoding="utf-8")
    assert "file" in metaxlm.complaint("run", recipe, "--output", "file")


def test_help_does_not_import_heavy_libraries() -> None:
    code = (
        "import sys; sys.argv = ['metaxlm', '--help']\n"
        "from metaxlm.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted({'torch', 'transformers', 'pandas'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"
