"""Load any encoder to finetune or evaluate: ours, or another architecture through transformers.

Encoders that `families.py` supports run as our own; others (ELECTRA, DeBERTa, ALBERT, RemBERT,
XLM-R-XL ...) run as `ForeignEncoder`, with transformers' own task heads and the same interface.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from metaxlm import __version__
from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json
from metaxlm.hub import CONFIG, HUB
from metaxlm.manifest import atomic_folder
from metaxlm.model.encoder import EncoderConfig, NativeEncoder
from metaxlm.model.extras import read_extras
from metaxlm.model.families import read_config, translate_config
from metaxlm.model.foreign import ForeignEncoder, name_inputs, quiet_transformers
from metaxlm.model.foreign_folder import load_body, load_model, read_foreign_config
from metaxlm.model.front_matter import (
    INDEX,
    PIPELINES,
    Score,
    make_index,
    read_inherited,
    write_front_matter,
)
from metaxlm.model.heads import HeadKind, TaskModel, Transform, make_head
from metaxlm.model.huggingface import (
    CLASS_ENDINGS,
    export_task_model,
    is_native,
    load_pretrained,
    load_tokenizer,
    write_tokenizer,
)
from metaxlm.model.model_folder import WEIGHTS, find_folder, read_tensors, save_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds, and most runs never need it

TASK_FILE = "metaxlm_task.json"  # facts of a finetuned folder that config.json has no key for

# The last layer of transformers' task heads, which is not loaded for another task.
_OUTPUT_LAYERS = ("classifier", "qa_outputs", "score")


class ForeignTaskModel(nn.Module):
    """A model with transformers' own task head that returns logits only."""

    def __init__(
        self,
        model: PreTrainedModel,
        config: EncoderConfig,
        kind: HeadKind,
        order: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.kind = kind
        self.order = order  # the head's row of each label of the task, if they differ

    def forward(
        self, ids_BL: Tensor, mask_BL: Tensor | None = None, token_types_BL: Tensor | None = None
    ) -> Tensor:
        """Return logits: [B, C] of sequences, [B, L, C] of tokens, or [B, L, 2] of answer ends."""
        output = self.model(**name_inputs(self.config, ids_BL, mask_BL, token_types_BL))
        if self.kind == "span":
            return torch.stack([output.start_logits, output.end_logits], dim=-1)
        logits: Tensor = output.logits
        return logits if self.order is None else logits[..., list(self.order)]


@dataclass(frozen=True)
class AnyEncoder:
    """An encoder and its tokenizer."""

    source: str  # as the user named it
    tokenizer: PreTrainedTokenizerBase
    encoder: NativeEncoder | ForeignEncoder  # in float32, in evaluation mode, on the CPU
    head: nn.Module | None = None  # the pretrained head of one of our encoders


def load_encoder(source: str | Path) -> AnyEncoder:
    """Load an encoder from a local folder or a hub id, deterministically; reject decoders."""
    folder = find_folder(source)
    if is_native(folder):
        pretrained = load_pretrained(folder)
        head = pretrained.model.head if "head.dense.weight" not in pretrained.missing else None
        return AnyEncoder(str(source), pretrained.tokenizer, pretrained.model.encoder, head)
    found = read_foreign_config(folder)
    tokenizer = load_tokenizer(folder, found.vocab_size)
    return AnyEncoder(str(source), tokenizer, load_body(folder, found, tokenizer))


def check_encoder(folder: Path) -> None:
    """Reject a folder without an encoder that we can finetune, by its config.json alone."""
    if is_native(folder):
        translate_config(read_config(folder / CONFIG), folder / CONFIG)
    else:
        read_foreign_config(folder)


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
    config = copy.deepcopy(start.encoder.body.config)
    config.num_labels = 2 if kind == "span" else num_classes
    config.problem_type = None  # `save_finetuned` sets it
    found = start.encoder.tensors
    if folder is not None:
        found = read_tensors(folder)
    tensors = {name: found[name] for name in found if name.split(".")[0] not in _OUTPUT_LAYERS}
    model, _ = load_model(f"AutoModel{CLASS_ENDINGS[kind]}", config, tensors, folder)
    return ForeignTaskModel(model, start.encoder.config, kind).requires_grad_(True).train()


def find_output_layer(model: nn.Module) -> nn.Linear:
    """Return the last layer of a task model: the last one with as many outputs as labels."""
    assert isinstance(model, TaskModel | ForeignTaskModel)
    if isinstance(model, TaskModel):
        layer = model.head.get_submodule("output")
        assert isinstance(layer, nn.Linear)
        return layer
    layers = [layer for layer in model.model.modules() if isinstance(layer, nn.Linear)]
    return [layer for layer in layers if layer.out_features == model.model.config.num_labels][-1]


def find_label_rows(start: AnyEncoder, kind: HeadKind, labels: Sequence[str]) -> list[int] | None:
    """Return the row of each label in a model's own head; reject a head of another kind."""
    folder = find_folder(start.source)
    architecture = read_extras(folder).architecture
    if not architecture.endswith(CLASS_ENDINGS[kind]):
        found = f"a {architecture}" if architecture else "a model without a task head"
        raise MetaXLMError(
            f"{folder}: {found}, but epochs=0 scores the model's own head, which must be one "
            f"{CLASS_ENDINGS[kind]}; finetune it with epochs=1 or more"
        )
    if kind == "span":
        return None
    config = read_foreign_config(folder)
    if len(labels) == 1 == len(config.id2label or {}):
        return [0]  # the only output, whatever its name
    exact = {str(name): int(row) for row, name in (config.id2label or {}).items()}
    rows = {name.casefold(): row for name, row in exact.items()} | exact
    if unknown := [name for name in labels if name not in rows and name.casefold() not in rows]:
        raise MetaXLMError(
            f"{folder / CONFIG}: the task's label {unknown[0]!r} is not in id2label "
            f"({', '.join(map(str, config.id2label.values()))}); rename the labels there"
        )
    return [rows[name] if name in rows else rows[name.casefold()] for name in labels]


def load_task_model(start: AnyEncoder, kind: HeadKind, labels: Sequence[str]) -> nn.Module:
    """Return a model with its own head and the logits in the order of the labels."""
    order = find_label_rows(start, kind, labels)
    folder = find_folder(start.source)
    config, tensors = read_foreign_config(folder), read_tensors(folder)
    model, _ = load_model(f"AutoModel{CLASS_ENDINGS[kind]}", config, tensors, folder)
    return ForeignTaskModel(model, start.encoder.config, kind, order).eval()


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
    problem: str = "single_label_classification",
    scores: Iterable[Score] = (),
) -> None:
    """Write a folder that transformers loads with the same logits, atomically.

    `problem` is transformers' `problem_type` of a head that classifies sequences. `facts` (task,
    scores, seed ...) are stored in metaxlm_task.json and shown in the card; `scores` are listed in
    its front matter.
    """
    assert isinstance(model, TaskModel | ForeignTaskModel)
    names = {str(k): label for k, label in enumerate(labels)}
    about: dict[str, Any] = {"id2label": names}
    about["label2id"] = {label: int(k) for k, label in names.items()}
    about |= {"problem_type": problem} if kind == "classification" else {}
    config = start.encoder.config
    with atomic_folder(folder) as temporary:
        if isinstance(model, TaskModel):
            tensors, values = export_task_model(model, start.tokenizer, kind)
            values |= about if labels else {}
            save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
            (temporary / CONFIG).write_text(dump_json(values), encoding="utf-8", newline="\n")
        else:
            if labels and model.order is None:
                model.model.config.id2label = dict(enumerate(labels))
                model.model.config.label2id = {label: k for k, label in enumerate(labels)}
                model.model.config.problem_type = about.get("problem_type")
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
        (temporary / TASK_FILE).write_text(dump_json(task), encoding="utf-8", newline="\n")
        card = _write_card(start.source, kind, labels, length, facts, scores)
        (temporary / "README.md").write_text(card, encoding="utf-8", newline="\n")


def _write_card(
    source: str,
    kind: HeadKind,
    labels: Sequence[str],
    length: int,
    facts: Mapping[str, Any],
    scores: Iterable[Score],
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
    title = facts.get("title", facts.get("task", "Finetuned encoder"))
    front = {
        **read_inherited(source),
        "library_name": "transformers",
        "pipeline_tag": PIPELINES[CLASS_ENDINGS[kind]],
        "tags": ["metaxlm"],
        INDEX: make_index(str(title), scores),
    }
    return f"""{write_front_matter(front)}
# {title}

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
