"""The run's finetuning stage: each seed is a cell, and a stopped stage continues with the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.config import Recipe
from metaxlm.experiments import evaluation
from metaxlm.experiments.evaluation import finetune_task
from metaxlm.experiments.layout import RunLayout
from metaxlm.experiments.results import read_results
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.hugging_face import save_pretrained
from metaxlm.phrasebook import PhrasebookSizes, write_phrasebook
from metaxlm.recipe_file import load_recipe

RECIPE = """\
name: toy
languages: [en, de, sw]
corpus: {source: text, path: text}
variants: {xlm: {initialize: none}}
evaluation:
  data: DATA
  finetune:
    xnli: {epochs: 1, learning_rate: 1e-3, length: 32, seeds: 3}
"""
SIZES = PhrasebookSizes(
    50, 50, 8, 8, xnli_train=20, pawsx_train=8, tagging_train=8, squad_train=4, cls_train=8, dev=6,
    test=10, dictionary_sentences=10,
)  # fmt: skip
CPU = torch.device("cpu")


@pytest.fixture
def recipe(tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase) -> Recipe:
    """A run whose variant is pretrained, and the data of its task."""
    write_phrasebook(tmp_path / "corpus", ("en", "de"), 1, SIZES)
    config = EncoderConfig(
        vocab_size=len(multilingual_tokenizer),
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        ffn_size=32,
        max_positions=32,
    )
    torch.manual_seed(0)
    folder = tmp_path / "run" / "variants" / "xlm" / "model"
    save_pretrained(MaskedLM(config).eval(), multilingual_tokenizer, folder, "# test\n")
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE.replace("DATA", str(tmp_path / "corpus" / "tasks")), encoding="utf-8")
    return load_recipe(path)


def finetune(recipe: Recipe, tmp_path: Path, name: str) -> list[dict[str, Any]]:
    folder = tmp_path / name
    folder.mkdir()
    finetune_task(recipe, RunLayout(tmp_path / "run"), "xlm", "xnli", CPU, folder)
    return read_results(folder / "results.jsonl")


def test_a_stopped_stage_keeps_its_seeds(
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train_model = evaluation.train_model
    seeds: list[int] = []

    def count(*arguments: Any) -> Any:
        seeds.append(arguments[4])
        if len(seeds) == 3:
            raise KeyboardInterrupt
        return train_model(*arguments)

    monkeypatch.setattr(evaluation, "train_model", count)
    with pytest.raises(KeyboardInterrupt):
        finetune(recipe, tmp_path, "stopped")
    assert len(set(seeds)) == 3
    rows = finetune(recipe, tmp_path, "finished")
    assert len(seeds) == 4
    assert seeds[3] == seeds[2]
    assert "no dev or test file for sw" in capsys.readouterr().out
    tested = [row for row in rows if row["split"] == "test"]
    found = {(row["variant"], row["metric"], row["language"], row["seed"]) for row in tested}
    assert found == {
        (variant, metric, language, seed)
        for variant, metric in (("xlm", "accuracy"), (None, "majority"), (None, "chance"))
        for language in ("en", "de")
        for seed in range(3)
    }
    assert {row["run"] for row in rows} == {"toy"}
    assert {row["step"] for row in rows if row["variant"]} == {recipe.pretraining.steps}
    for seed in range(3):
        assert (tmp_path / "finished" / f"en-{seed}" / "predictions" / "test-de.tsv").is_file()
    assert finetune(recipe, tmp_path, "again") == rows  # the stage clears its work, not this
    assert len(seeds) == 4
