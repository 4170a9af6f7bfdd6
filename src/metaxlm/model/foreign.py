"""Encoders of transformers with the interface of our `Encoder` and `MaskedLMHead`.

Any bidirectional encoder of transformers can be trained: its body and its MLM head are computed by
transformers' own modules, the head at the masked positions only. `EncoderConfig.settings` has the
whole config.json, so that a configuration is enough to create the model. A parameter that
transformers ties to another one is registered once, in the body if it is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds, and most runs never need it

Part = Literal["words", "positions", "embedding_norm", "layers", "head"]

_SIZES = {  # ours to those of transformers' configurations
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
}
_OTHER_ROLES = ("pad", "unk", "mask")


class ForeignEncoder(nn.Module):
    """An encoder of transformers with the interface of our `Encoder`."""

    def __init__(
        self, body: PreTrainedModel, config: EncoderConfig, folder: Path | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.config = config
        self.folder = folder  # that it was loaded from
        self.tensors: dict[str, Tensor] = {}  # of a checkpoint, with its head, by their names

    @property
    def words(self) -> nn.Embedding:
        """The token embeddings, which may be narrower than the hidden states."""
        words: nn.Embedding = self.body.get_input_embeddings()
        return words

    @property
    def layers(self) -> nn.ModuleList:
        """The list of modules with the most parameters, to be sharded one by one."""
        lists = [module for module in self.body.modules() if isinstance(module, nn.ModuleList)]
        return max(lists, key=_count_parameters, default=nn.ModuleList())

    def gradient_checkpointing_enable(self) -> None:
        """Compute each layer again in the backward pass: less memory, a third more compute."""
        if not self.body.supports_gradient_checkpointing:
            raise MetaXLMError(
                f"{self.config.family}: transformers cannot checkpoint its activations; set "
                "execution.gradient_checkpointing to false and increase micro_batches"
            )
        # Later versions of transformers have renamed it.
        names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
        name = next(name for name in names if hasattr(self.body, name))
        getattr(self.body, name)({"use_reentrant": False})

    def forward(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states, [B, L, D]; those of padding are undefined."""
        output = self.body(**name_inputs(self.config, ids_BL, mask_BL, token_types_BL))
        hidden_BLD: Tensor = output.last_hidden_state
        return hidden_BLD

    def hidden_states(
        self,
        ids_BL: Tensor,
        mask_BL: Tensor | None = None,
        token_types_BL: Tensor | None = None,
        *,
        deepest: int | None = None,
    ) -> list[Tensor]:
        """Return the embedding output (layer 0) and the layers up to `deepest`, [B, L, D] each."""
        inputs = name_inputs(self.config, ids_BL, mask_BL, token_types_BL)
        output = self.body(**inputs, output_hidden_states=True)
        # Some families normalize once more after the last layer.
        states = [*output.hidden_states[:-1], output.last_hidden_state]
        return states if deepest is None else states[: deepest + 1]

    def find_part(self, name: str) -> Part:
        """Return the part that a tensor of the state dict belongs to."""
        owner_name = name.rpartition(".")[0]
        owner = self.get_submodule(owner_name)
        if owner is self.words:
            return "words"
        place = f"body.{_find_name(self.body, self.words)}".rpartition(".")[0]
        if place == "body":  # a family without a module of all embeddings
            is_embedding = owner_name.count(".") == 1 and "emb" in owner_name
        else:
            is_embedding = owner_name.startswith(f"{place}.")
        if is_embedding and isinstance(owner, nn.Embedding):
            return "positions"
        return "embedding_norm" if is_embedding and "norm" in owner_name.lower() else "layers"


class ForeignHead(nn.Module):
    """The head of a `...ForMaskedLM` model of transformers, whose body returns given states."""

    def __init__(
        self, model: PreTrainedModel, ties: Mapping[str, str | None], config: EncoderConfig
    ) -> None:
        super().__init__()
        self.model = model  # its body is a `_GivenStates`
        self.ties = dict(ties)  # tied parameters of the head to their source, None for the words
        self.config = config

    @property
    def by_token(self) -> tuple[str, ...]:
        """Tensors with one row for each token."""
        return find_token_rows(self.config)

    def forward(self, hidden: Tensor, words_VE: Tensor) -> Tensor:
        """Return logits, [..., V]."""
        given: Any = self.model.base_model
        flat_1MD = hidden.reshape(1, -1, hidden.shape[-1])
        given.fill(flat_1MD, words_VE)
        owners = [(_split_name(self.model, name), source) for name, source in self.ties.items()]
        for (module, kind), source in owners:
            value = words_VE if source is None else self.model.get_parameter(source)
            vars(module)[kind] = value
        try:
            ids_1M = torch.zeros(flat_1MD.shape[:2], dtype=torch.long, device=hidden.device)
            logits_1MV: Tensor = self.model(input_ids=ids_1M).logits
        finally:
            given.fill(None, None)
            for (module, kind), _ in owners:
                del vars(module)[kind]
        return logits_1MV.view(*hidden.shape[:-1], -1)


class _GivenStates(nn.Module):
    """Replaces the body of a model of transformers and returns the states that it is given."""

    def __init__(self, words_name: str) -> None:
        super().__init__()
        self._path = words_name.split(".")
        self._hidden_1MD: Tensor | None = None

    def fill(self, hidden_1MD: Tensor | None, words_VE: Tensor | None) -> None:
        self._hidden_1MD = hidden_1MD
        # Some heads read the token embeddings from the body.
        found = SimpleNamespace(weight=words_VE)
        for name in reversed(self._path[1:]):
            found = SimpleNamespace(**{name: found})
        vars(self)[self._path[0]] = found

    def forward(self, *_: Any, **__: Any) -> _Outputs:
        return _Outputs([self._hidden_1MD])


class _Outputs(tuple[Tensor | None, ...]):
    @property
    def last_hidden_state(self) -> Tensor | None:
        return self[0]

    def __getattr__(self, name: str) -> None:
        """Return None for other outputs, such as attentions."""
        if name.startswith("__"):
            raise AttributeError(name)


def make_parts(config: EncoderConfig) -> tuple[ForeignEncoder, ForeignHead]:
    """Create a random encoder and its head from torch's global generator."""
    return split_model(make_model(config), config)


def make_model(config: EncoderConfig) -> PreTrainedModel:
    """Create the `...ForMaskedLM` model of transformers for a configuration."""
    found = make_config(config)
    model_class = find_class("AutoModelForMaskedLM", found)
    with quiet_transformers():
        model = model_class._from_config(
            found, dtype=torch.float32, attn_implementation=choose_attention(model_class)
        )
        model.tie_weights()  # `skip_initialization` also skips the ties
    return model


def make_config(config: EncoderConfig) -> PreTrainedConfig:
    """Return transformers' configuration of an encoder."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    with quiet_transformers():  # it warns about special ids of another vocabulary
        found = CONFIG_MAPPING[config.family].from_dict(json.loads(config.settings))
    found.vocab_size, found.pad_token_id = config.vocab_size, config.pad_id
    if config.position_offset:
        found.max_position_embeddings = config.position_offset + config.max_positions
    num_layers = found.num_hidden_layers
    if num_layers != config.num_layers:
        for key, value in list(vars(found).items()):
            if isinstance(value, list) and len(value) == num_layers:  # settings by layer
                setattr(found, key, value[: config.num_layers])
        found.num_hidden_layers = config.num_layers
    return found


def find_class(auto_class: str, config: PreTrainedConfig) -> type[PreTrainedModel]:
    """Return the class of transformers for an auto class; raise KeyError if it has none."""
    found: Any = getattr(transformers, auto_class)._model_mapping[type(config)]
    model_class: type[PreTrainedModel] = found[0] if isinstance(found, tuple) else found
    return model_class


def choose_attention(model_class: type[PreTrainedModel]) -> str:
    """Return torch's fused attention where a family has it."""
    # flash-attn would be another dependency.
    return "sdpa" if model_class._supports_sdpa else "eager"


def split_model(
    model: PreTrainedModel, config: EncoderConfig, folder: Path | None = None
) -> tuple[ForeignEncoder, ForeignHead]:
    """Take a `...ForMaskedLM` model apart into encoder and head; this changes the model."""
    body, prefix = model.base_model, model.base_model_prefix
    words = body.get_input_embeddings()
    if body is model or not isinstance(words, nn.Embedding):
        raise MetaXLMError(f"{config.family}: has no table of token embeddings to replace")
    words_name = _find_name(body, words)
    owners = {parameter: (body, name) for name, parameter in body.named_parameters()}
    if len(owners) < len(list(body.named_parameters(remove_duplicate=False))):
        raise MetaXLMError(f"{config.family}: its layers share parameters under several names")
    setattr(model, prefix, _GivenStates(words_name))
    ties: dict[str, str | None] = {}
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        place, source = owners.setdefault(parameter, (model, name))
        if (place, source) == (model, name):
            continue
        if place is body and parameter is not words.weight:
            raise MetaXLMError(f"{config.family}: its head uses {source} of its body")
        ties[name] = None if place is body else source
        module, kind = _split_name(model, name)
        del module._parameters[kind]
    return ForeignEncoder(body, config, folder), ForeignHead(model, ties, config)


@contextmanager
def skip_initialization() -> Iterator[None]:
    """Leave the weights of new models as they are in memory; they are loaded afterwards."""
    from transformers.initialization import no_init_weights

    with no_init_weights():
        yield


@cache
def find_token_rows(config: EncoderConfig) -> tuple[str, ...]:
    """Return the tensors of the head with one row for each token; reject other dependencies.

    They are those whose size changes with the vocabulary.
    """
    shapes = []
    for more in (0, 1):
        size = config.vocab_size + more
        with torch.device("meta"), skip_initialization():
            encoder, head = make_parts(replace(config, vocab_size=size))
        words = f"encoder.body.{_find_name(encoder.body, encoder.words)}.weight"
        tensors = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
        tensors |= {f"head.{name}": value for name, value in head.state_dict().items()}
        shapes.append({name: tuple(value.shape) for name, value in tensors.items()})
    before, after = shapes
    rows = [name for name in before if before[name] != after.get(name)]
    for name in rows:
        grown = (config.vocab_size + 1, *before[name][1:])
        if before[name][0] != config.vocab_size or after.get(name) != grown:
            fault = "depends on the vocabulary, but not with one row for each token"
            raise MetaXLMError(f"{config.family}: {name.partition('.')[2]} {fault}")
    if words not in rows or len(before) != len(after):
        raise MetaXLMError(f"{config.family}: its token embeddings do not follow vocab_size")
    in_body = [name for name in rows if name.startswith("encoder.") and name != words]
    if in_body:
        fault = "has one row for each token besides the token embeddings"
        raise MetaXLMError(f"{config.family}: {in_body[0].removeprefix('encoder.body.')} {fault}")
    return tuple(name.removeprefix("head.") for name in rows if name.startswith("head."))


def adapt_vocabulary(
    config: EncoderConfig, vocab_size: int, special_ids: Mapping[str, int | None]
) -> EncoderConfig:
    """Return the configuration for another vocabulary; `special_ids` has ids by role, as `pad`."""
    pad_id = special_ids["pad"]
    assert pad_id is not None
    offset = pad_id + 1 if config.position_offset else 0
    sizes = replace(config, vocab_size=vocab_size, pad_id=pad_id, position_offset=offset)
    found = make_config(sizes)
    for role, number in special_ids.items():
        for key in (f"{role}_token_id", f"{role}_index"):
            if getattr(found, key, None) is not None:
                setattr(found, key, number)
    return replace(sizes, settings=dump_config(found))


def list_special_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    """Return the ids of special tokens by role; `cls` and `bos` may be one token, as XLM-R's."""
    same = {"bos": "cls", "cls": "bos", "eos": "sep", "sep": "eos"}
    found = {role: getattr(tokenizer, f"{role}_token_id") for role in (*same, *_OTHER_ROLES)}
    return {
        role: found[same[role]] if number is None and role in same else number
        for role, number in found.items()
    }


def dump_config(config: PreTrainedConfig) -> str:
    """Return a configuration as the text of `EncoderConfig.settings`."""
    return json.dumps(json.loads(config.to_json_string()), sort_keys=True)


def list_sizes(config: EncoderConfig) -> set[str]:
    """Return which sizes of an encoder its config.json has; the others are derived."""
    if not config.settings:
        return set(_SIZES)
    found = make_config(config)
    return {ours for ours, theirs in _SIZES.items() if hasattr(found, theirs)}


def name_inputs(
    config: EncoderConfig, ids_BL: Tensor, mask_BL: Tensor | None, token_types_BL: Tensor | None
) -> dict[str, Tensor]:
    """Return the arguments of transformers' models, always with an attention mask."""
    mask_BL = torch.ones_like(ids_BL, dtype=torch.bool) if mask_BL is None else mask_BL
    inputs = {"input_ids": ids_BL, "attention_mask": mask_BL.long()}
    if token_types_BL is not None and config.num_token_types > 1:
        inputs["token_type_ids"] = token_types_BL
    return inputs


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Turn off the load reports and progress bars of transformers; we check the result."""
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def _count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _find_name(parent: nn.Module, child: nn.Module) -> str:
    name: str = next(name for name, module in parent.named_modules() if module is child)
    return name


def _split_name(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    place, _, kind = name.rpartition(".")
    return model.get_submodule(place), kind
