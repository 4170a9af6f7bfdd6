"""Load any encoder to finetune or evaluate: ours, or another architecture through transformers.

Section 4.2 of the paper compares published encoders. Those that `families.py` supports run as our
own; others (ELECTRA, DeBERTa, ALBERT, RemBERT, XLM-R-XL ...) run as `ForeignEncoder`, with
transformers' own task heads and the same interface. Weights are read from safetensors only, and no
code of a folder is run. Models that are not bidirectional, or whose vectors change with padding,
are rejected.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from metaxlm import __version__
from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json, read_json
from metaxlm.hub import CONFIG, HUB, first_line, read_auto_config
from metaxlm.manifest import atomic_folder
from metaxlm.model.encoder import EncoderConfig, NativeEncoder
from metaxlm.model.families import FAMILIES, read_config, translate_config
from metaxlm.model.heads import HeadKind, TaskModel, Transform, make_head
from metaxlm.model.huggingface import (
    CLASS_ENDINGS,
    export_task_model,
    load_pretrained,
    load_tokenizer,
    write_tokenizer,
)
from metaxlm.model.masked_lm import MaskedLMHead
from metaxlm.model.model_folder import WEIGHTS, find_folder, read_tensors, save_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds, and most runs never need it

TASK_FILE = "metaxlm_task.json"  # facts of a finetuned folder that config.json has no key for
DEFAULT_POSITIONS = 512  # of a model that has no limit and whose tokenizer has none

_PIPELINES: dict[HeadKind, str] = {
    "classification": "text-classification",
    "tagging": "token-classification",
    "span": "question-answering",
}
# The last layer of transformers' task heads, which is not loaded for another task.
_OUTPUT_LAYERS = ("classifier", "qa_outputs", "score")
_TOLERANCE = 1e-3  # far above rounding errors, far below the effect of one more token


class ForeignEncoder(nn.Module):
    """An encoder of transformers with the interface of our own."""

    def __init__(self, body: PreTrainedModel, config: EncoderConfig, folder: Path) -> None:
        super().__init__()
        self.body = body
        self.config = config
        self.folder = folder

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


class ForeignTaskModel(nn.Module):
    """A model with transformers' own task head that returns logits only."""

    def __init__(self, model: PreTrainedModel, config: EncoderConfig, kind: HeadKind) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.kind = kind

    def forward(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return logits: [B, C] of sequences, [B, L, C] of tokens, or [B, L, 2] of answer ends."""
        output = self.model(**name_inputs(self.config, ids_BL, mask_BL, token_types_BL))
        if self.kind == "span":
            return torch.stack([output.start_logits, output.end_logits], dim=-1)
        logits: Tensor = output.logits
        return logits


@dataclass(frozen=True)
class AnyEncoder:
    """An encoder and its tokenizer."""

    source: str  # as the user named it
    tokenizer: PreTrainedTokenizerBase
    encoder: NativeEncoder | ForeignEncoder  # in float32, in evaluation mode, on the CPU
    head: MaskedLMHead | None = None  # pretrained, of one of our encoders


def load_encoder(source: str | Path) -> AnyEncoder:
    """Load an encoder from a local folder or a hub id, deterministically; reject decoders."""
    folder = find_folder(source)
    if _is_ours(folder):
        pretrained = load_pretrained(folder)
        head = pretrained.model.head if "head.dense.weight" not in pretrained.missing else None
        return AnyEncoder(str(source), pretrained.tokenizer, pretrained.model.encoder, head)
    found = _read_foreign_config(folder)
    tokenizer = load_tokenizer(folder, found.vocab_size)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # initializes a missing pooler, which is not used
        body = _load_model("AutoModel", found, read_tensors(folder), folder)
    encoder = ForeignEncoder(body, _describe_encoder(body, tokenizer, folder), folder).eval()
    _probe(encoder)
    return AnyEncoder(str(source), tokenizer, encoder)


def check_encoder(folder: Path) -> None:
    """Reject a folder without an encoder that we can finetune, by its config.json alone."""
    if _is_ours(folder):
        translate_config(read_config(folder / CONFIG), folder / CONFIG)
    else:
        _read_foreign_config(folder)


def _is_ours(folder: Path) -> bool:
    values = read_json(folder / CONFIG)
    return isinstance(values, dict) and values.get("model_type") in FAMILIES


def make_task_model(start: AnyEncoder, kind: HeadKind, num_classes: int) -> nn.Module:
    """Return a copy of the encoder with a new head from torch's generator, in training mode."""
    if not isinstance(start.encoder, ForeignEncoder):
        encoder = copy.deepcopy(start.encoder)
        head = make_head(kind, encoder.config, num_classes)
        if start.head is not None and isinstance(head.transform, Transform):
            for name, parameter in head.transform.named_parameters():
                parameter.data.copy_(start.head.get_parameter(name))
        return TaskModel(encoder, head).requires_grad_(True).train()
    folder = start.encoder.folder
    config = _read_foreign_config(folder)
    config.num_labels = 2 if kind == "span" else num_classes
    config.problem_type = "single_label_classification" if kind == "classification" else None
    found = read_tensors(folder)
    tensors = {name: found[name] for name in found if name.split(".")[0] not in _OUTPUT_LAYERS}
    model = _load_model(f"AutoModel{CLASS_ENDINGS[kind]}", config, tensors, folder)
    return ForeignTaskModel(model, start.encoder.config, kind).requires_grad_(True).train()


def save_finetuned(
    model: nn.Module,
    start: AnyEncoder,
    folder: Path,
    *,
    kind: HeadKind,
    labels: Sequence[str],
    length: int,
    stride: int,
    facts: Mapping[str, Any],
) -> None:
    """Write a folder that transformers loads with the same logits, atomically.

    `facts` (task, scores, seed ...) are stored in metaxlm_task.json and shown in the card.
    """
    assert isinstance(model, TaskModel | ForeignTaskModel)
    names = {str(k): label for k, label in enumerate(labels)}
    about = {"id2label": names, "label2id": {label: int(k) for k, label in names.items()}}
    config = start.encoder.config
    with atomic_folder(folder) as temporary:
        if isinstance(model, TaskModel):
            tensors, values = export_task_model(model, start.tokenizer, kind)
            values |= about if labels else {}
            save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
            (temporary / CONFIG).write_text(dump_json(values), encoding="utf-8")
        else:
            if labels:
                model.model.config.id2label = dict(enumerate(labels))
                model.model.config.label2id = {label: k for k, label in enumerate(labels)}
            state = {
                name: tensor.detach().to("cpu", torch.float32, copy=True).contiguous()
                for name, tensor in model.model.state_dict().items()
            }
            with quiet_transformers():
                model.model.save_pretrained(temporary, state_dict=state)
        has_types = config.num_token_types > 1
        write_tokenizer(temporary, start.tokenizer, config.max_positions, has_token_types=has_types)
        task: dict[str, Any] = {"kind": kind, "labels": list(labels), "length": length}
        task |= {"stride": stride, "facts": dict(facts), "metaxlm": __version__}
        (temporary / TASK_FILE).write_text(dump_json(task), encoding="utf-8")
        card = _write_card(start.source, kind, labels, length, facts)
        (temporary / "README.md").write_text(card, encoding="utf-8")


def _write_card(
    source: str, kind: HeadKind, labels: Sequence[str], length: int, facts: Mapping[str, Any]
) -> str:
    auto_class = f"AutoModel{CLASS_ENDINGS[kind]}"
    # The card is published: show the last parts of a local path only.
    parts = [part for part in Path(source.removeprefix(HUB)).parts if part not in ("/", "model")]
    rows = {
        "started from": "/".join(parts[-2:]),
        "labels": ", ".join(labels),
        "longest sequence": f"{length} tokens",
        **facts,
    }
    shown = {key: str(value).replace("|", "\\|").replace("\n", " ") for key, value in rows.items()}
    table = "\n".join(f"| {key} | {value} |" for key, value in shown.items() if value)
    return f"""---
library_name: transformers
pipeline_tag: {_PIPELINES[kind]}
tags: [metaxlm]
---

# {facts.get("title", facts.get("task", "Finetuned encoder"))}

Finetuned with metaxlm {__version__}. Load it with transformers:

```python
from transformers import {auto_class}, AutoTokenizer

model = {auto_class}.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
```

| | |
|---|---|
{table}
"""


def _read_foreign_config(folder: Path) -> PreTrainedConfig:
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
            "metaxlm finetunes and evaluates encoders that read both ways"
        )
    return config


def _describe_encoder(
    body: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> EncoderConfig:
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


def _load_model(
    auto_class: str, config: PreTrainedConfig, tensors: dict[str, Tensor], folder: Path
) -> PreTrainedModel:
    """Load tensors into the class of an auto class; only the head and the pooler may be missing."""
    try:
        found: Any = getattr(transformers, auto_class)._model_mapping[type(config)]
    except KeyError as error:
        raise MetaXLMError(
            f"{folder}: transformers has no such head for {config.model_type!r}; "
            "leave this kind of task out for this model"
        ) from error
    model_class: type[PreTrainedModel] = found[0] if isinstance(found, tuple) else found
    try:
        with quiet_transformers():
            model, report = model_class.from_pretrained(
                None,
                config=config,
                state_dict=tensors,
                dtype=torch.float32,
                # flash-attn would be another dependency.
                attn_implementation="sdpa" if model_class._supports_sdpa else "eager",
                output_loading_info=True,
            )
    except Exception as error:  # wrong shapes, quantized weights, other files: many classes
        raise MetaXLMError(
            f"{folder}: transformers cannot load it as {model_class.__name__} "
            f"({first_line(error)}); config.json and the weights must belong together"
        ) from error
    prefix = f"{model.base_model_prefix}." if model.base_model is not model else ""
    missing = report["missing_keys"]
    if lost := [name for name in missing if name.startswith(prefix) and "pooler" not in name]:
        raise MetaXLMError(
            f"{folder}: its files lack {len(lost)} parameters, such as {min(lost)}; "
            "use a complete checkpoint"
        )
    return model


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


def _probe(encoder: ForeignEncoder) -> None:
    """Reject a model whose vectors depend on padding, or whose first token ignores the last."""
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
        raise MetaXLMError(
            f"{encoder.folder}: does not encode plain token ids ({first_line(error)})"
        ) from error
    fault = ""
    if plain_1LD.shape != (*ids_1L.shape, config.hidden_size):
        fault = f"its output is not one vector of {config.hidden_size} per token"
    elif (plain_1LD - beside_1LD).abs().max() > _TOLERANCE * plain_1LD.abs().max():
        fault = "padding changes its vectors, so that its scores would depend on the batch; "
        fault += "metaxlm does not evaluate it"
    elif torch.equal(plain_1LD[:, 0], changed_1LD[:, 0]):
        fault = "its first token does not see the last: it does not read both ways"
    if fault:
        raise MetaXLMError(f"{encoder.folder}: {fault}")
