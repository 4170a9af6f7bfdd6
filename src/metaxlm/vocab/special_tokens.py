"""The special tokens that both vocabularies share, in the RoBERTa family's layout.

`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3 come first; `<mask>` comes last, and a space before it in a
text belongs to it, because it stands for a word with its space.
"""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from metaxlm.errors import MetaXLMError

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


def boundary_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Return the ids of `<s>` and `</s>`; BERT's vocabularies call them `[CLS]` and `[SEP]`."""
    first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
    first = tokenizer.cls_token_id if first is None else first
    last = tokenizer.sep_token_id if last is None else last
    if first is None or last is None or tokenizer.pad_token_id is None:
        raise MetaXLMError(
            f"{tokenizer.name_or_path or 'tokenizer'}: has no tokens for the start, the end and "
            "the padding of a text; set them with tokenizer.add_special_tokens"
        )
    return first, last
