"""The same features, links and finetuning on a CUDA device as on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from metaxlm.tasks.alignment import align_words
from metaxlm.tasks.embedding import embed_texts
from metaxlm.tasks.finetune import finetune
from metaxlm.tasks.readers import ParallelSentences
from metaxlm.tasks.registry import TASKS
from metaxlm.tasks.retrieval import measure_retrieval
from tests.tasks.conftest import CPU, TEXT, MakeEncoder, make_tokenizer
from tests.tasks.test_alignment import PAIRS
from tests.tasks.test_finetune import FAST, SPLITS, write_udpos, write_xnli

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
CUDA = torch.device("cuda")


def test_features_equal_those_of_the_cpu(make_encoder: MakeEncoder) -> None:
    tokenizer = make_tokenizer("unigram")
    encoder = make_encoder(tokenizer, max_positions=256)
    vectors = embed_texts(encoder, tokenizer, TEXT, CPU)
    links = align_words(encoder, tokenizer, PAIRS, CPU)
    torch.testing.assert_close(
        embed_texts(encoder, tokenizer, TEXT, CUDA), vectors, atol=1e-4, rtol=0
    )
    found = align_words(encoder, tokenizer, PAIRS, CUDA)
    # Two pieces may be equally good up to the last bits, which differ between devices.
    pairs = [pair for rows in zip(links, found, strict=True) for pair in zip(*rows, strict=True)]
    assert sum(a == b for a, b in pairs) >= 0.98 * len(pairs)
    outcome = measure_retrieval(
        encoder, tokenizer, ParallelSentences("de", tuple(TEXT), tuple(TEXT)), CUDA
    )
    assert [layer.accuracy for layer in outcome.layers] == [1.0] * 3


@pytest.mark.parametrize("name", ["xnli", "udpos"])
def test_finetuning_learns_in_bfloat16(
    make_encoder: MakeEncoder, tmp_path: Path, name: str
) -> None:
    data_dir = write_udpos(write_xnli(tmp_path, SPLITS), SPLITS)
    tokenizer = make_tokenizer("words")
    encoder = make_encoder(tokenizer, scale=3.0)
    before = torch.cuda.get_rng_state()
    scores = finetune(TASKS[name], encoder, tokenizer, data_dir, ["en", "de"], FAST, 1, CUDA)
    assert torch.equal(before, torch.cuda.get_rng_state())
    assert next(encoder.parameters()).device == CPU
    for score in scores.scores:
        assert score.values[scores.metric] > 0.9
