"""The files of a model folder: which folder a name means, and the tensors in it.

In: a path, a Hugging Face hub id, or a sentence-transformers folder that keeps its encoder in a sub
folder. Out: the folder with config.json, and its weights by name. Weights are read as safetensors
only: a pickle can run code while it is read.
"""

from __future__ import annotations

import re
from pathlib import Path

import huggingface_hub
from safetensors import SafetensorError, safe_open
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.reading import open_file, reading

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
MODULES = "modules.json"

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
)
_NEEDED = (
    CONFIG,
    "model*.safetensors",
    INDEX,
    *TOKENIZER_FILES,
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# Where sentence-transformers puts the encoder when it is not beside modules.json.
_DOWNLOADED = [MODULES, *_NEEDED, *(f"0_Transformer/{name}" for name in _NEEDED)]


def find_folder(source: str | Path) -> Path:
    """Return the local folder that holds config.json, downloading a hub repository if need be."""
    folder = _find_root(source)
    if (folder / CONFIG).exists():
        return folder
    inner = _find_encoder(folder / MODULES) if (folder / MODULES).exists() else None
    if inner is None:
        raise MetaXLMError(f"{folder}: not a model folder, it has no {CONFIG}")
    return inner


def _find_root(source: str | Path) -> Path:
    """Return the folder itself, or the downloaded copy if the source is a hub id."""
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


def _find_encoder(path: Path) -> Path | None:
    """Return the sub folder of the encoder that sentence-transformers' modules.json names."""
    modules = read_json(path)
    for module in modules if isinstance(modules, list) else []:
        # The other modules (pooling, normalization) have a config.json of another kind.
        if isinstance(module, dict) and str(module.get("type")).endswith(".Transformer"):
            folder = path.parent / Path(str(module.get("path"))).name
            return folder if (folder / CONFIG).exists() else None
    return None


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read every tensor of a folder, from one file or from its shards."""
    tensors: dict[str, Tensor] = {}
    for path in _find_weights(folder):
        open_file(path).close()  # refuses what is missing, or no file
        with (
            reading(path, SafetensorError, fix="damaged or cut off: copy or download it again"),
            safe_open(path, framework="pt") as file,
        ):
            tensors.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
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
