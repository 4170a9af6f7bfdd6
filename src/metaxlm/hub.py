"""Find and load models of others: folders, and names on the Hugging Face hub; upload folders.

This is the only module that calls transformers' `Auto*.from_pretrained` and that uses the network
of the hub. It never runs code of a model, never asks on standard input, and never looks up a path
on the hub.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json

HUB = "hf:"  # marks a name on the hub, such as `hf:FacebookAI/xlm-roberta-base`
CONFIG = "config.json"
MODULES = "modules.json"
TOKENIZER_CONFIG = "tokenizer_config.json"

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_CODE_KEYS = ("auto_map", "custom_pipelines")


def is_hub_name(source: str | Path) -> bool:
    """Return whether a source is a name on the hub and cannot be a path here."""
    if isinstance(source, Path):
        return False
    looks_like_name = _HUB_NAME.fullmatch(source) and not os.path.lexists(source.split("/")[0])
    return source.startswith(HUB) or bool(looks_like_name)


def find_local(source: str | Path) -> Path | None:
    """Return the local folder that a source names; None if there is no such folder."""
    if not is_hub_name(source) and str(source):
        with suppress(OSError, RuntimeError, ValueError):  # too long, an unknown user, a NUL
            folder = Path(source).expanduser()
            if folder.is_file():
                raise MetaXLMError(f"{source}: a file; give the folder it is in")
            return folder if folder.is_dir() else None
    return None


def find_source(source: str | Path, patterns: Sequence[str], needed: Sequence[str]) -> Path:
    """Return the local folder of a path, or the cached or downloaded copy of a hub name.

    `patterns` are the files to download; a cached copy that has all files in `needed` suffices.
    """
    folder = find_local(source)
    if folder is None and is_hub_name(source):
        folder = _find_copy(str(source), patterns, needed)
    if folder is None:
        could_be_name = isinstance(source, str) and _HUB_NAME.fullmatch(source)
        hint = f" (for a model of the Hugging Face hub write {HUB}{source})"
        raise MetaXLMError(f"{source}: no such folder{hint if could_be_name else ''}")
    reject_code(folder)
    return folder


def _find_copy(source: str, patterns: Sequence[str], needed: Sequence[str]) -> Path:
    """Return the copy of a hub repository in the local cache; download it if it is incomplete."""
    name = source.removeprefix(HUB)
    if not _HUB_NAME.fullmatch(name):
        example = f"{HUB}FacebookAI/xlm-roberta-base"
        raise MetaXLMError(f"{source}: not a name on the Hugging Face hub, such as {example}")
    download = partial(huggingface_hub.snapshot_download, name, allow_patterns=list(patterns))
    with suppress(OSError, ValueError):
        cached = Path(download(local_files_only=True))
        if all((cached / file).exists() for file in needed):
            return cached
    try:
        return Path(download())
    except Exception as error:  # the HTTP library of the hub's client has exceptions of its own
        raise MetaXLMError(
            f"{source}: no such folder, and the Hugging Face hub did not provide {name} "
            f"({first_line(error)}); check the name and the connection, or download the model and "
            "give its folder"
        ) from error


def check_repository(name: str) -> str:
    """Return the name of a repository on the hub without its prefix; reject other text."""
    name = name.removeprefix(HUB)
    try:
        huggingface_hub.utils.validate_repo_id(name)
    except ValueError as error:
        raise MetaXLMError(
            f"{name}: not a name on the Hugging Face hub, such as USER/MODEL ({first_line(error)})"
        ) from error
    return name


def upload(folder: Path, repository: str, *, private: bool, message: str) -> str:
    """Upload the files of a folder to a model repository, made if necessary; return its address."""
    if huggingface_hub.get_token() is None:
        raise MetaXLMError(
            "not logged in to the Hugging Face hub; run `hf auth login`, or set HF_TOKEN to a "
            "token that can write"
        )
    api = huggingface_hub.HfApi()
    try:
        address = api.create_repo(repository, private=private or None, exist_ok=True)
        if private and not api.model_info(address.repo_id).private:
            raise MetaXLMError(
                f"{repository}: exists and is public, nothing was uploaded; make it private in its "
                "settings, or choose another name"
            )
        api.upload_folder(
            repo_id=address.repo_id, folder_path=folder, commit_message=message, repo_type="model"
        )
    except MetaXLMError:
        raise
    except Exception as error:  # the HTTP library of the hub's client has exceptions of its own
        raise MetaXLMError(f"{repository}: {_explain_upload(repository, error)}") from error
    return str(address)


def _explain_upload(repository: str, error: Exception) -> str:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if isinstance(error, huggingface_hub.errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set; unset it to upload"
    if status == 401:
        return "the Hugging Face hub does not accept the token; run `hf auth login` again"
    if status == 403:
        owner = repository.rpartition("/")[0]
        whose = f"to repositories of {owner}" if owner else "to it"
        return (
            f"your token may not write {whose}; choose a repository of yours, or a token with the "
            f"permission to write ({first_line(error)})"
        )
    if status is None and not isinstance(error, ValueError):
        return f"cannot reach the Hugging Face hub ({first_line(error)}); check the connection"
    return f"the Hugging Face hub rejected the upload ({' '.join(str(error).split())[:300]})"


def reject_code(folder: Path) -> None:
    """Reject a model folder that needs Python code of its own or of another package."""
    for path in sorted({*folder.glob("config*.json"), *folder.glob("tokenizer_config*.json")}):
        for key, value in _list_items(path):
            if (key in _CODE_KEYS and value) or (
                key == "tokenizer_class" and any(folder.glob("*.py")) and not _is_known(value)
            ):
                raise _code_error(path, key)
    if (folder / MODULES).exists():
        for key, value in _list_items(folder / MODULES):
            if key == "type" and not str(value).startswith("sentence_transformers."):
                raise _code_error(folder / MODULES, f"{key}: {value}")


def walk_json(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all JSON objects in a value, however deep."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def _list_items(path: Path) -> Iterator[tuple[str, Any]]:
    return (item for node in walk_json(read_json(path)) for item in node.items())


def _is_known(tokenizer_class: Any) -> bool:
    if not isinstance(tokenizer_class, str):
        return tokenizer_class is None
    name = tokenizer_class.removesuffix("Fast")
    return any(tokenizer_class_from_name(name + ending) is not None for ending in ("", "Fast"))


def _code_error(path: Path, what: str) -> MetaXLMError:
    return MetaXLMError(
        f"{path}: `{what}` asks for code that does not belong to transformers, and metaxlm does "
        "not run code of a model; use a model that transformers loads without trust_remote_code"
    )


def read_tokenizer(folder: Path, name: str) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a folder with transformers; errors begin with `name`."""
    reject_code(folder)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # tokenizers raises plain Exception for a broken file
        raise MetaXLMError(
            f"{name}: no tokenizer that transformers can load; is there a tokenizer.json? "
            f"({first_line(error)})"
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        kind = type(tokenizer).__name__
        raise MetaXLMError(f"{name}: {kind} is not a fast tokenizer; save a tokenizer.json")
    if not isinstance(tokenizer.model_max_length, int | float):
        raise MetaXLMError(
            f"{name}: model_max_length of its tokenizer is {tokenizer.model_max_length!r}; write a "
            "number into tokenizer_config.json"
        )
    tokenizer.name_or_path = name.removeprefix(HUB)
    return tokenizer


def read_auto_config(folder: Path) -> PreTrainedConfig:
    """Load the config.json of a folder as transformers' class for its `model_type`."""
    reject_code(folder)
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers raises many kinds for what it does not know
        values = read_json(folder / CONFIG)
        model_type = values.get("model_type") if isinstance(values, dict) else None
        raise MetaXLMError(
            f"{folder / CONFIG}: transformers {transformers.__version__} has no model_type "
            f"{str(model_type)!r} without code from elsewhere, which metaxlm does not run; use a "
            "family it knows"
        ) from error
    return config


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message, or the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip()
