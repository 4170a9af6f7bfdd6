"""The encoder of all three phases: token ids to hidden states or masked-token logits.

It computes RoBERTa exactly (post-LayerNorm Transformer, exact GELU, learned positions, tied output
embedding), which Section 3 of the paper uses for the monolingual model and for the cross-lingual
model initialized from it. The configuration also covers BERT (token types, positions from 0) and
MPNet (a bias of attention by relative position, one table for all layers). `modernbert.py` has
another encoder for the same configuration and interface.

Tensor names carry their shapes: B batch, L length, D hidden, H heads, K hidden per head, V
vocabulary, M masked positions, N tokens of sequences stored one after another. Nothing branches on
the values of a tensor, so that compiled graphs stay whole. The `*_blocks` methods compute the same
with the fused kernels of a GPU.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from metaxlm.errors import MetaXLMError

if TYPE_CHECKING:
    from metaxlm.model.kernels.blocks import Blocks

States = TypeVar("States", Tensor, tuple[Tensor, Tensor])

_MAX_SIZE = 1 << 24  # keeps products of two sizes in the range of torch's integers
_DROPOUT_BITS = 16
SALTS = 4  # offsets that each layer adds to the dropout seed of the fused kernels
FAR = 128  # relative positions from this distance on share one bias
INITIAL_STD = 0.02  # standard deviation of every random weight, as in BERT and RoBERTa


@dataclass(frozen=True)
class Rotary:
    """Positions of ModernBERT: rotated queries and keys, a window around most of the tokens."""

    window: int = 64  # a local layer attends to at most this distance, before and after a token
    global_every: int = 3  # layers 0, 3, 6 ... attend to all tokens, the others are local
    global_theta: float = 160_000.0
    local_theta: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("window", "global_every", "global_theta", "local_theta"):
            value, most = getattr(self, name), f"positive and at most {_MAX_SIZE:,}"
            if not 0 < value <= _MAX_SIZE:
                raise MetaXLMError(f"encoder: {name} is {value}; it must be {most}")

    def is_local(self, layer: int) -> bool:
        """Return whether a layer attends to a window only."""
        return layer % self.global_every > 0


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of an encoder; the defaults are RoBERTa-base."""

    vocab_size: int
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    ffn_size: int = 3072
    max_positions: int = 512  # without the offset rows (RoBERTa's 514 rows are 512 + 2)
    pad_id: int = 1
    position_offset: int = 2  # row of the first real position: pad_id + 1 in RoBERTa, 0 in BERT
    num_token_types: int = 1  # rows of the token type table: 1 in RoBERTa, 2 in BERT, 0 in MPNet
    relative_buckets: int = 0  # rows of the relative position bias: 32 in MPNet, 0 without
    norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    rotary: Rotary | None = None  # of ModernBERT, which has no position embeddings
    family: str = "xlm-roberta"  # model_type of the folder that a model is saved as
    settings: str = ""  # config.json of an encoder that transformers computes (`foreign.py`)

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "num_layers", "num_heads", "ffn_size")
        faults = [
            f"{name} is {getattr(self, name)}; it must be positive and at most {_MAX_SIZE:,}"
            for name in (*sizes, "max_positions")
            if not 1 <= getattr(self, name) <= _MAX_SIZE
        ]
        heads, first = self.num_heads, self.pad_id + 1
        if not faults and not self.settings and self.hidden_size % heads:
            faults.append(f"hidden_size {self.hidden_size} is not a multiple of num_heads {heads}")
        if not faults and self.rotary is not None and self.head_size % 2:
            faults.append(f"a head has {self.head_size} dimensions; rotary positions need pairs")
        if not 0 <= self.pad_id < self.vocab_size:
            faults.append(f"pad_id {self.pad_id} is outside the vocabulary of {self.vocab_size}")
        if self.position_offset not in (0, first):
            faults.append(
                f"position_offset is {self.position_offset}; it must be pad_id + 1 = {first} "
                "(RoBERTa) or 0 (BERT)"
            )
        for name in ("dropout", "attention_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                faults.append(f"{name} is {getattr(self, name)}; it must be in [0, 1)")
        if faults:
            raise MetaXLMError(f"encoder: {faults[0]}")


class Dropout(nn.Dropout):
    """Dropout that draws 16 random bits per value on a CPU, where torch draws 64."""

    def forward(self, values: Tensor) -> Tensor:
        """Return the values unchanged in evaluation mode."""
        if not self.training or self.p == 0.0:
            return values
        if values.device.type != "cpu":
            return super().forward(values)
        return values * draw_factors(values, self.p)


def draw_factors(like: Tensor, p: float) -> Tensor:
    """Return 0 with probability `p` (to 1/65,536) and 1 / (1 - p) otherwise, for each value."""
    count = like.numel()
    draws = torch.empty(-(-count * _DROPOUT_BITS // 64), dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[:count].view(like.shape)
    is_kept = bits >= round(p * 2**_DROPOUT_BITS) - 2 ** (_DROPOUT_BITS - 1)
    factors: Tensor = is_kept.to(like.dtype).mul_(1.0 / (1.0 - p))
    return factors


class Embeddings(nn.Module):
    """Sum of token, position and token type embeddings, normalized."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, offset = config.hidden_size, config.position_offset
        self.position_offset = offset
        self.max_positions = config.max_positions
        self.words = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_id)
        self.positions = nn.Embedding(
            offset + config.max_positions, size, padding_idx=offset - 1 if offset else None
        )
        num_types = config.num_token_types
        self.token_types = nn.Embedding(num_types, size) if num_types else None
        self.norm = nn.LayerNorm(size, eps=config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def number_positions(self, ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        """Return the position ids, [B, L], or [1, L] if all sequences share them.

        RoBERTa counts real tokens only and gives all padding one position; BERT numbers columns.
        """
        if mask_BL is None or not self.position_offset:
            columns_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
            return (columns_L + self.position_offset).unsqueeze(0)
        return mask_BL.long().cumsum(dim=1) * mask_BL + (self.position_offset - 1)

    def forward(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return the input of the first layer, [B, L, D]."""
        check_length(ids_BL.shape[1], self.max_positions)
        return self._add_up(ids_BL, self.number_positions(ids_BL, mask_BL), token_types_BL)

    def embed_packed(
        self, ids_N: Tensor, lengths: Sequence[int], token_types_N: Tensor | None = None
    ) -> Tensor:
        """Return the same for sequences stored one after another without padding, [N, D]."""
        check_length(max(lengths), self.max_positions)
        lengths_B = torch.tensor(lengths, device=ids_N.device)
        starts_N = (lengths_B.cumsum(0) - lengths_B).repeat_interleave(lengths_B)
        places_N = torch.arange(len(ids_N), device=ids_N.device) - starts_N
        return self._add_up(ids_N, places_N + self.position_offset, token_types_N)

    def embed_blocks(self, ids_N: Tensor, type_ids_N: Tensor | None, blocks: Blocks) -> Tensor:
        """Return the same through the fused kernels, [N, D]."""
        from metaxlm.model.kernels.blocks import EmbeddingBlock

        hidden_ND: Tensor = EmbeddingBlock.apply(
            ids_N, type_ids_N, self.words.weight, self.positions.weight, self._type_table(),
            self.norm.weight, self.norm.bias, blocks, self.position_offset, self.words.padding_idx,
            self.norm.eps, self.dropout.p if self.training else 0.0,
        )  # type: ignore[no-untyped-call]  # fmt: skip
        return hidden_ND

    def _add_up(self, ids: Tensor, positions: Tensor, token_types: Tensor | None) -> Tensor:
        summed = self.words(ids)
        if self.token_types is not None:
            table = self.token_types
            summed = summed + (table.weight[0] if token_types is None else table(token_types))
        hidden: Tensor = self.dropout(self.norm(summed + self.positions(positions)))
        return hidden

    def _type_table(self) -> Tensor:
        if self.token_types is None:  # the kernels always add a type
            return self.words.weight.new_zeros(1, self.words.embedding_dim)
        return self.token_types.weight


def check_length(length: int, max_positions: int) -> None:
    """Raise an error if a sequence is longer than an encoder's positions."""
    if length > max_positions:
        raise MetaXLMError(
            f"encoder: a sequence of {length} tokens does not fit its "
            f"{max_positions} positions; truncate or split it"
        )


class Attention(nn.Module):
    """Multi-head self-attention with one projection for query, key and value."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.dropout = config.attention_dropout
        has_bias = config.rotary is None
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=has_bias)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=has_bias)

    def forward(
        self, hidden_BLD: Tensor, keys_B11L: Tensor | None, turns_LK: Tensor | None = None
    ) -> Tensor:
        """Attend to the keys where `keys_B11L` is True, or to all; first rotate by `turns_LK`."""
        mixed_BLD = self._mix(self.qkv(hidden_BLD), keys_B11L, turns_LK)
        output_BLD: Tensor = self.output(mixed_BLD)
        return output_BLD

    def attend_packed(
        self,
        hidden_ND: Tensor,
        runs: Sequence[tuple[int, int]],
        bias_1HLL: Tensor | None = None,
        turns_LK: Tensor | None = None,
    ) -> Tensor:
        """Attend within sequences without padding; `runs` are (number of sequences, length)."""
        parts = self.qkv(hidden_ND).split([size * length for size, length in runs])
        mixed = []
        for part, (size, length) in zip(parts, runs, strict=True):
            bias = None if bias_1HLL is None else bias_1HLL[..., :length, :length]
            turns = None if turns_LK is None else turns_LK[:length]
            mixed.append(self._mix(part.view(size, length, -1), bias, turns).flatten(0, 1))
        output_ND: Tensor = self.output(torch.cat(mixed))
        return output_ND

    def _mix(self, qkv_BLF: Tensor, keys_B11L: Tensor | None, turns_LK: Tensor | None) -> Tensor:
        qkv_BL3HK = qkv_BLF.view(*qkv_BLF.shape[:2], 3, self.num_heads, -1)
        query_BHLK, key_BHLK, value_BHLK = qkv_BL3HK.permute(2, 0, 3, 1, 4).unbind(0)
        if turns_LK is not None:
            query_BHLK, key_BHLK = rotate(query_BHLK, turns_LK), rotate(key_BHLK, turns_LK)
        dropout = self.dropout if self.training else 0.0
        mixed_BHLK = F.scaled_dot_product_attention(
            query_BHLK, key_BHLK, value_BHLK, attn_mask=keys_B11L, dropout_p=dropout
        )
        return mixed_BHLK.transpose(1, 2).flatten(2)


def make_turns(length: int, head_size: int, theta: float, device: torch.device) -> Tensor:
    """Return the cosines and sines, one after the other, that `rotate` needs, [L, K]."""
    exponents_K = torch.arange(0, head_size, 2, dtype=torch.float32, device=device) / head_size
    places_L1 = torch.arange(length, dtype=torch.float32, device=device)[:, None]
    angles_LK = places_L1 * (1.0 / theta**exponents_K)
    return torch.cat([angles_LK.cos(), angles_LK.sin()], dim=-1)


def rotate(x_BHLK: Tensor, turns_LK: Tensor) -> Tensor:
    """Rotate the pairs (k, k + K / 2) of each vector by the angles of its place, in float32."""
    cos_LK, sin_LK = turns_LK.chunk(2, dim=-1)
    first, second = x_BHLK.float().chunk(2, dim=-1)
    turned = (first * cos_LK - second * sin_LK, second * cos_LK + first * sin_LK)
    return torch.cat(turned, dim=-1).to(x_BHLK.dtype)


class RelativeBias(nn.Module):
    """A bias of attention scores for each head and bucket of relative positions, as in T5."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.relative_buckets, config.num_heads)

    def forward(self, length: int, keys_B11L: Tensor | None = None) -> Tensor:
        """Return the biases, [1, H, L, L]; with keys, [B, H, L, L], -inf for other columns."""
        places_L = torch.arange(length, device=self.table.weight.device)
        buckets_LL = self.find_buckets(places_L[None, :] - places_L[:, None])
        bias_1HLL: Tensor = self.table(buckets_LL).permute(2, 0, 1)[None]
        return bias_1HLL if keys_B11L is None else bias_1HLL.masked_fill(~keys_B11L, float("-inf"))

    def by_distance(self, length: int) -> Tensor:
        """Return the biases of the distances from 1 - L to L - 1, [H, 2 L - 1].

        A product, because its gradient has a fixed order of sums, unlike that of a lookup.
        """
        distances_W = torch.arange(1 - length, length, device=self.table.weight.device)
        rows_1B = torch.arange(self.table.num_embeddings, device=distances_W.device)
        is_row_WB = (self.find_buckets(distances_W)[:, None] == rows_1B).float()
        with torch.autocast(distances_W.device.type, enabled=False):
            return self.table.weight.float().t() @ is_row_WB.t()

    def find_buckets(self, distances: Tensor) -> Tensor:
        """Return the rows of distances (key minus query).

        Half of the rows are for keys after the query. Small distances have their own row, larger
        ones share rows by their logarithm, and those from 128 on share the last.
        """
        half = self.table.num_embeddings // 2
        exact = half // 2
        steps = distances.abs()
        ratio = torch.log(steps.clamp_min(1).float() / exact) / math.log(FAR / exact)
        far = (exact + (ratio * (half - exact)).long()).clamp_max(half - 1)
        return torch.where(steps < exact, steps, far) + half * (distances > 0)


class NativeLayer(nn.Module):
    """A layer that can be computed again in the backward pass, from its inputs alone."""

    gradient_checkpointing = False

    def run(self, compute: Callable[..., States], *inputs: Any, blocks: Blocks | None) -> States:
        """Return `compute(*inputs)`; with `gradient_checkpointing`, keep only the inputs."""
        # A method of the layer, so that sharding gathers its weights before both passes.
        if not (self.gradient_checkpointing and self.training and torch.is_grad_enabled()):
            return compute(*inputs)
        # Dropout of the kernels follows from a seed, and a CUDA graph cannot read the generator.
        is_random = blocks is None
        found: States = checkpoint(
            compute, *inputs, use_reentrant=False, preserve_rng_state=is_random
        )
        return found


class Layer(NativeLayer):
    """Attention and feed-forward network, each with residual connection and LayerNorm after it."""

    def __init__(self, config: EncoderConfig, number: int = 0) -> None:
        super().__init__()
        self.number = number
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.ffn_in = nn.Linear(config.hidden_size, config.ffn_size)
        self.ffn_out = nn.Linear(config.ffn_size, config.hidden_size)
        self.ffn_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, hidden_BLD: Tensor, keys_B11L: Tensor | None, blocks: Blocks | None = None
    ) -> Tensor:
        """Return the next hidden states, [B, L, D]; with `blocks`, fused from [N, D] to [N, D].

        `keys_B11L` is a mask or the biases of the scores; with `blocks`, biases by distance.
        """
        if blocks is not None:
            return self.run(self._run_blocks, hidden_BLD, keys_B11L, blocks, blocks=blocks)
        return self.run(self._run_padded, hidden_BLD, keys_B11L, blocks=None)

    def run_packed(
        self, hidden_ND: Tensor, runs: Sequence[tuple[int, int]], bias_1HLL: Tensor | None = None
    ) -> Tensor:
        """Return the next hidden states of sequences without padding, [N, D]."""
        return self.run(self._run_packed, hidden_ND, runs, bias_1HLL, blocks=None)

    def _run_padded(self, hidden_BLD: Tensor, keys_B11L: Tensor | None) -> Tensor:
        return self._finish(hidden_BLD, self.attention(hidden_BLD, keys_B11L))

    def _run_packed(
        self, hidden_ND: Tensor, runs: Sequence[tuple[int, int]], bias_1HLL: Tensor | None
    ) -> Tensor:
        return self._finish(hidden_ND, self.attention.attend_packed(hidden_ND, runs, bias_1HLL))

    def _run_blocks(self, hidden_ND: Tensor, bias_HW: Tensor | None, blocks: Blocks) -> Tensor:
        from metaxlm.model.kernels.attention import Shape
        from metaxlm.model.kernels.blocks import AttentionBlock, FeedForwardBlock

        attention, training = self.attention, self.training
        heads = attention.num_heads
        shape = Shape(
            len(blocks.lengths_B), blocks.length, heads, hidden_ND.shape[1] // heads,
            attention.dropout if training else 0.0, blocks.packed_starts_B1 is not None,
        )  # fmt: skip
        dropout = self.dropout.p if training else 0.0
        salt = SALTS * (self.number + 1)
        norm = self.attention_norm
        hidden_ND = AttentionBlock.apply(
            hidden_ND, attention.qkv.weight, attention.qkv.bias, attention.output.weight,
            attention.output.bias, norm.weight, norm.bias, bias_HW, blocks, shape, norm.eps,
            dropout, salt,
        )  # type: ignore[no-untyped-call]  # fmt: skip
        norm = self.ffn_norm
        output_ND: Tensor = FeedForwardBlock.apply(
            hidden_ND, self.ffn_in.weight, self.ffn_in.bias, self.ffn_out.weight,
            self.ffn_out.bias, norm.weight, norm.bias, blocks, norm.eps, dropout, salt + 2,
        )  # type: ignore[no-untyped-call]  # fmt: skip
        return output_ND

    def _finish(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        hidden = self.attention_norm(hidden + self.dropout(mixed))
        widened = self.dropout(self.ffn_out(F.gelu(self.ffn_in(hidden))))
        output: Tensor = self.ffn_norm(hidden + widened)
        return output


class NativeEncoder(nn.Module, ABC):
    """Embeddings and a stack of layers: what all encoders of our own have."""

    config: EncoderConfig
    layers: nn.ModuleList

    @property
    @abstractmethod
    def words(self) -> nn.Embedding:
        """The token embeddings."""

    def gradient_checkpointing_enable(self) -> None:
        """Compute each layer again in the backward pass: less memory, a third more compute."""
        for layer in self.layers:
            assert isinstance(layer, NativeLayer)
            layer.gradient_checkpointing = True

    @abstractmethod
    def forward(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states, [B, L, D]; `mask_BL` is True for real tokens."""

    @abstractmethod
    def hidden_states(
        self,
        ids_BL: Tensor,
        mask_BL: Tensor | None = None,
        token_types_BL: Tensor | None = None,
        *,
        deepest: int | None = None,
    ) -> list[Tensor]:
        """Return the embedding output (layer 0) and the layers up to `deepest`, [B, L, D] each."""

    @abstractmethod
    def encode_packed(
        self, ids_N: Tensor, lengths: Sequence[int], token_types_N: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states, [N, D], of sequences sorted by length, without padding."""

    @abstractmethod
    def encode_blocks(
        self, ids: Tensor, blocks: Blocks, token_types: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states of ids [B, L] or packed [N] through the fused kernels."""


class Encoder(NativeEncoder):
    """The encoder of RoBERTa, BERT, DistilBERT and MPNet."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.relative_bias = RelativeBias(config) if config.relative_buckets else None
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_layers))
        self.apply(initialize_module)

    @property
    def words(self) -> nn.Embedding:
        """The token embeddings."""
        return self.embeddings.words

    def forward(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states, [B, L, D]; `mask_BL` is True for real tokens."""
        hidden_BLD: Tensor = self.embeddings(ids_BL, mask_BL, token_types_BL)
        scores_bias = self._make_mask(ids_BL.shape[1], mask_BL)
        for layer in self.layers:
            hidden_BLD = layer(hidden_BLD, scores_bias)
        return hidden_BLD

    def _make_mask(self, length: int, mask_BL: Tensor | None) -> Tensor | None:
        """Return the keys to attend to, or with relative positions the biases of all scores."""
        keys_B11L = None if mask_BL is None else mask_BL[:, None, None, :]
        return keys_B11L if self.relative_bias is None else self.relative_bias(length, keys_B11L)

    def encode_packed(
        self, ids_N: Tensor, lengths: Sequence[int], token_types_N: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states, [N, D], of sequences sorted by length, without padding."""
        hidden_ND: Tensor = self.embeddings.embed_packed(ids_N, lengths, token_types_N)
        runs = find_runs(lengths)
        bias_1HLL = self._make_mask(max(lengths), None)
        for layer in self.layers:
            assert isinstance(layer, Layer)
            hidden_ND = layer.run_packed(hidden_ND, runs, bias_1HLL)
        return hidden_ND

    def encode_blocks(
        self, ids: Tensor, blocks: Blocks, token_types: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states of ids [B, L] or packed [N] through the fused kernels."""
        types_N = None if token_types is None else token_types.flatten()
        hidden_ND = self.embeddings.embed_blocks(ids.flatten(), types_N, blocks)
        bias_HW = None
        if self.relative_bias is not None:
            from metaxlm.model.kernels.attention import BiasTiles

            bias_HW = self.relative_bias.by_distance(blocks.length)
            blocks = replace(blocks, bias=BiasTiles.make(bias_HW.detach(), blocks.dtype))
        for layer in self.layers:
            hidden_ND = layer(hidden_ND, bias_HW, blocks)
        return hidden_ND.view(*ids.shape, -1)

    def hidden_states(
        self,
        ids_BL: Tensor,
        mask_BL: Tensor | None = None,
        token_types_BL: Tensor | None = None,
        *,
        deepest: int | None = None,
    ) -> list[Tensor]:
        """Return the embedding output (layer 0) and the layers up to `deepest`, [B, L, D] each."""
        states: list[Tensor] = [self.embeddings(ids_BL, mask_BL, token_types_BL)]
        scores_bias = self._make_mask(ids_BL.shape[1], mask_BL)
        for layer in self.layers[:deepest]:
            states.append(layer(states[-1], scores_bias))
        return states


def find_runs(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return (number of sequences, length) for each run of sequences of one length."""
    return [(len(list(run)), length) for length, run in itertools.groupby(lengths)]


def initialize_module(module: nn.Module) -> None:
    """Initialize the parameters of one module from torch's global generator, as RoBERTa does."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
    if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx].zero_()
