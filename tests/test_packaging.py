"""The wheel: what an installation without the repository has."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from metaxlm.data.readers.inputs import split_input
from metaxlm.errors import MetaXLMError

ROOT = Path(__file__).parent.parent
BUILD = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"


@pytest.mark.slow  # 4 s, and `make` installs the package
def test_a_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    source, clean = tmp_path / "source", shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=clean)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)], cwd=source, check=True, capture_output=True
    )
    [wheel] = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("metaxlm/")}
    files = [path for path in (ROOT / "src" / "metaxlm").rglob("*") if path.is_file()]
    expected = {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert packed == {name for name in expected if "__pycache__" not in name}


def test_no_extra_is_a_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert not set(project["dependencies"]) & {one for group in extras.values() for one in group}


def test_constraints_pin_every_direct_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["test"], *extras["dev"]]
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    names = {requirement.split(">")[0].split("=")[0] for requirement in needed}
    assert {name.lower().replace("_", "-") for name in names} <= pins.keys()
    assert pins["torch"] in (ROOT / "Makefile").read_text("utf-8")


def test_a_dump_names_the_extra_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("metaxlm.data.")]:
        if "wikitext" in name or name.endswith("readers.dump"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    with pytest.raises(MetaXLMError, match=r"mwparserfromhell.* 'metaxlm\[wikipedia\]'"):
        split_input(tmp_path / "dewiki.xml.bz2", "dump", 1_000)
