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
from metaxlm.randomness import derive_seed

_BASE_PREFIXES = ("roberta.", "bert.", "xlm_roberta.", "camembert.", "distilbert.")
# TensorFlow's names for LayerNorm, which the first BERT checkpoints still carry.
_OLD_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}
_BUFFERS = {"embeddings.position_ids", "embeddings.token_type_ids"}

_TOKEN_TYPES = "encoder.embeddings.token_types.weight"
_EMBEDDINGS = {
    "words.weight": "word_embeddings.weight",
    "positions.weight": "position_embeddings.weight",
    "token_types.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}
_BERT_LAYER = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "ffn_in": ("intermediate.dense",),
    "ffn_out": ("output.dense",),
    "ffn_norm": ("output.LayerNorm",),
}
_DISTILBERT_LAYER = {
    "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.output": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "ffn_in": ("ffn.lin1",),
    "ffn_out": ("ffn.lin2",),
    "ffn_norm": ("output_layer_norm",),
}


@dataclass(frozen=True)
class Names:
    """How one family calls its layers and the parts of its masked language modeling head."""

    stack: str
    layer: Mapping[str, tuple[str, ...]]
    head: str
    """What the names of all tensors in the head begin with."""
    dense: str
    norm: str
    bias: str
    decoder: str
    has_token_types: bool = True


ROBERTA = Names(
    stack="encoder.",
    layer=_BERT_LAYER,
    head="lm_head.",
    dense="lm_head.dense",
    norm="lm_head.layer_norm",
    bias="lm_head.bias",
    decoder="lm_head.decoder",
)
BERT = Names(
    stack="encoder.",
    layer=_BERT_LAYER,
    head="cls.predictions.",
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    bias="cls.predictions.bias",
    decoder="cls.predictions.decoder",
)
DISTILBERT = Names(
    stack="transformer.",
    layer=_DISTILBERT_LAYER,
    head="vocab_",
    dense="vocab_transform",
    norm="vocab_layer_norm",
    bias="vocab_projector.bias",
    decoder="vocab_projector",
    has_token_types=False,
)


def name_parts(num_layers: int, names: Names) -> dict[str, tuple[str, ...]]:
    """Map each of our parameters to the tensors it is made of, named without the base prefix."""
    parts: dict[str, tuple[str, ...]] = {
        f"encoder.embeddings.{ours}": (f"embeddings.{theirs}",)
        for ours, theirs in _EMBEDDINGS.items()
    }
    if not names.has_token_types:
        del parts[_TOKEN_TYPES]
    for layer in range(num_layers):
        for ours, theirs in names.layer.items():
            for kind in ("weight", "bias"):
                parts[f"encoder.layers.{layer}.{ours}.{kind}"] = tuple(
                    f"{names.stack}layer.{layer}.{part}.{kind}" for part in theirs
                )
    for kind in ("weight", "bias"):
        parts[f"head.dense.{kind}"] = (f"{names.dense}.{kind}",)
        parts[f"head.norm.{kind}"] = (f"{names.norm}.{kind}",)
    parts["head.bias"] = (names.bias,)
    return parts


def import_tensors(
    tensors: Mapping[str, Tensor], config: EncoderConfig, names: Names
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the state dict of `MaskedLM(config)` in float32, and the names that were missing.

    Only the head may be missing: it is then drawn, the same for every call. Anything else that
    does not fit raises, because a half-loaded encoder looks like a bad model. A family without
    token types gets rows of zeros, which add nothing, as it does itself.
    """
    if config.num_layers > len(tensors):
        raise MetaXLMError(
            f"config.json announces {config.num_layers:,} layers, but the checkpoint has "
            f"{len(tensors):,} tensors; the two files do not belong together"
        )
    found = _canonicalize(tensors)
    _drop_tied_decoder(found, names)
    parts = name_parts(config.num_layers, names)
    _refuse_unknown(found, {name for group in parts.values() for name in group}, names)
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
    if not names.has_token_types:
        state[_TOKEN_TYPES] = torch.zeros(shapes[_TOKEN_TYPES], device="cpu")
    if missing:
        fresh = _draw_head(config)
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
    positions = "encoder.embeddings.positions.weight"
    num_new_rows = config.pad_id + 1 - config.position_offset
    padding = state[positions].new_zeros(num_new_rows, config.hidden_size)
    state[positions] = torch.cat([padding, state[positions]])
    state[_TOKEN_TYPES] = state[_TOKEN_TYPES][:1]
    tensors: dict[str, Tensor] = {}
    for ours, theirs in name_parts(config.num_layers, ROBERTA).items():
        for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True):
            full_name = name if name.startswith(ROBERTA.head) else f"roberta.{name}"
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


def _drop_tied_decoder(found: dict[str, Tensor], names: Names) -> None:
    """Remove the decoder, which repeats the word rows and the bias; refuse it if it does not."""
    weight = found.pop(f"{names.decoder}.weight", None)
    words = found.get("embeddings.word_embeddings.weight")
    if weight is not None and words is not None and not torch.equal(weight, words):
        raise MetaXLMError(
            f"{names.decoder}.weight differs from the word embeddings (an untied output "
            "embedding), but metaxlm ties the two; use a checkpoint trained with "
            "tie_word_embeddings"
        )
    bias = found.pop(f"{names.decoder}.bias", None)
    if bias is not None and not torch.equal(found.setdefault(names.bias, bias), bias):
        raise MetaXLMError(
            f"{names.decoder}.bias differs from {names.bias}, but the two are one parameter; "
            "use a checkpoint with tied biases"
        )


def _refuse_unknown(found: Iterable[str], known: set[str], names: Names) -> None:
    """Refuse tensors in the encoder or the head that we would drop; other heads may be dropped."""
    ours = ("embeddings.", names.stack, names.head)
    unknown = [n for n in found if n.startswith(ours) and n not in known and n not in _BUFFERS]
    if unknown:
        raise MetaXLMError(
            f"the checkpoint has {len(unknown)} tensors that config.json does not announce, "
            f"such as {min(unknown)}; compare the number of layers and the architecture"
        )


def _draw_head(config: EncoderConfig) -> dict[str, Tensor]:
    """Draw a head from a seed of its own, and leave the caller's generators as they were."""
    # Only the CPU's generator is seeded: `torch.manual_seed` would reach those of every GPU.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(derive_seed(0, "fresh MLM head"))
        state = MaskedLMHead(config).state_dict()
    return {f"head.{name}": tensor for name, tensor in state.items()}


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
