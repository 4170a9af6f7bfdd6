"""The encoder's forward pass for training on a GPU: the same parameters, fused kernels.

Each function takes a module of `encoder.py` and does what its `forward` does, for blocks of tokens
that lie one after another. The kernels need Triton; `is_available` says whether they run.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from metaxlm.model.encoder import Embeddings, EncoderConfig, Layer, MaskedLMHead
    from metaxlm.model.kernels.blocks import Blocks

_SALTS = 4
"""Numbers of its own that each layer adds to dropout's seed."""


def is_available(device: torch.device) -> bool:
    """Say whether the fused kernels run on a device: Hopper, Ampere and the like, with Triton."""
    return (
        device.type == "cuda"
        and find_spec("triton") is not None
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def fits(config: EncoderConfig) -> bool:
    """Say whether an encoder's shape suits the kernels, whose tiles have powers of two."""
    head_size = config.hidden_size // config.num_heads
    return head_size in (16, 32, 64, 128)


def embed(
    embeddings: Embeddings, ids_N: Tensor, type_ids_N: Tensor | None, blocks: Blocks
) -> Tensor:
    """Return the hidden states that the first layer reads, [N, D]."""
    from metaxlm.model.kernels.blocks import EmbeddingBlock

    norm, words = embeddings.norm, embeddings.words
    hidden_ND: Tensor = EmbeddingBlock.apply(
        ids_N, type_ids_N, words.weight, embeddings.positions.weight, embeddings.token_types.weight,
        norm.weight, norm.bias, blocks, embeddings.position_offset, words.padding_idx, norm.eps,
        embeddings.dropout.p if embeddings.training else 0.0,
    )  # type: ignore[no-untyped-call]  # fmt: skip
    return hidden_ND


def run_layer(layer: Layer, hidden_ND: Tensor, blocks: Blocks) -> Tensor:
    """Return the next layer's hidden states, [N, D]."""
    from metaxlm.model.kernels.attention import Shape
    from metaxlm.model.kernels.blocks import AttentionBlock, FeedForwardBlock

    attention, training = layer.attention, layer.training
    heads = attention.num_heads
    shape = Shape(
        len(blocks.lengths_B), blocks.length, heads, hidden_ND.shape[1] // heads,
        attention.dropout if training else 0.0, blocks.packed_starts_B1 is not None,
    )  # fmt: skip
    dropout = layer.dropout.p if training else 0.0
    salt = _SALTS * (layer.number + 1)
    norm = layer.attention_norm
    hidden_ND = AttentionBlock.apply(
        hidden_ND, attention.qkv.weight, attention.qkv.bias, attention.output.weight,
        attention.output.bias, norm.weight, norm.bias, blocks, shape, norm.eps, dropout, salt,
    )  # type: ignore[no-untyped-call]  # fmt: skip
    norm = layer.ffn_norm
    output_ND: Tensor = FeedForwardBlock.apply(
        hidden_ND, layer.ffn_in.weight, layer.ffn_in.bias, layer.ffn_out.weight,
        layer.ffn_out.bias, norm.weight, norm.bias, blocks, norm.eps, dropout, salt + 2,
    )  # type: ignore[no-untyped-call]  # fmt: skip
    return output_ND


def loss_sum(
    head: MaskedLMHead, hidden_MD: Tensor, words_VD: Tensor, labels_M: Tensor, blocks: Blocks
) -> Tensor:
    """Return the sum of the losses of predicted positions; label -100 counts nothing."""
    from metaxlm.model.kernels.blocks import VocabularyLoss

    loss: Tensor = VocabularyLoss.apply(
        head.transform(hidden_MD), words_VD, head.bias, labels_M, blocks
    )  # type: ignore[no-untyped-call]
    return loss
