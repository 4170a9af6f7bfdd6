"""Recipes: what is accepted, and the one line that tells what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from metaxlm.errors import MetaXLMError
from metaxlm.recipe_file import load_recipe, save_recipe

BASE = """\
name: toy
languages: [en, de]
variants:
  xlm: {initialize: none}
  metaxlm: {}
evaluation:
  finetune:
    xnli: {epochs: 3, learning_rate: 1e-4}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problem(folder: Path, text: str = "", *overrides: str) -> str:
    with pytest.raises(MetaXLMError) as caught:
        load_recipe(write(folder, BASE + text), overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(folder), "")


def test_defaults_are_the_papers(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, BASE))
    training = recipe.pretraining
    assert (training.steps, training.batch_size, training.length) == (200_000, 64, 512)
    assert (training.learning_rate, training.warmup_steps, training.clip) == (1e-4, 10_000, 1.0)
    assert (training.adam_betas, training.adam_epsilon) == ([0.9, 0.98], 1e-6)
    assert (training.weight_decay, training.alpha) == (0.01, 0.7)
    assert (recipe.model.layers, recipe.model.hidden, recipe.model.ffn) == (12, 768, 3072)
    assert recipe.evaluation.finetune["xnli"].learning_rate == 1e-4


def test_a_saved_recipe_loads_as_the_same_recipe(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, BASE), ["pretraining.steps=7"])
    assert load_recipe(write(tmp_path, save_recipe(recipe))) == recipe


def test_overrides_reach_nested_keys_and_create_sections(tmp_path: Path) -> None:
    overrides = ["pretraining.steps=30", "variants.body.initialize=body", "seed=5"]
    recipe = load_recipe(write(tmp_path, BASE), overrides)
    assert recipe.pretraining.steps == 30
    assert recipe.variants["body"].initialize == "body"
    assert recipe.seed == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pretraining: {stepps: 3}", "/recipe.yaml:9: unknown key 'pretraining.stepps'; did you"),
        ("lanuages: [en]", "/recipe.yaml:9: unknown key 'lanuages'; did you mean 'languages'?"),
        (
            "pretraining: {steps: -3}",
            "pretraining.steps: should be greater than or equal to 0, found -3",
        ),
        ("pretraining: {steps: 3.5}", "pretraining.steps: should be a valid integer, found 3.5"),
        ("pretraining: {steps: '3'}", "pretraining.steps: should be a valid integer, found '3'"),
        ("pretraining: {alpha: 1.5}", "pretraining.alpha: should be less than or equal to 1"),
        ("seed: 1\nseed: 2", "/recipe.yaml:10: key 'seed' stands twice (first on line 9)"),
        ("seed: [", "not valid YAML"),
        ("corpus: {source: text}", "/recipe.yaml:9: corpus: `source: text` needs `path`"),
        ("model: {heads: 7}", "hidden (768) is not a multiple of heads (7)"),
        ("source_language: fr", "source_language 'fr' is not among languages"),
        ("model: {max_positions: 64}", "length 512 exceeds model.max_positions 64"),
    ],
)
def test_each_mistake_is_told_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problem(tmp_path, text)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("pretraining.steps", "expected KEY=VALUE"),
        ("variants.metaxlm.initialise=both", "did you mean 'initialize'?"),
        ("variants.metaxlm.initialize=bot", "should be 'none', 'body', 'embeddings' or 'both'"),
        ("evaluation.finetune.xnli.epoch=3", "did you mean 'epochs'?"),
        ("name=a/b", "name: String should match pattern"),
        ("variants.a/b.initialize=both", "variant name 'a/b' does not make a folder name"),
        ("seed=[", "not valid YAML"),
        ("name.x=1", "'name' is a value and has no keys"),
    ],
)
def test_each_wrong_override_is_told(tmp_path: Path, override: str, expected: str) -> None:
    assert expected in problem(tmp_path, "", override)


def test_missing_keys_files_and_shapes(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="no such file"):
        load_recipe(tmp_path / "absent.yaml")
    with pytest.raises(MetaXLMError, match="a recipe is a mapping"):
        load_recipe(write(tmp_path, "- 1\n"))
    with pytest.raises(MetaXLMError, match="key 'variants' is missing"):
        load_recipe(write(tmp_path, "name: x\nlanguages: [en, de]\n"))
    (tmp_path / "latin1.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(MetaXLMError, match="not UTF-8 at byte 9"):
        load_recipe(tmp_path / "latin1.yaml")


def test_every_shipped_recipe_is_valid() -> None:
    import metaxlm

    folder = Path(metaxlm.__file__).parent / "recipes"
    paths = sorted(folder.rglob("*.yaml"))
    assert paths
    for path in paths:
        recipe = load_recipe(path)
        assert yaml.safe_load(save_recipe(recipe))["name"] == recipe.name
