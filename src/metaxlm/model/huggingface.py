"""Load and save encoders as Hugging Face folders.

Load a folder or hub id as a `MaskedLM` with its tokenizer: our own encoder for one of our
`families`, transformers' modules for others (`foreign_folder.py`). Save a model as a folder that
transformers loads without our code: the `...ForMaskedLM` class of the model's family, or for our
encoders and task models the class of transformers that computes the same.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json, read_json
from metaxlm.hub import CONFIG, read_tokenizer
from metaxlm.manifest import atomic_folder
from metaxlm.model.encoder import Encoder, EncoderConfig, NativeEncoder
from metaxlm.model.extras import Extras
from metaxlm.model.families import (
    FAMILIES,
    export_config,
    export_tensors,
    import_tensors,
    read_config,
    translate_config,
)
from metaxlm.model.foreign_folder import (
    describe_folder,
    load_masked_lm,
    read_foreign_config,
    save_masked_lm,
)
from metaxlm.model.heads import HeadKind, TaskModel
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.model.model_folder import (
    TOKENIZER_FILES,
    WEIGHTS,
    find_folder,
    read_tensors,
    save_file,
)

CLASS_ENDINGS: dict[HeadKind, str] = {  # of transformers' classes
    "classification": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "span": "ForQuestionAnswering",
}

_SPECIAL_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@dataclass(frozen=True)
class Pretrained:
    """A loaded encoder."""

    model: MaskedLM  # in float32, in evaluation mode
    tokenizer: PreTrainedTokenizerBase
    architecture: str  # the class that config.json names, such as `RobertaForMaskedLM`
    missing: tuple[str, ...]  # parameters of the MLM head that are randomly initialized
    folder: Path | None = None  # `read_extras` reads the rest of it, such as a task head


def load_pretrained(source: str | Path) -> Pretrained:
    """Load an encoder and its tokenizer from a local folder or the hub, deterministically."""
    folder = find_folder(source)
    if not is_native(folder):
        found = read_foreign_config(folder)
        tokenizer = load_tokenizer(folder, found.vocab_size)
        model, missing = load_masked_lm(folder, found, tokenizer)
        name = (found.architectures or [f"{found.model_type} model"])[0]
        return Pretrained(model, tokenizer, name, missing, folder)
    values = read_config(folder / CONFIG)
    config, family = translate_config(values, folder / CONFIG)
    tensors = read_tensors(folder)
    try:
        state, missing = import_tensors(tensors, config, family)
    except MetaXLMError as error:
        raise MetaXLMError(f"{folder}: {error}") from error
    model = MaskedLM.from_state(config, state)
    tokenizer = load_tokenizer(folder, config.vocab_size, config.pad_id)
    return Pretrained(model, tokenizer, values["architectures"][0], missing, folder)


def is_native(folder: Path) -> bool:
    """Return whether our own encoder computes the model of a folder."""
    values = read_json(folder / CONFIG)
    return isinstance(values, dict) and str(values.get("model_type")) in FAMILIES


def read_encoder_config(folder: Path) -> EncoderConfig:
    """Read the configuration of the encoder in a folder without its weights."""
    if is_native(folder):
        config, _ = translate_config(read_config(folder / CONFIG), folder / CONFIG)
        return config
    found = read_foreign_config(folder)
    return describe_folder(folder, found, load_tokenizer(folder, found.vocab_size))


def save_pretrained(
    model: MaskedLM,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    card: str,
    extras: Extras | None = None,
) -> None:
    """Write a folder of the model's family with the same outputs; `card` becomes README.md.

    With a task head in `extras`, transformers loads the folder both as the task model and, with
    `AutoModelForMaskedLM`, as the language model.
    """
    config, extras = model.config, extras or Extras()
    _check_tokenizer(tokenizer, config.vocab_size, config.pad_id, "the tokenizer")
    with atomic_folder(folder) as temporary:
        if config.settings:
            save_masked_lm(model, temporary, extras)
        else:
            family = FAMILIES[config.family]
            tensors = export_tensors(model.state_dict(), family) | extras.tensors
            save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
            class_name = extras.architecture or f"{family.class_prefix}ForMaskedLM"
            values = extras.values | _make_config(config, tokenizer, class_name)
            (temporary / CONFIG).write_text(dump_json(values), encoding="utf-8", newline="\n")
        extras.write_files(temporary, config.family, config.max_positions)
        has_types = config.num_token_types > 1
        write_tokenizer(temporary, tokenizer, config.max_positions, has_token_types=has_types)
        (temporary / "README.md").write_text(card, encoding="utf-8", newline="\n")


def export_encoder(
    encoder: NativeEncoder, tokenizer: PreTrainedTokenizerBase
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and config.json of the model without a head in transformers."""
    family = FAMILIES[encoder.config.family]
    values = _make_config(encoder.config, tokenizer, f"{family.class_prefix}Model")
    state = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
    return export_tensors(state, family), values


def export_task_model(
    model: TaskModel, tokenizer: PreTrainedTokenizerBase, kind: HeadKind
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and config.json of the transformers class with the same logits."""
    encoder = model.encoder
    if encoder.config.family == "distilbert" and kind == "classification":
        # DistilBERT's own classifier has another activation; as BERT it computes the same.
        config = replace(encoder.config, family="bert", num_token_types=1)
        types_1D = torch.zeros(1, config.hidden_size)
        state = encoder.state_dict() | {"embeddings.token_types.weight": types_1D}
        encoder = Encoder(config)
        encoder.load_state_dict(state)
    tensors, values = export_encoder(encoder, tokenizer)
    family = FAMILIES[values["model_type"]]
    values["architectures"] = [f"{family.class_prefix}{CLASS_ENDINGS[kind]}"]
    modules = {
        "classification": dict(zip(("dense", "output"), family.classifier, strict=True)),
        "tagging": {"output": "classifier"},
        "span": {"output": "qa_outputs"},
    }[kind]
    if family.is_rotary:
        modules = {f"transform.{part}": f"head.{part}" for part in ("dense", "norm")}
        modules["output"] = "classifier"
    for ours, theirs in modules.items():
        for part, value in model.head.get_submodule(ours).state_dict().items():
            tensors[f"{theirs}.{part}"] = value.detach().to("cpu", torch.float32, copy=True)
    return tensors, values


def _make_config(
    config: EncoderConfig, tokenizer: PreTrainedTokenizerBase, class_name: str
) -> dict[str, Any]:
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    ends = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    has_ends = FAMILIES[config.family].is_rotary  # and defaults for them
    return export_config(config) | {
        **(ends if has_ends else {}),
        "architectures": [class_name],
        "bos_token_id": tokenizer.cls_token_id if bos is None else bos,
        "eos_token_id": tokenizer.sep_token_id if eos is None else eos,
        # Without a version, transformers 5.17 warns that the tokenizer may be Mistral's.
        "transformers_version": "5.0.0",
    }


def load_tokenizer(
    folder: Path, vocab_size: int, pad_id: int | None = None
) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a folder and check that it belongs to the model."""
    # Without any vocabulary file transformers would build an empty tokenizer and not complain.
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise MetaXLMError(f"{folder}: has no tokenizer; put its tokenizer.json there")
    tokenizer = read_tokenizer(folder, str(folder))
    _check_tokenizer(tokenizer, vocab_size, pad_id, f"{folder}: its tokenizer")
    return tokenizer


def _check_tokenizer(
    tokenizer: PreTrainedTokenizerBase, vocab_size: int, pad_id: int | None, name: str
) -> None:
    fault = ""
    if len(tokenizer) > vocab_size:
        fault = f"has {len(tokenizer)} tokens, but the model only {vocab_size} rows"
    elif pad_id is not None and tokenizer.pad_token_id != pad_id:
        fault = f"pads with id {tokenizer.pad_token_id}, but the model with {pad_id}"
    if fault:
        raise MetaXLMError(f"{name} {fault}; use the tokenizer the model was trained with")


def write_tokenizer(
    folder: Path, tokenizer: PreTrainedTokenizerBase, max_length: int, *, has_token_types: bool
) -> None:
    """Write tokenizer.json and tokenizer_config.json so that `AutoTokenizer` loads the same."""
    roles = {f"{role}_token": getattr(tokenizer, f"{role}_token") for role in _SPECIAL_ROLES}
    types = ["token_type_ids"] if has_token_types else []
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    files = {
        # Truncation and padding of earlier calls do not belong to the tokenizer.
        "tokenizer.json": {**backend, "truncation": None, "padding": None},
        "tokenizer_config.json": {
            # The generic class takes tokenizer.json unchanged; XLMRobertaTokenizer would rebuild
            # its normalizer and pre-tokenizer from the vocabulary.
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{role: str(token) for role, token in roles.items() if token is not None},
            "model_input_names": ["input_ids", *types, "attention_mask"],
            "model_max_length": max_length,
            "clean_up_tokenization_spaces": False,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(dump_json(content), encoding="utf-8", newline="\n")
