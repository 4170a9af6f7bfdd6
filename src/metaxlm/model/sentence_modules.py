"""What a sentence-transformers folder does with the last hidden states of its encoder.

`modules.json` lists the steps after the encoder: pooling, dense layers, scaling to length 1. A
folder whose steps we would compute otherwise than its author is rejected.
Shapes: N texts, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.hub import CONFIG, MODULES, TOKENIZER_CONFIG, find_local
from metaxlm.model.model_folder import (
    SENTENCE_FILES,
    SENTENCE_SETTINGS,
    find_folder,
    is_transformer,
)
from metaxlm.model.model_folder import read_tensors as read_weights

Pooling = Literal["mean", "cls"]
_MODES: dict[str, Pooling] = {
    "mean": "mean", "pooling_mode_mean_tokens": "mean",
    "cls": "cls", "pooling_mode_cls_token": "cls",
}  # fmt: skip
_ACTIVATIONS = {"Tanh": torch.tanh, "Identity": lambda vectors: vectors}


@dataclass(frozen=True)
class Dense:
    """A layer over pooled vectors."""

    weight: Tensor
    bias: Tensor | None
    activation: str


@dataclass(frozen=True)
class SentenceModules:
    """The steps of a folder; the default is the mean over all tokens of a text."""

    pooling: Pooling = "mean"
    max_length: int | None = None  # in tokens, special ones included; None: the encoder's positions
    lower_case: bool = False
    layers: tuple[Dense, ...] = ()
    normalize: bool = False

    def finish(self, pooled_ND: Tensor) -> Tensor:
        """Turn pooled hidden states into sentence vectors."""
        vectors_ND = pooled_ND
        for layer in self.layers:
            vectors_ND = F.linear(vectors_ND, layer.weight, layer.bias)
            vectors_ND = _ACTIVATIONS[layer.activation](vectors_ND)
        return F.normalize(vectors_ND, dim=-1) if self.normalize else vectors_ND


def find_sentence_modules(source: str | Path) -> SentenceModules | None:
    """Read the steps of a folder or hub id; None if it is not of sentence-transformers."""
    local = find_local(str(source))
    if local is not None and not any((local / name).is_file() for name in (CONFIG, MODULES)):
        return None  # a checkpoint
    return read_sentence_modules(find_folder(source))


def read_sentence_modules(folder: Path) -> SentenceModules | None:
    """Read the steps after the encoder in a folder; None if it is not of sentence-transformers."""
    root = folder if (folder / MODULES).is_file() else folder.parent
    if not (root / MODULES).is_file():
        return None
    listed = read_json(root / MODULES)
    modules = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if not modules or not is_transformer(modules[0]):
        raise MetaXLMError(f"{root / MODULES}: does not start with an encoder; use another folder")
    if root / Path(str(modules[0].get("path"))).name != folder:
        return None
    _reject_prompts(root)
    settings = _read_settings(folder / SENTENCE_SETTINGS)
    tokenizer = _read_settings(folder / TOKENIZER_CONFIG)
    limits = (settings.get("max_seq_length"), tokenizer.get("model_max_length"))
    length = next((limit for limit in limits if isinstance(limit, int)), None)
    pooling: Pooling | None = None
    layers: list[Dense] = []
    normalize = False
    for module in modules[1:]:
        kind = str(module.get("type")).rpartition(".")[2]
        place = root / Path(str(module.get("path"))).name
        if kind == "Pooling" and pooling is None:
            pooling = _read_pooling(place / CONFIG)
        elif kind == "Dense" and pooling is not None and not normalize:
            layers.append(_read_dense(place))
        elif kind == "Normalize" and pooling is not None:
            normalize = True
        else:
            raise MetaXLMError(
                f"{root / MODULES}: the module {kind} is not supported there; a folder has an "
                "encoder, Pooling, and then any of Dense and Normalize"
            )
    if pooling is None:
        raise MetaXLMError(f"{root / MODULES}: has no Pooling, so texts have no vectors")
    return SentenceModules(
        pooling, length, settings.get("do_lower_case") is True, tuple(layers), normalize
    )  # fmt: skip


def _read_settings(path: Path) -> dict[str, Any]:
    values = read_json(path) if path.is_file() else {}
    return values if isinstance(values, dict) else {}


def _reject_prompts(root: Path) -> None:
    for name in SENTENCE_FILES:
        if prompt := _read_settings(root / name).get("default_prompt_name"):
            raise MetaXLMError(
                f"{root / name}: puts the prompt {prompt!r} before every text, which is not "
                "supported; set default_prompt_name to null"
            )


def _read_pooling(path: Path) -> Pooling:
    values = _read_settings(path)
    chosen = [key for key, value in values.items() if key.startswith("pooling_mode_") and value]
    if not chosen:  # newer folders
        modes = values.get("pooling_mode", [])
        chosen = [modes] if isinstance(modes, str) else list(modes)
    if len(chosen) != 1 or chosen[0] not in _MODES:
        found = ", ".join(chosen) or "no mode"
        raise MetaXLMError(f"{path}: pools by {found}; only the mean and cls are supported")
    return _MODES[chosen[0]]


def _read_dense(folder: Path) -> Dense:
    activation = str(_read_settings(folder / CONFIG).get("activation_function", "")).split(".")[-1]
    if activation not in _ACTIVATIONS:
        known = " and ".join(_ACTIVATIONS)
        raise MetaXLMError(f"{folder / CONFIG}: activation {activation!r}; known: {known}")
    tensors = read_weights(folder)
    if "linear.weight" not in tensors:
        raise MetaXLMError(f"{folder}: has no linear.weight; copy the folder again")
    weight, bias = tensors["linear.weight"].float(), tensors.get("linear.bias")
    return Dense(weight, None if bias is None else bias.float(), activation)
