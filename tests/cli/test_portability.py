"""Commands where Python has no POSIX functions, by the rules of Windows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metaxlm.digests import read_list
from metaxlm.manifest import MARKER, find_damage
from tests import fake_windows
from tests.toy_runs import write_toy

ROOT = Path(__file__).parents[2]
COMMANDS = """\
match --from one --to two --dictionary muse --output start
match --from one --to two --dictionary muse --output start
trim --model one --corpus text --output small
dictionary muse/en-de.txt --language de --output en-de.txt
embed --model one --input de.txt --output vectors.npy --device cpu
align --model one --source de.txt --target en.txt --output links.txt --device cpu
mine --model one --source de.txt --target en.txt --output mined.tsv --device cpu
evaluate --model one --task tatoeba,udpos --data tasks --output scores --device cpu \
--set epochs=1 --set length=64 --limit 8
export --model one --normalize --output teacher
sentences --teacher teacher --student one --text lines.txt --dictionary tasks/muse \
--set steps=3 --set batch_size=8 --set negatives=0 --output encoder --device cpu
"""


def run_windows(folder: Path, *arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "tests.fake_windows", *arguments],
        check=False,
        cwd=folder,
        input=lines,
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture
def folder(tmp_path: Path, models: Path, task_corpus: Path) -> Path:
    for name in ("one", "two"):
        shutil.copytree(models / name, tmp_path / name)
    shutil.copytree(task_corpus / "tasks", tmp_path / "tasks")
    shutil.copytree(task_corpus / "text", tmp_path / "text")
    for side, name in (("deu", "de.txt"), ("eng", "en.txt")):
        shutil.copy(tmp_path / f"tasks/tatoeba/tatoeba.deu-eng.{side}", tmp_path / name)
    shutil.copy(next((tmp_path / "text" / "en").glob("*.txt")), tmp_path / "lines.txt")
    (tmp_path / "muse").mkdir()
    lines = "cat katze\ndog hund\nhouse haus\nbook buch\n"
    (tmp_path / "muse" / "en-de.txt").write_text(lines, encoding="utf-8")
    return tmp_path


def test_modules_import_without_posix_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [name for name in sys.modules if name.partition(".")[0] == "metaxlm"]
    with monkeypatch.context() as patch:
        for name in own:
            patch.delitem(sys.modules, name)
        for name in ("fcntl", "grp", "pwd", "resource", "termios"):
            patch.setitem(sys.modules, name, None)
        names = fake_windows.import_all()
        assert len(names) > 150 and not sys.modules["metaxlm.locks"].IS_POSIX
        for name in names:
            sys.modules.pop(name, None)


@pytest.mark.slow  # other tests run these commands as they are
def test_commands_need_no_posix_functions(folder: Path) -> None:
    ended = run_windows(folder, lines=COMMANDS)
    assert ended.returncode == 0, ended.stderr
    found = [line for line in ended.stdout.splitlines() if line.startswith("exit code")]
    commands = COMMANDS.split("\n")
    codes = [2 if command in commands[:number] else 0 for number, command in enumerate(commands)]
    assert found == [
        f"exit code {code}: {command}"
        for code, command in zip(codes, commands, strict=True)
        if command
    ], ended.stderr
    assert not find_damage(folder / "start")
    texts = [path for name in ("*.txt", "*.tsv", "*.jsonl") for path in folder.rglob(name)]
    assert texts and not any(b"\r" in path.read_bytes() for path in texts)
    assert not list(folder.rglob(".tmp-metaxlm-*"))


@pytest.mark.slow  # `test_toy_runs.py` runs the recipe as it is
def test_a_recipe_needs_no_posix_functions(tmp_path: Path) -> None:
    write_toy(tmp_path)
    for _ in range(2):
        ended = run_windows(tmp_path, "run", "toy.yaml", "--device", "cpu")
        assert ended.returncode == 0, ended.stderr
    run = tmp_path / "runs/toy"
    assert (run / "report/index.html").is_file()
    markers = [*run.rglob(MARKER)]
    assert len(markers) > 4 and all(path.is_file() for m in markers for path in read_list(m))
    assert not list(run.rglob(".tmp-metaxlm-*"))
