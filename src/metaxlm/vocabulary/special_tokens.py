"""The special tokens that both vocabularies share, in the RoBERTa family's layout.

`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3 come first; `<mask>` comes last.
"""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
MASK_TOKEN = "<mask>"


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
        mask_token=MASK_TOKEN,
        **settings,
    )
