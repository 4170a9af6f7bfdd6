"""Finetuned models on disk: a model with its head comes in, a folder for transformers goes out.

What phase (c) of the paper (Section 3.3) trains can be used without metaxlm: the folder loads with
`AutoModelForSequenceClassification`, `...TokenClassification` or `...QuestionAnswering` and gives
the same logits. Our encoders become XLM-RoBERTa where positions start after the padding's row, and
BERT where they start at row 0. Back in come such folders, or any that transformers' users share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from metaxlm import __version__
from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json, read_json
from metaxlm.hub import CONFIG, HUB
from metaxlm.manifest import atomic_folder
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.model.encoder import Encoder, EncoderConfig
from metaxlm.model.foreign import (
    ForeignTaskModel,
    load_task_model,
    quiet_transformers,
    read_foreign_config,
)
from metaxlm.model.heads import HeadKind, TaskModel
from metaxlm.model.hugging_face import export_config, load_tokenizer, write_tokenizer
from metaxlm.model.model_folder import WEIGHTS, find_folder, save_file
from metaxlm.model.names import BERT, ROBERTA, name_parts

TASK_FILE = "metaxlm_task.json"
"""What transformers has no place for: kind, labels, longest sequence, stride, and facts."""

DEFAULT_LENGTH = 512
"""Longest sequence for a folder of another origin, if its model reads so much."""

DEFAULT_STRIDE = 128
"""Tokens that neighboring windows share, for a folder of another origin."""

_CLASS_ENDINGS: dict[HeadKind, str] = {
    "classification": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "span": "ForQuestionAnswering",
}
_PIPELINES: dict[HeadKind, str] = {
    "classification": "text-classification",
    "tagging": "token-classification",
    "span": "question-answering",
}
# Our heads' layers to transformers'. BERT's pooler is the dense layer and tanh of ours.
_XLMR_HEADS: dict[HeadKind, dict[str, str]] = {
    "classification": {"dense": "classifier.dense", "output": "classifier.out_proj"},
    "tagging": {"output": "classifier"},
    "span": {"output": "qa_outputs"},
}
_BERT_HEADS: dict[HeadKind, dict[str, str]] = {
    **_XLMR_HEADS,
    "classification": {"dense": "bert.pooler.dense", "output": "classifier"},
}


@dataclass(frozen=True)
class FinetunedModel:
    """A model that answers, as it was found in a folder."""

    model: nn.Module
    """`forward(ids_BL, mask_BL, token_types_BL)` gives logits; in evaluation mode."""
    tokenizer: PreTrainedTokenizerBase
    config: EncoderConfig
    kind: HeadKind
    labels: tuple[str, ...]
    """In the order of the logits; empty for questions."""
    length: int
    """Longest sequence, special tokens included."""
    stride: int
    """Tokens that neighboring windows of a context share."""


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
    """Write a folder that transformers loads with the same logits.

    The same model and facts give the same bytes, and an interruption leaves the old folder or
    none. `facts` (task, scores, seed ...) are kept in metaxlm_task.json and shown in the card.
    """
    assert isinstance(model, TaskModel | ForeignTaskModel)
    names = {str(k): label for k, label in enumerate(labels)}
    about = {"id2label": names, "label2id": {label: int(k) for k, label in names.items()}}
    config = start.encoder.config
    with atomic_folder(folder) as temporary:
        if isinstance(model, TaskModel):
            tensors, values = _export_ours(model, start.tokenizer, kind)
            values |= about if labels else {}
            save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
            (temporary / CONFIG).write_text(dump_json(values), encoding="utf-8")
        else:
            _save_foreign(model, temporary, tuple(labels))
        has_types = config.num_token_types > 1
        write_tokenizer(temporary, start.tokenizer, config.max_positions, has_token_types=has_types)
        task = {
            "kind": kind,
            "labels": list(labels),
            "length": length,
            "stride": stride,
            "facts": dict(facts),
            "metaxlm": __version__,
        }
        (temporary / TASK_FILE).write_text(dump_json(task), encoding="utf-8")
        card = _write_card(start, kind, labels, length, facts)
        (temporary / "README.md").write_text(card, encoding="utf-8")


def load_finetuned(source: str | Path) -> FinetunedModel:
    """Load a folder of `save_finetuned`, or any that transformers knows with such a head."""
    folder = find_folder(source)
    kind = _find_kind(folder)
    tokenizer = load_tokenizer(folder, read_foreign_config(folder).vocab_size)
    model = load_task_model(folder, tokenizer, kind)
    labels = () if kind == "span" else _read_labels(model, folder)
    ours = read_json(folder / TASK_FILE) if (folder / TASK_FILE).is_file() else {}
    if not isinstance(ours, dict):
        raise MetaXLMError(f"{folder / TASK_FILE}: not an object; restore it or delete it")
    if ours and ours.get("labels") != list(labels):
        raise MetaXLMError(f"{folder}: {TASK_FILE} and {CONFIG} name different labels")
    length = ours.get("length", min(DEFAULT_LENGTH, model.config.max_positions))
    stride = ours.get("stride", min(DEFAULT_STRIDE, length // 4 if isinstance(length, int) else 0))
    limits = {"length": (length, model.config.max_positions), "stride": (stride, 1 << 31)}
    for name, (value, most) in limits.items():
        if not isinstance(value, int) or not 0 <= value <= most:
            raise MetaXLMError(
                f"{folder / TASK_FILE}: {name} is {value!r}; it must be a whole number from 0 "
                f"to {most:,}"
            )
    return FinetunedModel(model, tokenizer, model.config, kind, labels, length, stride)


def _export_ours(
    model: TaskModel, tokenizer: PreTrainedTokenizerBase, kind: HeadKind
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and config.json of the transformers class that computes the same."""
    tensors, values = export_encoder(model.encoder, tokenizer)
    is_bert = values["model_type"] == "bert"
    values["architectures"] = [f"{'Bert' if is_bert else 'XLMRoberta'}{_CLASS_ENDINGS[kind]}"]
    if kind == "classification":
        values["problem_type"] = "single_label_classification"
    heads = (_BERT_HEADS if is_bert else _XLMR_HEADS)[kind]
    for ours, theirs in heads.items():
        for part, value in model.head.get_submodule(ours).state_dict().items():
            tensors[f"{theirs}.{part}"] = _copy(value)
    return tensors, values


def export_encoder(
    encoder: Encoder, tokenizer: PreTrainedTokenizerBase
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and config.json of the `BertModel` or `XLMRobertaModel` that is the same."""
    config = encoder.config
    is_bert = config.position_offset == 0
    names, prefix = (BERT, "bert") if is_bert else (ROBERTA, "roberta")
    values = export_config(config, tokenizer) | {
        "architectures": ["BertModel" if is_bert else "XLMRobertaModel"],
        "model_type": "bert" if is_bert else "xlm-roberta",
        "max_position_embeddings": config.position_offset + config.max_positions,
        "type_vocab_size": config.num_token_types,
    }
    state = encoder.state_dict()
    tensors: dict[str, Tensor] = {}
    for ours, theirs in name_parts(encoder.config.num_layers, names).items():
        if ours.startswith("encoder."):
            parts = state[ours.removeprefix("encoder.")].chunk(len(theirs))
            for name, part in zip(theirs, parts, strict=True):
                tensors[f"{prefix}.{name}"] = _copy(part)
    return tensors, values


def _copy(tensor: Tensor) -> Tensor:
    copied = tensor.detach().to("cpu", torch.float32, copy=True)
    return copied.contiguous()


def _save_foreign(model: ForeignTaskModel, folder: Path, labels: tuple[str, ...]) -> None:
    """Let transformers write its own model."""
    if labels:
        model.model.config.id2label = dict(enumerate(labels))
        model.model.config.label2id = {label: k for k, label in enumerate(labels)}
    with quiet_transformers():
        state = {name: _copy(tensor) for name, tensor in model.model.state_dict().items()}
        model.model.save_pretrained(folder, state_dict=state)


def _find_kind(folder: Path) -> HeadKind:
    """Return the kind of the head that config.json names."""
    values = read_json(folder / CONFIG)
    found = values.get("architectures") if isinstance(values, dict) else None
    architecture = str(found[0]) if isinstance(found, list) and found else "none"
    for kind, ending in _CLASS_ENDINGS.items():
        if architecture.endswith(ending):
            return kind
    raise MetaXLMError(
        f"{folder / CONFIG}: its architecture is {architecture}, which has no task head; give a "
        "finetuned model, such as `metaxlm evaluate --keep-models` writes"
    )


def _read_labels(model: ForeignTaskModel, folder: Path) -> tuple[str, ...]:
    """Return the labels in the order of the logits; refuse what is no choice between labels."""
    config = model.model.config
    problem = getattr(config, "problem_type", None)
    if config.num_labels < 2 or problem in ("regression", "multi_label_classification"):
        raise MetaXLMError(
            f"{folder / CONFIG}: predicts {problem or 'a number'}, not one label of several; "
            "metaxlm does not serve such a model"
        )
    return tuple(str(config.id2label[k]) for k in range(config.num_labels))


def _write_card(
    start: AnyEncoder,
    kind: HeadKind,
    labels: Sequence[str],
    length: int,
    facts: Mapping[str, Any],
) -> str:
    """Return README.md: what the model is, and what its maker tells about it."""
    auto_class = f"AutoModel{_CLASS_ENDINGS[kind]}"
    # The way to a folder here tells nobody else anything; its last parts may.
    telling = [
        part for part in Path(start.source.removeprefix(HUB)).parts if part not in ("/", "model")
    ]
    rows = [
        ("started from", "/".join(telling[-2:])),
        ("labels", ", ".join(labels)),
        ("longest sequence", f"{length} tokens"),
        *((str(key), value) for key, value in facts.items()),
    ]
    shown = [(key, str(value).replace("|", "\\|").replace("\n", " ")) for key, value in rows]
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {_PIPELINES[kind]}",
        "tags: [metaxlm]",
        "---",
        "",
        f"# {facts.get('title', facts.get('task', 'Finetuned encoder'))}",
        "",
        f"Finetuned by metaxlm {__version__}. It loads without it:",
        "",
        "```python",
        f"from transformers import {auto_class}, AutoTokenizer",
        "",
        f"model = {auto_class}.from_pretrained(FOLDER)",
        "tokenizer = AutoTokenizer.from_pretrained(FOLDER)",
        "```",
        "",
        "| | |",
        "|---|---|",
        *(f"| {key} | {value} |" for key, value in shown if value),
    ]
    return "\n".join(lines) + "\n"
