from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import TruncatedSVD

from metaxlm import api
from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.parallel import ParallelSentences
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe import corrections as corrections_module
from metaxlm.probe import embedding
from metaxlm.probe.corrections import Corrections, correct_vectors
from metaxlm.probe.embedding import embed_stream, embed_texts
from metaxlm.probe.pool import parse_layers
from metaxlm.probe.retrieval import measure_pairs, measure_retrieval, mine_pairs
from tests.finetune.conftest import CPU, TEXT
from tests.probe.conftest import MakeModel

VECTORS = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) * [5, 3, 1, 1, 1, 1] + 2


def correct_slowly(vectors: np.ndarray, center: bool, number: int) -> np.ndarray:
    """By scikit-learn, in float64."""
    vectors = vectors.astype(np.float64)
    if center:
        vectors = vectors - vectors.mean(axis=0)
    if number:
        components = TruncatedSVD(number, algorithm="arpack").fit(vectors).components_
        vectors = vectors - vectors @ components.T @ components
    return vectors


def weigh_slowly(model: AnyEncoder, texts: list[str], specials: bool) -> np.ndarray:
    """SIF text by text with the last layer, weights by counting."""
    inner = slice(None) if specials else slice(1, -1)
    rows = [model.tokenizer(text)["input_ids"] for text in texts]
    counts = Counter(token for row in rows for token in row[inner])
    vectors = []
    for row in rows:
        states = model.encoder.eval().hidden_states(torch.tensor([row]))[-1][0].detach().numpy()
        weights = [1e-3 / (1e-3 + counts[token] / counts.total()) for token in row[inner]]
        vectors.append(np.average(states[inner], axis=0, weights=weights))
    return np.stack(vectors)


@pytest.mark.parametrize(("center", "number"), [(True, 0), (False, 1), (True, 2), (False, 3)])
def test_centering_and_components_equal_the_definition(
    monkeypatch: pytest.MonkeyPatch, center: bool, number: int
) -> None:
    monkeypatch.setattr(corrections_module, "_ROWS_AT_ONCE", 7)
    chosen = Corrections(center=center, remove_components=number)
    expected = correct_slowly(VECTORS, center, number)
    for vectors in (VECTORS, torch.from_numpy(VECTORS)):
        found = torch.as_tensor(correct_vectors(vectors, chosen))
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert correct_vectors(VECTORS, Corrections(sif=True)) is VECTORS


@pytest.mark.parametrize("specials", [True, False])
def test_frequent_tokens_weigh_less(make_model: MakeModel, specials: bool) -> None:
    model = make_model(max_positions=256)
    layers = parse_layers("-1", 2)
    expected = weigh_slowly(model, TEXT, specials)
    for batch_tokens in (1, 100_000):
        found = embed_texts(
            model, TEXT, CPU, layers=layers, specials=specials, batch_tokens=batch_tokens,
            corrections=Corrections(sif=True),
        )  # fmt: skip
        np.testing.assert_allclose(found[0], expected, atol=1e-5)
    plain = embed_texts(model, TEXT, CPU, layers=layers, specials=specials)[0]
    assert np.abs(plain.numpy() - expected).max() > 0.01


def test_a_stream_has_the_vectors_of_the_whole(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(max_positions=256)
    chosen = Corrections(sif=True, center=True, remove_components=2)
    whole = embed_texts(model, TEXT, CPU, corrections=chosen)
    expected = correct_slowly(weigh_slowly(model, TEXT, True), True, 2)
    np.testing.assert_allclose(whole[-1], expected, atol=1e-4)
    monkeypatch.setattr(embedding, "_MOST_BYTES", 4 * 3 * 32 * 3)
    parts = list(embed_stream(model, TEXT, CPU, corrections=chosen))
    assert len(parts) == 4
    assert [text for part in parts for text in part.texts] == TEXT
    vectors = torch.cat([part.vectors_YCD for part in parts], dim=1)
    torch.testing.assert_close(vectors, whole, atol=1e-5, rtol=0)


def test_retrieval_corrects_each_side(make_model: MakeModel) -> None:
    model = make_model(max_positions=256)
    sentences = ParallelSentences("de", tuple(TEXT[:5]), tuple(TEXT[5:]))
    chosen = Corrections(sif=True, center=True)
    outcome = measure_retrieval(model, sentences, CPU, corrections=chosen)
    sides = (
        embed_texts(model, side, CPU, corrections=chosen)
        for side in (sentences.foreign, sentences.english)
    )
    for layer, foreign, english in zip(outcome.layers, *sides, strict=True):
        assert torch.equal(layer.hits_N2, measure_pairs(foreign, english)[0])


def test_the_python_functions_take_the_same_options(make_model: MakeModel) -> None:
    model = make_model(max_positions=256)
    chosen = Corrections(sif=True, center=True, remove_components=1)
    german, english = (
        embed_texts(model, texts, CPU, corrections=chosen)[-1] for texts in (TEXT[:5], TEXT[5:])
    )
    options: dict[str, Any] = {"sif": True, "center": True, "remove_components": 1, "device": "cpu"}
    options["layer"] = -1
    np.testing.assert_allclose(api.embed(model, TEXT[:5], **options), german, atol=1e-6)
    found = api.mine(model, TEXT[:5], TEXT[5:], margin="distance", **options)
    expected = mine_pairs(german, english, margin="distance")
    np.testing.assert_allclose(found["score"], expected.score_P, atol=1e-6)


@pytest.mark.parametrize(
    ("chosen", "num_texts", "expected"),
    [
        (Corrections(center=True), 1, "centering: the vector of a single text would become 0"),
        (Corrections(remove_components=10), 10, "10 vectors of 32 numbers allow at most 9"),
        (Corrections(center=True, remove_components=9), 10, "allow at most 8; remove fewer"),
    ],
)
def test_too_few_texts(
    make_model: MakeModel, chosen: Corrections, num_texts: int, expected: str
) -> None:
    with pytest.raises(MetaXLMError, match=expected):
        embed_texts(make_model(), TEXT[:num_texts], CPU, corrections=chosen)
    with pytest.raises(MetaXLMError, match=r"components|centering"):
        correct_vectors(np.ones((num_texts, 6), np.float32), chosen)
