"""Parameter names: transformers' tensors of the BERT and RoBERTa families to ours, and back.

In: tensors by the name they have in a checkpoint, of any age and with or without a head. Out: the
state dict of `MaskedLM`, with query, key and value fused, or the reverse. No file is touched here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig, MaskedLM, MaskedLMHead

_BASE_PREFIXES = ("roberta.", "bert.", "xlm_roberta.", "camembert.")
# TensorFlow's names for LayerNorm, which the first BERT checkpoints still carry.
_OLD_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}
_BUFFERS = {"embeddings.position_ids", "embeddings.token_type_ids"}

_EMBEDDINGS = {
    "words.weight": "word_embeddings.weight",
    "positions.weight": "position_embeddings.weight",
    "token_types.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}
_LAYER = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "ffn_in": ("intermediate.dense",),
    "ffn_out": ("output.dense",),
    "ffn_norm": ("output.LayerNorm",),
}


@dataclass(frozen=True)
class HeadNames:
    """How one family calls the parts of its masked language modeling head."""

    prefix: str
    dense: str
    norm: str
    bias: str
    decoder: str


ROBERTA_HEAD = HeadNames(
    prefix="lm_head.",
    dense="lm_head.dense",
    norm="lm_head.layer_norm",
    bias="lm_head.bias",
    decoder="lm_head.decoder",
)
BERT_HEAD = HeadNames(
    prefix="cls.predictions.",
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    bias="cls.predictions.bias",
    decoder="cls.predictions.decoder",
)


def name_parts(num_layers: int, head: HeadNames) -> dict[str, tuple[str, ...]]:
    """Map each of our parameters to the tensors it is made of, named without the base prefix."""
    parts: dict[str, tuple[str, ...]] = {
        f"encoder.embeddings.{ours}": (f"embeddings.{theirs}",)
        for ours, theirs in _EMBEDDINGS.items()
    }
    for layer in range(num_layers):
        for ours, theirs in _LAYER.items():
            for kind in ("weight", "bias"):
                parts[f"encoder.layers.{layer}.{ours}.{kind}"] = tuple(
                    f"encoder.layer.{layer}.{part}.{kind}" for part in theirs
                )
    for kind in ("weight", "bias"):
        parts[f"head.dense.{kind}"] = (f"{head.dense}.{kind}",)
        parts[f"head.norm.{kind}"] = (f"{head.norm}.{kind}",)
    parts["head.bias"] = (head.bias,)
    return parts


def import_tensors(
    tensors: Mapping[str, Tensor], config: EncoderConfig, head: HeadNames
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the state dict of `MaskedLM(config)` in float32, and the names that were missing.

    Only the head may be missing: it is then drawn from torch's global generator. Anything else
    that does not fit raises, because a half-loaded encoder looks like a bad model.
    """
    found = _canonicalize(tensors)
    _drop_tied_decoder(found, head)
    parts = name_parts(config.num_layers, head)
    _refuse_unknown(found, {name for names in parts.values() for name in names}, head)
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in MaskedLM(config).state_dict().items()}
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for ours, theirs in parts.items():
        if all(name in found for name in theirs):
            state[ours] = _join([(name, found[name]) for name in theirs], shapes[ours])
        else:
            missing.append(ours)
    lost = [name for name in missing if name.startswith("encoder.")]
    if lost:
        first = next(name for name in parts[lost[0]] if name not in found)
        raise MetaXLMError(
            f"the checkpoint lacks {len(lost)} encoder parameters, such as {first}; "
            "use a complete checkpoint"
        )
    if missing:
        fresh = {f"head.{name}": t for name, t in MaskedLMHead(config).state_dict().items()}
        state.update({name: fresh[name] for name in missing})
    return state, tuple(missing)


def export_tensors(model: MaskedLM) -> dict[str, Tensor]:
    """Return the tensors of an `XLMRobertaForMaskedLM` with the same outputs, in float32.

    XLM-RoBERTa numbers positions from pad_id + 1 and has one token type here, so a BERT-style
    model gets its position rows moved down and keeps the row of token type 0.
    """
    config = model.config
    state = {
        name: value.detach().to("cpu", torch.float32) for name, value in model.state_dict().items()
    }
    positions, token_types = (
        f"encoder.embeddings.{name}.weight" for name in ("positions", "token_types")
    )
    num_new_rows = config.pad_id + 1 - config.position_offset
    padding = state[positions].new_zeros(num_new_rows, config.hidden_size)
    state[positions] = torch.cat([padding, state[positions]])
    state[token_types] = state[token_types][:1]
    tensors: dict[str, Tensor] = {}
    for ours, theirs in name_parts(config.num_layers, ROBERTA_HEAD).items():
        for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True):
            full_name = name if name.startswith("lm_head.") else f"roberta.{name}"
            tensors[full_name] = part.clone(memory_format=torch.contiguous_format)
    return tensors


def _canonicalize(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop the base prefix and the old LayerNorm names."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for prefix in _BASE_PREFIXES:
            name = name.removeprefix(prefix)
        for old, new in _OLD_SUFFIXES.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if name in found:
            raise MetaXLMError(f"the checkpoint holds {name} twice, under two spellings")
        found[name] = tensor
    return found


def _drop_tied_decoder(found: dict[str, Tensor], head: HeadNames) -> None:
    """Remove the decoder, which repeats the word rows and the bias; refuse it if it does not."""
    weight = found.pop(f"{head.decoder}.weight", None)
    words = found.get("embeddings.word_embeddings.weight")
    if weight is not None and words is not None and not torch.equal(weight, words):
        raise MetaXLMError(
            f"{head.decoder}.weight differs from the word embeddings (an untied output embedding), "
            "but metaxlm ties the two; use a checkpoint trained with tie_word_embeddings"
        )
    bias = found.pop(f"{head.decoder}.bias", None)
    if bias is not None and not torch.equal(found.setdefault(head.bias, bias), bias):
        raise MetaXLMError(
            f"{head.decoder}.bias differs from {head.bias}, but the two are one parameter; "
            "use a checkpoint with tied biases"
        )


def _refuse_unknown(found: Iterable[str], known: set[str], head: HeadNames) -> None:
    """Refuse tensors in the encoder or the head that we would drop; other heads may be dropped."""
    ours = ("embeddings.", "encoder.", head.prefix)
    unknown = [n for n in found if n.startswith(ours) and n not in known and n not in _BUFFERS]
    if unknown:
        raise MetaXLMError(
            f"the checkpoint has {len(unknown)} tensors that config.json does not announce, "
            f"such as {min(unknown)}; compare num_hidden_layers and the architecture"
        )


def _join(parts: list[tuple[str, Tensor]], shape: torch.Size) -> Tensor:
    """Stack the parts of one parameter as float32, checking each part's shape and type."""
    expected = (shape[0] // len(parts), *shape[1:])
    for name, tensor in parts:
        if tuple(tensor.shape) != expected:
            raise MetaXLMError(
                f"{name} has shape {tuple(tensor.shape)}, but config.json makes it {expected}; "
                "the two files do not belong together"
            )
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise MetaXLMError(
                f"{name} is stored as {kind}; use a checkpoint in float32, float16 or bfloat16"
            )
    # `cat` copies, so nothing stays tied to the file; a single part is copied as well.
    return torch.cat([tensor.float() for _, tensor in parts])
