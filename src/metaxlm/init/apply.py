"""From a plan to a model: the start of cross-lingual pretraining.

Comes in: the target's sizes, the meta-pretrained source model, a plan, five switches, a seed. Goes
out: a `MaskedLM` that is fresh where nothing is copied and the source's elsewhere (section 3.2 of
the paper; the switches give the variants of its ablation: none, body, embeddings, both). The fresh
model is drawn whole from the seed before anything is copied, so variants of one seed differ in
nothing but what they copy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from metaxlm.errors import MetaXLMError
from metaxlm.init.matching import UNMATCHED
from metaxlm.init.plan import Plan
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
        raise MetaXLMError(f"initialize: no preset {name!r}; choose none, body, embeddings or both")

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
        if parts.words:
            _fill_words(target, source, _check_plan(plan, target, source))
        if parts.positions:
            _copy_positions(target, source)
        if parts.embedding_norm:
            _copy_module(target.encoder.embeddings.norm, source.encoder.embeddings.norm)
        if parts.layers:
            _copy_module(target.encoder.layers, source.encoder.layers)
        if parts.head:
            _copy_module(target.head.dense, source.head.dense)
            _copy_module(target.head.norm, source.head.norm)
            plan = _check_plan(plan, target, source)
            _fill_rows(target.head.bias[:, None], source.head.bias[:, None], plan)
    return target


def _check_shapes(target: EncoderConfig, source: EncoderConfig, parts: Parts) -> None:
    names = {"hidden_size": "hidden size"}
    if parts.layers:
        names |= {"num_layers": "layers", "num_heads": "attention heads", "ffn_size": "ffn size"}
    for attribute, name in names.items():
        found, wanted = getattr(source, attribute), getattr(target, attribute)
        if found != wanted:
            raise MetaXLMError(
                f"initialize: the source model has {name} {found}, the target {wanted}; "
                f"give the target the source's sizes"
            )


def _check_plan(plan: Plan | None, target: MaskedLM, source: MaskedLM) -> Plan:
    if plan is None:
        raise MetaXLMError("initialize: word rows and the head's bias need a plan; make one first")
    rows, source_rows = target.config.vocab_size, source.config.vocab_size
    # A model may have more rows than its tokenizer has tokens (padding to a round number).
    if len(plan) > rows or plan.source_size > source_rows:
        raise MetaXLMError(
            f"initialize: the plan is for {len(plan)} rows from {plan.source_size}, the models "
            f"have {rows} and {source_rows}; make the plan with their tokenizers"
        )
    return plan


def _fill_words(target: MaskedLM, source: MaskedLM, plan: Plan) -> None:
    target_VD = target.encoder.embeddings.words.weight
    source_VD = source.encoder.embeddings.words.weight.to(target_VD)
    if plan.recipe.filler == "normal":
        # The fresh rows are the random numbers, so that they too are the seed's alone.
        fillers = np.flatnonzero(plan.rules == UNMATCHED)
        rows = torch.from_numpy(fillers[fillers != target.config.pad_id])
        deviation_D, mean_D = torch.std_mean(source_VD, dim=0)
        target_VD[rows] = mean_D + deviation_D * (target_VD[rows] / INITIAL_STD)
    _fill_rows(target_VD, source_VD, plan)


def _fill_rows(target_VD: Tensor, source_VD: Tensor, plan: Plan) -> None:
    """Give matched rows the weighted mean of their source rows."""
    source_VD = source_VD.to(target_VD)
    counts = np.diff(plan.offsets)
    # One source row is copied, not multiplied by one: bit for bit, signed zeros included.
    single = np.flatnonzero(counts == 1)
    target_VD[torch.from_numpy(single)] = source_VD[_gather(plan.sources, counts == 1, counts)]
    several = np.flatnonzero(counts > 1)
    if several.size:
        starts = np.concatenate([[0], np.cumsum(counts[several])[:-1]])
        target_VD[torch.from_numpy(several)] = F.embedding_bag(
            _gather(plan.sources, counts > 1, counts),
            source_VD,
            torch.from_numpy(starts),
            mode="sum",
            per_sample_weights=_gather(plan.weights, counts > 1, counts).to(source_VD),
        )


def _gather(values: NDArray[Any], chosen: NDArray[np.bool_], counts: NDArray[np.int64]) -> Tensor:
    """Return the entries that belong to the chosen rows."""
    entries = torch.from_numpy(values[np.repeat(chosen, counts)])
    return entries if entries.is_floating_point() else entries.long()


def _copy_positions(target: MaskedLM, source: MaskedLM) -> None:
    """Align the first real positions; the shorter table decides how many rows are copied."""
    mine, other = target.encoder.embeddings, source.encoder.embeddings
    # Rows before the first position (RoBERTa's padding) go along where both models have them.
    before = min(mine.position_offset, other.position_offset)
    count = before + min(mine.max_positions, other.max_positions)
    to_row, from_row = mine.position_offset - before, other.position_offset - before
    mine.positions.weight[to_row : to_row + count] = other.positions.weight[
        from_row : from_row + count
    ].to(mine.positions.weight)
    num_types = min(target.config.num_token_types, source.config.num_token_types)
    mine.token_types.weight[:num_types] = other.token_types.weight[:num_types].to(
        mine.token_types.weight
    )


def _copy_module(target: nn.Module, source: nn.Module) -> None:
    target.load_state_dict(source.state_dict())
