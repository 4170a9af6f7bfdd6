"""Starts that are measured before any training, each variant matched in its own way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.commands import Command
from transformers import AutoTokenizer

from metaxlm.init.ledger import load_ledger
from metaxlm.model.huggingface import load_pretrained

RECIPE = """\
name: starts
languages: [en, de, zh]
corpus:
  phrasebook: {{source_sentences: 300, sentences: 300, test_pairs: 20, aligned_pairs: 10,
    train_examples: 20, test_examples: 10}}
vocabulary: {vocabulary}
meta: {{model: {encoder}}}
model: {{layers: 1, hidden: 16, heads: 2, ffn: 32, max_positions: 64}}
matching: {{dictionaries: {dictionaries}}}
pretraining: {{steps: 0, length: 32}}
variants:
  none: {{initialize: none}}
  dict: {{dictionaries: true}}
  use:
    dictionaries: true
    matching: {{precedence: use, one_to_many: order, split_words: all, segments: true}}
evaluation: {{alignment: null}}
"""


def _run(metaxlm: Command, folder: Path, encoder: Path, vocabulary: str) -> tuple[int, str]:
    (folder / "muse").mkdir(exist_ok=True)
    (folder / "muse" / "en-de.txt").write_text("man der\nold die\nred das\nbook ein\nhouse ist\n")
    text = RECIPE.format(encoder=encoder, dictionaries=folder / "muse", vocabulary=vocabulary)
    (folder / "starts.yaml").write_text(text, encoding="utf-8")
    code, printed, errors = metaxlm("run", "starts.yaml", "--device", "cpu")
    assert not errors
    return code, printed


def test_the_start_itself_is_measured(metaxlm: Command, tmp_path: Path, encoder: Path) -> None:
    code, _ = _run(metaxlm, tmp_path, encoder, "{size: 700}")
    assert code == 0
    root = tmp_path / "runs" / "starts"
    rows = [json.loads(line) for line in (root / "results.jsonl").read_text().splitlines()]
    assert {row["variant"] for row in rows} == {"none", "dict", "use"}
    for name in ("dict", "use"):
        folder = root / "variants" / name
        start, end = (
            load_pretrained(folder / part).model for part in ("initialization/model", "model")
        )
        for key, value in start.state_dict().items():
            assert torch.equal(value, end.state_dict()[key]), key
        # BERT's own epsilon, not RoBERTa's.
        assert start.config.norm_eps == 1e-12
    # Each variant is matched in its own way, with the recipe's dictionaries.
    plans = [
        load_ledger(root / f"variants/{name}/initialization/ledger.parquet")
        for name in ("dict", "use")
    ]
    assert [plan.recipe.precedence for plan in plans] == ["text", "use"]
    ours = {"man", "old", "red", "book", "house"}
    for plan in plans:
        entries = zip(plan.languages, plan.translations, strict=True)
        german = {translation for language, translation in entries if language == "de"}
        assert german
        assert german <= ours
    assert not (root / "variants" / "none" / "initialization" / "ledger.parquet").exists()


def test_a_vocabulary_trimmed_to_the_text(metaxlm: Command, tmp_path: Path, encoder: Path) -> None:
    code, _ = _run(metaxlm, tmp_path, encoder, "{size: 700}")
    assert code == 0
    vocabulary = tmp_path / "runs" / "starts" / "vocabulary" / "multilingual"
    (tmp_path / "big").mkdir()
    for path in vocabulary.iterdir():
        (tmp_path / "big" / path.name).write_bytes(path.read_bytes())
    code, printed = _run(
        metaxlm, tmp_path, encoder, f"{{model: {tmp_path / 'big'}, min_count: 40}}"
    )
    assert code == 0
    assert "of 700 pieces stay" in printed
    small = AutoTokenizer.from_pretrained(vocabulary)
    assert len(small) < 700
    model = load_pretrained(tmp_path / "runs/starts/variants/use/model")
    assert model.model.config.vocab_size == len(small)


def test_trimming_needs_a_vocabulary(metaxlm: Command, tmp_path: Path, encoder: Path) -> None:
    text = RECIPE.format(encoder=encoder, dictionaries="x", vocabulary="{size: 700, min_count: 2}")
    (tmp_path / "starts.yaml").write_text(text)
    told = metaxlm.complaint("run", "starts.yaml")
    assert "min_count trims an existing vocabulary; name one with `model`" in told


@pytest.mark.parametrize("change", ["layers: 2", "hidden: 32", "heads: 4", "ffn: 64"])
def test_another_shape_than_the_encoders(
    metaxlm: Command, tmp_path: Path, encoder: Path, change: str
) -> None:
    key = change.partition(":")[0]
    text = RECIPE.format(encoder=encoder, dictionaries="muse", vocabulary="{size: 700}")
    old = next(part for part in ("layers: 1", "hidden: 16", "heads: 2", "ffn: 32") if key in part)
    (tmp_path / "muse").mkdir()
    (tmp_path / "muse" / "en-de.txt").write_text("cat katze\n")
    (tmp_path / "starts.yaml").write_text(text.replace(old, change))
    told = metaxlm.complaint("run", "starts.yaml")
    assert f"{key}, the recipe's model.{key} is" in told
    assert "set it to the encoder's" in told
