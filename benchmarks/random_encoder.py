"""A small encoder of random weights for benchmarks that need no real one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.vocab.unigram import train_unigram


def make_random_encoder(
    lines: Iterable[str], vocabulary: int, *, width: int, layers: int, heads: int, positions: int
) -> tuple[MaskedLM, PreTrainedTokenizerBase]:
    """Return an encoder that fits the text, and its tokenizer."""
    tokenizer = train_unigram(iter(lines), vocabulary)
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        ffn_size=4 * width,
        max_positions=positions,
    )
    return MaskedLM(config).eval(), tokenizer
