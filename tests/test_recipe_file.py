"""Recipes: accepted values, and one-line errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from metaxlm.errors import MetaXLMError
from metaxlm.manifest import MARKER, write_sealed
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.recipe import PartsRecipe, Recipe, Section, recipe_file
from metaxlm.recipe.recipe_file import check_recipe_file, load_recipe, save_recipe
from metaxlm.run.layout import RunLayout
from metaxlm.run.stages import build_stages

WORLD = DistributedContext.alone(torch.device("cpu"))
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


def test_overrides_reach_nested_keys_and_a_saved_recipe_loads_as_the_same(tmp_path: Path) -> None:
    overrides = ["pretraining.steps=30000", "variants.body.initialize=body", "seed=5"]
    recipe = load_recipe(write(tmp_path, BASE), overrides)
    assert recipe.pretraining.steps == 30_000
    assert recipe.variants["body"].initialize == "body"
    assert recipe.seed == 5
    assert load_recipe(write(tmp_path, save_recipe(recipe))) == recipe


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pretraining: {stepps: 3}", "/recipe.yaml:9: unknown key 'pretraining.stepps'; did you"),
        ("pretraining: {steps: -3}", "steps: should be greater than or equal to 0, found -3"),
        ("pretraining: {steps: 3, warmup_steps: 9}", "warmup_steps (9) is above steps (3)"),
        ("pretraining: {steps: '3'}", "pretraining.steps: should be a valid integer, found '3'"),
        ("seed: 1\nseed: 2", "/recipe.yaml:10: duplicate key 'seed' (first on line 9)"),
        ("seed: [", "not valid YAML"),
        ("corpus: {source: text}", "/recipe.yaml:9: corpus: `source: text` needs `path`"),
        ("model: {heads: 7}", "hidden (768) is not a multiple of heads (7)"),
        ("source_language: fr", "source_language 'fr' is not among languages"),
        ("model: {max_positions: 64}", "length 512 exceeds model.max_positions 64"),
    ],
)
def test_errors_name_file_line_and_key(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problem(tmp_path, text)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("pretraining.steps", "expected KEY=VALUE"),
        (
            "variants.metaxlm.initialize=bot",
            "should be 'none', 'body', 'embeddings', 'remainder' or 'both'",
        ),
        ("evaluation.finetune.xnli.epoch=3", "did you mean 'epochs'?"),
        ("name=a/b", "name: String should match pattern"),
        ("variants.a/b.initialize=both", "variant 'a/b': cannot be a file name"),
        ("name.x=1", "'name' is a value and has no keys"),
        ("vocabulary.min_count=2", "min_count trims an existing vocabulary; name one with `model`"),
        ("vocabulary.extend=true", "vocabulary.extend needs an encoder to extend"),
        ("vocabulary={extend: true, model: x}", "extend keeps the vocabulary of meta.model"),
        ("variants.xlm={switch: {}, distill: {}}", "xlm: switch and distill exclude each other"),
    ],
)
def test_errors_in_overrides(tmp_path: Path, override: str, expected: str) -> None:
    assert expected in problem(tmp_path, "", override)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- 1\n", "a recipe is a mapping"),
        (b"name: x\nlanguages: [en, de]\n", "key 'variants' is missing"),
        (b"name: caf\xe9\n", r"not UTF-8 \(byte 0xE9\)"),
    ],
)
def test_contents_that_are_not_recipes(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "recipe.yaml").write_bytes(content)
    with pytest.raises(MetaXLMError, match=message):
        load_recipe(tmp_path / "recipe.yaml")


class Chain:
    """Recipes that extend each other, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("base", BASE)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, text: str, *overrides: str) -> Recipe:
        return load_recipe(self.write("child", f"extends: base.yaml\n{text}"), overrides)

    def problem(self, text: str, *overrides: str) -> str:
        with pytest.raises(MetaXLMError) as caught:
            load_recipe(self.write("child", text), overrides)
        message = str(caught.value)
        assert "\n" not in message
        return message.replace(f"{self.folder}/", "")


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path / "recipes")


def test_sections_are_merged_and_other_values_replaced(chain: Chain) -> None:
    recipe = chain.load(
        "languages: [en, fr, zh]\npretraining: {steps: 70000}\n"
        "variants: {xlm: {initialize: {words: true}}, metaxlm: {freeze: body}, body: {}}\n"
        "evaluation: {finetune: {xnli: {epochs: 1}, udpos: {seeds: 2}}}\n",
        "pretraining.steps=90000",
        "variants.xlm.freeze=body",
    )
    assert (recipe.name, recipe.languages) == ("toy", ["en", "fr", "zh"])
    assert recipe.pretraining.steps == 90_000
    assert list(recipe.variants) == ["xlm", "metaxlm", "body"]
    xlm = recipe.variants["xlm"]
    assert (xlm.initialize, xlm.freeze) == (PartsRecipe(words=True), "body")
    xnli = recipe.evaluation.finetune["xnli"]
    assert (xnli.epochs, xnli.learning_rate) == (1, 1e-4)
    assert recipe.evaluation.finetune["udpos"].seeds == 2
    assert "extends" not in save_recipe(recipe)


def test_a_list_in_place_of_a_section_selects_entries(chain: Chain) -> None:
    recipe = chain.load("variants: [metaxlm, xlm]\nevaluation: {finetune: []}\n")
    assert list(recipe.variants) == ["metaxlm", "xlm"]  # in its own order
    assert recipe.variants["xlm"].initialize == "none"
    assert recipe.evaluation.finetune == {}


def test_a_recipe_extends_one_that_extends_another(chain: Chain) -> None:
    chain.write("base", BASE + "seed: 3\npretraining: {steps: 50000, batch_size: 4}\n")
    middle = "extends: ../base.yaml\npretraining: {steps: 60000}\nvariants: {body: {}}\n"
    chain.write("more/middle", middle)
    path = chain.write("last", "extends: more/middle.yaml\nseed: 4\nvariants: [body, xlm]\n")
    recipe = load_recipe(path)
    assert (recipe.seed, recipe.pretraining.steps, recipe.pretraining.batch_size) == (4, 60_000, 4)
    assert list(recipe.variants) == ["body", "xlm"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("extends: gone.yaml", "child.yaml:1: extends gone.yaml, but there is no gone.yaml"),
        ("extends: [base.yaml]", "child.yaml:1: extends names the file of a recipe, found ['base"),
        ("extends: ''", "child.yaml:1: extends names the file of a recipe, found ''"),
        ("extends: child.yaml", "child.yaml:1: child.yaml extends this recipe in turn"),
        ("extends: cycle.yaml", "cycle.yaml:2: more/../child.yaml extends this recipe in turn"),
        ("extends: list.yaml", "list.yaml: a recipe is a mapping of keys"),
        ("extends: typo.yaml\nseed: 1", "typo.yaml:10: unknown key 'meta.lenght'; did you mean"),
        ("extends: typo.yaml\nmeta: {lenght: 1}", "child.yaml:2: unknown key 'meta.lenght'"),
        ("extends: base.yaml\nvariants: [xml]", "child.yaml:2: variants keeps 'xml', which the"),
        ("extends: base.yaml\nvariants: [xml]", "has not; it has xlm, metaxlm"),
        ("extends: base.yaml\nvariants: [{xlm: {}}]", "variants keeps {'xlm': {}}, which the"),
        ("extends: base.yaml\nevaluation:\n  finetune: [xnil]", "child.yaml:3: evaluation."),
        ("extends: base.yaml\n\nseed: y", "child.yaml:3: seed: should be a valid integer"),
    ],
)
def test_errors_name_the_file_of_the_value(chain: Chain, text: str, expected: str) -> None:
    chain.write("cycle", "seed: 1\nextends: more/../child.yaml\n")
    chain.write("more/unused", BASE)
    chain.write("list", "- 1\n")
    chain.write("typo", BASE + "meta:\n  lenght: 32\n")
    assert expected in chain.problem(text)


def test_values_of_earlier_versions_are_accepted(tmp_path: Path) -> None:
    old = BASE.replace("metaxlm: {}", "metaxlm: {matching: {precedence: use}}")
    recipe = load_recipe(write(tmp_path, f"{old}matching: {{precedence: use}}\n"))
    matching = recipe.variants["metaxlm"].matching
    assert matching is not None
    assert matching.precedence == recipe.matching.precedence == "frequency_weighted"
    assert "precedence: use" not in save_recipe(recipe)
    new = load_recipe(write(tmp_path, save_recipe(recipe)))
    assert new == recipe
    stages = [build_stages(one, RunLayout(tmp_path), WORLD) for one in (recipe, new)]
    initialize = stages[0][-1].upstream[0]
    assert '"precedence": "use"' in json.dumps(initialize.inputs)
    # A key that is not set must not train finished models again.
    assert "alpha" not in initialize.inputs["variant"] and "alpha" not in stages[0][-1].inputs
    assert [one.fingerprint for one in stages[0]] == [one.fingerprint for one in stages[1]]


@pytest.mark.parametrize("name", ["twin", "twin_minilm"])
def test_published_recipes_load(name: str) -> None:
    path = Path(__file__).parents[1] / "docs" / "results" / name / "recipe.yaml"
    recipe = load_recipe(path)
    assert yaml.safe_load(save_recipe(recipe))["name"] == name


def list_locations(section: type[Section], place: str = "") -> Iterator[str]:
    """Yield the keys of all paths in a section."""
    for name, field in section.model_fields.items():
        many = "*" if "dict" in str(field.annotation) else ""
        key = ".".join(part for part in (place, name, many) if part)
        found = re.findall(r"metaxlm\.recipe\.[a-z_]+\.(\w+)", str(field.annotation))
        inner = [one for one in map(SECTIONS.get, found) if one is not None]
        for one in inner:
            yield from list_locations(one, key)
        if re.search(r"\bpathlib\.(_local\.)?Path\b", str(field.annotation)):
            yield key


SECTIONS = {one.__name__: one for one in Section.__subclasses__()}
PATHS = {
    "corpus": {"source": "text", "path": "text", "decontaminate": "tests"},
    "matching": {"dictionaries": "muse"},
    "meta": {"model": "models/bert"},
    "vocabulary": {"model": "google/mt5"},
    "sentences": {"text": "more", "dictionaries": ["a", "b"], "parallel": ["c.tsv"]},
    "evaluation": {"data": "/data"},
}


def test_every_path_of_a_recipe_is_known() -> None:
    assert set(list_locations(Recipe)) == set(recipe_file.PATHS)


def test_paths_are_relative_to_the_file_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("base", "base/models/bert", "mine", "here", "muse"):
        Path(name).mkdir(parents=True)
    base = yaml.safe_load(BASE) | PATHS
    Path("base/base.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    own = "extends: ../base/base.yaml\nsentences: {dictionaries: [d]}\n"
    path = Path("mine/mine.yaml")
    path.write_text(own, encoding="utf-8")
    recipe = load_recipe(path, ["corpus.decontaminate=here"])
    assert recipe.corpus.path == Path("mine/../base/text")
    assert recipe.corpus.decontaminate == Path("here")
    assert recipe.matching.dictionaries == Path("muse")  # not beside the file, but here
    assert (recipe.meta.model, recipe.vocabulary.model) == (
        "mine/../base/models/bert",
        "google/mt5",
    )
    assert recipe.sentences is not None
    assert recipe.sentences.dictionaries == [Path("mine/d")]
    assert recipe.sentences.parallel == [Path("mine/../base/c.tsv")]
    assert recipe.evaluation.data == Path("/data")
    # A saved recipe finds the same files, from any folder and through links.
    Path("elsewhere/runs/toy").mkdir(parents=True)
    Path("runs").symlink_to("elsewhere/runs")
    saved = Path("runs/toy/recipe.yaml")
    saved.write_text(save_recipe(recipe, saved.parent), encoding="utf-8")
    check_recipe_file(saved, saved)
    assert "/data" in saved.read_text(encoding="utf-8")
    assert str(tmp_path) not in saved.read_text(encoding="utf-8")
    absolute = saved.absolute()
    for folder in (".", "/"):
        monkeypatch.chdir(tmp_path / folder)
        again = load_recipe(absolute)
        pairs = [
            (again.corpus.path, "base/text"),
            (again.corpus.decontaminate, "here"),
            (again.matching.dictionaries, "muse"),
            (again.meta.model, "base/models/bert"),
        ]
        for found, expected in pairs:
            assert os.path.realpath(str(found)) == str(tmp_path / expected)


def test_a_recipe_that_an_earlier_version_saved_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").mkdir()
    Path("run").mkdir()
    recipe = load_recipe(write(tmp_path, BASE), ["corpus.source=text", "corpus.path=text"])
    saved = Path("run/recipe.yaml")
    saved.write_text(save_recipe(recipe), encoding="utf-8")
    check_recipe_file(saved, saved)
    assert load_recipe(saved).corpus.path == Path("text")
    saved.write_text(f"# mine\n{save_recipe(recipe)}", encoding="utf-8")
    with pytest.raises(MetaXLMError, match="move your file elsewhere"):
        check_recipe_file(saved, saved)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("pretraining.steps=-3", "--set pretraining.steps=-3: pretraining.steps: "),
        ("corpsu.path=x", "--set corpsu.path=x: unknown key 'corpsu'; did you mean 'corpus'?"),
        ("pretraining.stepz=3", "--set pretraining.stepz=3: unknown key 'pretraining.stepz'"),
        ("pretraining.steps=5", "--set pretraining.steps=5: pretraining: warmup_steps"),
        ("pretraining={steps: -3}", "--set pretraining={steps: -3}: pretraining.steps: "),
    ],
)
def test_errors_of_overrides_name_the_override(
    tmp_path: Path, override: str, expected: str
) -> None:
    assert problem(tmp_path, "pretraining: {length: 128}\n", override).startswith(expected)


@pytest.mark.parametrize("recorded", [None, "somewhere/muse"])
def test_the_path_of_dictionaries_does_not_repeat_a_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("muse").mkdir()
    Path("muse/en-de.txt").write_text("house haus\n", encoding="utf-8")
    layout = RunLayout(tmp_path / "run")
    found = []
    for folder in ("muse", tmp_path / "muse"):
        dictionaries = (
            f"variants.metaxlm={{dictionaries: true, matching: {{dictionaries: {folder}}}}}"
        )
        recipe = load_recipe(write(tmp_path, BASE), [dictionaries])
        [stage] = [
            stage
            for stage in build_stages(recipe, layout, WORLD)
            if stage.title == "initialize metaxlm"
        ]
        found.append(stage.fingerprint)
        matching = {"matching": {"dictionaries": recorded}}
        write_sealed(stage.output / MARKER, {"inputs": {"variant": matching}})
        assert stage.inputs["variant"]["matching"]["dictionaries"] in (None, recorded)
    assert (found[0] == found[1]) == (recorded is None)
