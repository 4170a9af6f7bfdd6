"""The shared multilingual vocabulary: SentencePiece unigram in XLM-R's layout.

Comes in: sentences, already rebalanced. Goes out: a fast tokenizer whose ids are XLM-R's way:
`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the pieces in SentencePiece's order, `<mask>` last.
The paper (section 4.1) takes XLM-R's own 250K pieces; this trains smaller ones of the same kind.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.vocabulary.special_tokens import FIRST_TOKENS, MASK_TOKEN, wrap_tokenizer

# The number of threads decides the order of float additions, so it is fixed, not the machine's.
_NUM_THREADS = 4
# SentencePiece brings three special tokens of its own where we have five.
_MORE_SPECIALS = 2


def train_unigram(sentences: Iterator[str], size: int) -> PreTrainedTokenizerBase:
    """Train a SentencePiece unigram vocabulary of `size` rows, special tokens included."""
    num_pieces = size - _MORE_SPECIALS
    writer = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=writer,
            model_type="unigram",
            vocab_size=num_pieces,
            character_coverage=0.9995,
            num_threads=_NUM_THREADS,
            train_extremely_large_corpus=False,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise MetaXLMError(f"vocabulary.size {size}: {_explain(str(error))}") from error
    return fast_tokenizer(writer.getvalue())


def fast_tokenizer(model_bytes: bytes) -> PreTrainedTokenizerBase:
    """Turn a SentencePiece unigram model into a fast tokenizer with XLM-R's special tokens."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model_bytes)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces if piece.type == piece.NORMAL]
    lowest = min(score for _, score in pieces)
    vocabulary = [(token, 0.0) for token in FIRST_TOKENS[:3]] + [("<unk>", lowest - 10.0)]
    tokenizer = Tokenizer(Unigram([*vocabulary, *pieces, (MASK_TOKEN, 0.0)], unk_id=3))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return wrap_tokenizer(tokenizer)


def _explain(reason: str) -> str:
    """Turn SentencePiece's complaint into what the user can do about it."""
    if match := re.search(r"too high .* value <= (\d+)", reason):
        most = int(match[1]) + _MORE_SPECIALS
        return f"this much text gives at most {most} pieces; lower it or add text"
    if match := re.search(r"smaller than required_chars.*?(\d+) vs (\d+)", reason):
        return f"too small, the characters alone are {match[2]}; raise it"
    return f"SentencePiece cannot train it ({reason.splitlines()[0].rsplit('] ', 1)[-1].strip()})"
