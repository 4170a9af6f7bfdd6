"""The encoder of ModernBERT, which also Ettin and mmBERT have: token ids to hidden states.

LayerNorm before attention and before the feed-forward network, no biases, a gated GELU, and rotary
positions. Most layers are local: a token attends to a window around it. Each `global_every`-th
layer is global, with another period of its rotations. Shapes are named as in `encoder.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metaxlm.model.encoder import (
    SALTS,
    Attention,
    Dropout,
    EncoderConfig,
    NativeEncoder,
    NativeLayer,
    Rotary,
    check_length,
    find_runs,
    initialize_module,
    make_turns,
)

if TYPE_CHECKING:
    from metaxlm.model.kernels.blocks import Blocks


class ModernEmbeddings(nn.Module):
    """Token embeddings, normalized; positions are added by attention."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_id)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the input of the first layer for ids of any shape."""
        hidden: Tensor = self.dropout(self.norm(self.words(ids)))
        return hidden

    def embed_blocks(self, ids_N: Tensor, blocks: Blocks) -> Tensor:
        """Return the same through the fused kernels, [N, D]."""
        from metaxlm.model.kernels.modern_blocks import WordBlock

        dropout = self.dropout.p if self.training else 0.0
        hidden_ND: Tensor = WordBlock.apply(
            ids_N, self.words.weight, self.norm.weight, blocks, self.words.padding_idx,
            self.norm.eps, dropout,
        )  # type: ignore[no-untyped-call]  # fmt: skip
        return hidden_ND


class ModernLayer(NativeLayer):
    """Attention and feed-forward network, each with LayerNorm before and residual connection."""

    def __init__(self, config: EncoderConfig, number: int, rotary: Rotary) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.norm_eps
        self.number = number
        self.is_local = rotary.is_local(number)
        self.window = rotary.window if self.is_local else 0
        # The first layer's input is normalized already.
        self.attention_norm = nn.LayerNorm(size, eps=eps, bias=False) if number else nn.Identity()
        self.attention = Attention(config)
        self.attention_dropout = Dropout(config.attention_dropout)
        self.ffn_norm = nn.LayerNorm(size, eps=eps, bias=False)
        self.ffn_in = nn.Linear(size, 2 * config.ffn_size, bias=False)
        self.ffn_out = nn.Linear(config.ffn_size, size, bias=False)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        hidden_BLD: Tensor,
        keys_B11L: Tensor | None,
        turns_LK: Tensor,
        blocks: Blocks | None = None,
        places_N: Tensor | None = None,
        part_ND: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the next hidden states, [B, L, D]; with `blocks`, fused and in two terms.

        The two terms are the sum of all parts but the last, and the last part (None before the
        first layer), [N, D] each. `places_N` are the places of the tokens in their blocks.
        """
        if blocks is not None:
            assert places_N is not None
            inputs = (hidden_BLD, turns_LK, blocks, places_N, part_ND)
            return self.run(self._run_blocks, *inputs, blocks=blocks)
        return self.run(self._run_padded, hidden_BLD, keys_B11L, turns_LK, blocks=None)

    def run_packed(
        self,
        hidden_ND: Tensor,
        runs: Sequence[tuple[int, int]],
        near_11LL: Tensor | None,
        turns_LK: Tensor,
    ) -> Tensor:
        """Return the next hidden states of sequences without padding, [N, D]."""
        return self.run(self._run_packed, hidden_ND, runs, near_11LL, turns_LK, blocks=None)

    def _run_padded(self, hidden: Tensor, keys_B11L: Tensor | None, turns_LK: Tensor) -> Tensor:
        return self._finish(
            hidden, self.attention(self.attention_norm(hidden), keys_B11L, turns_LK)
        )

    def _run_packed(
        self,
        hidden_ND: Tensor,
        runs: Sequence[tuple[int, int]],
        near_11LL: Tensor | None,
        turns_LK: Tensor,
    ) -> Tensor:
        normal_ND = self.attention_norm(hidden_ND)
        mixed_ND = self.attention.attend_packed(normal_ND, runs, near_11LL, turns_LK)
        return self._finish(hidden_ND, mixed_ND)

    def _run_blocks(
        self,
        total_ND: Tensor,
        turns_LK: Tensor,
        blocks: Blocks,
        places_N: Tensor,
        part_ND: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        from metaxlm.model.kernels.attention import Shape
        from metaxlm.model.kernels.modern_blocks import GatedBlock, NormBlock, RotaryAttentionBlock

        attention, heads = self.attention, self.attention.num_heads
        dropout, attention_dropout = (
            module.p if self.training else 0.0 for module in (self.dropout, self.attention_dropout)
        )
        salt = SALTS * (self.number + 1)
        shape = Shape(
            len(blocks.lengths_B), blocks.length, heads, total_ND.shape[1] // heads,
            attention_dropout, blocks.packed_starts_B1 is not None, window=self.window,
        )  # fmt: skip
        if part_ND is None:
            normal_ND = total_ND.to(blocks.dtype)
        else:
            norm = self.attention_norm
            total_ND, normal_ND = NormBlock.apply(
                total_ND, part_ND, norm.weight, blocks, norm.eps, 0.0, 0
            )  # type: ignore[no-untyped-call]
        mixed_ND = RotaryAttentionBlock.apply(
            normal_ND, attention.qkv.weight, attention.output.weight, places_N, turns_LK,
            blocks, shape, salt,
        )  # type: ignore[no-untyped-call]  # fmt: skip
        total_ND, normal_ND = NormBlock.apply(
            total_ND, mixed_ND, self.ffn_norm.weight, blocks, self.ffn_norm.eps, attention_dropout,
            salt + 1,
        )  # type: ignore[no-untyped-call]  # fmt: skip
        output_ND: Tensor = GatedBlock.apply(
            normal_ND, self.ffn_in.weight, self.ffn_out.weight, blocks, dropout, salt + 2
        )  # type: ignore[no-untyped-call]
        return total_ND, output_ND

    def _finish(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        hidden = hidden + self.attention_dropout(mixed)
        inner, gate = self.ffn_in(self.ffn_norm(hidden)).chunk(2, dim=-1)
        output: Tensor = hidden + self.ffn_out(self.dropout(F.gelu(inner) * gate))
        return output


class ModernEncoder(NativeEncoder):
    """The encoder of ModernBERT; token types are ignored."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        assert config.rotary is not None
        self.config = config
        self.rotary = config.rotary
        self.embeddings = ModernEmbeddings(config)
        self.layers = nn.ModuleList(
            ModernLayer(config, i, config.rotary) for i in range(config.num_layers)
        )
        self.final_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
        self.apply(initialize_module)

    @property
    def words(self) -> nn.Embedding:
        """The token embeddings."""
        return self.embeddings.words

    def forward(
        self,
        ids_BL: Tensor,
        mask_BL: Tensor | None = None,
        token_types_BL: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return the last hidden states, [B, L, D]; `mask_BL` is True for real tokens."""
        length = ids_BL.shape[1]
        masks, turns = self._make_masks(length, mask_BL), self._make_turns(length)
        hidden_BLD: Tensor = self.embeddings(ids_BL)
        for layer in self.layers:
            assert isinstance(layer, ModernLayer)
            hidden_BLD = layer(hidden_BLD, masks[layer.is_local], turns[layer.is_local])
        output_BLD: Tensor = self.final_norm(hidden_BLD)
        return output_BLD

    def hidden_states(
        self,
        ids_BL: Tensor,
        mask_BL: Tensor | None = None,
        token_types_BL: Tensor | None = None,  # noqa: ARG002
        *,
        deepest: int | None = None,
    ) -> list[Tensor]:
        """Return the embedding output (layer 0) and the layers up to `deepest`, [B, L, D] each.

        Only the last layer's states are normalized.
        """
        length = ids_BL.shape[1]
        masks, turns = self._make_masks(length, mask_BL), self._make_turns(length)
        states: list[Tensor] = [self.embeddings(ids_BL)]
        for layer in self.layers[:deepest]:
            assert isinstance(layer, ModernLayer)
            states.append(layer(states[-1], masks[layer.is_local], turns[layer.is_local]))
        if len(states) > len(self.layers):
            states[-1] = self.final_norm(states[-1])
        return states

    def encode_packed(
        self,
        ids_N: Tensor,
        lengths: Sequence[int],
        token_types_N: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return the last hidden states, [N, D], of sequences sorted by length, without padding."""
        longest, runs = max(lengths), find_runs(lengths)
        masks, turns = self._make_masks(longest, None), self._make_turns(longest)
        hidden_ND: Tensor = self.embeddings(ids_N)
        for layer in self.layers:
            assert isinstance(layer, ModernLayer)
            kind = layer.is_local
            hidden_ND = layer.run_packed(hidden_ND, runs, masks[kind], turns[kind])
        output_ND: Tensor = self.final_norm(hidden_ND)
        return output_ND

    def encode_blocks(
        self,
        ids: Tensor,
        blocks: Blocks,
        token_types: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return the last hidden states of ids [B, L] or packed [N] through the fused kernels."""
        from metaxlm.model.kernels.modern_blocks import NormBlock

        ids_N, turns = ids.flatten(), self._make_turns(blocks.length)
        places_N = blocks.number_places(len(ids_N))
        total_ND, part_ND = self.embeddings.embed_blocks(ids_N, blocks), None
        for layer in self.layers:
            assert isinstance(layer, ModernLayer)
            turns_LK = turns[layer.is_local]
            total_ND, part_ND = layer(total_ND, None, turns_LK, blocks, places_N, part_ND)
        norm = self.final_norm
        hidden_ND: Tensor = NormBlock.apply(
            total_ND, part_ND, norm.weight, blocks, norm.eps, 0.0, 0
        )[1]  # type: ignore[no-untyped-call]
        return hidden_ND.view(*ids.shape, -1)

    def _make_turns(self, length: int) -> tuple[Tensor, Tensor]:
        """Return the rotations of global and of local layers, [L, K] each."""
        check_length(length, self.config.max_positions)
        size, device = self.config.head_size, self.words.weight.device
        periods = (self.rotary.global_theta, self.rotary.local_theta)
        first, second = (make_turns(length, size, theta, device) for theta in periods)
        return first, second

    def _make_masks(self, length: int, mask_BL: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the keys to attend to in global and in local layers; None means all."""
        keys_B11L = None if mask_BL is None else mask_BL[:, None, None, :]
        if length <= self.rotary.window + 1:
            return keys_B11L, keys_B11L
        places_L = torch.arange(length, device=self.words.weight.device)
        distances_LL = (places_L[:, None] - places_L).abs()
        near_11LL = (distances_LL <= self.rotary.window)[None, None]
        if keys_B11L is None:
            return None, near_11LL
        # Padding far from all real tokens attends to itself: without any key it would be NaN.
        return keys_B11L, near_11LL & (keys_B11L | (distances_LL == 0))
