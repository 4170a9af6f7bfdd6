"""Vocabularies that exist already: XLM-R's, or any other tokenizer of Hugging Face.

Comes in: a folder or a hub id. Goes out: a fast tokenizer that has every special token pretraining
needs. The paper (section 4.1) takes XLM-R's 250K pieces, `xlm-roberta-base` here. A folder with a
SentencePiece model alone (`sentencepiece.bpe.model`, `spiece.model`) is converted, ids in XLM-R's
layout, so that its own file gives XLM-R's own ids.
"""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.reading import read_bytes, tell_reason
from metaxlm.vocabulary.unigram import fast_tokenizer

_ROLES = {
    "mask": ("mask_token",),
    "padding": ("pad_token",),
    "unknown": ("unk_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
}
_FEWEST_TOKENS = 2


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer by folder or hub id, such as `xlm-roberta-base`."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        model = _find_sentencepiece_model(folder)
        tokenizer = fast_tokenizer(read_bytes(model), str(model)) if model else _load(name, folder)
    elif folder.exists():
        raise MetaXLMError(f"{name}: a file; give the folder it is in")
    else:
        tokenizer = _load(name, name)
    _check_roles(tokenizer, name)
    return tokenizer


def _find_sentencepiece_model(folder: Path) -> Path | None:
    """Return the folder's only SentencePiece model, unless there is a fast tokenizer beside it."""
    models = sorted(folder.glob("*.model"))
    if not models or (folder / "tokenizer.json").is_file():
        return None
    if len(models) > 1:
        names = ", ".join(model.name for model in models)
        raise MetaXLMError(f"{folder}: several SentencePiece models ({names}); leave only one")
    return models[0]


def _load(name: str, source: Path | str) -> PreTrainedTokenizerBase:
    """Load with transformers; every way in which that fails becomes one line."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source)
    except Exception as error:  # tokenizers raises plain Exception for a damaged file
        raise MetaXLMError(f"{name}: {_explain(source, error)}") from error
    if not getattr(tokenizer, "is_fast", False):
        kind = type(tokenizer).__name__
        raise MetaXLMError(f"{name}: {kind} is no fast tokenizer; save one with a tokenizer.json")
    # Without its files transformers gives some kinds of tokenizer a vocabulary of next to nothing.
    if len(tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)) < _FEWEST_TOKENS:
        raise MetaXLMError(f"{name}: no tokenizer; there is neither a tokenizer.json nor a model")
    return tokenizer


def _explain(source: Path | str, error: Exception) -> str:
    reason = tell_reason(error)
    if isinstance(source, Path):
        return f"no tokenizer that transformers can load; is there a tokenizer.json? ({reason})"
    return (
        "neither a folder here nor a tokenizer of the Hugging Face hub that is in the cache or "
        f"can be downloaded; check the name, or download it and give its folder ({reason})"
    )


def _check_roles(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Refuse a tokenizer in which pretraining would miss a special token."""
    if not isinstance(tokenizer.model_max_length, int | float):
        raise MetaXLMError(
            f"{name}: model_max_length of its tokenizer is {tokenizer.model_max_length!r}; write a "
            "number into tokenizer_config.json"
        )
    vocabulary = tokenizer.get_vocab()
    missing = [
        f"{role} ({' or '.join(attributes)})"
        for role, attributes in _ROLES.items()
        if not any(getattr(tokenizer, attribute) in vocabulary for attribute in attributes)
    ]
    if missing:
        raise MetaXLMError(
            f"{name}: the tokenizer has no token for {', '.join(missing)}; pretraining needs it, "
            "so choose another or add it"
        )
