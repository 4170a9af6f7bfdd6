"""Load a tokenizer: XLM-R's or any other fast one; or train the monolingual one.

The paper (section 4.1) uses XLM-R's 250K tokens, `xlm-roberta-base` here. A folder with only a
SentencePiece model (`sentencepiece.bpe.model`, `spiece.model`) is converted to XLM-R's layout of
ids, so that XLM-R's file gives XLM-R's ids.
"""

from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase

from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.hub import CONFIG, TOKENIZER_CONFIG, find_source, read_tokenizer
from metaxlm.progress import Advance, track
from metaxlm.reading import read_bytes
from metaxlm.vocab.tokens import FIRST_TOKENS, mask_token, wrap_tokenizer
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


def train_byte_bpe(
    sentences: Iterable[str], size: int, total: int | None = None
) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE of at most `size` tokens in RoBERTa's layout.

    Ids: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, the byte alphabet and merges, `<mask>` last.
    Unlike in RoBERTa, the first word of a sentence is encoded with a space before it, so that it
    has the same id as inside a sentence (and matches SentencePiece's `▁word`). `total` sentences
    show progress.
    """
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
