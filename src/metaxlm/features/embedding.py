"""Sentences to vectors: texts come in, one vector per text and layer goes out.

The feature-based scenario of the paper (Section 4.4, Tatoeba): the mean of a layer's hidden states
over all tokens that are not padding, `<s>` and `</s>` included. Layer 0 is the embedding output.
Shapes: B batch, L length, D hidden, N texts, Y layers (the embedding output among them).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.model.encoder import Encoder
from metaxlm.model.foreign import ForeignEncoder
from metaxlm.progress import say, track
from metaxlm.tasks.batches import collate_inputs, evaluating, plan_batches
from metaxlm.tasks.encoding import check_tokenizer, encode_texts


def embed_texts(
    encoder: Encoder | ForeignEncoder,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    device: torch.device,
    *,
    batch_tokens: int = 16_384,
    title: str = "embed",
) -> Tensor:
    """Return the mean hidden states of every layer, [Y, N, D], in float32 on the CPU.

    Texts longer than the encoder's positions are cut, and how many were is said. The encoder is
    moved to the device.
    """
    check_tokenizer(tokenizer, encoder.config)
    max_length = encoder.config.max_positions
    encoded = encode_texts(tokenizer, texts, max_length=max_length)
    if encoded.num_cut:
        say(
            f"{title}: {encoded.num_cut:,} of {len(texts):,} texts are longer than {max_length} "
            f"tokens and were cut"
        )
    ids = encoded.ids
    shape = (encoder.config.num_layers + 1, len(texts), encoder.config.hidden_size)
    means_YND = torch.empty(shape, dtype=torch.float32)
    encoder.to(device)
    with evaluating(encoder), track(title, len(texts), "sentences") as advance:
        for batch in plan_batches([len(row) for row in ids], batch_tokens):
            inputs = collate_inputs([ids[k] for k in batch], encoder.config.pad_id, device)
            states = encoder.hidden_states(*inputs)
            means_YBD = torch.stack([pool_mean(state, inputs.mask_BL) for state in states])
            means_YND[:, batch] = means_YBD.float().cpu()
            advance(len(batch))
    return means_YND


def pool_mean(hidden_BLD: Tensor, mask_BL: Tensor | None) -> Tensor:
    """Return the mean over the real tokens, [B, D]."""
    if mask_BL is None:
        return hidden_BLD.mean(dim=1)
    mask_BL1 = mask_BL.unsqueeze(-1).to(hidden_BLD.dtype)
    return (hidden_BLD * mask_BL1).sum(dim=1) / mask_BL1.sum(dim=1)


def compare_vectors(
    before: tuple[Encoder | ForeignEncoder, PreTrainedTokenizerBase],
    after: tuple[Encoder | ForeignEncoder, PreTrainedTokenizerBase],
    texts: Sequence[str],
    device: torch.device,
    *,
    most: int = 200,
) -> float:
    """Return the mean cosine between two models' vectors of the same texts, in the last layer."""
    first_ND, second_ND = (
        embed_texts(encoder, tokenizer, texts[:most], device)[-1].double()
        for encoder, tokenizer in (before, after)
    )
    return float(F.cosine_similarity(first_ND, second_ND, dim=-1).mean())
