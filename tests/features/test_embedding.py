from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.features.embedding import embed_texts, pool_mean
from metaxlm.model.encoder import Encoder
from tests.tasks.conftest import CPU, TEXT, MakeEncoder


def embed_one(encoder: Encoder, tokenizer: PreTrainedTokenizerBase, text: str) -> torch.Tensor:
    """The definition: all tokens with the special ones, no batch, no padding."""
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        return torch.stack([state[0].mean(dim=0) for state in encoder.eval().hidden_states(ids)])


def test_batching_does_not_change_the_vectors(
    any_tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    encoder = make_encoder(any_tokenizer, max_positions=256)
    alone = torch.stack([embed_one(encoder, any_tokenizer, text) for text in TEXT], dim=1)
    assert alone.shape == (3, len(TEXT), 32)
    for batch_tokens in (1, 150, 100_000):
        vectors = embed_texts(encoder, any_tokenizer, TEXT, CPU, batch_tokens=batch_tokens)
        assert vectors.dtype == torch.float32
        torch.testing.assert_close(vectors, alone, atol=1e-5, rtol=0)


def test_layers_differ_and_dropout_is_off(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder
) -> None:
    encoder = make_encoder(tokenizer).train()
    vectors = embed_texts(encoder, tokenizer, TEXT, CPU)
    assert torch.equal(vectors, embed_texts(encoder, tokenizer, TEXT, CPU))
    assert (vectors[0] - vectors[1]).abs().max() > 0.1
    assert (vectors[1] - vectors[2]).abs().max() > 0.1
    assert encoder.training


def test_padding_is_not_in_the_mean() -> None:
    hidden = torch.tensor([[[1.0], [3.0], [100.0]], [[1.0], [2.0], [6.0]]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert pool_mean(hidden, mask).tolist() == [[2.0], [3.0]]
    assert pool_mean(hidden, None)[1].tolist() == [3.0]


def test_long_texts_are_cut_and_said(
    tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder, messages: Callable[[], str]
) -> None:
    encoder = make_encoder(tokenizer, max_positions=16)
    vectors = embed_texts(encoder, tokenizer, ["the hill", " ".join(TEXT)], CPU, title="demo")
    assert vectors.isfinite().all()
    assert "demo: 1 of 2 texts are longer than 16 tokens and were cut\n" in messages()


def test_nothing_to_embed(tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder) -> None:
    assert embed_texts(make_encoder(tokenizer), tokenizer, [], CPU).shape == (3, 0, 32)


def test_wrong_tokenizer(tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder) -> None:
    encoder = make_encoder(tokenizer, vocab_size=50)
    with pytest.raises(MetaXLMError, match="load both from one model folder"):
        embed_texts(encoder, tokenizer, TEXT, CPU)
