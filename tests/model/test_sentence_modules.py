"""Folders written by sentence-transformers give its vectors."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.model.encoder_kinds import ALL, SENTENCES, write_folder

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json, write_json
from metaxlm.model.any_encoder import load_encoder
from metaxlm.model.model_folder import find_folder
from metaxlm.model.sentence_modules import SentenceModules, read_sentence_modules
from metaxlm.probe.sentence_evaluation import SentenceEncoder

HAS_PEER = importlib.util.find_spec("sentence_transformers") is not None
CPU = torch.device("cpu")


def write_by_peer(encoder: Path, folder: Path, pooling: str, dense: bool, normalize: bool) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as peers

    transformer = peers.Transformer(str(encoder), max_seq_length=6)
    width = transformer.get_embedding_dimension()
    modules: list[Any] = [transformer, peers.Pooling(width, pooling)]
    torch.manual_seed(0)
    modules += [peers.Dense(width, 7)] if dense else []
    modules += [peers.Normalize()] if normalize else []
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(folder))
    return model


@pytest.mark.skipif(not HAS_PEER, reason="needs sentence-transformers")
@pytest.mark.parametrize(
    ("pooling", "dense", "normalize"),
    [("mean", False, True), ("cls", False, False), ("cls", True, True)],
)
def test_vectors_of_sentence_transformers(
    tmp_path: Path, pooling: str, dense: bool, normalize: bool
) -> None:
    folder = tmp_path / "peer"
    peer = write_by_peer(
        write_folder(ALL["bert"], tmp_path / "bert"), folder, pooling, dense, normalize
    )
    modules = read_sentence_modules(find_folder(folder))
    assert modules is not None
    assert (modules.pooling, modules.max_length) == (pooling, 6)
    assert (len(modules.layers), modules.normalize) == (int(dense), normalize)
    texts = [*SENTENCES, " ".join(SENTENCES), SENTENCES[0]]
    expected = peer.encode(texts, normalize_embeddings=True)
    found = SentenceEncoder("peer", load_encoder(folder), modules, CPU).encode(texts, "test")
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as sentence-transformers 2 wrote it, without the weights."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    write_json(
        tmp_path / "modules.json",
        [{"path": path, "type": f"sentence_transformers.models.{name}"} for path, name in modules],
    )
    (tmp_path / "1_Pooling").mkdir()
    modes = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    write_json(tmp_path / "1_Pooling" / "config.json", modes)
    write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": 256})
    return tmp_path


def test_older_folders_and_others(folder: Path) -> None:
    assert read_sentence_modules(folder) == SentenceModules("mean", 256, normalize=True)
    settings = {"max_seq_length": None, "do_lower_case": True}
    write_json(folder / "sentence_bert_config.json", settings)
    found = read_sentence_modules(folder)
    assert found == SentenceModules("mean", None, lower_case=True, normalize=True)
    (folder / "modules.json").unlink()
    assert read_sentence_modules(folder) is None


def change_json(path: Path, change: Callable[[Any], Any]) -> None:
    write_json(path, change(read_json(path)))


@pytest.mark.parametrize(
    ("file", "change", "expected"),
    [
        ("1_Pooling/config.json", lambda v: v | {"pooling_mode_cls_token": True}, "only the mean"),
        ("1_Pooling/config.json", lambda _: {"pooling_mode": "lasttoken"}, "pools by lasttoken"),
        ("modules.json", lambda v: [v[0], *v[2:]], "the module Normalize is not supported there"),
        ("modules.json", lambda v: v[:1], "has no Pooling"),
        ("modules.json", lambda v: v[1:], "does not start with an encoder"),
        (
            "config_sentence_transformers.json",
            lambda _: {"default_prompt_name": "query"},
            "puts the prompt 'query' before every text",
        ),
    ],
)
def test_steps_that_would_differ_are_rejected(
    folder: Path, file: str, change: Callable[[Any], Any], expected: str
) -> None:
    if not (folder / file).exists():
        write_json(folder / file, {})
    change_json(folder / file, change)
    with pytest.raises(MetaXLMError, match=expected) as error:
        read_sentence_modules(folder)
    assert "\n" not in str(error.value)
