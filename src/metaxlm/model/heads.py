"""Task heads for phase (c): hidden states of the encoder to logits (Section 3.3 of the paper).

Sizes and order of operations are those of transformers' XLM-RoBERTa heads, or ModernBERT heads for
its encoder, so that weights can be exchanged. Shapes: B batch, L length, D hidden, C classes.
"""

from dataclasses import replace
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from metaxlm.model.encoder import Dropout, EncoderConfig, NativeEncoder, initialize_module

HeadKind = Literal["classification", "tagging", "span"]
"""The prediction: a class of the sequence, a tag per token, or the two ends of an answer."""


class Transform(nn.Module):
    """Dense, GELU, LayerNorm: the first part of all heads of ModernBERT, its MLM head included."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return vectors of the same size."""
        transformed: Tensor = self.norm(F.gelu(self.dense(hidden)))
        return transformed


class ClassificationHead(nn.Module):
    """First token -> dropout, dense, tanh, dropout, linear -> one logit per class.

    ModernBERT has `Transform` in place of the first dropout, dense and tanh.
    """

    def __init__(self, config: EncoderConfig, num_classes: int) -> None:
        super().__init__()
        size, self.dropout = config.hidden_size, Dropout(config.dropout)
        self.transform = Transform(config) if config.rotary is not None else None
        self.dense = nn.Linear(size, size) if self.transform is None else None
        self.output = nn.Linear(config.hidden_size, num_classes)
        self.apply(initialize_module)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        """Return logits, [B, C]."""
        pooled_BD = hidden_BLD[:, 0]
        if self.transform is not None:
            pooled_BD = self.transform(pooled_BD)
        if self.dense is not None:
            pooled_BD = self.dense(self.dropout(pooled_BD)).tanh()
        logits_BC: Tensor = self.output(self.dropout(pooled_BD))
        return logits_BC


class TaggingHead(nn.Module):
    """Each token -> dropout, linear -> one logit per tag; in ModernBERT `Transform` before it."""

    def __init__(self, config: EncoderConfig, num_classes: int) -> None:
        super().__init__()
        self.transform = Transform(config) if config.rotary is not None else None
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.hidden_size, num_classes)
        self.apply(initialize_module)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        """Return logits, [B, L, C]."""
        if self.transform is not None:
            hidden_BLD = self.transform(hidden_BLD)
        logits_BLC: Tensor = self.output(self.dropout(hidden_BLD))
        return logits_BLC


class SpanHead(TaggingHead):
    """Each token -> linear -> logits of the start and the end of the answer."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(replace(config, dropout=0.0), 2)


def make_head(kind: HeadKind, config: EncoderConfig, num_classes: int) -> nn.Module:
    """Create a head from torch's global generator; a span head ignores `num_classes`."""
    if kind == "classification":
        return ClassificationHead(config, num_classes)
    return TaggingHead(config, num_classes) if kind == "tagging" else SpanHead(config)


class TaskModel(nn.Module):
    """An encoder with a task head, as finetuning trains it."""

    def __init__(self, encoder: NativeEncoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return the logits of a batch of token ids."""
        logits: Tensor = self.head(self.encoder(ids_BL, mask_BL, token_types_BL))
        return logits
