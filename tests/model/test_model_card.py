from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from metaxlm.analysis.results import make_frame
from metaxlm.analysis.scores import Results
from metaxlm.model.card import model_card
from metaxlm.recipe import Recipe

VARIANTS = {
    "xlm": {"initialize": "none"},
    "metaxlm": {"initialize": "both"},
    "metaxlm+dict": {"initialize": "both", "dictionaries": True},
    "layers": {"initialize": {"layers": True, "embedding_norm": True}},
}


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": "twin",
        "languages": ["en", "de", "no", "zh"],
        "variants": VARIANTS,
        "model": {"layers": 3, "hidden": 48, "heads": 4, "max_positions": 128},
        "pretraining": {"steps": 1234, "length": 64, "warmup_steps": 100},
        "matching": {"dictionaries": Path("/home/user/secret/muse")},
        "meta": {"length": 64, "steps": 77, "warmup_steps": 7},
    }
    return Recipe.model_validate(values).model_dump(mode="json")


def row(
    variant: str | None, task: str, metric: str, language: str, value: float, **more: Any
) -> Any:
    empty = dict.fromkeys(("run", "step", "layer", "scenario", "source", "seed", "split"))
    named = {"variant": variant, "task": task, "metric": metric, "language": language}
    return {**empty, **named, "value": value, **more}


def table_row(card: str, *starts: str) -> list[str]:
    """Return the cells of the one table row that begins with these cells."""
    prefix = f"| {' | '.join(starts)} |"
    (line,) = [line for line in card.splitlines() if line.startswith(prefix)]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_front_matter_is_what_the_hub_reads(recipe: dict[str, Any]) -> None:
    card = ModelCard(model_card(recipe, "metaxlm"))
    # Norwegian's code is YAML's word for false unless it is quoted.
    assert card.data.language == ["en", "de", "no", "zh"]
    assert card.data.license == "apache-2.0"
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "fill-mask"
    assert "metaxlm" in card.data.tags
    assert "AutoModelForMaskedLM.from_pretrained(" in card.content


def test_a_kept_head_is_named(recipe: dict[str, Any]) -> None:
    card = ModelCard(model_card(recipe, "metaxlm", None, "MPNetForTokenClassification"))
    assert card.data.pipeline_tag == "token-classification"
    assert "AutoModelForTokenClassification.from_pretrained(" in card.content
    assert "MPNet" in card.content and "XLM-RoBERTa" not in card.content


def test_initialization_of_the_variant(recipe: dict[str, Any]) -> None:
    from_scratch = model_card(recipe, "xlm")
    assert "was initialized randomly" in from_scratch
    assert "phase (a)" not in from_scratch
    assert "Vocabulary matching" not in from_scratch
    copied = model_card(recipe, "metaxlm")
    assert "initialized from a masked language model of English" in copied
    assert "token embeddings, positions, embedding norm, layers, head" in copied
    assert "dictionaries;" not in copied
    assert "matched by spelling and bilingual dictionaries;" in model_card(recipe, "metaxlm+dict")
    some = model_card(recipe, "layers")
    assert "copying these parts: embedding norm, layers. It was" in some


def test_it_shows_the_recipe(recipe: dict[str, Any]) -> None:
    card = model_card(recipe, "metaxlm")
    assert "# twin: metaxlm" in card
    assert "English, German" in card
    assert table_row(card, "`hidden`") == ["`hidden`", "48"]
    steps = [line for line in card.splitlines() if line.startswith("| `steps` |")]
    assert steps == ["| `steps` | 77 |", "| `steps` | 1,234 |"]
    assert table_row(card, "`phrasebook.sentences`")[1] == "6,000"
    assert "at most 128 tokens" in card
    assert "generated sentences" in card
    assert table_row(card, "`dictionaries`")[1] == "muse"
    assert "secret" not in card
    assert "log_every" not in card


def test_results_are_means_over_languages(recipe: dict[str, Any]) -> None:
    rows = [
        row("xlm", "xnli", "accuracy", "en", 0.50, seed=1),
        row("xlm", "xnli", "accuracy", "de", 0.40, seed=1),
        row("metaxlm", "xnli", "accuracy", "en", 0.70, seed=1, split="test"),
        row("metaxlm", "xnli", "accuracy", "en", 0.80, seed=2, split="test"),
        row("metaxlm", "xnli", "accuracy", "de", 0.55, seed=1, split="test"),
        row("metaxlm", "xnli", "accuracy", "de", 0.99, seed=1, split="dev"),
        row(None, "xnli", "majority", "en", 0.34),
        row(None, "xnli", "majority", "de", 0.32),
    ]
    card = model_card(recipe, "metaxlm", Results(make_frame(rows)))
    header = ["task", "metric", "xlm", "**metaxlm** (this model)", "majority"]
    assert table_row(card, "task") == header
    assert table_row(card, "xnli")[1:] == ["accuracy ↑", "45.0", "62.5", "33.0"]
    assert "has not been evaluated" not in card


def test_layers_and_steps_are_chosen_by_the_metric(recipe: dict[str, Any]) -> None:
    rows = [
        row("xlm", "tatoeba", "accuracy", "de", 0.2, layer=1, step=10),
        row("xlm", "tatoeba", "accuracy", "de", 0.6, layer=2, step=10),
        row("xlm", "tatoeba", "accuracy", "de", 0.9, layer=2, step=5),
        row("xlm", "tatoeba", "accuracy_to_source", "de", 0.95, layer=1, step=10),
        row("xlm", "alignment", "aer", "de", 0.8, layer=1, step=10),
        row("xlm", "alignment", "aer", "de", 0.3, layer=2, step=10),
        row("xlm", "alignment", "precision", "de", 0.99, layer=2, step=10),
    ]
    card = model_card(recipe, "xlm", Results(make_frame(rows)))
    assert table_row(card, "tatoeba")[1:] == ["accuracy ↑", "60.0 (layer 2)"]
    assert table_row(card, "alignment")[1:] == ["aer ↓", "30.0 (layer 2)"]
    assert "majority" not in card


def test_scores_are_a_model_index(recipe: dict[str, Any]) -> None:
    rows = [
        row("xlm", "xnli", "accuracy", "de", 0.40, seed=1, split="test"),
        row("metaxlm", "xnli", "accuracy", "de", 0.70, seed=1, split="test"),
        row("metaxlm", "xnli", "accuracy", "de", 0.80, seed=2, split="test"),
        row("metaxlm", "mlqa", "f1", "de", 0.5, seed=1, split="test"),
        row("metaxlm", "mlqa", "em", "de", 0.25, seed=1, split="test"),
        row("metaxlm", "tatoeba", "accuracy", "de", 0.2, layer=1),
        row("metaxlm", "tatoeba", "accuracy", "de", 0.6, layer=2),
    ]
    card = ModelCard(model_card(recipe, "metaxlm", Results(make_frame(rows))))
    assert card.data.model_name == "twin-metaxlm"
    found = {
        (one.dataset_type, one.dataset_config, one.task_type, one.metric_type): one
        for one in card.data.eval_results
    }
    assert {key: one.metric_value for key, one in found.items()} == {
        ("xnli", "de", "text-classification", "accuracy"): 75.0,
        ("mlqa", "de", "question-answering", "f1"): 50.0,
        ("mlqa", "de", "question-answering", "em"): 25.0,
        ("tatoeba", "de", "sentence-similarity", "accuracy"): 60.0,
    }
    names = {key[0]: one.metric_name for key, one in found.items()}
    assert names["xnli"] == "accuracy in percent, trained in en, mean of 2 seeds"
    assert names["tatoeba"] == "accuracy in percent, layer 2, the best of all"
    absent = ModelCard(model_card(recipe, "layers", Results(make_frame(rows))))
    assert absent.data.eval_results is None


@pytest.mark.parametrize(
    ("model", "variant", "expected"),
    [
        ("FacebookAI/roberta-base", "metaxlm", "FacebookAI/roberta-base"),
        ("hf:roberta-base", "metaxlm", "roberta-base"),
        ("/home/user/roberta", "metaxlm", None),
        ("FacebookAI/roberta-base", "xlm", None),
    ],
)
def test_the_base_model_is_a_name_on_the_hub(
    recipe: dict[str, Any], model: str, variant: str, expected: str | None
) -> None:
    changed = recipe | {"meta": recipe["meta"] | {"model": model}}
    assert ModelCard(model_card(changed, variant)).data.base_model == expected
