"""Variants that differ in how they are trained: frozen bodies, teachers, models kept on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.commands import Command
from tests.conftest import PARTS, sentences
from transformers import AutoModel, AutoTokenizer

from metaxlm.model.huggingface import load_pretrained

RECIPE = """\
name: trained
languages: [en, de, ru]
corpus: {{source: text, path: {text}, cleaning: {{deduplicate: false}}}}
vocabulary: {{size: 110}}
meta: {{model: {encoder}}}
model: {{layers: 1, hidden: 16, heads: 2, ffn: 32, max_positions: 64}}
pretraining: {{steps: 6, length: 32, batch_size: 4, warmup_steps: 2, checkpoint_every: 3,
  learning_rate: 1e-2, keep_steps: [2, 4]}}
variants:
  metaxlm: {{initialize: both}}
  frozen: {{initialize: both, freeze: body}}
  kd: {{initialize: none, distill: {{pooled: 1.0}}}}
  xlm: {{initialize: none}}
evaluation: {{retrieval: null, alignment: null}}
"""


@pytest.fixture
def place(tmp_path: Path, encoder: Path) -> Path:
    text = tmp_path / "text"
    text.mkdir()
    for language in PARTS:
        (text / f"{language}.txt").write_text("\n".join(sentences(language)), encoding="utf-8")
    recipe = RECIPE.format(text=text, encoder=encoder)
    (tmp_path / "trained.yaml").write_text(recipe, encoding="utf-8")
    return tmp_path / "runs" / "trained"


def run(metaxlm: Command, *more: str) -> str:
    command = ("run", "trained.yaml", "--device", "cpu", "--stage", "pretrain")
    code, printed, errors = metaxlm(*command, *more)
    assert code == 0, errors
    return printed


def load(folder: Path) -> dict[str, torch.Tensor]:
    return load_pretrained(folder).model.state_dict()


@pytest.mark.filterwarnings("ignore")
def test_a_frozen_body_and_models_kept_on_the_way(metaxlm: Command, place: Path) -> None:
    run(metaxlm, "--variant", "frozen", "--variant", "metaxlm")
    folders = {name: place / "variants" / name for name in ("frozen", "metaxlm")}
    starts, ends = (
        {name: load(folder / part) for name, folder in folders.items()}
        for part in ("initialization/model", "model")
    )
    for name in folders:
        kept = {key for key in ends[name] if torch.equal(ends[name][key], starts[name][key])}
        body = {key for key in ends[name] if key.startswith("encoder.layers.")}
        assert kept == (body if name == "frozen" else set())
    steps = folders["frozen"] / "steps"
    assert sorted(path.name for path in steps.iterdir()) == ["step-00000002", "step-00000004"]
    models = [AutoModel.from_pretrained(path) for path in sorted(steps.iterdir())]
    words = [model.get_input_embeddings().weight for model in models]
    assert not torch.equal(words[0], words[1])
    assert len(AutoTokenizer.from_pretrained(steps / "step-00000002")) == len(words[0])

    # What is frozen decides the training, and not what it starts from.
    before = load(folders["metaxlm"] / "initialization/model")
    change = ("--set", "variants.metaxlm.freeze=body", "--set", "pretraining.keep_steps=[3]")
    printed = run(metaxlm, "--variant", "metaxlm", *change)
    assert "initialize metaxlm: up to date" in printed
    assert "freeze: none -> body" in printed
    after = load(folders["metaxlm"] / "initialization/model")
    assert all(torch.equal(before[key], after[key]) for key in before)
    # Models of the earlier recipe are gone.
    assert [path.name for path in (folders["metaxlm"] / "steps").iterdir()] == ["step-00000003"]


@pytest.mark.filterwarnings("ignore")
def test_a_teacher_needs_the_meta_model_and_changes_what_is_learned(
    metaxlm: Command, place: Path
) -> None:
    run(metaxlm, "--variant", "xlm")
    assert not (place / "meta").exists()
    run(metaxlm, "--variant", "kd")
    assert (place / "meta" / "model").is_dir()
    variants = place / "variants"
    starts = [load(variants / name / "initialization/model") for name in ("xlm", "kd")]
    assert all(torch.equal(starts[0][key], starts[1][key]) for key in starts[0])
    ends = [load(variants / name / "model") for name in ("xlm", "kd")]
    assert not torch.equal(*(end["encoder.layers.0.ffn_in.weight"] for end in ends))
    printed = run(metaxlm, "--variant", "kd", "--set", "variants.kd.distill.pooled=2.0")
    assert "initialize kd: up to date" in printed
    assert "distill.pooled: 1.0 -> 2.0" in printed
