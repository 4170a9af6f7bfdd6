"""Small tokenizers of every kind that can be trimmed, trained on the shared sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from tests.conftest import PARTS, sentences
from tests.vocab.languages import SENTENCES
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece
from tokenizers.trainers import BpeTrainer, WordPieceTrainer
from transformers import (
    BertTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)

from metaxlm.vocab.tokenizer import train_byte_bpe
from metaxlm.vocab.tokens import wrap_tokenizer
from metaxlm.vocab.unigram import train_unigram

LINES = (
    *(line for language in PARTS for line in sentences(language)),
    *(line for language in SENTENCES for line in SENTENCES[language]),
)


@cache
def make_tokenizer(kind: str) -> PreTrainedTokenizerBase:
    """Make one; the same object for every test, so none may change it."""
    return _MAKERS[kind]()


def _make_roberta() -> PreTrainedTokenizerBase:
    trained = make_tokenizer("byte_bpe")
    model = json.loads(trained.backend_tokenizer.to_str())["model"]
    return RobertaTokenizer(
        vocab=trained.get_vocab(),
        merges=[tuple(merge) for merge in model["merges"]],
        mask_token=AddedToken("<mask>", lstrip=True, special=True),
    )


def _make_xlmr() -> PreTrainedTokenizerBase:
    model = json.loads(make_tokenizer("unigram").backend_tokenizer.to_str())["model"]
    specials = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    # As in the published files: special tokens have the score 0.
    vocab = [(piece, 0.0 if piece in specials else score) for piece, score in model["vocab"]]
    return XLMRobertaTokenizer(vocab=vocab)


def _make_bert() -> PreTrainedTokenizerBase:
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = WordPieceTrainer(vocab_size=1_000, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    # The order of pieces of equal weight differs between processes; a test needs one order.
    rest = sorted(tokenizer.get_vocab().keys() - set(specials))
    return BertTokenizer(vocab={token: row for row, token in enumerate([*specials, *rest])})


def _make_byte_fallback() -> PreTrainedTokenizerBase:
    """Llama's kind: BPE over text with `▁`, single bytes for what it does not know."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    trainer = BpeTrainer(vocab_size=1_000, special_tokens=specials + bytes_, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    content = json.loads(tokenizer.to_str())
    # Bytes are pieces, not special tokens; the trainer knows no other way to put them in.
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] in specials]
    content["added_tokens"].append({**content["added_tokens"][0], "id": 1_000, "content": "<mask>"})
    return wrap_tokenizer(Tokenizer.from_str(json.dumps(content)))


def _make_end_of_word() -> PreTrainedTokenizerBase:
    """The first BPE's kind: a mark at the end of words, none at the start."""
    tokenizer = Tokenizer(BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    trainer = BpeTrainer(
        vocab_size=1_000,
        special_tokens=["<pad>", "<unk>"],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", mask_token="<mask>"
    )


_MAKERS: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "unigram": lambda: train_unigram(iter(LINES), 600),
    "xlmr": _make_xlmr,
    "byte_bpe": lambda: train_byte_bpe(iter(LINES), 600),
    "roberta": _make_roberta,
    "byte_fallback": _make_byte_fallback,
    "end_of_word": _make_end_of_word,
    "bert": _make_bert,
}
KINDS = tuple(_MAKERS)


def count_pieces(tokenizer: PreTrainedTokenizerBase, lines: Iterable[str]) -> NDArray[np.int64]:
    """Count how often each row occurs in lines, one line after the other."""
    counts = np.zeros(max(tokenizer.get_vocab().values()) + 1, np.int64)
    for line in lines:
        np.add.at(counts, tokenizer(line, add_special_tokens=False)["input_ids"], 1)
    return counts
