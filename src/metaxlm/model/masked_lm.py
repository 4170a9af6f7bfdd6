"""An encoder with its masked language modeling head, as both pretraining phases train it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metaxlm.model.encoder import Encoder, EncoderConfig, NativeEncoder, initialize_module
from metaxlm.model.foreign import (
    ForeignEncoder,
    ForeignHead,
    Part,
    make_parts,
    skip_initialization,
)
from metaxlm.model.modernbert import ModernEncoder

if TYPE_CHECKING:
    from metaxlm.model.kernels.blocks import Blocks


def make_encoder(config: EncoderConfig) -> NativeEncoder:
    """Make the encoder of a configuration from torch's global generator."""
    if config.rotary is not None:
        return ModernEncoder(config)
    return Encoder(config)


class MaskedLMHead(nn.Module):
    """Hidden states to logits over the vocabulary, through the encoder's token embeddings."""

    by_token = ("bias",)  # tensors with one row for each token

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, has_bias = config.hidden_size, config.rotary is None
        self.dense = nn.Linear(size, size, bias=has_bias)
        self.norm = nn.LayerNorm(size, eps=config.norm_eps, bias=has_bias)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(initialize_module)

    def transform(self, hidden_MD: Tensor) -> Tensor:
        """Return the vectors to multiply with the token embeddings, [M, D]."""
        transformed_MD: Tensor = self.norm(F.gelu(self.dense(hidden_MD)))
        return transformed_MD

    def forward(self, hidden_MD: Tensor, words_VD: Tensor) -> Tensor:
        """Return logits, [M, V]."""
        return F.linear(self.transform(hidden_MD), words_VD, self.bias)


class MaskedLM(nn.Module):
    """An encoder and the head that predicts masked tokens."""

    encoder: NativeEncoder | ForeignEncoder
    head: MaskedLMHead | ForeignHead

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        if config.settings:
            self.encoder, self.head = make_parts(config)
        else:
            self.encoder = make_encoder(config)
            self.head = MaskedLMHead(config)

    @classmethod
    def from_state(cls, config: EncoderConfig, state: Mapping[str, Tensor]) -> Self:
        """Return a model in evaluation mode that uses the tensors of a state dict as they are."""
        # Modules of transformers compute buffers that no state dict has, so they need a device.
        with skip_initialization() if config.settings else torch.device("meta"):
            model = cls(config)
        model.load_state_dict(state, assign=True)
        return model.eval()

    def forward(self, ids_BL: Tensor, mask_BL: Tensor | None, positions_M: Tensor) -> Tensor:
        """Return logits, [M, V], at the flat positions `positions_M` of the B x L tokens."""
        return self.predict(self.encoder(ids_BL, mask_BL), positions_M)

    def predict(self, hidden_BLD: Tensor, positions_M: Tensor) -> Tensor:
        """Return logits, [M, V], at flat positions only: about 15 % are predicted."""
        hidden_MD = hidden_BLD.flatten(0, 1).index_select(0, positions_M)
        logits_MV: Tensor = self.head(hidden_MD, self.encoder.words.weight)
        return logits_MV

    def loss_sum(
        self,
        hidden_BLD: Tensor,
        positions_M: Tensor,
        labels_M: Tensor,
        blocks: Blocks | None = None,
    ) -> Tensor:
        """Return the summed cross-entropy at flat positions, with `blocks` by the fused kernels."""
        if blocks is None:
            logits_MV = self.predict(hidden_BLD, positions_M)
            return F.cross_entropy(logits_MV.float(), labels_M, reduction="sum")
        from metaxlm.model.kernels.blocks import VocabularyLoss

        assert isinstance(self.head, MaskedLMHead), "the kernels compute our own head"
        hidden_MD = hidden_BLD.flatten(0, 1).index_select(0, positions_M)
        words_VD = self.encoder.words.weight
        loss: Tensor = VocabularyLoss.apply(
            self.head.transform(hidden_MD), words_VD, self.head.bias, labels_M, blocks
        )  # type: ignore[no-untyped-call]
        return loss

    def logits(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return logits at every position, [B, L, V]."""
        hidden_BLD = self.encoder(ids_BL, mask_BL, token_types_BL)
        logits_BLV: Tensor = self.head(hidden_BLD, self.encoder.words.weight)
        return logits_BLV

    def freeze_layers(self) -> None:
        """Exclude the Transformer layers from training; embeddings and head remain trainable."""
        for name, parameter in self.named_parameters():
            if self.find_part(name) == "layers":
                parameter.requires_grad_(False)

    def find_part(self, name: str) -> Part:
        """Return the part that a tensor of the state dict belongs to."""
        if name.startswith("head."):
            return "head"
        if isinstance(self.encoder, ForeignEncoder):
            return self.encoder.find_part(name.removeprefix("encoder."))
        if ".embeddings." not in name:
            return "layers"
        if self.get_parameter(name) is self.encoder.words.weight:
            return "words"
        return "embedding_norm" if "norm" in name.lower() else "positions"
