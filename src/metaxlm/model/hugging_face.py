"""The way to and from Hugging Face folders: import an encoder of any size, export what was trained.

In: a folder or hub id of an encoder of one of our `families`, which serves as the monolingual model
of the paper's Section 3.1 or as any model to evaluate. Out: a `MaskedLM` with its tokenizer; or,
from those, an `XLMRobertaForMaskedLM` folder that `AutoModel` and `AutoTokenizer` load without any
code of ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json
from metaxlm.hub import CONFIG, read_tokenizer
from metaxlm.manifest import atomic_folder
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.families import read_config, translate_config
from metaxlm.model.model_folder import (
    TOKENIZER_FILES,
    WEIGHTS,
    find_folder,
    read_tensors,
    save_file,
)
from metaxlm.model.names import export_tensors, import_tensors

_SPECIAL_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@dataclass(frozen=True)
class Pretrained:
    """An encoder as it was found, ready to use."""

    model: MaskedLM
    """In float32, in evaluation mode."""
    tokenizer: PreTrainedTokenizerBase
    architecture: str
    """The transformers class that the folder names, such as `RobertaForMaskedLM`."""
    missing: tuple[str, ...]
    """Parameters that were not in the files and are freshly drawn (at most the MLM head's)."""


def load_pretrained(source: str | Path) -> Pretrained:
    """Load an encoder and its tokenizer from a local folder or the hub.

    What the files lack of the MLM head is drawn from a fixed seed: the same folder always gives
    the same model, and torch's generators stay as they are.
    """
    folder = find_folder(source)
    values = read_config(folder / CONFIG)
    config, names = translate_config(values, folder / CONFIG)
    tensors = read_tensors(folder)
    try:
        state, missing = import_tensors(tensors, config, names)
    except MetaXLMError as error:
        raise MetaXLMError(f"{folder}: {error}") from error
    with torch.device("meta"):
        model = MaskedLM(config)
    model.load_state_dict(state, assign=True)
    tokenizer = load_tokenizer(folder, config.vocab_size, config.pad_id)
    architecture = values["architectures"][0]
    return Pretrained(model.eval(), tokenizer, architecture, missing)


def save_pretrained(
    model: MaskedLM, tokenizer: PreTrainedTokenizerBase, folder: Path, card: str
) -> None:
    """Write an `XLMRobertaForMaskedLM` folder whose vectors are the model's own.

    The same model, tokenizer and card give the same bytes, and an interruption leaves the old
    folder or none. `card` becomes README.md.
    """
    _check_tokenizer(tokenizer, model.config.vocab_size, model.config.pad_id, "the tokenizer")
    with atomic_folder(folder) as temporary:
        save_file(export_tensors(model), temporary / WEIGHTS, metadata={"format": "pt"})
        config = dump_json(export_config(model.config, tokenizer))
        (temporary / CONFIG).write_text(config, encoding="utf-8")
        # The exported model has one token type, so a pair's second half must not ask for another.
        write_tokenizer(temporary, tokenizer, model.config.max_positions, has_token_types=False)
        (temporary / "README.md").write_text(card, encoding="utf-8")


def load_tokenizer(
    folder: Path, vocab_size: int, pad_id: int | None = None
) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a folder; `pad_id` is the model's where it depends on it."""
    # Without any vocabulary file transformers would build an empty tokenizer and not complain.
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise MetaXLMError(f"{folder}: has no tokenizer; put its tokenizer.json there")
    tokenizer = read_tokenizer(folder, str(folder))
    _check_tokenizer(tokenizer, vocab_size, pad_id, f"{folder}: its tokenizer")
    return tokenizer


def _check_tokenizer(
    tokenizer: PreTrainedTokenizerBase, vocab_size: int, pad_id: int | None, who: str
) -> None:
    """Refuse a tokenizer that does not belong to the model."""
    if not tokenizer.is_fast:
        raise MetaXLMError(f"{who} is not a fast one; convert it to tokenizer.json")
    if not isinstance(tokenizer.model_max_length, int | float):
        raise MetaXLMError(
            f"{who} has the model_max_length {tokenizer.model_max_length!r}; write a number into "
            "tokenizer_config.json"
        )
    if len(tokenizer) > vocab_size:
        raise MetaXLMError(
            f"{who} has {len(tokenizer)} tokens, but the model only {vocab_size} rows; "
            "use the tokenizer the model was trained with"
        )
    if pad_id is not None and tokenizer.pad_token_id != pad_id:
        raise MetaXLMError(
            f"{who} pads with id {tokenizer.pad_token_id}, but the model with {pad_id}; "
            "use the tokenizer the model was trained with"
        )


def export_config(config: EncoderConfig, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return config.json of an exported `XLMRobertaForMaskedLM`."""
    bos, eos, cls, sep = (
        getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "cls", "sep")
    )
    return {
        "architectures": ["XLMRobertaForMaskedLM"],
        "model_type": "xlm-roberta",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.ffn_size,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.pad_id + 1 + config.max_positions,
        "type_vocab_size": 1,
        "layer_norm_eps": config.norm_eps,
        "pad_token_id": config.pad_id,
        "bos_token_id": cls if bos is None else bos,
        "eos_token_id": sep if eos is None else eos,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def write_tokenizer(
    folder: Path, tokenizer: PreTrainedTokenizerBase, max_length: int, *, has_token_types: bool
) -> None:
    """Write tokenizer.json and tokenizer_config.json so that `AutoTokenizer` loads the same."""
    roles = {f"{role}_token": getattr(tokenizer, f"{role}_token") for role in _SPECIAL_ROLES}
    types = ["token_type_ids"] if has_token_types else []
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    files = {
        # What earlier calls asked for (a length, a padding side) is no property of the tokenizer.
        "tokenizer.json": {**backend, "truncation": None, "padding": None},
        "tokenizer_config.json": {
            # The generic class takes tokenizer.json as it stands; XLMRobertaTokenizer would
            # rebuild its normalizer and pre-tokenizer from the vocabulary.
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{role: str(token) for role, token in roles.items() if token is not None},
            "model_input_names": ["input_ids", *types, "attention_mask"],
            "model_max_length": max_length,
            "clean_up_tokenization_spaces": False,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(dump_json(content), encoding="utf-8")
