"""The parts of ModernBERT's encoder for training on a GPU, each with its gradient written out.

As in `blocks.py`, but LayerNorm is before the parts: `NormBlock` adds a part to the sum of all
earlier ones and normalizes it in one pass. Where the kernels add a bias, it is zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from metaxlm.model.kernels.attention import Shape, Traces, attend, attend_backward
from metaxlm.model.kernels.blocks import Blocks, weight_gradient
from metaxlm.model.kernels.embedding_sum import add_word_gradient, embed, embed_backward
from metaxlm.model.kernels.gelu import gated_gelu, gated_gelu_backward
from metaxlm.model.kernels.norm import add_and_normalize, add_and_normalize_backward
from metaxlm.model.kernels.rotary import rotate


class WordBlock(torch.autograd.Function):
    """Dropout(LayerNorm(word embedding))."""

    @staticmethod
    def forward(
        ctx: Any,
        ids_N: Tensor,
        words: Tensor,
        weight: Tensor,
        blocks: Blocks,
        pad_id: int,
        eps: float,
        dropout: float,
    ) -> Tensor:
        """Return [N, D]."""
        places_N, zeros_1D = torch.zeros_like(ids_N), torch.zeros_like(weight)[None]
        out, total, mean, scale = embed(
            ids_N, places_N, None, words, zeros_1D, zeros_1D, weight, zeros_1D, 0, eps, dropout,
            blocks.seed, 0, blocks.dtype,
        )  # fmt: skip
        ctx.save_for_backward(ids_N, total, mean, scale, weight)
        ctx.settings = blocks, pad_id, dropout, words.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the word rows and of the LayerNorm."""
        ids_N, total, mean, scale, weight = ctx.saved_tensors
        blocks, pad_id, dropout, shape = ctx.settings
        d_total, d_norm = embed_backward(
            d_out.contiguous(), total, mean, scale, weight, dropout, blocks.seed, 0
        )
        d_words = None
        if ctx.needs_input_grad[1]:
            table, blocks.tied.table_VD = blocks.tied.table_VD, None
            if table is None:
                table = d_words = torch.zeros(shape, dtype=torch.float32, device=d_total.device)
            add_word_gradient(table, ids_N, d_total, pad_id)
        return None, d_words, d_norm[0], None, None, None, None


class NormBlock(torch.autograd.Function):
    """The sum x + dropout(y), and its LayerNorm."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        y_ND: Tensor,
        weight: Tensor,
        blocks: Blocks,
        eps: float,
        dropout: float,
        salt: int,
    ) -> tuple[Tensor, Tensor]:
        """Return [N, D] twice."""
        normal, total, mean, scale = add_and_normalize(
            y_ND, x_ND, weight, None, eps, dropout, blocks.seed, salt
        )
        ctx.save_for_backward(total, mean, scale, weight)
        ctx.settings = blocks, dropout, salt
        ctx.set_materialize_grads(False)
        return total, normal

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_rest: Tensor | None, d_normal: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, of y and of the LayerNorm."""
        total, mean, scale, weight = ctx.saved_tensors
        blocks, dropout, salt = ctx.settings
        d_x, d_y, sums = add_and_normalize_backward(
            d_normal.contiguous(), total, mean, scale, weight, dropout, blocks.seed, salt,
            None if d_rest is None else d_rest.contiguous(),
        )  # fmt: skip
        return d_x, d_y, sums[0], None, None, None, None


class RotaryAttentionBlock(torch.autograd.Function):
    """Attention of normalized states with rotary positions; no residual connection."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        qkv_weight: Tensor,
        out_weight: Tensor,
        places_N: Tensor,
        turns_LK: Tensor,
        blocks: Blocks,
        shape: Shape,
        salt: int,
    ) -> Tensor:
        """Return [N, D]."""
        w_qkv, w_out = blocks.cast(qkv_weight), blocks.cast(out_weight)
        qkv = x_ND @ w_qkv.t()
        rotate(qkv, places_N, turns_LK, shape.heads)
        mixed, traces = attend(
            qkv, blocks.starts, blocks.lengths_B, blocks.column_keys, blocks.seed, salt, shape
        )
        ctx.save_for_backward(x_ND, w_qkv, w_out, qkv, mixed, traces.lse, traces.row_keys, turns_LK)
        ctx.settings = blocks, shape
        return mixed @ w_out.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and of both weights."""
        x, w_qkv, w_out, qkv, mixed, lse, keys, turns_LK = ctx.saved_tensors
        blocks, shape = ctx.settings
        needs, d_y = ctx.needs_input_grad, d_y.contiguous()
        d_w_out = weight_gradient(d_y, mixed) if needs[2] else None
        traces = Traces(lse, keys, blocks.column_keys)
        d_qkv, _, _ = attend_backward(
            d_y @ w_out, qkv, mixed, traces, blocks.starts, blocks.lengths_B, shape, None, turns_LK
        )
        d_w_qkv = weight_gradient(d_qkv, x) if needs[1] else None
        return d_qkv @ w_qkv, d_w_qkv, d_w_out, None, None, None, None, None


class GatedBlock(torch.autograd.Function):
    """W2 dropout(gelu(W1 x) * W3 x), where W1 and W3 are one weight; no residual connection."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        in_weight: Tensor,
        out_weight: Tensor,
        blocks: Blocks,
        dropout: float,
        salt: int,
    ) -> Tensor:
        """Return [N, D]."""
        w_in, w_out = blocks.cast(in_weight), blocks.cast(out_weight)
        wide = x_ND @ w_in.t()
        gated = gated_gelu(wide, dropout, blocks.seed, salt)
        ctx.save_for_backward(x_ND, w_in, w_out, wide, gated)
        ctx.settings = blocks, dropout, salt
        return gated @ w_out.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and of both weights."""
        x, w_in, w_out, wide, gated = ctx.saved_tensors
        blocks, dropout, salt = ctx.settings
        needs, d_y = ctx.needs_input_grad, d_y.contiguous()
        d_w_out = weight_gradient(d_y, gated) if needs[2] else None
        d_wide = gated_gelu_backward(d_y @ w_out, wide, dropout, blocks.seed, salt)
        d_w_in = weight_gradient(d_wide, x) if needs[1] else None
        return d_wide @ w_in, d_w_in, d_w_out, None, None, None
