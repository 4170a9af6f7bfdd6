"""The shared multilingual vocabulary: SentencePiece unigram in XLM-R's layout.

Comes in: sentences, already rebalanced. Goes out: a fast tokenizer whose ids are XLM-R's way:
`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the pieces in SentencePiece's order, `<mask>` last.
The paper (section 4.1) takes XLM-R's own 250K pieces; this trains smaller ones of the same kind.
Its ids are SentencePiece's own, one higher, because scores of trained models add up exactly. For
models from elsewhere, SentencePiece's rounding decides between ways to cut a word whose scores are
equal to within 32 bits, in about one line of 10,000; there the better one comes out here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import Unigram
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.reading import reading
from metaxlm.vocab.charsmap import charsmap_normalizer
from metaxlm.vocab.sentencepiece_training import TrainingRefused, train_model
from metaxlm.vocab.special_tokens import FIRST_TOKENS, MASK_TOKEN, wrap_tokenizer

_SPACE = "▁"
# SentencePiece brings three special tokens of its own where we have five.
_MORE_SPECIALS = 2
# Text that spells a special token must not be cut into that token.
_NEVER = -1e4


def train_unigram(
    sentences: Iterable[str],
    size: int,
    total: int | None = None,
    title: str = "shared vocabulary",
    coverage: float = 0.9995,
) -> PreTrainedTokenizerBase:
    """Train a SentencePiece unigram vocabulary of `size` rows, special tokens included.

    `total`, the number of sentences, and `title` are for the display; `coverage` is the share of
    the text whose characters become pieces, the rarest ones left out. Sentences are streamed into
    another process; those above 4,192 bytes are cut at spaces.
    """
    try:
        model = train_model(sentences, size - _MORE_SPECIALS, total, title, coverage)
    except TrainingRefused as error:
        raise MetaXLMError(f"vocabulary.size {size}: {_explain(str(error))}") from error
    return fast_tokenizer(model)


def fast_tokenizer(model_bytes: bytes, name: str = "model") -> PreTrainedTokenizerBase:
    """Turn a SentencePiece unigram model into a fast tokenizer with XLM-R's special tokens."""
    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model_bytes)
    except Exception as error:  # protobuf's own class differs between its implementations
        raise MetaXLMError(f"{name}: not a SentencePiece model; restore the file") from error
    _check_model(proto, name)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces if piece.type == piece.NORMAL]
    never = _NEVER if _is_closed(piece for piece, _ in pieces) else 0.0
    specials = [(token, never) for token in FIRST_TOKENS]
    tokenizer = Tokenizer(Unigram([*specials, *pieces, (MASK_TOKEN, never)], unk_id=3))
    with reading(name, ValueError, IndexError, struct.error):
        tokenizer.normalizer = charsmap_normalizer(proto.normalizer_spec.precompiled_charsmap)
    words = not any(_SPACE in piece[1:] for piece, _ in pieces)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, "always", split=words)
    tokenizer.decoder = decoders.Metaspace(_SPACE, "always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return wrap_tokenizer(tokenizer)


def _check_model(proto: sentencepiece_model_pb2.ModelProto, name: str) -> None:
    """Refuse models of kinds that XLM-R's is not."""
    spec, trainer = proto.normalizer_spec, proto.trainer_spec
    types = {piece.type for piece in proto.pieces}
    piece = sentencepiece_model_pb2.ModelProto.SentencePiece
    found = {
        "no pieces": piece.NORMAL not in types,
        "pieces that are not UTF-8": not all(isinstance(one.piece, str) for one in proto.pieces),
        "another kind than unigram": trainer.model_type != trainer.UNIGRAM,
        "pieces of bytes": piece.BYTE in types,
        "symbols defined by a user": piece.USER_DEFINED in types,
        "unusual treatment of spaces": trainer.treat_whitespace_as_suffix
        or not (
            spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces
        ),
    }
    if reasons := [reason for reason, is_so in found.items() if is_so]:
        raise MetaXLMError(
            f"{name}: a SentencePiece model with {', '.join(reasons)}; only models like XLM-R's "
            "can be converted, others must come as tokenizer.json"
        )


def _is_closed(pieces: Iterable[str]) -> bool:
    """Whether all characters of the pieces are pieces: if so, the score of `<unk>` is of no matter.

    The library takes it from the lowest score of all, special tokens included.
    """
    known = set(pieces)
    return all(character in known for character in set("".join(known)))


def _explain(reason: str) -> str:
    """Turn SentencePiece's complaint into what the user can do about it."""
    if match := re.search(r"too high .* value <= (\d+)", reason):
        most = int(match[1]) + _MORE_SPECIALS
        return f"this much text gives at most {most} pieces; lower it or add text"
    if match := re.search(r"smaller than required_chars.*?(\d+) vs (\d+)", reason):
        return f"too small, the characters alone are {match[2]}; raise it"
    if "corpus too large" in reason:
        return "too much text for SentencePiece; lower vocabulary.sample_sentences"
    last = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    return f"SentencePiece cannot train it ({last.rsplit('] ', 1)[-1].strip()})"
