"""The monolingual vocabulary of meta-pretraining: byte-level BPE in RoBERTa's layout.

Comes in: sentences of the source language. Goes out: a fast tokenizer with `<s>` 0, `<pad>` 1,
`</s>` 2, `<unk>` 3, the byte alphabet and merges, `<mask>` last. One difference from RoBERTa's own:
a sentence's first word is encoded as if a space stood before it, so that it shares its row with the
same word inside a sentence (and with SentencePiece's `▁word`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.vocabulary.special_tokens import FIRST_TOKENS, MASK_TOKEN, wrap_tokenizer

_NUM_BYTES = 256


def train_byte_bpe(sentences: Iterator[str], size: int) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE vocabulary of at most `size` rows, special tokens included."""
    smallest = _NUM_BYTES + len(FIRST_TOKENS) + 1
    if size < smallest:
        raise MetaXLMError(
            f"vocabulary.monolingual_size {size}: bytes and special tokens need {smallest} rows"
        )
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = BpeTrainer(
        vocab_size=size - 1,
        special_tokens=list(FIRST_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.add_special_tokens([MASK_TOKEN])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=True
    )
    return wrap_tokenizer(tokenizer, add_prefix_space=True)
