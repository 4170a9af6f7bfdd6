"""Encoder families: the architectures of transformers that our encoders compute exactly.

A `Family` maps the keys of config.json to `EncoderConfig` and the tensor names of a checkpoint to
the parameters of `MaskedLM`. To support another architecture, add an entry to `FAMILIES`.
`any_encoder.py` runs all others through transformers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.model.encoder import EncoderConfig, Rotary
from metaxlm.model.masked_lm import MaskedLM, MaskedLMHead
from metaxlm.randomness import derive_seed

_BERT_KEYS = {
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
_EMBEDDINGS = {
    "encoder.embeddings.words": "embeddings.word_embeddings",
    "encoder.embeddings.positions": "embeddings.position_embeddings",
    "encoder.embeddings.token_types": "embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "embeddings.LayerNorm",
}
_BERT_BODY = _EMBEDDINGS | {
    "encoder.layers.N.attention.qkv": "encoder.layer.N.attention.self.query "
    "encoder.layer.N.attention.self.key encoder.layer.N.attention.self.value",
    "encoder.layers.N.attention.output": "encoder.layer.N.attention.output.dense",
    "encoder.layers.N.attention_norm": "encoder.layer.N.attention.output.LayerNorm",
    "encoder.layers.N.ffn_in": "encoder.layer.N.intermediate.dense",
    "encoder.layers.N.ffn_out": "encoder.layer.N.output.dense",
    "encoder.layers.N.ffn_norm": "encoder.layer.N.output.LayerNorm",
}
_LM_HEAD = {
    "head.dense": "lm_head.dense",
    "head.norm": "lm_head.layer_norm",
    "head": "lm_head",  # has the output bias
}
RELATIVE_BIAS = "encoder.relative_bias.table"
_ROBERTA_MODULES = _BERT_BODY | _LM_HEAD


@dataclass(frozen=True)
class Family:
    """Config keys, tensor names and features of one architecture; the defaults are RoBERTa's."""

    class_prefix: str  # prefix of the classes in transformers: `Bert` for `BertModel`
    keys: Mapping[str, str] = field(default_factory=lambda: _BERT_KEYS)  # ours to config.json's
    base: str = "roberta"  # attribute of the encoder in transformers' models with a head
    # Our modules to theirs, without the base prefix. N is the number of a layer; one of our
    # modules may join several of theirs.
    modules: Mapping[str, str] = field(default_factory=lambda: _ROBERTA_MODULES)
    head_prefix: str = "lm_head."  # of the tensors of the MLM head
    decoder: str = "lm_head.decoder"  # the output projection, which repeats the token embeddings
    classifier: tuple[str, str] = ("classifier.dense", "classifier.out_proj")  # dense and output
    offsets_positions: bool = True  # whether the first position is the padding id + 1, not 0
    has_token_types: bool = True
    eps_key: str = "layer_norm_eps"
    norm_eps: float | None = None  # if it is fixed in the code of transformers
    pad_id: int | None = None  # if it is fixed in the code of transformers
    is_rotary: bool = False  # whether it is computed by `ModernEncoder`

    def find_names(self, parameter: str) -> list[str]:
        """Return the tensors, without the base prefix, that one of our parameters joins."""
        module, kind = parameter.rsplit(".", 1)
        number = re.search(r"\.(\d+)\.", module)
        names = self.modules[re.sub(r"\.\d+\.", ".N.", module)]
        if number is not None:
            names = names.replace(".N.", f".{number[1]}.")
        return [f"{name}.{kind}" for name in names.split()]


FAMILIES = {
    "bert": Family(
        "Bert",
        base="bert",
        modules=_BERT_BODY
        | {
            "head.dense": "cls.predictions.transform.dense",
            "head.norm": "cls.predictions.transform.LayerNorm",
            "head": "cls.predictions",
        },
        head_prefix="cls.predictions.",
        decoder="cls.predictions.decoder",
        # BERT's pooler is the dense layer and tanh of our head.
        classifier=("bert.pooler.dense", "classifier"),
        offsets_positions=False,
    ),
    "camembert": Family("Camembert"),
    # DistilBERT fixes eps in its code and has no dropout on the output of attention. We apply it
    # there too, which matters in training only.
    "distilbert": Family(
        "DistilBert",
        keys={
            "hidden_size": "dim",
            "num_layers": "n_layers",
            "num_heads": "n_heads",
            "ffn_size": "hidden_dim",
            "activation": "activation",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
        },
        base="distilbert",
        modules=_EMBEDDINGS
        | {
            "encoder.layers.N.attention.qkv": "transformer.layer.N.attention.q_lin "
            "transformer.layer.N.attention.k_lin transformer.layer.N.attention.v_lin",
            "encoder.layers.N.attention.output": "transformer.layer.N.attention.out_lin",
            "encoder.layers.N.attention_norm": "transformer.layer.N.sa_layer_norm",
            "encoder.layers.N.ffn_in": "transformer.layer.N.ffn.lin1",
            "encoder.layers.N.ffn_out": "transformer.layer.N.ffn.lin2",
            "encoder.layers.N.ffn_norm": "transformer.layer.N.output_layer_norm",
            "head.dense": "vocab_transform",
            "head.norm": "vocab_layer_norm",
            "head": "vocab_projector",
        },
        head_prefix="vocab_",
        decoder="vocab_projector",
        offsets_positions=False,
        has_token_types=False,
        norm_eps=1e-12,
    ),
    "modernbert": Family(
        "ModernBert",
        keys=_BERT_KEYS
        | {
            "activation": "hidden_activation",
            "dropout": "mlp_dropout",
            "attention_dropout": "attention_dropout",
        },
        base="model",
        modules={
            "encoder.embeddings.words": "embeddings.tok_embeddings",
            "encoder.embeddings.norm": "embeddings.norm",
            "encoder.layers.N.attention_norm": "layers.N.attn_norm",
            "encoder.layers.N.attention.qkv": "layers.N.attn.Wqkv",
            "encoder.layers.N.attention.output": "layers.N.attn.Wo",
            "encoder.layers.N.ffn_norm": "layers.N.mlp_norm",
            "encoder.layers.N.ffn_in": "layers.N.mlp.Wi",
            "encoder.layers.N.ffn_out": "layers.N.mlp.Wo",
            "encoder.final_norm": "final_norm",
            "head.dense": "head.dense",
            "head.norm": "head.norm",
            "head": "decoder",
        },
        head_prefix="head.",
        decoder="decoder",
        offsets_positions=False,
        has_token_types=False,
        eps_key="norm_eps",
        is_rotary=True,
    ),
    "mpnet": Family(
        "MPNet",
        base="mpnet",
        modules=_BERT_BODY
        | _LM_HEAD
        | {
            RELATIVE_BIAS: "encoder.relative_attention_bias",
            "encoder.layers.N.attention.qkv": "encoder.layer.N.attention.attn.q "
            "encoder.layer.N.attention.attn.k encoder.layer.N.attention.attn.v",
            "encoder.layers.N.attention.output": "encoder.layer.N.attention.attn.o",
            "encoder.layers.N.attention_norm": "encoder.layer.N.attention.LayerNorm",
        },
        has_token_types=False,
        pad_id=1,
    ),
    "roberta": Family("Roberta"),
    "xlm-roberta": Family("XLMRoberta"),
}

# Classes whose body is the plain bidirectional encoder; task heads are ignored.
_ARCHITECTURES = re.compile(
    f"({'|'.join(family.class_prefix for family in FAMILIES.values())})"
    "(Model|For(MaskedLM|PreTraining|MultipleChoice|NextSentencePrediction|QuestionAnswering"
    "|SequenceClassification|TokenClassification))"
)
_BASE_PREFIXES = (
    "roberta.",
    "bert.",
    "xlm_roberta.",
    "camembert.",
    "distilbert.",
    "mpnet.",
    "model.",
)
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
BUCKETS = "relative_attention_num_buckets"
# TensorFlow's names for LayerNorm, which the first BERT checkpoints have.
_OLD_ENDINGS = {"gamma": "weight", "beta": "bias"}
_BUFFERS = {"embeddings.position_ids", "embeddings.token_type_ids"}


def read_config(path: Path) -> dict[str, Any]:
    """Read the config.json of a supported family, completed with the family's defaults."""
    found = read_json(path)
    model_type = found.get("model_type") if isinstance(found, dict) else None
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise MetaXLMError(
            f"{path}: model_type is {model_type!r}; metaxlm reads {', '.join(FAMILIES)}"
        )
    default = AutoConfig.for_model(model_type)
    # Some settings have two names (DistilBERT: hidden_size is dim).
    found = {default.attribute_map.get(key, key): value for key, value in found.items()}
    values: dict[str, Any] = {**default.to_dict(), **found}
    if FAMILIES[model_type].is_rotary:
        # Older folders have other keys for these, so the defaults must not hide them.
        values |= {key: found.get(key) for key in ("layer_types", "rope_parameters")}
    prefix = FAMILIES[model_type].class_prefix
    names = values["architectures"] = found.get("architectures") or [f"{prefix}Model"]
    if not isinstance(names, list) or not _ARCHITECTURES.fullmatch(str(names[0])):
        raise MetaXLMError(
            f"{path}: architecture {names} is not supported; metaxlm reads {prefix}Model, "
            f"{prefix}ForMaskedLM and their finetuned forms"
        )
    return values


def translate_config(values: Mapping[str, Any], path: Path) -> tuple[EncoderConfig, Family]:
    """Return the configuration of our encoder and the family; reject unsupported settings."""
    family = FAMILIES[values["model_type"]]
    required: dict[str, tuple[Any, ...]] = {
        family.keys["activation"]: ("gelu", "gelu_python"),
        "is_decoder": (False, None),
        "add_cross_attention": (False, None),
        "is_encoder_decoder": (False, None),
    }
    if family.is_rotary:
        biases = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
        required |= dict.fromkeys(biases, (False,)) | {"decoder_bias": (True,)}
        required |= {"classifier_activation": ("gelu",), "rope_scaling": (None,)}
        required["embedding_dropout"] = (values["mlp_dropout"],)
    else:
        required["position_embedding_type"] = ("absolute", None)
    for key, allowed in required.items():
        if values.get(key) not in allowed:
            raise MetaXLMError(
                f"{path}: {key} is {values[key]!r}; metaxlm computes only {allowed[0]!r}"
            )

    def read(key: str, kind: type | tuple[type, ...] = int, name: str = "a whole number") -> Any:
        value = values.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise MetaXLMError(f"{path}: {key} is {value!r}; it must be {name}")
        return value

    def read_float(key: str) -> float:
        return float(read(key, (int, float), "a number"))

    pad_id = read("pad_token_id")
    if family.pad_id not in (None, pad_id):
        raise MetaXLMError(
            f"{path}: pad_token_id is {pad_id}, but {family.class_prefix} always pads with "
            f"{family.pad_id}; use a tokenizer whose padding token has that id"
        )
    offset = pad_id + 1 if family.offsets_positions else 0
    sizes = ("hidden_size", "num_layers", "num_heads", "ffn_size")
    try:
        config = EncoderConfig(
            vocab_size=read("vocab_size"),
            **{name: read(family.keys[name]) for name in sizes},
            max_positions=read("max_position_embeddings") - offset,
            pad_id=pad_id,
            position_offset=offset,
            num_token_types=read("type_vocab_size") if family.has_token_types else 0,
            relative_buckets=read(BUCKETS) if RELATIVE_BIAS in family.modules else 0,
            norm_eps=family.norm_eps or read_float(family.eps_key),
            dropout=read_float(family.keys["dropout"]),
            attention_dropout=read_float(family.keys["attention_dropout"]),
            rotary=_read_rotary(values, path) if family.is_rotary else None,
            family=values["model_type"],
        )
    except MetaXLMError as error:
        raise MetaXLMError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error
    return config, family


def _read_rotary(values: Mapping[str, Any], path: Path) -> Rotary:
    """Read the positions of ModernBERT under the keys of transformers 4 or 5."""

    def require(condition: bool, key: str, wanted: str) -> None:
        if not condition:
            raise MetaXLMError(f"{path}: {key} is {values.get(key)!r}; {wanted}")

    def is_number(value: object, kind: type | tuple[type, ...]) -> bool:
        return isinstance(value, kind) and not isinstance(value, bool)

    every, kinds = values.get("global_attn_every_n_layers", 3), values["layer_types"]
    require(is_number(every, int), "global_attn_every_n_layers", "it must be a whole number")
    if kinds is not None:
        count = values["num_hidden_layers"]
        wanted = f"metaxlm computes only {_GLOBAL} in each N-th of the {count} layers"
        require(isinstance(kinds, list) and len(kinds) == count, "layer_types", wanted)
        every = kinds.index(_GLOBAL, 1) if _GLOBAL in kinds[1:] else count
        pattern = [_LOCAL if number % every else _GLOBAL for number in range(count)]
        require(kinds == pattern, "layer_types", wanted)
    ropes, thetas = values["rope_parameters"] or {}, []
    is_nested = isinstance(ropes, dict) and ropes.keys() <= {_GLOBAL, _LOCAL}
    require(is_nested, "rope_parameters", f"it must have {_GLOBAL} and {_LOCAL}")
    defaults = {"global_rope_theta": Rotary.global_theta, "local_rope_theta": Rotary.local_theta}
    for kind, (key, default) in zip((_GLOBAL, _LOCAL), defaults.items(), strict=True):
        rope = ropes.get(kind) or {}
        is_plain = isinstance(rope, dict) and rope.get("rope_type", "default") == "default"
        require(is_plain, "rope_parameters", "metaxlm computes only rope_type 'default'")
        theta = rope.get("rope_theta", values.get(key, default))
        name = "rope_parameters" if "rope_theta" in rope else key
        require(is_number(theta, (int, float)), name, "its theta must be a number")
        thetas.append(float(theta))
    window = values["local_attention"]
    require(is_number(window, int), "local_attention", "it must be a whole number")
    return Rotary(window // 2, every, *thetas)


def import_tensors(
    tensors: Mapping[str, Tensor], config: EncoderConfig, family: Family
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the state dict of `MaskedLM(config)` in float32, and the missing parameters.

    Only parameters of the head may be missing; they are drawn from a fixed seed.
    """
    if config.num_layers > len(tensors):
        raise MetaXLMError(
            f"config.json announces {config.num_layers:,} layers, but the checkpoint has "
            f"{len(tensors):,} tensors; the two files do not belong together"
        )
    found = _strip_names(tensors)
    _drop_tied_decoder(found, family)
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in MaskedLM(config).state_dict().items()}
    parts = {name: family.find_names(name) for name in shapes}
    _reject_unknown(found, parts, family)
    missing = [name for name, parts_of in parts.items() if not found.keys() >= set(parts_of)]
    if lost := [name for name in missing if name.startswith("encoder.")]:
        first = next(name for name in parts[lost[0]] if name not in found)
        raise MetaXLMError(
            f"the checkpoint lacks {len(lost)} encoder parameters, such as {first}; "
            "use a complete checkpoint"
        )
    state = {
        name: _join({part: found[part] for part in parts[name]}, shapes[name])
        for name in parts
        if name not in missing
    }
    if missing:
        # `torch.manual_seed` would seed the generators of every GPU as well.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(derive_seed(0, "fresh MLM head"))
            head = MaskedLMHead(config).state_dict()
        state |= {name: head[name.removeprefix("head.")] for name in missing}
    return state, tuple(missing)


def export_config(config: EncoderConfig) -> dict[str, Any]:
    """Return the keys of config.json that describe an encoder, in the words of its family."""
    family = FAMILIES[config.family]
    shape = {theirs: getattr(config, ours, "gelu") for ours, theirs in family.keys.items()}
    return {
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        **shape,
        "max_position_embeddings": config.position_offset + config.max_positions,
        **({"type_vocab_size": config.num_token_types} if family.has_token_types else {}),
        **({BUCKETS: config.relative_buckets} if config.relative_buckets else {}),
        **({} if family.norm_eps else {family.eps_key: config.norm_eps}),
        **_export_rotary(config),
        "pad_token_id": config.pad_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def _export_rotary(config: EncoderConfig) -> dict[str, Any]:
    """Return the keys for ModernBERT's positions that transformers 4 and 5 both read."""
    if config.rotary is None:
        return {}
    return {
        "local_attention": 2 * config.rotary.window,
        "global_attn_every_n_layers": config.rotary.global_every,
        "global_rope_theta": config.rotary.global_theta,
        "local_rope_theta": config.rotary.local_theta,
        "embedding_dropout": config.dropout,
    }


def export_tensors(state: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Return a state dict under the names of a family, as float32 copies on the CPU."""
    tensors: dict[str, Tensor] = {}
    for parameter, value in state.items():
        names = family.find_names(parameter)
        for name, part in zip(names, value.chunk(len(names)), strict=True):
            full_name = name if parameter.startswith("head.") else f"{family.base}.{name}"
            tensors[full_name] = part.detach().to("cpu", torch.float32, copy=True).contiguous()
    return tensors


def _strip_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for prefix in _BASE_PREFIXES:
            name = name.removeprefix(prefix)
        stem, dot, ending = name.rpartition(".")
        name = f"{stem}{dot}{_OLD_ENDINGS.get(ending, ending)}"
        if name in found:
            raise MetaXLMError(f"the checkpoint holds {name} twice, under two spellings")
        found[name] = tensor
    return found


def _drop_tied_decoder(found: dict[str, Tensor], family: Family) -> None:
    """Remove the output projection, which must repeat the token embeddings and the bias."""
    weight = found.pop(f"{family.decoder}.weight", None)
    words = found.get(f"{family.modules['encoder.embeddings.words']}.weight")
    if weight is not None and words is not None and not torch.equal(weight, words):
        raise MetaXLMError(
            f"{family.decoder}.weight differs from the word embeddings (an untied output "
            "embedding), but metaxlm ties the two; use a checkpoint trained with "
            "tie_word_embeddings"
        )
    bias, name = found.pop(f"{family.decoder}.bias", None), f"{family.modules['head']}.bias"
    if bias is not None and not torch.equal(found.setdefault(name, bias), bias):
        raise MetaXLMError(
            f"{family.decoder}.bias differs from {name}, but the two are one parameter; "
            "use a checkpoint with tied biases"
        )


def _reject_unknown(
    found: Mapping[str, Tensor], parts: Mapping[str, list[str]], family: Family
) -> None:
    known = _BUFFERS.union(*parts.values())
    bodies = ("embeddings.", "encoder.", "transformer.", "layers.", "final_norm.")
    ours = (*bodies, family.head_prefix)
    if unknown := [name for name in found if name.startswith(ours) and name not in known]:
        raise MetaXLMError(
            f"the checkpoint has {len(unknown)} tensors that config.json does not announce, "
            f"such as {min(unknown)}; compare the number of layers and the architecture"
        )


def _join(parts: Mapping[str, Tensor], shape: torch.Size) -> Tensor:
    expected = (shape[0] // len(parts), *shape[1:])
    for name, tensor in parts.items():
        if tuple(tensor.shape) != expected:
            raise MetaXLMError(
                f"{name} has shape {tuple(tensor.shape)}, but config.json makes it {expected}; "
                "the two files do not belong together"
            )
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise MetaXLMError(f"{name} is stored as {kind}; use float32, float16 or bfloat16")
    return torch.cat([tensor.float() for tensor in parts.values()])
