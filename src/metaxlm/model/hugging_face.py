"""The way to and from Hugging Face folders: import an encoder of any size, export what was trained.

In: a folder or hub id of a BERT, RoBERTa, CamemBERT or XLM-RoBERTa encoder, which serves as the
monolingual model of the paper's Section 3.1 or as any model to evaluate. Out: a `MaskedLM` with its
tokenizer; or, from those, an `XLMRobertaForMaskedLM` folder that `AutoModel` and `AutoTokenizer`
load without any code of ours. Weights are read and written as safetensors only: a pickle can run
code while it is read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_path, read_json
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.names import (
    BERT_HEAD,
    ROBERTA_HEAD,
    HeadNames,
    export_tensors,
    import_tensors,
)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"

_BASES = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "camembert": "CamembertModel",
    "xlm-roberta": "XLMRobertaModel",
}
# Classes whose body is the plain bidirectional encoder; their task heads are left behind.
_ARCHITECTURES = re.compile(
    "(Bert|Roberta|Camembert|XLMRoberta)(Model|ForMaskedLM|ForPreTraining|ForMultipleChoice"
    "|ForNextSentencePrediction|For(Sequence|Token)Classification|ForQuestionAnswering)"
)
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
)
_DOWNLOADED = [
    CONFIG,
    "model*.safetensors",
    INDEX,
    *_TOKENIZER_FILES,
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
]
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
    """Load an encoder and its tokenizer from a local folder or a hub id."""
    folder = _find_folder(source)
    values = _read_config(folder / CONFIG)
    config, head = _translate_config(values, folder / CONFIG)
    tensors = _read_tensors(folder)
    try:
        state, missing = import_tensors(tensors, config, head)
    except MetaXLMError as error:
        raise MetaXLMError(f"{folder}: {error}") from error
    with torch.device("meta"):
        model = MaskedLM(config)
    model.load_state_dict(state, assign=True)
    tokenizer = _load_tokenizer(folder, config)
    architecture = values["architectures"][0]
    return Pretrained(model.eval(), tokenizer, architecture, missing)


def save_pretrained(
    model: MaskedLM, tokenizer: PreTrainedTokenizerBase, folder: Path, card: str
) -> None:
    """Write an `XLMRobertaForMaskedLM` folder whose vectors are the model's own.

    The same model, tokenizer and card give the same bytes, and an interruption leaves the old
    folder or none. `card` becomes README.md.
    """
    _check_tokenizer(tokenizer, model.config, "the tokenizer")
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        save_file(export_tensors(model), temporary / WEIGHTS, metadata={"format": "pt"})
        _dump(temporary / CONFIG, _export_config(model.config, tokenizer))
        backend = json.loads(tokenizer.backend_tokenizer.to_str())
        # What earlier calls asked for (a length, a padding side) is no property of the tokenizer.
        _dump(temporary / "tokenizer.json", {**backend, "truncation": None, "padding": None})
        _dump(temporary / "tokenizer_config.json", _export_tokenizer(model.config, tokenizer))
        (temporary / "README.md").write_text(card, encoding="utf-8")


def _find_folder(source: str | Path) -> Path:
    """Return a local folder, downloading a hub repository if the source is an id."""
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise MetaXLMError(f"{path}: is a file; give the folder that holds {CONFIG}")
    if isinstance(source, Path) or not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", str(source)):
        raise MetaXLMError(f"{path}: no such folder")
    try:
        return Path(huggingface_hub.snapshot_download(str(source), allow_patterns=_DOWNLOADED))
    except (OSError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].strip()
        raise MetaXLMError(
            f"{source}: neither a folder here nor a model that the Hugging Face hub gave us "
            f"({reason}); check the name, the connection and HF_HUB_OFFLINE"
        ) from error


def _read_config(path: Path) -> dict[str, Any]:
    """Read config.json, filled up with the family's defaults; refuse what is no such encoder."""
    if not path.exists():
        raise MetaXLMError(f"{path.parent}: not a model folder, it has no {CONFIG}")
    found = read_json(path)
    model_type = found.get("model_type") if isinstance(found, dict) else None
    if model_type not in _BASES:
        raise MetaXLMError(
            f"{path}: model_type is {model_type!r}; metaxlm reads {', '.join(sorted(_BASES))}"
        )
    values: dict[str, Any] = {**AutoConfig.for_model(model_type).to_dict(), **found}
    names = values["architectures"] = found.get("architectures") or [_BASES[model_type]]
    if not isinstance(names, list) or not _ARCHITECTURES.fullmatch(str(names[0])):
        raise MetaXLMError(
            f"{path}: architecture {names} is not supported; metaxlm reads {_BASES[model_type]}, "
            f"{_BASES[model_type].replace('Model', 'ForMaskedLM')} and their finetuned forms"
        )
    return values


def _translate_config(values: dict[str, Any], path: Path) -> tuple[EncoderConfig, HeadNames]:
    """Turn transformers' configuration into ours; refuse what our encoder does not compute."""
    required = {
        "hidden_act": ("gelu", "gelu_python"),
        "position_embedding_type": ("absolute", None),
        "is_decoder": (False, None),
        "add_cross_attention": (False, None),
        "is_encoder_decoder": (False, None),
    }
    for key, allowed in required.items():
        if values.get(key) not in allowed:
            raise MetaXLMError(
                f"{path}: {key} is {values[key]!r}; metaxlm computes only {allowed[0]!r}"
            )
    is_bert = values["model_type"] == "bert"
    pad_id = _integer(values, "pad_token_id", path)
    offset = 0 if is_bert else pad_id + 1
    try:
        config = EncoderConfig(
            vocab_size=_integer(values, "vocab_size", path),
            hidden_size=_integer(values, "hidden_size", path),
            num_layers=_integer(values, "num_hidden_layers", path),
            num_heads=_integer(values, "num_attention_heads", path),
            ffn_size=_integer(values, "intermediate_size", path),
            max_positions=_integer(values, "max_position_embeddings", path) - offset,
            pad_id=pad_id,
            position_offset=offset,
            num_token_types=_integer(values, "type_vocab_size", path),
            norm_eps=_real(values, "layer_norm_eps", path),
            dropout=_real(values, "hidden_dropout_prob", path),
            attention_dropout=_real(values, "attention_probs_dropout_prob", path),
        )
    except MetaXLMError as error:
        raise MetaXLMError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error
    return config, BERT_HEAD if is_bert else ROBERTA_HEAD


def _integer(values: dict[str, Any], key: str, path: Path) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MetaXLMError(f"{path}: {key} is {value!r}; it must be a whole number")
    return value


def _real(values: dict[str, Any], key: str, path: Path) -> float:
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise MetaXLMError(f"{path}: {key} is {value!r}; it must be a number")
    return float(value)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read every tensor of a folder, from one file or from its shards."""
    tensors: dict[str, Tensor] = {}
    for path in _find_weights(folder):
        try:
            with safe_open(path, framework="pt") as file:
                tensors.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise MetaXLMError(
                f"{path}: damaged or cut off ({reason}); copy or download it again"
            ) from error
    return tensors


def _find_weights(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder."""
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / INDEX).exists():
        index = read_json(folder / INDEX)
        shards = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(shards, dict) or not shards:
            raise MetaXLMError(f"{folder / INDEX}: has no weight_map; download it again")
        paths = [folder / Path(name).name for name in sorted(set(map(str, shards.values())))]
        for path in paths:
            if not path.exists():
                raise MetaXLMError(f"{path}: named in {INDEX}, but not there; download it again")
        return paths
    others = sorted(p.name for p in folder.glob("pytorch_model*.bin"))
    found = f"only {others[0]}, a pickle that can run code" if others else f"no {WEIGHTS}"
    raise MetaXLMError(
        f"{folder}: has {found}; convert a checkpoint you trust with transformers: "
        "AutoModelForMaskedLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"
    )


def _load_tokenizer(folder: Path, config: EncoderConfig) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a folder."""
    # Without any vocabulary file transformers would build an empty tokenizer and not complain.
    if not any((folder / name).exists() for name in _TOKENIZER_FILES):
        raise MetaXLMError(f"{folder}: has no tokenizer; put its tokenizer.json there")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # tokenizers raises plain Exception for a broken file
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise MetaXLMError(f"{folder}: its tokenizer cannot be loaded ({reason})") from error
    _check_tokenizer(tokenizer, config, f"{folder}: its tokenizer")
    return tokenizer


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: EncoderConfig, who: str) -> None:
    """Refuse a tokenizer that does not belong to the model."""
    if not tokenizer.is_fast:
        raise MetaXLMError(f"{who} is not a fast one; convert it to tokenizer.json")
    if len(tokenizer) > config.vocab_size:
        raise MetaXLMError(
            f"{who} has {len(tokenizer)} tokens, but the model only {config.vocab_size} rows; "
            "use the tokenizer the model was trained with"
        )
    if tokenizer.pad_token_id != config.pad_id:
        raise MetaXLMError(
            f"{who} pads with id {tokenizer.pad_token_id}, but the model with {config.pad_id}; "
            "use the tokenizer the model was trained with"
        )


def _export_config(config: EncoderConfig, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return config.json of the exported folder."""
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


def _export_tokenizer(config: EncoderConfig, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return tokenizer_config.json of the exported folder."""
    roles = {f"{role}_token": getattr(tokenizer, f"{role}_token") for role in _SPECIAL_ROLES}
    return {
        # The generic class takes tokenizer.json as it stands; XLMRobertaTokenizer would rebuild
        # its normalizer and pre-tokenizer from the vocabulary.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{role: str(token) for role, token in roles.items() if token is not None},
        # The exported model has one token type, so a pair's second half must not ask for another.
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": config.max_positions,
        "clean_up_tokenization_spaces": False,
    }


def _dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
