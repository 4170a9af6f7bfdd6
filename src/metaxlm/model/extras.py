"""What a model folder has besides the encoder and the MLM head: a task head, sentence modules.

`match` and training change the encoder and the MLM head only. `Extras` carries the rest from folder
to folder, so that a classifier stays a classifier and a sentence-transformers folder stays one. It
has raw tensors, keys of config.json and files, and it works for every family of transformers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json, read_json
from metaxlm.hub import CONFIG, MODULES, TOKENIZER_CONFIG, first_line, read_auto_config
from metaxlm.model.model_folder import (
    MODULE_FILES,
    SENTENCE_FILES,
    SENTENCE_SETTINGS,
    is_transformer,
    read_tensors,
)
from metaxlm.reading import read_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WITHOUT_HEAD = ("Model", "ForMaskedLM", "ForPreTraining")  # endings of classes
# Keys of config.json that describe a head; others, such as ids of special tokens, do not fit a new
# vocabulary.
_HEAD_KEYS = re.compile("label|problem_type|classif|dropout|finetuning_task|pooler|qa_|summary_")


@dataclass(frozen=True)
class Extras:
    """The parts of a folder that neither `match` nor training changes."""

    architecture: str = ""  # class with the task head, such as `BertForTokenClassification`
    tensors: dict[str, Tensor] = field(default_factory=dict)  # of the task head, in float32
    values: dict[str, Any] = field(default_factory=dict)  # keys of config.json, such as `id2label`
    files: dict[str, bytes] = field(default_factory=dict)  # of sentence-transformers

    def describe(self) -> str:
        """Return one sentence about the parts; empty if there are none."""
        if self.architecture:
            labels = len(self.values.get("id2label") or ())
            count = f" with {labels} labels" if labels else ""
            return f"the task head of {self.architecture}{count} is kept unchanged"
        return "the folder remains one of sentence-transformers" if self.files else ""

    def write_files(self, folder: Path, model_type: str, max_positions: int) -> None:
        """Write the files of sentence-transformers beside an encoder."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        if self.files:
            path = folder / SENTENCE_SETTINGS
            settings = read_json(path)
            settings["max_seq_length"] = min(settings["max_seq_length"], max_positions)
            for key, values in describe_pooler(model_type).items():
                settings[key] = (settings.get(key) or {}) | values
            path.write_text(dump_json(settings), encoding="utf-8", newline="\n")


def read_extras(folder: Path | None) -> Extras:
    """Read the task head and the sentence modules of a model folder, if it has any."""
    if folder is None:
        return Extras()
    values = read_json(folder / CONFIG)
    architecture = str((values.get("architectures") or ["Model"])[0])
    files = dict(_read_modules(folder))
    if architecture.endswith(_WITHOUT_HEAD):
        return Extras(files=files)
    kept = {key: value for key, value in values.items() if _HEAD_KEYS.search(key)}
    return Extras(architecture, _read_head(folder, architecture), kept, files)


def describe_pooler(model_type: str) -> dict[str, Any]:
    """Return the settings with which sentence-transformers loads an encoder without a pooler.

    Without them, transformers reports newly initialized weights of a pooler that is not used.
    """
    config = type(transformers.AutoConfig.for_model(model_type))
    model_class: Any = transformers.AutoModel._model_mapping[config]
    model_class = model_class[0] if isinstance(model_class, tuple) else model_class
    takes = "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
    return {"model_args": {"add_pooling_layer": False}} if takes else {}


def _read_head(folder: Path, architecture: str) -> dict[str, Tensor]:
    """Read the tensors that transformers' class has beyond the encoder, including a pooler."""
    config = read_auto_config(folder)
    model_class: type[PreTrainedModel] | None = getattr(transformers, architecture, None)
    if not isinstance(model_class, type):
        raise MetaXLMError(f"{folder / CONFIG}: transformers has no class {architecture}")
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = model_class(config)
    except Exception as error:  # wrong settings raise many kinds
        raise MetaXLMError(
            f"{folder / CONFIG}: transformers cannot make a {architecture} of it "
            f"({first_line(error)}); correct the settings"
        ) from error
    prefix = f"{model.base_model_prefix}."
    shapes = {
        name: tensor.shape
        for name, tensor in model.state_dict().items()
        if not name.startswith(prefix) or name.startswith(f"{prefix}pooler.")
    }
    found = read_tensors(folder, {*shapes, *(name.removeprefix(prefix) for name in shapes)})
    head = {}
    for name, shape in shapes.items():
        tensor = found.get(name, found.get(name.removeprefix(prefix)))
        fault = _find_fault(tensor, shape, config.num_labels)
        if tensor is None or fault:
            raise MetaXLMError(f"{folder}: {name} of its {architecture} {fault}")
        head[name] = tensor.float()
    return head


def _find_fault(tensor: Tensor | None, shape: torch.Size, num_labels: int) -> str:
    if tensor is None:
        return "is missing; use a complete checkpoint"
    if tensor.shape != shape:
        if shape[:1] == (num_labels,) and tensor.shape[1:] == shape[1:]:
            fix = f"name {len(tensor)} labels in id2label and label2id"
            return f"has {len(tensor)} rows, but config.json has {num_labels} labels; {fix}"
        wanted = f"but config.json makes it {tuple(shape)}"
        return f"has shape {tuple(tensor.shape)}, {wanted}; the two files do not belong together"
    if not tensor.is_floating_point():
        kind = str(tensor.dtype).removeprefix("torch.")
        return f"is stored as {kind}; use float32, float16 or bfloat16"
    return ""


def _read_modules(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a sentence-transformers folder, as if the encoder were at its top."""
    root = folder if (folder / MODULES).is_file() else folder.parent
    listed = read_json(root / MODULES) if (root / MODULES).is_file() else None
    modules = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    encoders = [module for module in modules if is_transformer(module)]
    if not encoders or root / Path(str(encoders[0].get("path"))).name != folder:
        return
    moved = [module | {"path": ""} if is_transformer(module) else module for module in modules]
    yield MODULES, dump_json(moved).encode()
    settings = _read_settings(folder / SENTENCE_SETTINGS)
    if not isinstance(settings.get("max_seq_length"), int):
        limit = _read_settings(folder / TOKENIZER_CONFIG).get("model_max_length")
        settings["max_seq_length"] = limit if isinstance(limit, int) else 1_000_000
    yield SENTENCE_SETTINGS, dump_json(settings).encode()
    for name in SENTENCE_FILES:
        if (root / name).is_file():
            yield name, read_bytes(root / name)
    for module in modules:
        if is_transformer(module):
            continue
        place = Path(str(module.get("path"))).name
        names = [name for name in MODULE_FILES if (root / place / name).is_file()]
        # Normalization has no settings, and its folder may be missing.
        if not place or (not names and not str(module.get("type")).endswith(".Normalize")):
            raise MetaXLMError(
                f"{root / MODULES}: names the module {place or module!r}, but "
                f"{root / place / CONFIG} is missing; copy the whole folder again, or delete the "
                "copy in the cache of the hub"
            )
        for name in names:
            yield f"{place}/{name}", read_bytes(root / place / name)


def _read_settings(path: Path) -> dict[str, Any]:
    values = read_json(path) if path.is_file() else {}
    return values if isinstance(values, dict) else {}
