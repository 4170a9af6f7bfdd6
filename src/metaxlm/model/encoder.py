"""The encoder of all three phases: token ids come in, hidden states or masked-token logits go out.

It is RoBERTa's architecture to the last digit (post-LayerNorm Transformer, exact GELU, learned
positions, output embedding tied to the input embedding), which the paper's Section 3 uses both for
the monolingual model of meta-pretraining and for the cross-lingual model that starts from it. The
configuration also covers the BERT family: token types, positions that start at row 0, other eps.

The file reads top to bottom: configuration, embeddings, attention, layer, encoder, head, model.
Tensor names carry their shapes: B batch, L length, D hidden, H heads, K hidden per head, V
vocabulary, M masked positions. Nothing here branches on the values of a tensor, so that compiled
graphs stay whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metaxlm.errors import MetaXLMError
from metaxlm.model import fused
from metaxlm.model.dropout import Dropout

if TYPE_CHECKING:
    from metaxlm.model.kernels.blocks import Blocks

_MAX_SIZE = 1 << 24  # products of two sizes stay in the range of torch's integers
INITIAL_STD = 0.02
"""Standard deviation of every freshly drawn weight, as in BERT and RoBERTa."""


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes of an encoder; the defaults are RoBERTa-base."""

    vocab_size: int
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    ffn_size: int = 3072
    max_positions: int = 512
    """Longest sequence, without the offset rows (RoBERTa's 514 rows are 512 + 2)."""
    pad_id: int = 1
    position_offset: int = 2
    """Row of the first real position: pad_id + 1 in the RoBERTa family, 0 in BERT."""
    num_token_types: int = 1
    """Rows of the token type table: 1 in RoBERTa, 2 in BERT."""
    norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "num_layers", "num_heads", "ffn_size")
        for name in (*sizes, "max_positions", "num_token_types"):
            if not 1 <= getattr(self, name) <= _MAX_SIZE:
                raise MetaXLMError(
                    f"encoder: {name} is {getattr(self, name)}; it must be positive and at most "
                    f"{_MAX_SIZE:,}"
                )
        if self.hidden_size % self.num_heads:
            raise MetaXLMError(
                f"encoder: hidden_size {self.hidden_size} is not a multiple of num_heads "
                f"{self.num_heads}; choose sizes that divide"
            )
        if not 0 <= self.pad_id < self.vocab_size:
            raise MetaXLMError(
                f"encoder: pad_id {self.pad_id} lies outside the vocabulary of {self.vocab_size}"
            )
        if self.position_offset not in (0, self.pad_id + 1):
            raise MetaXLMError(
                f"encoder: position_offset is {self.position_offset}; it must be pad_id + 1 = "
                f"{self.pad_id + 1} (RoBERTa) or 0 (BERT)"
            )
        for name in ("dropout", "attention_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise MetaXLMError(
                    f"encoder: {name} is {getattr(self, name)}; it must be in [0, 1)"
                )


class Embeddings(nn.Module):
    """Word row + position row + token type row, normalized."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, offset = config.hidden_size, config.position_offset
        self.position_offset = offset
        self.max_positions = config.max_positions
        self.words = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_id)
        self.positions = nn.Embedding(
            offset + config.max_positions, size, padding_idx=offset - 1 if offset else None
        )
        self.token_types = nn.Embedding(config.num_token_types, size)
        self.norm = nn.LayerNorm(size, eps=config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def number_positions(self, ids_BL: Tensor, mask_BL: Tensor | None) -> Tensor:
        """Return the position row of each token, [B, L], or [1, L] if all sequences share them.

        The RoBERTa family counts real tokens only and gives all padding one row of its own, so
        that a sequence reads the same wherever its padding stands; BERT numbers every column.
        """
        if mask_BL is None or not self.position_offset:
            columns_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
            return (columns_L + self.position_offset).unsqueeze(0)
        return mask_BL.long().cumsum(dim=1) * mask_BL + (self.position_offset - 1)

    def forward(
        self,
        ids_BL: Tensor,
        mask_BL: Tensor | None = None,
        token_types_BL: Tensor | None = None,
    ) -> Tensor:
        """Return the hidden states that the first layer reads, [B, L, D]."""
        self._check_length(ids_BL.shape[1])
        return self._add_up(ids_BL, self.number_positions(ids_BL, mask_BL), token_types_BL)

    def embed_packed(
        self, ids_N: Tensor, lengths: Sequence[int], token_types_N: Tensor | None = None
    ) -> Tensor:
        """Return the same of sequences that lie one after another without padding, [N, D]."""
        self._check_length(max(lengths))
        lengths_B = torch.tensor(lengths, device=ids_N.device)
        starts_N = (lengths_B.cumsum(0) - lengths_B).repeat_interleave(lengths_B)
        places_N = torch.arange(len(ids_N), device=ids_N.device) - starts_N
        return self._add_up(ids_N, places_N + self.position_offset, token_types_N)

    def _add_up(self, ids: Tensor, positions: Tensor, token_types: Tensor | None) -> Tensor:
        total: Tensor = self.words(ids)
        if token_types is None:
            total = total + self.token_types.weight[0]
        else:
            total = total + self.token_types(token_types)
        hidden: Tensor = self.dropout(self.norm(total + self.positions(positions)))
        return hidden

    def _check_length(self, length: int) -> None:
        if length > self.max_positions:
            raise MetaXLMError(
                f"encoder: a sequence of {length} tokens does not fit its "
                f"{self.max_positions} positions; cut or split it"
            )


class Attention(nn.Module):
    """Multi-head self-attention; query, key and value come from one fused projection."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_BLD: Tensor, keys_B11L: Tensor | None) -> Tensor:
        """Mix the sequence; `keys_B11L` is True where a key may be attended to."""
        mixed_BLD = self._mix(self.qkv(hidden_BLD), keys_B11L)
        output_BLD: Tensor = self.output(mixed_BLD)
        return output_BLD

    def attend_packed(self, hidden_ND: Tensor, runs: Sequence[tuple[int, int]]) -> Tensor:
        """Mix sequences without padding; `runs` are (sequences, their length), one after another.

        All rows share two products; only what is between them goes run by run.
        """
        parts = self.qkv(hidden_ND).split([size * length for size, length in runs])
        mixed = [
            self._mix(part.view(size, length, -1), None).flatten(0, 1)
            for part, (size, length) in zip(parts, runs, strict=True)
        ]
        output_ND: Tensor = self.output(torch.cat(mixed))
        return output_ND

    def _mix(self, qkv_BLF: Tensor, keys_B11L: Tensor | None) -> Tensor:
        qkv_BL3HK = qkv_BLF.view(*qkv_BLF.shape[:2], 3, self.num_heads, -1)
        query_BHLK, key_BHLK, value_BHLK = qkv_BL3HK.permute(2, 0, 3, 1, 4).unbind(0)
        mixed_BHLK = F.scaled_dot_product_attention(
            query_BHLK,
            key_BHLK,
            value_BHLK,
            attn_mask=keys_B11L,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return mixed_BHLK.transpose(1, 2).flatten(2)


class Layer(nn.Module):
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
        """Return the next layer's hidden states, [B, L, D]; with `blocks`, [N, D] to [N, D]."""
        if blocks is not None:
            return fused.run_layer(self, hidden_BLD, blocks)
        return self._finish(hidden_BLD, self.attention(hidden_BLD, keys_B11L))

    def run_packed(self, hidden_ND: Tensor, runs: Sequence[tuple[int, int]]) -> Tensor:
        """Return the next layer's hidden states of sequences without padding, [N, D]."""
        return self._finish(hidden_ND, self.attention.attend_packed(hidden_ND, runs))

    def _finish(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        hidden = self.attention_norm(hidden + self.dropout(mixed))
        widened = self.dropout(self.ffn_out(F.gelu(self.ffn_in(hidden))))
        output: Tensor = self.ffn_norm(hidden + widened)
        return output


class Encoder(nn.Module):
    """Embeddings and a stack of layers."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_layers))
        self.apply(initialize_module)

    def forward(
        self,
        ids_BL: Tensor,
        mask_BL: Tensor | None = None,
        token_types_BL: Tensor | None = None,
    ) -> Tensor:
        """Return the last hidden states, [B, L, D].

        `mask_BL` is boolean, True for a real token; None says that nothing is padding. What stands
        at padding is meaningless.
        """
        hidden_BLD: Tensor = self.embeddings(ids_BL, mask_BL, token_types_BL)
        keys_B11L = None if mask_BL is None else mask_BL[:, None, None, :]
        for layer in self.layers:
            hidden_BLD = layer(hidden_BLD, keys_B11L)
        return hidden_BLD

    def encode_packed(
        self, ids_N: Tensor, lengths: Sequence[int], token_types_N: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states of sequences one after another without padding, [N, D].

        Attention goes by runs of equal lengths, so sequences should come sorted.
        """
        hidden_ND: Tensor = self.embeddings.embed_packed(ids_N, lengths, token_types_N)
        runs = [(len(list(run)), length) for length, run in itertools.groupby(lengths)]
        for layer in self.layers:
            assert isinstance(layer, Layer)
            hidden_ND = layer.run_packed(hidden_ND, runs)
        return hidden_ND

    def encode_blocks(
        self, ids: Tensor, blocks: Blocks, token_types: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states through the fused kernels of a GPU.

        Ids are [B, L] of padded or [N] of packed blocks; the states have one dimension more.
        """
        types_N = None if token_types is None else token_types.flatten()
        hidden_ND = fused.embed(self.embeddings, ids.flatten(), types_N, blocks)
        for layer in self.layers:
            hidden_ND = layer(hidden_ND, None, blocks)
        return hidden_ND.view(*ids.shape, -1)

    def hidden_states(
        self,
        ids_BL: Tensor,
        mask_BL: Tensor | None = None,
        token_types_BL: Tensor | None = None,
        *,
        deepest: int | None = None,
    ) -> list[Tensor]:
        """Return the embedding output (layer 0) and the output of each layer, [B, L, D] each.

        Layers after the `deepest` are not computed.
        """
        states: list[Tensor] = [self.embeddings(ids_BL, mask_BL, token_types_BL)]
        keys_B11L = None if mask_BL is None else mask_BL[:, None, None, :]
        for layer in self.layers[:deepest]:
            states.append(layer(states[-1], keys_B11L))
        return states


class MaskedLMHead(nn.Module):
    """Hidden states to logits over the vocabulary; the output embedding is lent by the encoder."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(initialize_module)

    def transform(self, hidden_MD: Tensor) -> Tensor:
        """Return the vectors that are compared with the word rows, [M, D]."""
        transformed_MD: Tensor = self.norm(F.gelu(self.dense(hidden_MD)))
        return transformed_MD

    def forward(self, hidden_MD: Tensor, words_VD: Tensor) -> Tensor:
        """Return logits, [M, V]."""
        return F.linear(self.transform(hidden_MD), words_VD, self.bias)


class MaskedLM(nn.Module):
    """An encoder with its masked language modeling head: what both pretraining phases train."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.head = MaskedLMHead(config)

    def forward(self, ids_BL: Tensor, mask_BL: Tensor | None, rows_M: Tensor) -> Tensor:
        """Return logits, [M, V], at the flat indices `rows_M` into the B x L positions only."""
        return self.predict(self.encoder(ids_BL, mask_BL), rows_M)

    def predict(self, hidden_BLD: Tensor, rows_M: Tensor) -> Tensor:
        """Return logits, [M, V], of the hidden states at the flat positions `rows_M` only.

        About 15 % of the positions are predicted, and the product with the word rows is the most
        expensive one of the model, so the others are never computed.
        """
        hidden_MD = hidden_BLD.flatten(0, 1).index_select(0, rows_M)
        logits_MV: Tensor = self.head(hidden_MD, self.encoder.embeddings.words.weight)
        return logits_MV

    def loss_sum(
        self, hidden_BLD: Tensor, rows_M: Tensor, labels_M: Tensor, blocks: Blocks | None = None
    ) -> Tensor:
        """Return the sum of the losses at the flat positions `rows_M`; label -100 counts nothing.

        With `blocks`, through the fused kernels of a GPU.
        """
        if blocks is None:
            logits_MV = self.predict(hidden_BLD, rows_M)
            return F.cross_entropy(logits_MV.float(), labels_M, reduction="sum")
        hidden_MD = hidden_BLD.flatten(0, 1).index_select(0, rows_M)
        words_VD = self.encoder.embeddings.words.weight
        return fused.loss_sum(self.head, hidden_MD, words_VD, labels_M, blocks)

    def logits(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return logits at every position, [B, L, V]."""
        hidden_BLD = self.encoder(ids_BL, mask_BL, token_types_BL)
        logits_BLV: Tensor = self.head(hidden_BLD, self.encoder.embeddings.words.weight)
        return logits_BLV


def initialize_module(module: nn.Module) -> None:
    """Draw one module's fresh parameters from torch's global generator, as RoBERTa does."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=INITIAL_STD)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)
        if module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx].zero_()
    elif isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
