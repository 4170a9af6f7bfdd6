"""Variants: initialization, matching, frozen bodies, teachers, code switching, kept models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.commands import Command
from tests.conftest import PARTS, sentences
from tests.model.encoder_kinds import Kind, write_folder
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from metaxlm.analysis.results import load_results
from metaxlm.finetune.data_sets import UPOS
from metaxlm.init.ledger import load_ledger
from metaxlm.model.any_encoder import load_encoder, make_task_model
from metaxlm.model.huggingface import load_pretrained
from metaxlm.run.models import find_models, open_model

pytestmark = pytest.mark.filterwarnings("ignore")

VARIANTS = {
    "metaxlm": {"initialize": "both"},
    "frozen": {"initialize": "both", "freeze": "body"},
    "kd": {"initialize": "none", "distill": {"pooled": 1.0}},
    "switched": {"initialize": "none", "switch": {"probability": 0.5}},
    "xlm": {"initialize": "none"},
}
BIAS = "head.bias"
MODEL = {"layers": 1, "hidden": 16, "heads": 2, "ffn": 32, "max_positions": 64}


@pytest.fixture
def place(tmp_path: Path, encoder: Path) -> Path:
    """The run folder of a recipe on text, with an imported encoder."""
    (tmp_path / "text").mkdir()
    for language in PARTS:
        text = "\n".join(sentences(language))
        (tmp_path / "text" / f"{language}.txt").write_text(text, encoding="utf-8")
    (tmp_path / "muse").mkdir()
    (tmp_path / "muse" / "en-de.txt").write_text("the die\nthe der\nhouse haus\ncat katze\na ein\n")
    recipe = {
        "name": "trained",
        "languages": ["en", "de", "ru"],
        "corpus": {"source": "text", "path": "text", "cleaning": {"deduplicate": False}},
        "vocabulary": {"size": 110},
        "meta": {"model": str(encoder)},
        "model": MODEL,
        "matching": {"dictionaries": "muse"},
        "pretraining": {
            "steps": 6, "length": 32, "batch_size": 4, "warmup_steps": 2, "checkpoint_every": 3,
            "learning_rate": 1e-2, "keep_steps": [2, 4],
        },
        "variants": VARIANTS,
        "evaluation": {"retrieval": None, "alignment": None},
    }  # fmt: skip
    (tmp_path / "trained.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return tmp_path / "runs" / "trained"


COMMAND = ("run", "trained.yaml", "--device", "cpu", "--stage", "pretrain")


def run(metaxlm: Command, *more: str) -> str:
    code, printed, errors = metaxlm(*COMMAND, *more)
    assert code == 0, errors
    return printed


def load(folder: Path) -> dict[str, torch.Tensor]:
    return load_pretrained(folder).model.state_dict()


def list_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> set[str]:
    return {key for key in one if torch.equal(one[key], other[key])}


def test_a_frozen_body_and_kept_models(metaxlm: Command, place: Path) -> None:
    run(metaxlm, "--variant", "frozen", "--variant", "metaxlm")
    folders = {name: place / "variants" / name for name in ("frozen", "metaxlm")}
    trained = load(folders["frozen"] / "model")
    for name, folder in folders.items():
        end = load(folder / "model")
        body = {key for key in end if key.startswith("encoder.layers.")}
        unchanged = list_equal(load(folder / "initialization/model"), end)
        assert unchanged == (body if name == "frozen" else set())
    steps = folders["frozen"] / "steps"
    assert sorted(path.name for path in steps.iterdir()) == ["step-00000002", "step-00000004"]
    models = [AutoModel.from_pretrained(path) for path in sorted(steps.iterdir())]
    words = [model.get_input_embeddings().weight for model in models]
    assert not torch.equal(words[0], words[1])
    assert len(AutoTokenizer.from_pretrained(steps / "step-00000002")) == len(words[0])
    checkpoint = find_models(str(folders["frozen"] / "checkpoints"))[-1]
    assert open_model(checkpoint).encoder.config.norm_eps == 1e-12  # BERT's, not RoBERTa's

    # Another distribution of languages gives other blocks.
    change = ("--set", "variants.frozen.alpha=0.0")
    printed = run(metaxlm, "--variant", "frozen", *change)
    assert "initialize frozen: up to date" in printed
    assert not torch.equal(load(folders["frozen"] / "model")[BIAS], trained[BIAS])

    # Freezing affects training, not the initialization.
    before = load(folders["metaxlm"] / "initialization/model")
    change = ("--set", "variants.metaxlm.freeze=body", "--set", "pretraining.keep_steps=[3]")
    printed = run(metaxlm, "--variant", "metaxlm", *change)
    assert "initialize metaxlm: up to date" in printed
    assert "freeze: none -> body" in printed
    assert list_equal(before, load(folders["metaxlm"] / "initialization/model")) == set(before)
    # Models of the earlier recipe are removed.
    assert [path.name for path in (folders["metaxlm"] / "steps").iterdir()] == ["step-00000003"]


def test_an_encoder_of_another_family(metaxlm: Command, place: Path, tmp_path: Path) -> None:
    """ELECTRA, whose token embeddings are narrower than its hidden states, without a head."""
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"hidden_size": 16, "embedding_size": 8, "max_position_embeddings": 64}
    folder = write_folder(Kind("Electra", "ForPreTraining", changes=sizes), tmp_path / "electra")
    other = ("--set", f"meta.model={folder}")
    printed = run(metaxlm, "--variant", "frozen", "--variant", "kd", *other)
    assert "has no head.generator_lm_head.bias, " in printed
    for name in ("frozen", "kd"):
        variant = place / "variants" / name
        end, start = load(variant / "model"), load(variant / "initialization/model")
        unchanged = list_equal(start, end)
        body = {key for key in end if ".encoder.layer." in key or "embeddings_project" in key}
        assert len(body) == 18 and unchanged == (body if name == "frozen" else set())
        kept = AutoModelForMaskedLM.from_pretrained(variant / "steps/step-00000004")
        assert kept.get_input_embeddings().weight.shape[1] == 8
    assert list_equal(load(place / "variants/frozen/model"), load(place / "meta/model")) == body

    # A checkpoint has the vectors and the task head of the model that is written from it.
    last = open_model(find_models(str(place / "variants/kd/checkpoints"))[-1])
    final = load_encoder(place / "variants/kd/model")
    models = []
    for opened in (last, final):
        torch.manual_seed(1)
        models.append(make_task_model(opened, "classification", 3).eval())
    ids = torch.tensor([[0, 7, 9, 30, 2]])
    with torch.no_grad():
        assert torch.equal(last.encoder(ids), final.encoder(ids))
        assert torch.equal(models[0](ids), models[1](ids))

    code, planned, errors = metaxlm("plan", "trained.yaml", *other, "--no-measure", "--json")
    assert code == 0, errors
    trained = sum(value.numel() for value in load(place / "variants/kd/model").values())
    assert {row["parameters"] for row in json.loads(planned)["trainings"]} == {trained}
    error = metaxlm.complaint(*COMMAND, *other, "--set", "model.max_positions=65")
    assert "electra: has 64 positions; set model.max_positions to at most 64" in error


def test_switching_that_cannot_work_is_rejected(metaxlm: Command, place: Path) -> None:
    (metaxlm.folder / "muse" / "en-de.txt").write_text("unheard nie\n")
    error = metaxlm.complaint(*COMMAND, "--variant", "switched")
    assert "no dictionary entry has a word and a translation that are single tokens" in error


def test_a_tagger_keeps_its_head_and_is_evaluated_with_it(
    metaxlm: Command, tmp_path: Path, encoder: Path
) -> None:
    tagger = AutoModelForTokenClassification.from_pretrained(encoder, num_labels=len(UPOS))
    tagger.config.id2label = dict(enumerate(reversed(UPOS)))
    tagger.config.label2id = {label: row for row, label in tagger.config.id2label.items()}
    tagger.save_pretrained(tmp_path / "tagger")
    AutoTokenizer.from_pretrained(encoder).save_pretrained(tmp_path / "tagger")
    # Modules of sentence-transformers are kept in the same way.
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    modules += [{"path": "1_Normalize", "type": "sentence_transformers.models.Normalize"}]
    (tmp_path / "tagger" / "modules.json").write_text(json.dumps(modules))
    write_starts(tmp_path, encoder, {"size": 700})
    recipe = yaml.safe_load((tmp_path / "starts.yaml").read_text())
    recipe["meta"]["model"] = "tagger"
    recipe["pretraining"] |= {"steps": 3, "warmup_steps": 1, "batch_size": 4, "learning_rate": 1e-2}
    recipe["variants"] = {"frozen": {"freeze": "body"}, "all": {"initialize": "both"}}
    recipe["evaluation"] |= {"retrieval": None, "finetune": {"udpos": {"epochs": 0, "length": 32}}}
    (tmp_path / "starts.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    code, _, errors = metaxlm("run", "starts.yaml", "--device", "cpu", "--stage", "evaluate")
    assert code == 0, errors
    root = tmp_path / "runs" / "starts"
    for name in ("frozen", "all"):
        folder = root / "variants" / name
        found, report = AutoModelForTokenClassification.from_pretrained(
            folder / "model", output_loading_info=True
        )
        assert not report["missing_keys"]
        assert found.config.id2label == tagger.config.id2label
        assert json.loads((folder / "model" / "modules.json").read_text()) == modules
        assert torch.equal(found.classifier.weight, tagger.classifier.weight)
        body = [key for key in load(folder / "model") if key.startswith("encoder.layers.")]
        kept = list_equal(load(folder / "model"), load(folder / "initialization/model"))
        assert kept == (set(body) if name == "frozen" else set())
    scores = load_results(root)
    assert set(scores.language) == {"en", "de", "zh"}
    # The folder alone gives the same scores, also in languages that the run does not have.
    command = ("evaluate", "--model", "runs/starts/variants/all", "--task", "udpos", "--set")
    data = ("--data", "runs/starts/corpus/tasks", "--device", "cpu", "--set", "length=32")
    assert metaxlm(*command, "epochs=0", *data)[0] == 0
    mine = scores[scores.variant == "all"]
    again = load_results(tmp_path / "evaluation").merge(mine, on=["language", "split", "metric"])
    assert len(again) == len(mine)
    assert (again.value_x == again.value_y).all()


def write_starts(folder: Path, encoder: Path, vocabulary: dict[str, Any]) -> None:
    """Write a recipe without training steps, whose variants differ in their matching."""
    weighted = {"one_to_many": "order", "split_words": "all", "segments": True}
    recipe = {
        "name": "starts",
        "languages": ["en", "de", "zh"],
        "corpus": {"phrasebook": {
            "source_sentences": 300, "sentences": 300, "test_pairs": 20, "aligned_pairs": 10,
            "train_examples": 20, "test_examples": 10,
        }},
        "vocabulary": vocabulary,
        "meta": {"model": str(encoder)},
        "model": MODEL,
        "matching": {"dictionaries": str(folder / "muse")},
        "pretraining": {"steps": 0, "length": 32},
        "variants": {
            "none": {"initialize": "none"},
            "dict": {"dictionaries": True},
            "use": {"dictionaries": True, "matching": {"precedence": "use", **weighted}},
        },
        "evaluation": {"alignment": None},
    }  # fmt: skip
    (folder / "muse").mkdir(exist_ok=True)
    (folder / "muse" / "en-de.txt").write_text("man der\nold die\nred das\nbook ein\nhouse ist\n")
    (folder / "starts.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")


def test_initializations_are_evaluated_without_training(
    metaxlm: Command, tmp_path: Path, encoder: Path
) -> None:
    write_starts(tmp_path, encoder, {"size": 700})
    command = ("run", "starts.yaml", "--device", "cpu", "--stage")
    assert metaxlm(*command, "evaluate")[0] == 0
    root = tmp_path / "runs" / "starts"
    rows = [json.loads(line) for line in (root / "results.jsonl").read_text().splitlines()]
    assert {row["variant"] for row in rows} == {"none", "dict", "use"}
    plans = []
    for name in ("dict", "use"):
        folder = root / "variants" / name
        start = load(folder / "initialization/model")
        assert list_equal(start, load(folder / "model")) == set(start)
        # BERT's own epsilon, not RoBERTa's.
        assert load_pretrained(folder / "model").model.config.norm_eps == 1e-12
        plans.append(load_ledger(folder / "initialization/ledger.parquet"))
    # Each variant has its own matching, with the recipe's dictionaries.
    assert [plan.recipe.precedence for plan in plans] == ["text", "frequency_weighted"]
    for plan in plans:
        entries = zip(plan.languages, plan.translations, strict=True)
        german = {translation for language, translation in entries if language == "de"}
        assert german and german <= {"man", "old", "red", "book", "house"}
    assert not (root / "variants" / "none" / "initialization" / "ledger.parquet").exists()

    # A loaded vocabulary is trimmed to the text.
    vocabulary = root / "vocabulary" / "multilingual"
    AutoTokenizer.from_pretrained(vocabulary).save_pretrained(tmp_path / "big")
    write_starts(tmp_path, encoder, {"model": str(tmp_path / "big"), "min_count": 40})
    code, printed, _ = metaxlm(*command, "pretrain")
    assert code == 0
    assert "of 700 tokens" in printed
    small = len(AutoTokenizer.from_pretrained(vocabulary))
    assert small < 700
    config = load_pretrained(root / "variants/use/model").model.config
    assert config.vocab_size == small


def test_an_extended_vocabulary_keeps_the_encoders(
    metaxlm: Command, place: Path, encoder: Path
) -> None:
    run(metaxlm, "--variant", "metaxlm", "--set", "vocabulary.extend=true")
    old = AutoTokenizer.from_pretrained(encoder)
    start = place / "variants" / "metaxlm" / "initialization" / "model"
    new = AutoTokenizer.from_pretrained(start)
    assert new.get_vocab().items() > old.get_vocab().items()
    english, russian = (" ".join(sentences(code)[:3]) for code in ("en", "ru"))
    english = english.replace(".", "")  # unknown to this encoder
    assert new.tokenize(english) == old.tokenize(english)
    assert new.unk_token not in new.tokenize(russian)
    words = [AutoModel.from_pretrained(one).get_input_embeddings() for one in (encoder, start)]
    assert torch.equal(words[1].weight[: len(old)], words[0].weight)
