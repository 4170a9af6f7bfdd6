"""Documentation that is made from the code, or speaks of it, stays true."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from metaxlm.recipe.recipe_file import load_recipe

ROOT = Path(__file__).parent.parent


def test_the_references_are_up_to_date() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "build.py"))["PAGES"]
    assert len(pages) == 3
    for path, make in pages.items():
        assert path.read_text(encoding="utf-8") == make(), f"{path.name}: run `make docs`"


def test_the_readme_names_what_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for recipe in set(re.findall(r"recipes/\w+\.yaml", text)):
        load_recipe(ROOT / recipe)


def test_modules_named_in_the_docs_exist() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/**/*.py")}
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        if page.name in ("CHANGELOG.md", "decisions.md"):  # these name modules of the past
            continue
        for name in set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)", page.read_text("utf-8"))):
            assert any(f"/{file}".endswith(f"/{name}") for file in files), f"{page.name}: {name}"


def test_module_names_are_unique() -> None:
    names = [path.name for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"]
    assert sorted(set(names)) == sorted(names)


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    for target in targets:
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), target
