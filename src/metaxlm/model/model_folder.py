"""Find the folder of an encoder, and read its tensors.

The source is a path, a hub id, a variant of a run, or a sentence-transformers folder with the
encoder in a subfolder.
Weights are read from safetensors only, because loading a pickle can run code.
"""

from collections.abc import Collection
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError, naming
from metaxlm.files import read_json
from metaxlm.hub import CONFIG, MODULES, TOKENIZER_CONFIG, find_source, reject_code
from metaxlm.reading import open_file, reading

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

TOKENIZER_FILES = (
    "tokenizer.json", "vocab.json", "vocab.txt", "sentencepiece.bpe.model", "spiece.model",
    "spm.model",
)  # fmt: skip
_NEEDED = (CONFIG, TOKENIZER_CONFIG, "tokenizer.json", WEIGHTS)
_FILES = (
    CONFIG, "model*.safetensors", INDEX, *TOKENIZER_FILES, "merges.txt", TOKENIZER_CONFIG,
    "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip
SENTENCE_SETTINGS = "sentence_bert_config.json"  # of sentence-transformers, beside the encoder
SENTENCE_FILES = ("config_sentence_transformers.json",)  # beside modules.json
MODULE_FILES = (CONFIG, WEIGHTS, "pytorch_model.bin")  # of pooling, dense layers ...
# The encoder of a sentence-transformers folder may be in this subfolder.
_DOWNLOADED = [
    MODULES, *_FILES, *(f"0_Transformer/{name}" for name in (*_FILES, SENTENCE_SETTINGS)),
    SENTENCE_SETTINGS, *SENTENCE_FILES, *(f"[1-9]_*/{name}" for name in MODULE_FILES),
]  # fmt: skip


def find_folder(source: str | Path) -> Path:
    """Return the checked local folder with config.json; download it if necessary."""
    folder = find_source(source, _DOWNLOADED, _NEEDED)
    if not (folder / CONFIG).exists() and (folder / "model" / CONFIG).is_file():
        folder = folder / "model"  # a variant of a run
        reject_code(folder)
    require_whole(folder)
    if (folder / CONFIG).exists():
        return folder
    inner = _find_encoder(folder / MODULES) if (folder / MODULES).exists() else None
    if inner is None:
        raise MetaXLMError(f"{folder}: not a model folder, it has no {CONFIG}")
    reject_code(inner)
    return inner


def _find_encoder(path: Path) -> Path | None:
    """Return the subfolder of the encoder in modules.json of sentence-transformers."""
    modules = read_json(path)
    for module in modules if isinstance(modules, list) else []:
        # Other modules (pooling, normalization) have another kind of config.json.
        if is_transformer(module):
            folder = path.parent / Path(str(module.get("path"))).name
            return folder if (folder / CONFIG).exists() else None
    return None


def is_transformer(module: object) -> bool:
    """Return whether an entry of modules.json is the encoder."""
    return isinstance(module, dict) and str(module.get("type")).endswith(".Transformer")


def read_tensors(folder: Path, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """Read the tensors of a folder, all or those with the given names, from one or more files."""
    tensors: dict[str, Tensor] = {}
    for path in _find_weights(folder):
        open_file(path).close()  # rejects a missing file or a folder
        with (
            reading(path, SafetensorError, fix="damaged or cut off: copy or download it again"),
            safe_open(path, framework="pt") as file,
        ):
            chosen = [name for name in file.keys() if names is None or name in names]  # noqa: SIM118
            tensors.update({name: file.get_tensor(name) for name in chosen})
    return tensors


def _find_weights(folder: Path) -> list[Path]:
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
                raise MetaXLMError(f"{path}: named in {INDEX}, but missing; download it again")
        return paths
    others = sorted(p.name for p in folder.glob("pytorch_model*.bin"))
    found = f"only {others[0]}, a pickle that can run code" if others else f"no {WEIGHTS}"
    raise MetaXLMError(
        f"{folder}: has {found}; convert a checkpoint you trust with transformers: "
        "AutoModelForMaskedLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"
    )


def save_file(
    tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write tensors by name; an error names the file and the bytes it needs."""
    with naming(path, size=sum(tensor.nbytes for tensor in tensors.values())):
        safetensors.torch.save_file(tensors, path, metadata)
