"""Train the monolingual vocabulary of meta-pretraining: byte-level BPE in RoBERTa's layout.

Ids: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, the byte alphabet and merges, `<mask>` last. Unlike in
RoBERTa, the first word of a sentence is encoded with a space before it, so that it has the same id
as inside a sentence (and matches SentencePiece's `▁word`).
"""

from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.progress import Advance, track
from metaxlm.vocab.tokens import FIRST_TOKENS, mask_token, wrap_tokenizer


def train_byte_bpe(
    sentences: Iterable[str], size: int, total: int | None = None
) -> PreTrainedTokenizerBase:
    """Train at most `size` tokens, special ones included; `total` sentences show progress."""
    smallest = 256 + len(FIRST_TOKENS) + 1
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
    if total is None:
        tokenizer.train_from_iterator(sentences, trainer)
    else:
        with track("monolingual vocabulary", total, "sentences") as advance:
            tokenizer.train_from_iterator(_count(sentences, advance), trainer)
    tokenizer.add_special_tokens([mask_token()])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=True
    )
    return wrap_tokenizer(tokenizer, add_prefix_space=True)


def _count(sentences: Iterable[str], advance: Advance) -> Iterator[str]:
    for sentence in sentences:
        advance()
        yield sentence
    advance(0, note="merging")  # the library reports no progress of this
