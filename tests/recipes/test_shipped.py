"""The shipped recipes load, and say what the paper says."""

from __future__ import annotations

from pathlib import Path

import pytest

from metaxlm.languages import LANGUAGES
from metaxlm.recipe_file import load_recipe

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_loads(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    assert set(recipe.languages) <= set(LANGUAGES)


def test_wikipedia_has_the_papers_languages() -> None:
    recipe = load_recipe(RECIPES / "wikipedia.yaml")
    paper = {code for code, known in LANGUAGES.items() if known.paper_gb is not None}
    assert set(recipe.languages) == paper
    assert len(paper) == 87
    on_slurm = load_recipe(
        RECIPES / "wikipedia.yaml", ["engine.name=slurm", "engine.slurm.partition=cpu"]
    )
    assert on_slurm.engine.slurm.partition == "cpu"


def test_an_engine_may_be_a_word() -> None:
    assert load_recipe(RECIPES / "demo.yaml", ["engine=ray"]).engine.name == "ray"
