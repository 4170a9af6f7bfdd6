"""No command deletes or overwrites files of the user."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.analysis.fake_run import make_run
from tests.commands import Command

FILE_COMMANDS = {
    "embed": "embed --model model --input in.txt --output out.npy",
    "align": "align --model model --input pairs.txt --output out",
    "align-page": "align --model model --input pairs.txt --page out",
    "retrieve": "retrieve --model model --queries in.txt --keys in.txt --output out",
    "mine": "mine --model model --source in.txt --target other.txt --output out",
}
FOLDER_COMMANDS = {
    "match": "match --from model --to model --output out",
    "trim": "trim --model model --corpus text --output out",
    "export": "export --model model --output out",
}


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return the content of all files that are not temporary or locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith((".tmp-", ".lock"))
    }


@pytest.fixture
def folder(tmp_path: Path, encoder: Path) -> Path:
    """Inputs for every command, and the user's files in `out` and `out.npy`."""
    shutil.copytree(encoder, tmp_path / "model")
    (tmp_path / "in.txt").write_text("the cat sees a house\n", encoding="utf-8")
    (tmp_path / "other.txt").write_text("a dog\n", encoding="utf-8")
    (tmp_path / "pairs.txt").write_text("the cat ||| a dog\n", encoding="utf-8")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "en.txt").write_text("the cat\n", encoding="utf-8")
    for name in ("out", "out.npy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("mine", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", FILE_COMMANDS)
def test_a_folder_is_not_replaced_by_a_file(metaxlm: Command, folder: Path, name: str) -> None:
    before = snapshot(folder)
    error = metaxlm.complaint(*FILE_COMMANDS[name].split())
    assert "is a folder, cannot write a file there" in error
    assert snapshot(folder) == before


@pytest.mark.parametrize("name", FOLDER_COMMANDS)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_user_files_are_not_replaced_by_a_folder(
    metaxlm: Command, folder: Path, name: str, kind: str
) -> None:
    if kind == "file":
        shutil.rmtree(folder / "out")
        (folder / "out").write_text("mine", encoding="utf-8")
    before = snapshot(folder)
    assert "out: " in metaxlm.complaint(*FOLDER_COMMANDS[name].split())
    assert snapshot(folder) == before


RECIPE = {
    "name": "myexp",
    "languages": ["en", "de"],
    "corpus": {"source": "text", "path": "myexp/corpus"},
    "evaluation": {"retrieval": None, "alignment": None, "finetune": {}},
    "variants": {"xlm": {"initialize": "none"}},
}


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """A folder `myexp` with the user's raw text, and a recipe of the same name beside it."""
    text = tmp_path / "myexp" / "corpus"
    text.mkdir(parents=True)
    for language in ("en", "de"):
        (text / f"{language}.txt").write_text("Some text.\n", encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("path", ["myexp/corpus", "elsewhere"])
def test_a_run_keeps_raw_text_and_a_recipe_in_its_own_folder(
    metaxlm: Command, experiment: Path, path: str
) -> None:
    shutil.copytree(experiment / "myexp" / "corpus", experiment / "elsewhere")
    before = snapshot(experiment)
    error = metaxlm.complaint("run", "recipe.yaml", "--output", ".", "--set", f"corpus.path={path}")
    assert "myexp/corpus: " in error
    assert snapshot(experiment) == before
    (experiment / "recipe.yaml").rename(experiment / "myexp" / "recipe.yaml")
    before = snapshot(experiment)
    error = metaxlm.complaint("run", "myexp/recipe.yaml", "--output", ".")
    assert "saves its resolved recipe under this name" in error
    assert snapshot(experiment) == before


@pytest.mark.parametrize("command", ["report run", "publish run out"])
def test_user_files_survive_report_and_publish(
    metaxlm: Command, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_report(run: object, folder: Path) -> None:  # drawing takes long
        (folder / "index.html").write_text("page", encoding="utf-8")

    monkeypatch.setattr("metaxlm.analysis.report.fill_report", fill_report)
    make_run(tmp_path / "run", seeds=1)
    written = tmp_path / ("out" if "publish" in command else "run/report")
    assert metaxlm(*command.split())[0] == 0
    for name in ("notes.txt", ".git/config", "tables/mine.md"):
        (written / name).parent.mkdir(exist_ok=True)
        (written / name).write_text("mine", encoding="utf-8")
    before = snapshot(written)
    assert metaxlm(*command.split())[0] == 0
    assert snapshot(written) == before
    shutil.rmtree(written)
    written.mkdir()
    (written / "notes.txt").write_text("mine", encoding="utf-8")
    assert "not written by metaxlm" in metaxlm.complaint(*command.split())
    assert snapshot(written) == {"notes.txt": b"mine"}


@pytest.mark.parametrize("name", ["../../../../victim", "a/b", "x" * 101])
def test_publish_rejects_names_that_leave_the_folder(
    metaxlm: Command, tmp_path: Path, name: str
) -> None:
    run = make_run(tmp_path / "run", seeds=1)
    recipe = yaml.safe_load((run / "recipe.yaml").read_text("utf-8"))
    recipe["variants"][name] = {}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    before = snapshot(tmp_path)
    assert "cannot be a file name" in metaxlm.complaint("publish", "run", "out")
    assert snapshot(tmp_path) == before


def test_evaluate_keeps_user_files_in_tables(metaxlm: Command, folder: Path) -> None:
    tables = folder / "results" / "tables"
    tables.mkdir(parents=True)
    (tables / "mine.md").write_text("mine", encoding="utf-8")
    before = snapshot(folder)
    command = "evaluate --model model --task xnli --data text --output results"
    assert "tables: not empty and not written by metaxlm" in metaxlm.complaint(*command.split())
    assert snapshot(folder) == before
