"""The families of encoders that can be the start: config.json to our configuration, or a refusal.

In: the config.json of a BERT, DistilBERT, RoBERTa, CamemBERT or XLM-RoBERTa folder, any of which
can be the monolingual model of the paper's Section 3.1. Out: an `EncoderConfig` that computes the
same, and the names that family gives its tensors. Another family is refused with the reason, since
an encoder that is computed almost right looks like a bad model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.names import BERT, DISTILBERT, ROBERTA, Names

_BERT_KEYS = {
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
_DISTILBERT_KEYS = {
    "hidden_size": "dim",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "ffn_size": "hidden_dim",
    "activation": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}


@dataclass(frozen=True)
class Family:
    """What sets one family apart from the others."""

    class_prefix: str
    names: Names = ROBERTA
    keys: Mapping[str, str] = field(default_factory=lambda: _BERT_KEYS)
    """Our name of a setting to the one in config.json, where families differ."""
    offsets_positions: bool = True
    """Whether the first position has the row after the padding id's, or row 0."""


FAMILIES = {
    "bert": Family("Bert", BERT, offsets_positions=False),
    "camembert": Family("Camembert"),
    "distilbert": Family("DistilBert", DISTILBERT, _DISTILBERT_KEYS, offsets_positions=False),
    "roberta": Family("Roberta"),
    "xlm-roberta": Family("XLMRoberta"),
}

# Classes whose body is the plain bidirectional encoder; their task heads are left behind.
_ARCHITECTURES = re.compile(
    f"({'|'.join(family.class_prefix for family in FAMILIES.values())})"
    "(Model|For(MaskedLM|PreTraining|MultipleChoice|NextSentencePrediction|QuestionAnswering"
    "|SequenceClassification|TokenClassification))"
)

# Why a related family is none of ours, as the end of a sentence that begins with its name.
_REASONS = {
    "shares one layer and factorizes its embeddings": "albert",
    "may give its embeddings another width, and its discriminator has no MLM head": "electra",
    "gives its input and its output embedding widths of their own": "rembert",
    "lets its attention read relative positions": "deberta deberta-v2 mpnet xlnet",
    "rotates its queries and keys instead of adding positions": (
        "modernbert nomic_bert eurobert roformer"
    ),
    "normalizes before each layer, not after it": (
        "xlm-roberta-xl roberta-prelayernorm megatron-bert"
    ),
    "has other layers and no transform in its MLM head": "xlm flaubert",
    "has an adapter for each language in its layers": "xmod",
    "attends to a part of a long text only": "longformer big_bird",
}
# The same for what is no encoder at all.
_NO_ENCODERS = {
    "has a decoder of its own": "t5 mt5 umt5 bart mbart m2m_100 marian pegasus",
    "reads from left to right, not both ways": (
        "gpt2 gpt_neox opt bloom llama mistral gemma gemma2 gemma3_text phi3 qwen2 qwen3"
    ),
}
_REASON_OF = {
    name: reason for reason, names in (_REASONS | _NO_ENCODERS).items() for name in names.split()
}


def explain_decoder(model_type: str) -> str:
    """Return what makes a family no encoder, to follow "which"; empty if nothing is known."""
    reason = _REASON_OF.get(model_type, "")
    return reason if reason in _NO_ENCODERS else ""


def read_config(path: Path) -> dict[str, Any]:
    """Read config.json, filled up with the family's defaults; refuse what is no such encoder."""
    found = read_json(path)
    model_type = found.get("model_type") if isinstance(found, dict) else None
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        reason = _REASON_OF.get(str(model_type))
        raise MetaXLMError(
            f"{path}: model_type is {model_type!r}{f', which {reason}' if reason else ''}; "
            f"metaxlm reads {', '.join(FAMILIES)}"
        )
    default = AutoConfig.for_model(model_type)
    # Some configurations know a setting by two names (DistilBERT: hidden_size is dim).
    found = {default.attribute_map.get(key, key): value for key, value in found.items()}
    values: dict[str, Any] = {**default.to_dict(), **found}
    prefix = FAMILIES[model_type].class_prefix
    names = values["architectures"] = found.get("architectures") or [f"{prefix}Model"]
    if not isinstance(names, list) or not _ARCHITECTURES.fullmatch(str(names[0])):
        raise MetaXLMError(
            f"{path}: architecture {names} is not supported; metaxlm reads {prefix}Model, "
            f"{prefix}ForMaskedLM and their finetuned forms"
        )
    return values


def translate_config(values: Mapping[str, Any], path: Path) -> tuple[EncoderConfig, Names]:
    """Turn transformers' configuration into ours; refuse what our encoder does not compute."""
    family = FAMILIES[values["model_type"]]
    _check_computation(values, family, path)
    pad_id = _integer(values, "pad_token_id", path)
    offset = pad_id + 1 if family.offsets_positions else 0
    sizes = ("hidden_size", "num_layers", "num_heads", "ffn_size")
    # DistilBERT adds no token types and fixes eps in its code. (It also drops nothing out of the
    # attention's output, which matters in training only; there, we treat it as all others.)
    has_types = family.names.has_token_types
    try:
        config = EncoderConfig(
            vocab_size=_integer(values, "vocab_size", path),
            **{name: _integer(values, family.keys[name], path) for name in sizes},
            max_positions=_integer(values, "max_position_embeddings", path) - offset,
            pad_id=pad_id,
            position_offset=offset,
            num_token_types=_integer(values, "type_vocab_size", path) if has_types else 1,
            norm_eps=_real(values, "layer_norm_eps", path) if has_types else 1e-12,
            dropout=_real(values, family.keys["dropout"], path),
            attention_dropout=_real(values, family.keys["attention_dropout"], path),
        )
    except MetaXLMError as error:
        raise MetaXLMError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error
    return config, family.names


def _check_computation(values: Mapping[str, Any], family: Family, path: Path) -> None:
    """Refuse settings that change what a layer computes."""
    required = {
        family.keys["activation"]: ("gelu", "gelu_python"),
        "position_embedding_type": ("absolute", None),
        "is_decoder": (False, None),
        "add_cross_attention": (False, None),
        "is_encoder_decoder": (False, None),
    }
    for key, allowed in required.items():
        if values.get(key) not in allowed:
            raise MetaXLMError(
                f"{path}: {key} is {values[key]!r}; metaxlm computes only {allowed[0]!r}"
            )


def _integer(values: Mapping[str, Any], key: str, path: Path) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MetaXLMError(f"{path}: {key} is {value!r}; it must be a whole number")
    return value


def _real(values: Mapping[str, Any], key: str, path: Path) -> float:
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise MetaXLMError(f"{path}: {key} is {value!r}; it must be a number")
    return float(value)
