"""The encoder's parts for training on a GPU, each with its gradient written out.

The input is hidden states [N, D] of blocks stored one after another, padded to one length or packed
without padding. The results are those of `encoder.py` with fewer passes over memory: cuBLAS for
matrix products in the given type, float32 weight gradients, and one Triton kernel between two
products. Products for frozen parameters are not computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from metaxlm.model.kernels.attention import (
    BiasTiles,
    Shape,
    Traces,
    attend,
    attend_backward,
    make_column_keys,
)
from metaxlm.model.kernels.cross_entropy import cross_entropy, gradient
from metaxlm.model.kernels.embedding_sum import (
    add_word_gradient,
    embed,
    embed_backward,
    sum_positions,
)
from metaxlm.model.kernels.gelu import gelu, gelu_backward
from metaxlm.model.kernels.norm import add_and_normalize, add_and_normalize_backward

_ROW_MULTIPLE = 128
"""Word rows are padded to a multiple of this: cuBLAS has no fast kernel for other sizes."""


@dataclass
class TiedGradient:
    """The word rows' gradient from the head, to which the embedding's is added in place.

    Both are sums for the same table; added by autograd, they would be written and read twice more.
    Not where a third term uses the word rows: autograd would add that one to a copy.
    """

    is_used: bool = True
    table_VD: Tensor | None = None


@dataclass(frozen=True)
class Blocks:
    """What all parts of one forward pass share."""

    lengths_B: Tensor
    """Real tokens of each block, int32."""
    length: int
    """Places of the longest block, padding included."""
    seed: Tensor
    """Dropout's seed, an int64 on the device."""
    dtype: torch.dtype = torch.bfloat16
    copies: Mapping[Tensor, Tensor] = field(default_factory=dict)
    """Weights and biases that exist in `dtype`; the word rows are padded, see `pad_rows`."""
    tied: TiedGradient = field(default_factory=TiedGradient)
    packed_starts_B1: Tensor | None = None
    """Where blocks without padding start, and where the last one ends, int32; None if padded."""
    bias: BiasTiles | None = None
    """The biases of attention, for all layers."""

    @cached_property
    def starts(self) -> Tensor:
        """The first row of each block, and the row after the last, [B + 1]."""
        if self.packed_starts_B1 is not None:
            return self.packed_starts_B1
        numbers = torch.arange(len(self.lengths_B) + 1, device=self.lengths_B.device)
        return (numbers * self.length).int()

    def number_places(self, rows: int) -> Tensor:
        """Return for each row its place in its block, [rows]; after the last block it is 0."""
        numbers_N = torch.arange(rows, device=self.lengths_B.device, dtype=torch.int32)
        if self.packed_starts_B1 is None:
            return numbers_N % self.length
        ends_B = self.starts[1:]
        blocks_N = torch.searchsorted(ends_B, numbers_N, right=True, out_int32=True)
        places_N = numbers_N - self.starts[blocks_N]
        return torch.where(blocks_N < len(ends_B), places_N, 0)

    @cached_property
    def column_keys(self) -> Tensor:
        """Attention dropout's keys of the places in a block."""
        return make_column_keys(self.seed, self.length)

    def cast(self, weight: Tensor) -> Tensor:
        """Return a weight or bias for matrix products."""
        copy = self.copies.get(weight)
        return weight.to(self.dtype) if copy is None else copy

    def cast_rows(self, words_VD: Tensor) -> Tensor:
        """Return the padded word rows for the product with the head's vectors."""
        copy = self.copies.get(words_VD)
        return pad_rows(words_VD, self.dtype) if copy is None else copy


def pad_rows(words_VD: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the word rows in another type, with zero rows up to a multiple of 128."""
    vocab_size, width = words_VD.shape
    padded = -(-vocab_size // _ROW_MULTIPLE) * _ROW_MULTIPLE
    table = torch.empty(padded, width, dtype=dtype, device=words_VD.device)
    table[:vocab_size] = words_VD
    table[vocab_size:] = 0
    return table


def weight_gradient(d_out_NF: Tensor, x_ND: Tensor) -> Tensor:
    """Return the float32 gradient of a linear layer's weight, [F, D]."""
    if x_ND.is_cuda:
        return torch.mm(d_out_NF.t(), x_ND, out_dtype=torch.float32)
    return d_out_NF.t().float() @ x_ND.float()


class EmbeddingBlock(torch.autograd.Function):
    """Token ids to the first hidden states."""

    @staticmethod
    def forward(
        ctx: Any,
        ids_N: Tensor,
        type_ids_N: Tensor | None,
        words: Tensor,
        positions: Tensor,
        types: Tensor,
        weight: Tensor,
        bias: Tensor,
        blocks: Blocks,
        offset: int,
        pad_id: int,
        eps: float,
        dropout: float,
    ) -> Tensor:
        """Return [N, D]."""
        places_N = blocks.number_places(len(ids_N))
        out, total, mean, scale = embed(
            ids_N, places_N, type_ids_N, words, positions, types, weight, bias, offset, eps,
            dropout, blocks.seed, 0, blocks.dtype,
        )  # fmt: skip
        ctx.save_for_backward(ids_N, type_ids_N, total, mean, scale, weight, positions, types)
        ctx.settings = blocks, offset, pad_id, dropout, words.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the three tables and of the LayerNorm."""
        ids_N, type_ids_N, total, mean, scale, weight, positions, types = ctx.saved_tensors
        blocks, offset, pad_id, dropout, shape = ctx.settings
        d_total, d_norm = embed_backward(
            d_out.contiguous(), total, mean, scale, weight, dropout, blocks.seed, 0
        )
        d_positions = sum_positions(d_total, blocks.starts, blocks.length, offset, len(positions))
        if type_ids_N is None:
            d_types = torch.zeros_like(types)
            d_types[0] = d_positions.sum(0)
        else:
            kinds_T1 = torch.arange(len(types), device=types.device)[:, None]
            d_types = (type_ids_N == kinds_T1).float() @ d_total
        d_words = None
        if ctx.needs_input_grad[2]:
            table, blocks.tied.table_VD = blocks.tied.table_VD, None
            if table is None:
                table = d_words = torch.zeros(shape, dtype=torch.float32, device=d_total.device)
            add_word_gradient(table, ids_N, d_total, pad_id)
        return (
            None, None, d_words, d_positions, d_types, d_norm[0], d_norm[1], None, None, None, None,
            None,
        )  # fmt: skip


class AttentionBlock(torch.autograd.Function):
    """LayerNorm(x + dropout(attention(x)))."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        qkv_weight: Tensor,
        qkv_bias: Tensor,
        out_weight: Tensor,
        out_bias: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        bias_HW: Tensor | None,  # noqa: ARG004 (takes the gradient of `blocks.bias`)
        blocks: Blocks,
        shape: Shape,
        eps: float,
        dropout: float,
        salt: int,
    ) -> Tensor:
        """Return [N, D]."""
        w_qkv, w_out = blocks.cast(qkv_weight), blocks.cast(out_weight)
        qkv = torch.addmm(blocks.cast(qkv_bias), x_ND, w_qkv.t())
        mixed, traces = attend(
            qkv, blocks.starts, blocks.lengths_B, blocks.column_keys, blocks.seed, salt, shape,
            blocks.bias,
        )  # fmt: skip
        projected = torch.addmm(blocks.cast(out_bias), mixed, w_out.t())
        y, total, mean, scale = add_and_normalize(
            projected, x_ND, norm_weight, norm_bias, eps, dropout, blocks.seed, salt + 1
        )
        ctx.save_for_backward(
            x_ND, w_qkv, w_out, qkv, mixed, traces.lse, traces.row_keys, total, mean, scale,
            norm_weight,
        )  # fmt: skip
        ctx.settings = blocks, shape, dropout, salt
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, of the six parameters and of the bias of the scores."""
        x, w_qkv, w_out, qkv, mixed, lse, keys, *saved = ctx.saved_tensors
        total, mean, scale, norm_weight = saved
        blocks, shape, dropout, salt = ctx.settings
        needs = ctx.needs_input_grad
        d_total, d_projected, sums = add_and_normalize_backward(
            d_y.contiguous(), total, mean, scale, norm_weight, dropout, blocks.seed, salt + 1
        )
        d_mixed = d_projected @ w_out
        d_w_out = weight_gradient(d_projected, mixed) if needs[3] else None
        traces = Traces(lse, keys, blocks.column_keys)
        d_qkv, d_b_qkv, d_bias = attend_backward(
            d_mixed, qkv, mixed, traces, blocks.starts, blocks.lengths_B, shape, blocks.bias
        )
        d_w_qkv = weight_gradient(d_qkv, x) if needs[1] else None
        # Without dropout both gradients of the sum are one tensor, which is done with by now.
        d_x = d_total.addmm_(d_qkv, w_qkv)
        return (
            d_x, d_w_qkv, d_b_qkv, d_w_out, sums[2], sums[0], sums[1], d_bias, None, None, None,
            None, None,
        )  # fmt: skip


class FeedForwardBlock(torch.autograd.Function):
    """LayerNorm(x + dropout(W2 gelu(W1 x)))."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        in_weight: Tensor,
        in_bias: Tensor,
        out_weight: Tensor,
        out_bias: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        blocks: Blocks,
        eps: float,
        dropout: float,
        salt: int,
    ) -> Tensor:
        """Return [N, D]."""
        w_in, w_out = blocks.cast(in_weight), blocks.cast(out_weight)
        wide = torch.addmm(blocks.cast(in_bias), x_ND, w_in.t())
        bent = gelu(wide)
        projected = torch.addmm(blocks.cast(out_bias), bent, w_out.t())
        y, total, mean, scale = add_and_normalize(
            projected, x_ND, norm_weight, norm_bias, eps, dropout, blocks.seed, salt
        )
        ctx.save_for_backward(x_ND, w_in, w_out, wide, bent, total, mean, scale, norm_weight)
        ctx.settings = blocks, dropout, salt
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and of the six parameters."""
        x, w_in, w_out, wide, bent, total, mean, scale, norm_weight = ctx.saved_tensors
        blocks, dropout, salt = ctx.settings
        needs = ctx.needs_input_grad
        d_total, d_projected, sums = add_and_normalize_backward(
            d_y.contiguous(), total, mean, scale, norm_weight, dropout, blocks.seed, salt
        )
        d_w_out = weight_gradient(d_projected, bent) if needs[3] else None
        d_wide, d_b_in = gelu_backward(d_projected @ w_out, wide)
        d_w_in = weight_gradient(d_wide, x) if needs[1] else None
        d_x = d_total.addmm_(d_wide, w_in)
        return (
            d_x, d_w_in, d_b_in, d_w_out, sums[2], sums[0], sums[1], None, None, None, None
        )  # fmt: skip


class VocabularyLoss(torch.autograd.Function):
    """The summed loss of vectors compared with all word rows; no float32 logits, no copies."""

    @staticmethod
    def forward(
        ctx: Any, x_MD: Tensor, words: Tensor, bias: Tensor, labels_M: Tensor, blocks: Blocks
    ) -> Tensor:
        """Return the sum of the losses; label -100 counts nothing."""
        vocab_size = len(words)
        table = blocks.cast_rows(words)
        wide_bias = torch.zeros(len(table), dtype=blocks.dtype, device=words.device)
        wide_bias[:vocab_size] = bias
        x_MD = x_MD.to(blocks.dtype)
        logits = torch.addmm(wide_bias, x_MD, table.t())
        loss, lse = cross_entropy(logits, labels_M, vocab_size)
        ctx.save_for_backward(x_MD, table, labels_M, lse)
        # Not among the saved tensors: the backward pass writes its result over it.
        ctx.logits, ctx.blocks, ctx.vocab_size = logits, blocks, vocab_size
        return loss.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the vectors, the word rows and the bias."""
        x_MD, table, labels_M, lse = ctx.saved_tensors
        d_logits, ctx.logits = ctx.logits, None
        d_bias = gradient(d_logits, labels_M, lse, d_loss, ctx.vocab_size)
        d_x = d_logits @ table
        d_words = None
        if ctx.needs_input_grad[1]:
            d_words = weight_gradient(d_logits, x_MD)[: ctx.vocab_size]
            if ctx.blocks.tied.is_used:
                ctx.blocks.tied.table_VD = d_words
        return d_x, d_words, d_bias, None, None
