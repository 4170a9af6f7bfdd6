"""Teachers: which folders are sentence encoders, and what their vectors are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metaxlm.errors import MetaXLMError
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.sentences import teacher as teaching
from metaxlm.sentences.teacher import compute_vectors, load_teacher, read_teacher
from tests.conftest import sentences
from tests.sentences.encoder_trainings import CPU, make_teacher

TEXTS = [*sentences("en")[:6], "the cat sees a house at night and my sister likes some bread."]
MODES = ("cls_token", "mean_tokens", "max_tokens")


def change_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    path.with_name("manifest.json").unlink(missing_ok=True)  # it lists the digest


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_those_of_the_peer(tmp_path: Path, pooling: Any, normalize: bool) -> None:
    peer = pytest.importorskip("sentence_transformers")
    folder = make_teacher(tmp_path, pooling=pooling, normalize=normalize, max_length=9)
    change_json(folder / "sentence_bert_config.json", do_lower_case=True)
    teacher = load_teacher(folder)
    assert teacher.max_length == 9
    world = DistributedContext.alone(CPU)
    found = compute_vectors(teacher, TEXTS, tmp_path / "work", world).float().numpy()
    expected = peer.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_the_peers_own_folders_are_read(tmp_path: Path) -> None:
    peer = pytest.importorskip("sentence_transformers")
    folder = make_teacher(tmp_path, pooling="cls", normalize=True, max_length=12)
    peer.SentenceTransformer(str(folder), device="cpu").save(str(tmp_path / "saved"))
    assert read_teacher(tmp_path / "saved") == read_teacher(folder)


def test_shards_are_computed_once_and_by_any_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teaching, "SHARD_ANCHORS", 3)
    teacher = load_teacher(make_teacher(tmp_path))
    alone = compute_vectors(teacher, TEXTS, tmp_path / "one", DistributedContext.alone(CPU))
    assert len(list((tmp_path / "one" / "teacher").iterdir())) == 3
    texts = list(TEXTS)
    calls: list[int] = []
    embed = teaching.SentenceTeacher.embed

    def count(self: Any, texts: Any, *others: Any) -> Any:
        calls.append(len(texts))
        return embed(self, texts, *others)

    monkeypatch.setattr(teaching.SentenceTeacher, "embed", count)
    again = compute_vectors(teacher, texts, tmp_path / "one", DistributedContext.alone(CPU))
    assert torch.equal(again, alone) and not calls
    next((tmp_path / "one" / "teacher").iterdir()).unlink()
    again = compute_vectors(teacher, texts, tmp_path / "one", DistributedContext.alone(CPU))
    assert torch.equal(again, alone) and len(calls) == 1
    # Other texts and another teacher have their own vectors.
    compute_vectors(teacher, texts[::-1], tmp_path / "one", DistributedContext.alone(CPU))
    assert len(calls) == 4


def break_folder(folder: Path, kind: str) -> None:
    pooling = folder / "1_Pooling" / "config.json"
    modules = json.loads((folder / "modules.json").read_text())
    if kind == "modules":
        (folder / "modules.json").unlink()
    elif kind == "max":
        change_json(pooling, pooling_mode_mean_tokens=False, pooling_mode_max_tokens=True)
    elif kind == "both":
        change_json(pooling, pooling_mode_cls_token=True)
    elif kind == "dense":
        dense = {"idx": 2, "name": "2", "path": "2", "type": "sentence_transformers.models.Dense"}
        (folder / "modules.json").write_text(json.dumps([*modules, dense]))
    elif kind == "order":
        (folder / "modules.json").write_text(json.dumps(modules[::-1]))
    elif kind == "pooling":
        pooling.unlink()
    elif kind == "list":
        (folder / "modules.json").write_text("{}")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("modules", "not a sentence encoder, it has no modules.json"),
        ("max", "pools by pooling_mode_max_tokens; only the mean and cls"),
        ("both", "pools by .*, .*; only the mean and cls"),
        ("dense", "Dense|2"),
        ("order", "does not start with an encoder"),
        ("pooling", "1_Pooling/config.json"),
        ("list", "does not start with an encoder"),
    ],
)
def test_other_folders_are_rejected(tmp_path: Path, kind: str, message: str) -> None:
    folder = make_teacher(tmp_path)
    (folder / "manifest.json").unlink()
    shutil.copytree(folder, tmp_path / kind)
    break_folder(tmp_path / kind, kind)
    with pytest.raises(MetaXLMError, match=message) as error:
        read_teacher(tmp_path / kind)
    assert "\n" not in str(error.value)
