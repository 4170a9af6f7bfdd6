"""The stage `sentences` of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from transformers import AutoModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.analysis.results import load_results
from metaxlm.files import read_json
from metaxlm.recipe.recipe_file import load_recipe
from tests.commands import Command
from tests.conftest import PARTS, sentences
from tests.sentences.encoder_trainings import make_teacher, save_student

WORDS = {
    "the": "die", "cat": "Katze", "a": "ein", "dog": "Hund", "my": "meine", "sister": "Schwester",
    "old": "alte", "man": "Mann", "sees": "sieht", "likes": "mag", "finds": "findet",
    "house": "Haus", "red": "rote", "book": "Buch", "bread": "Brot", "river": "Fluss",
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A recipe on text with an imported sentence encoder, and parallel text for retrieval."""
    teacher = make_teacher(tmp_path)
    for name in ("text", "muse", "eval/tatoeba"):
        (tmp_path / name).mkdir(parents=True)
    for language in ("en", "de"):
        text = "\n".join(sentences(language))
        (tmp_path / "text" / f"{language}.txt").write_text(text, encoding="utf-8")
    entries = "\n".join(f"{word} {other}" for word, other in WORDS.items())
    (tmp_path / "muse" / "en-de.txt").write_text(entries, encoding="utf-8")
    for code in ("deu", "eng"):
        text = "\n".join(sentences({"deu": "de", "eng": "en"}[code])[:20]) + "\n"
        path = tmp_path / "eval" / "tatoeba" / f"tatoeba.deu-eng.{code}"
        path.write_text(text, encoding="utf-8")
    phase = {"steps": 3, "length": 32, "batch_size": 4, "warmup_steps": 1}
    recipe = {
        "name": "encoders",
        "languages": ["en", "de"],
        "corpus": {"source": "text", "path": "text", "cleaning": {"deduplicate": False}},
        "vocabulary": {"size": 80},
        "meta": {"model": str(teacher)},
        "model": {"layers": 1, "hidden": 16, "heads": 2, "ffn": 32, "max_positions": 64},
        "matching": {"dictionaries": "muse"},
        "pretraining": phase,
        "sentences": {"steps": 6, "batch_size": 8, "learning_rate": 1e-2, "log_every": 2,
                      "max_length": 24, "mlm_weight": 0.1, "keep_steps": [3]},
        "execution": {"trackers": []},
        "variants": {"whole": {"initialize": "both"},
                     "plain": {"initialize": "both", "sentences": False}},
        "evaluation": {"data": "eval", "alignment": None},
    }  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_a_run_trains_and_measures_encoders(place: Path, metaxlm: Command) -> None:
    code, output, errors = metaxlm("run", "recipe.yaml", "--device", "cpu", "--stage", "evaluate")
    assert code == 0, errors
    folder = place / "runs" / "encoders" / "variants"
    assert "sentences whole: done" in output and "sentences plain" not in output
    assert AutoModel.from_pretrained(folder / "whole" / "sentences").config.hidden_size == 16
    assert not (folder / "plain" / "sentences").exists()
    assert not (folder / "whole" / "work-sentences").exists()
    assert [path.name for path in (folder / "whole" / "sentence-steps").iterdir()] == [
        "step-00000003"
    ]
    card = (folder / "whole" / "sentences" / "README.md").read_text()
    assert "0.1 x masked language modeling" in card and "64 en sentences, muse" in card
    frame = load_results(place / "runs" / "encoders")
    assert set(frame["variant"]) >= {"whole", "plain", "whole+sentences"}
    stages = read_json(place / "runs" / "encoders" / "provenance.json")["stages"]
    assert {stage["title"]: stage.get("steps") for stage in stages}["sentences whole"] == 6
    code, output, _ = metaxlm("verify", "runs/encoders")
    assert code == 0 and "all undamaged" in output
    same = ["--stage", "evaluate", "--set", "sentences.log_every=3"]
    again = metaxlm("run", "recipe.yaml", "--device", "cpu", *same)
    assert "sentences whole: up to date" in again[1]
    changed = ["run", "recipe.yaml", "--device", "cpu", "--set", "sentences.cosine_weight=2"]
    code, output, _ = metaxlm(*changed, "--dry")
    assert "pretrain whole" in output and "sentences.cosine_weight: 4.0 -> 2.0" in output
    # Neither the section nor the variant's key decides the stages before.
    code, output, _ = metaxlm(*changed[:4], "--set", "sentences=null", "--dry")
    assert code == 0 and "again" not in output


def test_plans_list_encoders(place: Path, metaxlm: Command) -> None:
    code, output, _ = metaxlm("plan", "recipe.yaml", "--no-measure", "--json")
    assert code == 0 and '"whole+sentences"' in output and '"plain+sentences"' not in output


def test_an_encoder_needs_no_pretraining(place: Path, metaxlm: Command) -> None:
    settings = ["--set", "pretraining.steps=0", "--set", "sentences.mlm_weight=0"]
    arguments = ["run", "recipe.yaml", "--device", "cpu", "--stage", "sentences", *settings]
    code, output, errors = metaxlm(*arguments, "--variant", "whole")
    assert code == 0, errors
    assert "sentences whole: done" in output


@pytest.mark.filterwarnings("ignore")
def test_grown_dictionaries_rewrite_text(place: Path, metaxlm: Command) -> None:
    (place / "muse" / "en-de.txt").write_text("cat Katze\ndog Hund\nhouse Haus\n")
    grown = "variants.grown={grow: {variant: plain, pairs: eval/tatoeba}}"
    settings = ["pretraining.steps=0", "sentences.mlm_weight=0", "sentences.keep_steps=[]", grown]
    arguments = ["run", "recipe.yaml", "--device", "cpu", "--stage", "sentences"]
    more = [part for setting in settings for part in ("--set", setting)]
    code, output, errors = metaxlm(*arguments, "--variant", "grown", *more)
    assert code == 0, errors
    assert "grow grown: done" in output and "whole" not in output
    folder = place / "runs" / "encoders" / "variants" / "grown"
    assert "64 en sentences, dictionaries" in (folder / "sentences" / "README.md").read_text()
    assert read_json(folder / "dictionaries" / "dictionaries.json")["de"]["growth"]["pairs"] == 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("meta.model=null", "sentences.teacher is null, and so is meta.model"),
        ("sentences.max_length=65", "sentences.max_length exceeds model.max_positions 64"),
        ("matching.dictionaries=null", "sentences: no source of pairs"),
        ("sentences.dictionaries=[]", "no source of pairs: name dictionaries or parallel"),
        ("sentences.teacher=bert", "bert: not a sentence encoder, it has no modules.json"),
        ("sentences.teacher=wide", "wide: has vectors of 32 numbers, but model.hidden is 16"),
        ("sentences.temperature=0", "sentences.temperature: should be greater than 0"),
        ("variants.whole.sentences=true", "variants.whole.sentences"),
    ],
)
def test_bad_recipes_write_nothing(
    place: Path, metaxlm: Command, tokenizer: Tokenizer, changes: str, message: str
) -> None:
    if "wide" in changes:
        from metaxlm.model.any_encoder import load_encoder
        from metaxlm.probe.sentence_folder import export_sentence_transformers

        student = save_student(place / "student", tokenizer, width=32, num_heads=2)
        export_sentence_transformers(load_encoder(student), place / "wide")
    error = metaxlm.complaint("run", "recipe.yaml", "--device", "cpu", "--set", changes)
    assert message in error
    assert not (place / "runs").exists()


def test_saved_recipes_are_read_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from metaxlm.recipe.recipe_file import save_recipe

    monkeypatch.chdir(place)
    recipe = load_recipe(Path("recipe.yaml"), ["sentences.parallel=[a.tsv]"])
    Path("again.yaml").write_text(save_recipe(recipe, place))
    assert load_recipe(Path("again.yaml")) == recipe
    assert set(PARTS) > set(recipe.languages)
