"""Load an existing vocabulary: XLM-R's, or any other fast tokenizer of Hugging Face.

The paper (section 4.1) uses XLM-R's 250K tokens, `xlm-roberta-base` here. A folder with only a
SentencePiece model (`sentencepiece.bpe.model`, `spiece.model`) is converted to XLM-R's layout of
ids, so that XLM-R's file gives XLM-R's ids.
"""

from transformers import PreTrainedTokenizerBase

from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.hub import CONFIG, TOKENIZER_CONFIG, find_source, read_tokenizer
from metaxlm.reading import read_bytes
from metaxlm.vocab.unigram import fast_tokenizer

_ROLES = {
    "mask": ("mask_token",),
    "padding": ("pad_token",),
    "unknown": ("unk_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
}
_NEEDED = (CONFIG, TOKENIZER_CONFIG, "tokenizer.json")
_DOWNLOADED = (
    *_NEEDED, "*.model", "vocab.*", "merges.txt", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Load a tokenizer by folder or hub name, such as `xlm-roberta-base`."""
    folder = find_source(name, _DOWNLOADED, _NEEDED)
    require_whole(folder)
    models = sorted(folder.glob("*.model"))
    if not models or (folder / "tokenizer.json").is_file():
        tokenizer = read_tokenizer(folder, name)
        if not getattr(tokenizer, "is_fast", False):
            kind = type(tokenizer).__name__
            raise MetaXLMError(f"{name}: {kind} is not a fast tokenizer; give a tokenizer.json")
    elif len(models) > 1:
        names = ", ".join(model.name for model in models)
        raise MetaXLMError(f"{folder}: several SentencePiece models ({names}); leave only one")
    else:
        tokenizer = fast_tokenizer(read_bytes(models[0]), str(models[0]))
    vocabulary = tokenizer.get_vocab()
    # Without its files transformers gives some tokenizers an almost empty vocabulary.
    if len(vocabulary.keys() - set(tokenizer.all_special_tokens)) < 2:
        raise MetaXLMError(f"{name}: no tokenizer; there is neither a tokenizer.json nor a model")
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
    return tokenizer
