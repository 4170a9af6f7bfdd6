"""Paths of models: runs, variants, phases, checkpoints, other encoders; and rejected paths."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.model.conftest import make_unigram_tokenizer
from tests.model.encoder_kinds import ALL, write_folder
from transformers import GPT2Config

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.huggingface import save_pretrained
from metaxlm.pretrain.checkpoint import Checkpoint, TrainingState, save_checkpoint
from metaxlm.progress import console
from metaxlm.run.models import NamedModel, find_all_models, find_models, open_model
from metaxlm.run.stages import Stage

TOKENIZER = make_unigram_tokenizer()
RECIPE = """\
name: small
languages: [en, de]
vocabulary: {size: 700, monolingual_size: 500}
model: {layers: 2, hidden: 32, heads: 4, ffn: 48, max_positions: 40}
meta: {steps: 20, batch_size: 8, length: 32, warmup_steps: 2}
pretraining: {steps: 20, batch_size: 8, length: 32, warmup_steps: 2}
variants:
  xlm: {initialize: none}
  metaxlm: {initialize: both}
  metaxlm+dict: {initialize: both, dictionaries: true}
"""


def make_model(seed: int, norm_eps: float = 1e-5) -> MaskedLM:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "ffn_size": 48}
    config = EncoderConfig(vocab_size=len(TOKENIZER), max_positions=40, pad_id=1, **sizes)
    model = MaskedLM(replace(config, norm_eps=norm_eps))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)
    return model.eval()


def write_result(folder: Path, seed: int) -> None:
    """Write a model with the marker of a finished stage."""

    def fill(temporary: Path) -> None:
        save_pretrained(make_model(seed), TOKENIZER, temporary, "card")

    Stage("pretrain", folder, {"seed": seed}, (), fill).run()


def write_checkpoint(folder: Path, step: int, model: MaskedLM) -> Path:
    moments = {"exp_avg.x": torch.ones(3)}
    return save_checkpoint(folder, Checkpoint(model.state_dict(), moments, TrainingState(step)))


def write_run(root: Path) -> Path:
    """Write a run with two finished variants, one in progress, and meta."""
    root.mkdir(parents=True)
    (root / "recipe.yaml").write_text(RECIPE)
    for seed, name in enumerate(("metaxlm", "xlm", "metaxlm+dict")):
        place = root / "variants" / name
        save_pretrained(make_model(9, 1e-3), TOKENIZER, place / "initialization" / "model", "card")
        for step in (5, 10):
            model = make_model(10 * seed + step, 1e-3)
            write_checkpoint(place / "checkpoints", step, model)
        if name != "metaxlm+dict":
            write_result(place / "model", seed)
    TOKENIZER.save_pretrained(root / "vocabulary" / "monolingual")
    write_checkpoint(root / "meta" / "checkpoints", 5, make_model(77))
    return root


@pytest.fixture(scope="module")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture
def run(_finished: Path, tmp_path: Path) -> Path:
    """Return a run that the test may change."""
    return Path(shutil.copytree(_finished, tmp_path / "small"))


def names(path: Path) -> list[str]:
    return [model.name for model in find_models(str(path))]


def assert_same_vectors(model: NamedModel, wanted: MaskedLM) -> None:
    opened = open_model(model)
    batch = opened.tokenizer(["the cat sees a dog"], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert (opened.encoder(batch) - wanted.encoder(batch)).abs().max() < 1e-5
    assert len(opened.tokenizer) == len(TOKENIZER)
    assert not opened.encoder.training


def test_a_run_names_its_finished_variants(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "quiet", False)
    with console.capture() as capture:
        found = find_models(str(run))
    assert [(m.name, m.variant, m.step) for m in found] == [
        ("small-xlm", "xlm", None),
        ("small-metaxlm", "metaxlm", None),
    ]
    assert "skipping variants that are not pretrained yet: metaxlm+dict" in capture.get()
    assert_same_vectors(found[0], make_model(1))
    assert_same_vectors(found[1], make_model(0))
    assert names(run / "variants") == ["small-xlm", "small-metaxlm"]
    for place in ("variants/xlm", "variants/xlm/model"):
        assert find_models(str(run / place)) == found[:1]


def test_a_model_without_all_its_files_is_not_finished(run: Path) -> None:
    path = run / "variants" / "xlm" / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert names(run) == ["small-metaxlm"]
    with pytest.raises(MetaXLMError, match=r"not finished.*or name checkpoints/step-00000010"):
        find_models(str(run / "variants" / "xlm"))
    shutil.rmtree(run / "variants" / "metaxlm" / "model")
    with pytest.raises(MetaXLMError, match=r"none of its variants is pretrained yet \(xlm, meta"):
        find_models(str(run))


def test_checkpoints_are_opened_with_the_sizes_of_their_run(run: Path) -> None:
    folder = run / "variants" / "metaxlm+dict" / "checkpoints"
    found = find_models(str(folder))
    assert [(m.name, m.step, m.variant) for m in found] == [
        ("small-metaxlm+dict-step-5", 5, "metaxlm+dict"),
        ("small-metaxlm+dict-step-10", 10, "metaxlm+dict"),
    ]
    assert find_models(str(folder / "step-00000010")) == found[1:]
    assert len({m.fingerprint for m in found}) == 2
    assert_same_vectors(found[0], make_model(25, 1e-3))
    assert_same_vectors(found[1], make_model(30, 1e-3))
    assert open_model(found[0]).encoder.config.norm_eps == 1e-3


def test_phase_a_and_initializations_can_be_named(run: Path) -> None:
    [found] = find_models(str(run / "meta" / "checkpoints"))
    assert (found.name, found.step, found.variant) == ("small-meta-step-5", 5, None)
    assert_same_vectors(found, make_model(77))
    with pytest.raises(MetaXLMError, match=r"meta/model: not finished"):
        find_models(str(run / "meta"))
    write_result(run / "meta" / "model", 3)
    [found] = find_models(str(run / "meta"))
    assert (found.name, found.variant) == ("small-meta", None)
    assert_same_vectors(found, make_model(3))
    for place in ("variants/xlm/initialization/model", "variants/xlm/initialization"):
        [found] = find_models(str(run / place))
        assert found.name == "small-xlm-initialization"
        assert_same_vectors(found, make_model(9, 1e-3))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_damaged_checkpoint_is_rejected(name: str, run: Path) -> None:
    folder = run / "variants" / "xlm" / "checkpoints" / "step-00000010"
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).write_bytes(content)
    [found] = find_models(str(folder))
    with pytest.raises(MetaXLMError, match=rf"{name}: changed, its digest does not fit; choose"):
        open_model(found)
    (folder / "manifest.json").unlink()
    with pytest.raises(MetaXLMError, match="incomplete checkpoint"):
        find_models(str(folder))


def test_a_checkpoint_that_does_not_fit_its_run_is_rejected(run: Path, tmp_path: Path) -> None:
    (run / "recipe.yaml").write_text(RECIPE.replace("layers: 2", "layers: 3"))
    [found] = find_models(str(run / "meta" / "checkpoints"))
    with pytest.raises(MetaXLMError, match="does not fit the sizes of its run") as raised:
        open_model(found)
    assert "\n" not in str(raised.value)
    folder = run / "variants" / "xlm" / "checkpoints" / "step-00000010"
    moved = Path(shutil.copytree(folder, tmp_path / "step-00000010"))
    with pytest.raises(MetaXLMError, match="a checkpoint outside its run"):
        find_models(str(moved))


def test_other_folders_are_named_by_their_last_descriptive_part(tmp_path: Path) -> None:
    folder = write_folder(ALL["electra"], tmp_path / "Electra (tiny)" / "model")
    [found] = find_models(str(folder))
    assert (found.name, found.step, found.variant) == ("Electra-tiny", None, None)
    assert open_model(found).encoder.config.hidden_size == 32
    [again] = find_models(str(folder.parent))
    assert again == found
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes())
    [touched] = find_models(str(folder))
    assert touched.fingerprint != found.fingerprint


def test_names_are_unique(run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other" / "small"))
    third = Path(shutil.copytree(run, tmp_path / "more" / "other" / "small"))
    paths = [run, other, run / "variants" / "xlm", third]
    found = find_all_models([str(path) for path in paths])
    assert len(found) == 6
    assert len({model.name for model in found}) == 6
    expected = [f"{run}-{name}" for run in ("small", "other-small") for name in ("xlm", "metaxlm")]
    assert [model.name for model in found[:4]] == expected
    assert found[4].name.startswith("small-xlm-")
    assert [model.source for model in found[4:]] == [m.source for m in find_models(str(third))]
    assert find_all_models([str(run)]) == find_models(str(run))


def test_other_models_are_rejected(run: Path, tmp_path: Path) -> None:
    GPT2Config().save_pretrained(tmp_path / "gpt2")
    cases = {
        tmp_path / "gpt2": "model_type is 'gpt2', which is not trained to fill masks in; metaxlm",
        run / "vocabulary": "not a model folder, it has no config.json",
        tmp_path / "nowhere" / "at" / "all": "no such folder",
        run / "recipe.yaml": "a file; give the folder",
    }
    for path, message in cases.items():
        with pytest.raises(MetaXLMError, match=message):
            find_models(str(path))
