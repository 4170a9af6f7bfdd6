"""Load and save encoders that transformers computes; reject those that cannot work.

Weights are read from safetensors only, and no code of a folder is run. A model is tried with a few
tokens when it is loaded: it must read both ways, padding must not change its vectors, and encoder
and head must compute the logits of transformers' own model.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json, read_json
from metaxlm.hub import CONFIG, first_line, read_auto_config
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.extras import Extras
from metaxlm.model.foreign import (
    ForeignEncoder,
    choose_attention,
    dump_config,
    find_class,
    find_token_rows,
    make_model,
    name_inputs,
    quiet_transformers,
    skip_initialization,
    split_model,
)
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.model.model_folder import read_tensors
from metaxlm.randomness import derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds, and most runs never need it

DEFAULT_POSITIONS = 512  # of a model that has no limit and whose tokenizer has none

_NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers")
_TOLERANCE = 1e-3  # far above rounding errors, far below the effect of one more token
_NUM_TRIED = 6  # tokens of a trial


def read_foreign_config(folder: Path) -> PreTrainedConfig:
    """Read config.json through transformers; reject models that are not bidirectional encoders."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    config = read_auto_config(folder)
    model_type = config.model_type
    is_decoder = getattr(config, "is_decoder", False)
    is_encoder = model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if not is_encoder or is_decoder or config.is_encoder_decoder:
        reason = "has a decoder" if config.is_encoder_decoder else "is not trained to fill masks in"
        reason = "is set to be a decoder here" if is_decoder else reason
        raise MetaXLMError(
            f"{folder / CONFIG}: model_type is {model_type!r}, which {reason}; "
            "metaxlm takes encoders that read both ways"
        )
    if missing := [key for key in _NEEDED if not isinstance(getattr(config, key, None), int)]:
        raise MetaXLMError(
            f"{folder / CONFIG}: model_type {model_type!r} has no {missing[0]}; metaxlm takes "
            "encoders of token ids"
        )
    if hasattr(config, "reference_compile"):
        config.reference_compile = False  # ModernBERT would compile itself on a GPU
    return config


def load_body(
    folder: Path, found: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> ForeignEncoder:
    """Load an encoder without a head, to evaluate it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # initializes a missing pooler, which is not used
        body, _ = load_model("AutoModel", found, read_tensors(folder), folder)
    encoder = ForeignEncoder(body, describe_encoder(body, tokenizer, folder), folder).eval()
    probe(encoder, str(folder))
    return encoder


def load_masked_lm(
    folder: Path, found: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> tuple[MaskedLM, tuple[str, ...]]:
    """Load an encoder with its MLM head, and the parameters of the head that are missing.

    Missing parameters are drawn from a fixed seed. Those that do not change any logit, such as a
    pooler's, are excluded from training.
    """
    tensors = read_tensors(folder)
    if any(name.startswith("lm_predictions.") for name in tensors):
        found.legacy = False  # the head of DeBERTa as it was published, not transformers' first one
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(0, "fresh MLM head"))
        loaded, lost = load_model("AutoModelForMaskedLM", found, tensors, folder)
    loaded.eval()
    config = describe_encoder(loaded.base_model, tokenizer, folder)
    try:
        find_token_rows(config)
        expected = _try_logits(loaded, config)
        encoder, head = split_model(loaded, config)
        state = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
        state |= {f"head.{name}": value for name, value in head.state_dict().items()}
        model = _join_state(config, state)
        probe(encoder.eval(), str(folder))
        with torch.inference_mode():
            found_1LV = model.logits(choose_ids(config))
        if (found_1LV - expected).abs().max() > _TOLERANCE * expected.abs().max():
            raise MetaXLMError(f"{config.family}: its head needs more than the last hidden states")
    except MetaXLMError as error:
        raise MetaXLMError(
            f"{folder}: {str(error).removeprefix(f'{folder}: ')}; metaxlm cannot give this "
            "model another vocabulary or train it"
        ) from error
    _freeze_unused(model)
    return model, tuple(f"head.{name}" for name in sorted(lost) if f"head.model.{name}" in state)


def describe_folder(
    folder: Path, found: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> EncoderConfig:
    """Return the configuration of an encoder by its config.json and tokenizer alone."""
    model_class = find_class("AutoModelForMaskedLM", found)
    with torch.device("meta"), skip_initialization(), quiet_transformers():
        model = model_class._from_config(found, dtype=torch.float32)
    return describe_encoder(model.base_model, tokenizer, folder)


def save_masked_lm(model: MaskedLM, folder: Path, extras: Extras) -> None:
    """Write weights and config.json in the names of transformers; unused poolers are left out."""
    with skip_initialization():
        whole = make_model(model.config)
    tensors = {
        name: value.to("cpu", torch.float32, copy=True).contiguous()
        for name, value in export_tensors(model).items()
        if "pooler" not in name.split(".")
    }
    with quiet_transformers():
        whole.save_pretrained(folder, state_dict=tensors | extras.tensors)
    if extras.architecture:
        values = read_json(folder / CONFIG)
        values |= extras.values | {"architectures": [extras.architecture]}
        (folder / CONFIG).write_text(dump_json(values), encoding="utf-8", newline="\n")


def export_tensors(model: MaskedLM) -> dict[str, Tensor]:
    """Return the tensors under transformers' names, not copied; tied ones occur once."""
    assert isinstance(model.encoder, ForeignEncoder)
    prefix = model.encoder.body.base_model_prefix
    names = {"encoder.body.": f"{prefix}.", "head.model.": ""}
    return {
        theirs + name.removeprefix(ours): value.detach()
        for name, value in model.state_dict().items()
        for ours, theirs in names.items()
        if name.startswith(ours)
    }


def load_model(
    auto_class: str, config: PreTrainedConfig, tensors: dict[str, Tensor], folder: Path | None
) -> tuple[PreTrainedModel, list[str]]:
    """Load tensors into the class of an auto class; return the names of missing parameters.

    Only parameters of the head and the pooler may be missing.
    """
    place = folder or config.model_type
    try:
        model_class = find_class(auto_class, config)
    except KeyError as error:
        raise MetaXLMError(
            f"{place}: transformers has no such head for {config.model_type!r}; "
            "leave this kind of task out for this model"
        ) from error
    try:
        with quiet_transformers():
            model, report = model_class.from_pretrained(
                None,
                config=config,
                state_dict=tensors,
                dtype=torch.float32,
                attn_implementation=choose_attention(model_class),
                output_loading_info=True,
            )
    except Exception as error:  # wrong shapes, quantized weights, other files: many classes
        raise MetaXLMError(
            f"{place}: transformers cannot load it as {model_class.__name__} "
            f"({first_line(error)}); config.json and the weights must belong together"
        ) from error
    prefix = f"{model.base_model_prefix}." if model.base_model is not model else ""
    missing = report["missing_keys"]
    if lost := [name for name in missing if name.startswith(prefix) and "pooler" not in name]:
        raise MetaXLMError(
            f"{place}: its files lack {len(lost)} parameters, such as {min(lost)}; "
            "use a complete checkpoint"
        )
    # Published models have other tensors that are not used, but not in numbered layers.
    layer = re.compile(rf"{re.escape(prefix)}.*\.\d+\.")
    if unknown := [name for name in report["unexpected_keys"] if prefix and layer.match(name)]:
        raise MetaXLMError(
            f"{place}: has {len(unknown)} tensors that config.json does not announce, such as "
            f"{min(unknown)}; compare the number of layers and the architecture"
        )
    return model, list(missing)


def describe_encoder(
    body: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> EncoderConfig:
    """Return the sizes of an encoder of transformers."""
    found = body.config
    num_positions, offset = _count_positions(body, tokenizer)
    pad_id = tokenizer.pad_token_id
    if pad_id is None:
        raise MetaXLMError(f"{folder}: its tokenizer has no padding token; give it one")
    if offset not in (0, pad_id + 1):
        raise MetaXLMError(
            f"{folder}: its tokenizer pads with id {pad_id}, but the model with {offset - 1}; "
            "use the tokenizer the model was trained with"
        )
    has_types = "token_type_ids" in inspect.signature(body.forward).parameters

    def find(default: Any, *names: str) -> Any:
        return next((getattr(found, n) for n in names if getattr(found, n, None)), default)

    try:
        return EncoderConfig(
            vocab_size=found.vocab_size,
            hidden_size=found.hidden_size,
            num_layers=found.num_hidden_layers,
            num_heads=find(1, "num_attention_heads"),
            ffn_size=find(4 * found.hidden_size, "intermediate_size"),
            max_positions=num_positions,
            pad_id=pad_id,
            position_offset=offset,
            num_token_types=max(1, find(1, "type_vocab_size")) if has_types else 1,
            dropout=float(find(0.0, "hidden_dropout_prob", "dropout")),
            attention_dropout=float(find(0.0, "attention_probs_dropout_prob", "attention_dropout")),
            family=found.model_type,
            settings=dump_config(found),
        )
    except MetaXLMError as error:
        raise MetaXLMError(f"{folder / CONFIG}: {error}") from error


def _count_positions(body: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Return the longest sequence, and the id of the first position (pad_id + 1, or 0)."""
    for name, module in body.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            offset = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - offset, offset
    limits = getattr(body.config, "max_position_embeddings", None), tokenizer.model_max_length
    # A tokenizer without a limit has 10^30.
    usable = (limit for limit in limits if limit is not None and 0 < limit < 1_000_000)
    return next(usable, DEFAULT_POSITIONS), 0


def choose_ids(config: EncoderConfig) -> Tensor:
    """Return a short sequence of different tokens without padding, [1, L]."""
    spread = torch.linspace(0, config.vocab_size - 1, _NUM_TRIED + 2).long()
    return spread[spread != config.pad_id][None, :_NUM_TRIED]


def probe(encoder: ForeignEncoder, place: str) -> None:
    """Reject a model whose vectors depend on padding, or whose first token ignores the last."""
    config = encoder.config
    ids_1L = choose_ids(config)
    other_1L = torch.cat([ids_1L[:, :-1], ids_1L[:, :1]], dim=1)
    padded_1L = torch.cat([ids_1L, torch.full((1, 3), config.pad_id)], dim=1)
    mask_1L = torch.arange(padded_1L.shape[1])[None] < ids_1L.shape[1]
    try:
        with torch.inference_mode():
            plain_1LD, changed_1LD = encoder(ids_1L), encoder(other_1L)
            beside_1LD = encoder(padded_1L, mask_1L)[:, : ids_1L.shape[1]]
    except Exception as error:  # models with inputs of other kinds fail in many ways
        raise MetaXLMError(
            f"{place}: does not encode plain token ids ({first_line(error)})"
        ) from error
    fault = ""
    if plain_1LD.shape != (*ids_1L.shape, config.hidden_size):
        fault = f"its output is not one vector of {config.hidden_size} per token"
    elif (plain_1LD - beside_1LD).abs().max() > _TOLERANCE * plain_1LD.abs().max():
        fault = "padding changes its vectors, so that its scores would depend on the batch"
    elif torch.equal(plain_1LD[:, 0], changed_1LD[:, 0]):
        fault = "its first token does not see the last: it does not read both ways"
    if fault:
        raise MetaXLMError(f"{place}: {fault}")


def _try_logits(model: PreTrainedModel, config: EncoderConfig) -> Tensor:
    try:
        with torch.inference_mode():
            output = model(**name_inputs(config, choose_ids(config), None, None))
        logits_1LV: Tensor = output.logits
    except Exception as error:  # models with inputs of other kinds fail in many ways
        raise MetaXLMError(
            f"{config.family}: does not encode plain token ids ({first_line(error)})"
        ) from error
    return logits_1LV


def _join_state(config: EncoderConfig, state: dict[str, Tensor]) -> MaskedLM:
    try:
        return MaskedLM.from_state(config, state)
    except RuntimeError as error:  # a decoder that differs from the words it should be tied to
        raise MetaXLMError(
            f"{config.family}: its weights are tied in another way than config.json says "
            f"({first_line(error)}); is tie_word_embeddings wrong?"
        ) from error


def _freeze_unused(model: MaskedLM) -> None:
    """Exclude parameters from training that no logit depends on."""
    used: set[Any] = set()
    seen, waiting = set(), [model.logits(choose_ids(model.config)).grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            used.add(getattr(node, "variable", None))
            waiting += [following for following, _ in node.next_functions]
    for parameter in model.parameters():
        parameter.requires_grad_(parameter in used)
