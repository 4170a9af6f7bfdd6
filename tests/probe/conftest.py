"""Small encoders with tokenizers, and the fixtures of the task tests."""

from collections.abc import Callable
from functools import cache

import pytest

from metaxlm.model.any_encoder import AnyEncoder
from tests.finetune.conftest import (
    MakeEncoder,
    any_tokenizer,
    make_encoder,
    make_tokenizer,
    messages,
    published,
    tokenizer,
)

__all__ = ["any_tokenizer", "make_encoder", "messages", "published", "tokenizer"]

MakeModel = Callable[..., AnyEncoder]
_make_tokenizer = cache(make_tokenizer)


@pytest.fixture
def make_model(make_encoder: MakeEncoder) -> MakeModel:
    """Return a maker of random encoders with a tokenizer of some kind."""

    def make(kind: str = "unigram", source: str = "a model", **changes: float) -> AnyEncoder:
        tokenizer = _make_tokenizer(kind)
        return AnyEncoder(source, tokenizer, make_encoder(tokenizer, **changes))

    return make
