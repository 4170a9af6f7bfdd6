"""The same vectors and links on a CUDA device as on the CPU; `test_nearest.py` has neighbors."""

from __future__ import annotations

import pytest
import torch

from metaxlm.finetune.readers.parallel import ParallelSentences
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import align_words
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.retrieval import measure_retrieval
from tests.finetune.conftest import CPU, TEXT
from tests.probe.conftest import MakeModel
from tests.probe.test_alignment import PAIRS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
CUDA = torch.device("cuda")


@pytest.fixture
def model(make_model: MakeModel) -> AnyEncoder:
    return make_model(max_positions=256)


def test_vectors_and_retrieval(model: AnyEncoder) -> None:
    vectors = embed_texts(model, TEXT, CPU)
    torch.testing.assert_close(embed_texts(model, TEXT, CUDA), vectors, atol=1e-4, rtol=0)
    rounded = embed_texts(model, TEXT, CUDA, precision="bfloat16")
    cosines = torch.nn.functional.cosine_similarity(rounded, vectors, dim=-1)
    assert 0.99 < float(cosines.min()) < 1
    sentences = ParallelSentences("de", tuple(TEXT), tuple(TEXT))
    outcome = measure_retrieval(model, sentences, CUDA)
    assert [layer.accuracy for layer in outcome.layers] == [1.0] * 3


@pytest.mark.parametrize(
    ("method", "encoding"),
    [
        ("transport", "joint"),
        ("sinkhorn", "separate"),
        ("argmax", "separate"),
        ("itermax", "joint"),
        ("match", "separate"),
        ("softmax", "joint"),
    ],
)
def test_links(model: AnyEncoder, method: str, encoding: str) -> None:
    settings = AlignSettings(method=method, encoding=encoding)  # type: ignore[arg-type]
    expected = align_words(model, PAIRS, CPU, settings=settings)
    found = align_words(model, PAIRS, CUDA, settings=settings)
    # Two pieces may be equally good up to the last bits, which differ between devices.
    pairs = [pair for rows in zip(expected, found, strict=True) for pair in zip(*rows, strict=True)]
    assert sum(a == b for a, b in pairs) >= 0.98 * len(pairs)
