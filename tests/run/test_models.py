"""Paths of models: runs, variants, phases, checkpoints, other encoders; and rejected paths."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tests.damage import flip
from tests.model.encoder_kinds import ALL, write_folder
from transformers import GPT2Config

from metaxlm.errors import MetaXLMError
from metaxlm.model.any_encoder import load_encoder
from metaxlm.run.models import NamedModel, find_all_models, find_models, open_model

XLM, DICT = "variants/xlm", "variants/metaxlm+dict"


def names(path: Path) -> list[str]:
    return [model.name for model in find_models(str(path))]


def assert_same_vectors(model: NamedModel, folder: Path) -> None:
    opened, expected = open_model(model), load_encoder(folder)
    batch = opened.tokenizer(["the cat sees a dog"], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert torch.equal(opened.encoder(batch), expected.encoder(batch))
    assert opened.tokenizer.get_vocab() == expected.tokenizer.get_vocab()
    assert not opened.encoder.training


def test_a_run_names_its_finished_variants(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = find_models(str(copied))
    assert [(m.name, m.variant, m.step) for m in found] == [
        ("toy-xlm", "xlm", None),
        ("toy-metaxlm+dict", "metaxlm+dict", None),
    ]
    for model in found:
        assert_same_vectors(model, copied / f"variants/{model.variant}/model")
    assert names(copied / "variants") == ["toy-xlm", "toy-metaxlm+dict"]
    for place in (XLM, f"{XLM}/model"):
        assert find_models(str(copied / place)) == found[:1]

    # A model without all its files is not finished.
    weights = copied / XLM / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert names(copied) == ["toy-metaxlm+dict"]
    assert "skipping variants that are not pretrained yet: xlm" in capsys.readouterr().out
    with pytest.raises(MetaXLMError, match=r"not finished.*or name checkpoints/step-00000004"):
        find_models(str(copied / XLM))
    shutil.rmtree(copied / DICT / "model")
    with pytest.raises(MetaXLMError, match=r"none of its variants is pretrained yet \(xlm, meta"):
        find_models(str(copied))


def test_checkpoints_are_opened_with_the_sizes_of_their_run(toy_run: Path) -> None:
    folder = toy_run / DICT / "checkpoints"
    found = find_models(str(folder))
    assert [(m.name, m.step, m.variant) for m in found] == [
        ("toy-metaxlm+dict-step-2", 2, "metaxlm+dict"),
        ("toy-metaxlm+dict-step-4", 4, "metaxlm+dict"),
    ]
    assert find_models(str(folder / "step-00000004")) == found[1:]
    assert len({m.fingerprint for m in found}) == 2
    assert_same_vectors(found[0], toy_run / DICT / "steps/step-00000002")
    assert_same_vectors(found[1], toy_run / DICT / "model")


def test_phase_a_and_initializations_can_be_named(copied: Path) -> None:
    [found] = find_models(str(copied / "meta"))
    assert (found.name, found.variant) == ("toy-meta", None)
    assert_same_vectors(found, copied / "meta/model")
    for place in (f"{XLM}/initialization/model", f"{XLM}/initialization"):
        [found] = find_models(str(copied / place))
        assert found.name == "toy-xlm-initialization"
        assert_same_vectors(found, copied / XLM / "initialization/model")
    finished = (copied / "meta/model").rename(copied.parent / "finished")
    with pytest.raises(MetaXLMError, match=r"meta/model: not finished"):
        find_models(str(copied / "meta"))
    *_, found = find_models(str(copied / "meta" / "checkpoints"))
    assert (found.name, found.step, found.variant) == ("toy-meta-step-4", 4, None)
    assert_same_vectors(found, finished)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_damaged_checkpoint_is_rejected(name: str, copied: Path) -> None:
    folder = copied / XLM / "checkpoints" / "step-00000004"
    flip(folder / name)
    [found] = find_models(str(folder))
    with pytest.raises(MetaXLMError, match=rf"{name}: changed, its digest does not fit; choose"):
        open_model(found)
    (folder / "manifest.json").unlink()
    with pytest.raises(MetaXLMError, match="incomplete checkpoint"):
        find_models(str(folder))


def test_a_checkpoint_that_does_not_fit_its_run_is_rejected(copied: Path) -> None:
    folder = copied / XLM / "checkpoints" / "step-00000004"
    shutil.rmtree(copied / "meta/model")
    (copied / "digests.json").unlink()
    recipe = copied / "recipe.yaml"
    recipe.write_text(recipe.read_text("utf-8").replace("layers: 1", "layers: 2"), "utf-8")
    [found] = find_models(str(copied / "meta/checkpoints/step-00000004"))
    with pytest.raises(MetaXLMError, match="does not fit the sizes of its run") as raised:
        open_model(found)
    assert "\n" not in str(raised.value)
    moved = Path(shutil.copytree(folder, copied.parents[1] / "step-00000004"))
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


def test_names_are_unique(toy_run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(toy_run, tmp_path / "other" / "toy"))
    third = Path(shutil.copytree(toy_run, tmp_path / "more" / "other" / "toy"))
    found = find_all_models([str(path) for path in (toy_run, other, toy_run / XLM, third)])
    assert len(found) == 6
    assert len({model.name for model in found}) == 6
    variants = ("xlm", "metaxlm+dict")
    expected = [f"{run}-{name}" for run in ("toy", "other-toy") for name in variants]
    assert [model.name for model in found[:4]] == expected
    assert found[4].name.startswith("toy-xlm-")
    assert [model.source for model in found[4:]] == [m.source for m in find_models(str(third))]
    assert find_all_models([str(toy_run)]) == find_models(str(toy_run))


def test_other_models_are_rejected(toy_run: Path, tmp_path: Path) -> None:
    GPT2Config().save_pretrained(tmp_path / "gpt2")
    cases = {
        tmp_path / "gpt2": "model_type is 'gpt2', which is not trained to fill masks in; metaxlm",
        toy_run / "vocabulary": "not a model folder, it has no config.json",
        tmp_path / "nowhere" / "at" / "all": "no such folder",
        toy_run / "recipe.yaml": "a file; give the folder",
    }
    for path, message in cases.items():
        with pytest.raises(MetaXLMError, match=message):
            find_models(str(path))


def test_a_variant_is_loaded_as_on_the_command_line(toy_run: Path) -> None:
    variant = toy_run / "variants" / "xlm"
    whole, inner = (load_encoder(one).encoder.state_dict() for one in (variant, variant / "model"))
    assert all(torch.equal(whole[name], inner[name]) for name in inner)
