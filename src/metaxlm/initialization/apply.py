"""From a plan to a model: the start of cross-lingual pretraining.

Comes in: the target's sizes, the meta-pretrained source model, a plan, five switches, a seed. Goes
out: a `MaskedLM` that is fresh where nothing is copied and the source's elsewhere (section 3.2 of
the paper; the switches make the ablation of its Table 6: body, embeddings, both). The fresh model
is drawn whole from the seed before anything is copied, so variants of one seed differ in nothing
but what they copy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.initialization.plan import Plan
from metaxlm.model.encoder import INITIAL_STD, EncoderConfig, MaskedLM

Preset = Literal["none", "body", "embeddings", "both"]


@dataclass(frozen=True)
class Parts:
    """What is copied from the source model."""

    words: bool = False
    """Word rows by the plan; the decoder is tied to them."""
    positions: bool = False
    """Position rows, and the token type rows that are added to them."""
    embedding_norm: bool = False
    """LayerNorm of the embeddings."""
    layers: bool = False
    """The Transformer body, layer by layer."""
    head: bool = False
    """The MLM head: dense and LayerNorm as they are, the decoder's bias by the plan."""

    @classmethod
    def preset(cls, name: Preset) -> Parts:
        """Return one of the paper's variants: none, body, embeddings, both."""
        match name:
            case "none":
                return cls()
            case "body":
                return cls(layers=True)
            case "embeddings":
                return cls(words=True)
            case "both":
                return cls(*[True] * len(fields(cls)))
        raise MetaXLMError(f"initialize: no preset {name!r}; there are none, body, embeddings, both")

    def list_names(self) -> list[str]:
        """Return the names of the switches that are on."""
        return [part.name for part in fields(self) if getattr(self, part.name)]


def initialize(
    target_config: EncoderConfig,
    source: MaskedLM | None,
    plan: Plan | None,
    parts: Parts,
    seed: int,
) -> MaskedLM:
    """Make a fresh model from the seed and copy the chosen parts of the source into it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        target = MaskedLM(target_config)
    if not parts.list_names():
        return target
    if source is None:
        raise MetaXLMError(
            f"initialize: nothing to copy {', '.join(parts.list_names())} from; "
            "give a source model, or the preset none"
        )
    _check_shapes(target_config, source.config, parts)
    with torch.no_grad():
        if parts.words or parts.head:
            plan = _check_plan(plan, target_config, source.config)
        if parts.words:
            _fill_words(target, source, plan)
        if parts.positions:
            _copy_positions(target, source)
        if parts.embedding_norm:
            _copy_module(target.encoder.embeddings.norm, source.encoder.embeddings.norm)
        if parts.layers:
            _copy_module(target.encoder.layers, source.encoder.layers)
        if parts.head:
            _copy_module(target.head.dense, source.head.dense)
            _copy_module(target.head.norm, source.head.norm)
            _fill_rows(target.head.bias[:, None], source.head.bias[:, None], plan)
    return target
