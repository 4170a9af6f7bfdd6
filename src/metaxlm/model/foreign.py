"""Encoders of other families: a model folder comes in, an encoder with our face goes out.

The paper compares with encoders as they are published (Section 4.2). Those that `families.py`
cannot compute (ModernBERT, ELECTRA, DeBERTa, MPNet, ALBERT, RemBERT, XLM-R-XL and the like) are
computed by transformers, with its own task heads, so that they can be finetuned and evaluated
beside ours. Weights are read as safetensors only and no code of a folder is run. A model that does
not read both ways, or whose vectors change with padding, is refused: it would only look bad.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from metaxlm.errors import MetaXLMError
from metaxlm.hub import CONFIG, read_auto_config
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.families import explain_decoder
from metaxlm.model.heads import HeadKind
from metaxlm.model.model_folder import read_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds, and most runs never need it

DEFAULT_POSITIONS = 512
"""Longest sequence of a model that has no limit and whose tokenizer names none."""

_HEAD_CLASSES = {
    "classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "tagging": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
    "span": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
}
_PROBLEM_TYPE = {"classification": "single_label_classification"}
# What transformers' task heads call their last layer: a finetuned folder's is left behind.
_OUTPUT_LAYERS = ("classifier", "qa_outputs", "score")
# Far from a rounding error, and far below what one more token does.
_TOLERANCE = 1e-3


class ForeignEncoder(nn.Module):
    """An encoder that transformers computes, with the face of our own `Encoder`."""

    def __init__(self, body: PreTrainedModel, config: EncoderConfig, folder: Path) -> None:
        super().__init__()
        self.body = body
        self.config = config
        self.folder = folder

    def forward(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states, [B, L, D]; what stands at padding is meaningless."""
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
        """Return the embedding output (layer 0) and the output of each layer, [B, L, D] each.

        transformers computes all layers; those after the `deepest` are left out here.
        """
        inputs = name_inputs(self.config, ids_BL, mask_BL, token_types_BL)
        output = self.body(**inputs, output_hidden_states=True)
        # Some families normalize once more after the last layer.
        states = [*output.hidden_states[:-1], output.last_hidden_state]
        return states if deepest is None else states[: deepest + 1]


class ForeignTaskModel(nn.Module):
    """A model with transformers' own task head, whose answer is the logits alone."""

    def __init__(self, model: PreTrainedModel, config: EncoderConfig, kind: HeadKind) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.kind = kind

    def forward(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return logits: [B, C] of a sequence, [B, L, C] of tokens, [B, L, 2] of answers' ends."""
        output = self.model(**name_inputs(self.config, ids_BL, mask_BL, token_types_BL))
        if self.kind == "span":
            return torch.stack([output.start_logits, output.end_logits], dim=-1)
        logits: Tensor = output.logits
        return logits


def load_foreign(folder: Path, tokenizer: PreTrainedTokenizerBase) -> ForeignEncoder:
    """Load the encoder of a folder through transformers, in float32 and evaluation mode.

    What its files lack (at most the pooler, which nothing here uses) is drawn from a fixed seed,
    and torch's generators stay as they are.
    """
    found = read_foreign_config(folder)
    model_class = _find_class("MODEL_MAPPING", found, folder)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        body = _load_model(model_class, found, read_tensors(folder), folder)
    config = describe_encoder(body, tokenizer, folder)
    encoder = ForeignEncoder(body, config, folder).eval()
    _probe(encoder)
    return encoder


def make_foreign_task_model(
    encoder: ForeignEncoder, kind: HeadKind, num_classes: int
) -> ForeignTaskModel:
    """Read the folder again, under transformers' task head; what is new is drawn by torch."""
    folder = encoder.folder
    config = read_foreign_config(folder)
    model_class = _find_class(_HEAD_CLASSES[kind], config, folder)
    config.num_labels = 2 if kind == "span" else num_classes
    config.problem_type = _PROBLEM_TYPE.get(kind)
    tensors = {
        name: tensor
        for name, tensor in read_tensors(folder).items()
        if name.split(".")[0] not in _OUTPUT_LAYERS
    }
    model = _load_model(model_class, config, tensors, folder)
    return ForeignTaskModel(model, encoder.config, kind).requires_grad_(True).train()


def load_task_model(
    folder: Path, tokenizer: PreTrainedTokenizerBase, kind: HeadKind
) -> ForeignTaskModel:
    """Load a finetuned folder with the head that is in it, in evaluation mode."""
    found = read_foreign_config(folder)
    model_class = _find_class(_HEAD_CLASSES[kind], found, folder)
    model = _load_model(model_class, found, read_tensors(folder), folder, needs_head=True)
    config = describe_encoder(model.base_model, tokenizer, folder)
    return ForeignTaskModel(model, config, kind).eval()


def read_foreign_config(folder: Path) -> PreTrainedConfig:
    """Read config.json through transformers; refuse what is no bidirectional encoder."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    path = folder / CONFIG
    config = read_auto_config(folder)
    model_type = config.model_type
    is_decoder = getattr(config, "is_decoder", False)
    is_encoder = model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if not is_encoder or is_decoder or config.is_encoder_decoder:
        reason = "is set to be a decoder here" if is_decoder else explain_decoder(model_type)
        reason = reason or "is not trained to fill masks in"
        raise MetaXLMError(
            f"{path}: model_type is {model_type!r}, which {reason}; "
            "metaxlm finetunes and evaluates encoders that read both ways"
        )
    if hasattr(config, "reference_compile"):
        config.reference_compile = False  # ModernBERT would compile itself where it finds a GPU
    return config


def describe_encoder(
    body: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> EncoderConfig:
    """Return the sizes of a foreign encoder that batches, windows and tables need."""
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
    try:
        return EncoderConfig(
            vocab_size=found.vocab_size,
            hidden_size=found.hidden_size,
            num_layers=found.num_hidden_layers,
            num_heads=found.num_attention_heads,
            ffn_size=getattr(found, "intermediate_size", 4 * found.hidden_size),
            max_positions=num_positions,
            pad_id=pad_id,
            position_offset=offset,
            num_token_types=max(1, getattr(found, "type_vocab_size", 1)) if has_types else 1,
        )
    except MetaXLMError as error:
        raise MetaXLMError(f"{folder / CONFIG}: {error}") from error


def name_inputs(
    config: EncoderConfig, ids_BL: Tensor, mask_BL: Tensor | None, token_types_BL: Tensor | None
) -> dict[str, Tensor]:
    """Return what transformers' models take; without a mask they would guess one from the ids."""
    mask_BL = torch.ones_like(ids_BL, dtype=torch.bool) if mask_BL is None else mask_BL
    inputs = {"input_ids": ids_BL, "attention_mask": mask_BL.long()}
    if token_types_BL is not None and config.num_token_types > 1:
        inputs["token_type_ids"] = token_types_BL
    return inputs


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' load reports and progress bars from the user; we check and say it."""
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def _find_class(mapping: str, config: PreTrainedConfig, folder: Path) -> type[PreTrainedModel]:
    """Return transformers' class for a configuration, from one of its mappings."""
    try:
        found: Any = getattr(transformers, mapping)[type(config)]
    except KeyError as error:
        raise MetaXLMError(
            f"{folder}: transformers has no such head for {config.model_type!r}; "
            "leave this kind of task out for this model"
        ) from error
    model_class: type[PreTrainedModel] = found[0] if isinstance(found, tuple) else found
    return model_class


def _load_model(
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    tensors: dict[str, Tensor],
    folder: Path,
    *,
    needs_head: bool = False,
) -> PreTrainedModel:
    """Fill a class with tensors; only its head and its pooler may be new, if they may."""
    try:
        with quiet_transformers():
            model, report = model_class.from_pretrained(
                None,
                config=config,
                state_dict=tensors,
                dtype=torch.float32,
                # The ready kernels of flash-attn are a dependency of their own.
                attn_implementation="sdpa" if model_class._supports_sdpa else "eager",
                output_loading_info=True,
            )
    except Exception as error:  # a shape, a quantization, a file of another kind: many classes
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise MetaXLMError(
            f"{folder}: transformers cannot load it as {model_class.__name__} ({reason}); "
            "config.json and the weights must belong together"
        ) from error
    prefix = f"{model.base_model_prefix}." if model.base_model is not model else ""
    lost = [
        name
        for name in report["missing_keys"]
        if needs_head or (name.startswith(prefix) and "pooler" not in name)
    ]
    if lost:
        raise MetaXLMError(
            f"{folder}: its files lack {len(lost)} parameters, such as {min(lost)}; "
            "use a complete checkpoint"
        )
    return model


def _count_positions(body: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Return the longest sequence, and the row of the first position (pad_id + 1, or 0)."""
    for name, module in body.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            offset = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - offset, offset
    announced = getattr(body.config, "max_position_embeddings", None)
    for limit in (announced, tokenizer.model_max_length):
        # A tokenizer without a limit says 10^30.
        if limit is not None and 0 < limit < 1_000_000:
            return limit, 0
    return DEFAULT_POSITIONS, 0


def _probe(encoder: ForeignEncoder) -> None:
    """Refuse a model that padding disturbs, or whose first token does not see the last."""
    config = encoder.config
    spread = torch.linspace(0, config.vocab_size - 1, 8).long()
    ids_1L = spread[spread != config.pad_id][None, :6]
    other_1L = torch.cat([ids_1L[:, :-1], ids_1L[:, :1]], dim=1)
    padded_1L = torch.cat([ids_1L, torch.full((1, 3), config.pad_id)], dim=1)
    mask_1L = torch.arange(padded_1L.shape[1])[None] < ids_1L.shape[1]
    try:
        with torch.inference_mode():
            plain_1LD, changed_1LD = encoder(ids_1L), encoder(other_1L)
            beside_1LD = encoder(padded_1L, mask_1L)[:, : ids_1L.shape[1]]
    except Exception as error:  # models with inputs of other kinds fail in many ways
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise MetaXLMError(
            f"{encoder.folder}: does not encode plain token ids ({reason})"
        ) from error
    if plain_1LD.shape != (*ids_1L.shape, config.hidden_size):
        raise MetaXLMError(f"{encoder.folder}: gives no vector of {config.hidden_size} a token")
    if (plain_1LD - beside_1LD).abs().max() > _TOLERANCE * plain_1LD.abs().max():
        raise MetaXLMError(
            f"{encoder.folder}: padding changes its vectors, so that its scores would depend on "
            "the batch; metaxlm does not evaluate it"
        )
    if torch.equal(plain_1LD[:, 0], changed_1LD[:, 0]):
        raise MetaXLMError(
            f"{encoder.folder}: its first token does not see the last: it does not read both ways"
        )
