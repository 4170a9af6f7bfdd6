"""The special tokens that both vocabularies share, in the RoBERTa family's layout.

`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3 come first; `<mask>` comes last, and a space before it in a
text belongs to it, because it stands for a word with its space.
"""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
MASK_TOKEN = "<mask>"


def mask_token() -> AddedToken:
    """Return the mask as a tokenizer's special token."""
    return AddedToken(MASK_TOKEN, lstrip=True, special=True)


def wrap_tokenizer(tokenizer: Tokenizer, **settings: Any) -> PreTrainedTokenizerBase:
    """Return the transformers tokenizer around a trained one, special tokens by their roles."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token=mask_token(),
        **settings,
    )
