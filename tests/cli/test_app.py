"""The command line: real processes, exit codes, one line per error."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from metaxlm import __version__
from metaxlm.analysis.tables import text_table
from metaxlm.cli.app import app
from metaxlm.cli.options import parse_languages, print_table
from metaxlm.errors import MetaXLMError
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


def test_a_stop_wrapped_in_an_import_error_is_a_stop(
    metaxlm: Command, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException as error:
            raise ImportError("initialization failed") from error

    monkeypatch.setattr("metaxlm.recipe.recipe_file.load_recipe", load)
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
    assert metaxlm.complaint("run", "absent.yaml") == "metaxlm: absent.yaml: no such file\n"
    assert "'trian' is not one of" in metaxlm.complaint("run", recipe, "--stage", "trian")
    assert "No such command 'rnu'" in metaxlm.complaint("rnu")
    assert "not a run folder" in metaxlm.complaint("report", tmp_path)
    message = metaxlm.complaint("run", recipe, "--set", "pretraining.stepps=3")
    assert "did you mean 'steps'?" in message
    message = metaxlm.complaint("run", recipe, "--variant", "metaxlm")
    assert "not in the recipe, which has xlm" in message
    message = metaxlm.complaint("run", recipe, "--device", "cuda:99")
    assert re.search(r"--device cuda:99: found \d+ CUDA devices", message)


def test_tables_in_a_pipe_have_whole_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [f"{10**k:,}" for k in range(6, 14)]
    note = "a long text that may be broken into several lines " * 3
    print_table(text_table("t", "Title", ["", *numbers, "note"], [["a", *numbers, note]]))
    lines = capsys.readouterr().out.splitlines()
    assert sum(all(number in line for number in numbers) for line in lines) == 2
    assert sum("lines" in line for line in lines) > 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("de,xx", "--languages xx: no such language; docs/languages.md lists the codes"),
        ("germann", "--languages germann: no such language; did you mean de?"),
        ("ger,de", "--languages ger: no such language; did you mean de?"),
        ("de, nds,qq", ["de", "nds", "qq"]),
        (None, None),
    ],
)
def test_unknown_languages(tmp_path: Path, text: str | None, expected: str | list[str]) -> None:
    folder = tmp_path / "dictionaries"
    folder.mkdir()
    (folder / "en-qq.txt").touch()  # a language that has a file needs no place in the table
    if not isinstance(expected, str):
        assert parse_languages(text, folder) == expected
        return
    with pytest.raises(MetaXLMError, match=re.escape(expected)):
        parse_languages(text, folder, None)


def test_match_rejects_unknown_languages(metaxlm: Command) -> None:
    command = "match --from a --to b --output c --languages de,xx"
    assert "--languages xx: no such language" in metaxlm.complaint(*command.split())


def list_commands(command: Any, *names: str) -> Iterator[tuple[str, ...]]:
    yield names
    for name, child in getattr(command, "commands", {}).items():
        yield from list_commands(child, *names, name)


@pytest.mark.parametrize("names", [*list_commands(get_command(app))], ids=" ".join)
def test_help_is_for_people(metaxlm: Command, names: tuple[str, ...]) -> None:
    code, text, _ = metaxlm(*names, "--help")
    usage, _, rest = text.partition("\n\n")
    assert code == 0
    # No names of types, no braces, and no text that is cut off.
    options = rest.partition("\n\n  Examples:")[0]
    assert not re.search(r"<(str|int|float|path|list)|list\[|range>|\w\.\.\.$", options, re.M)
    assert not re.search(r"[{}<>]", usage)
    if names == ("match",):
        assert "[COMMAND]" in usage
    if not names:
        listed = re.findall(r"^  ([a-z][a-z-]+)  ", text, re.M)
        assert sorted(listed) == sorted(get_command(app).commands)  # type: ignore[attr-defined]
        assert listed[:2] == ["demo", "run"]


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
