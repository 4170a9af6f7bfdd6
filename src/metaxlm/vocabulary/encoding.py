"""Many sentences to ids at once: SentencePiece's own encoder where the tokenizer is one of ours.

Comes in: a tokenizer and batches of sentences. Goes out: all ids of a batch in one array, and how
many belong to each sentence; special tokens are not added, and text that spells one is text.
SentencePiece's C++ is several times faster than the fast tokenizer, whose ids are the same by
construction (`unigram.py` says where they are not); its model is put together again from the
tokenizer, so no second file has to be kept. Any other tokenizer encodes for itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from metaxlm.vocabulary.special_tokens import FIRST_TOKENS
from metaxlm.vocabulary.unigram import fast_tokenizer

Encoder = Callable[[Sequence[str]], tuple[NDArray[np.uint32], NDArray[np.int64]]]
"""Turns sentences into the ids of all of them and the number of ids of each."""

_UNKNOWN = FIRST_TOKENS.index("<unk>")


def make_encoder(tokenizer: PreTrainedTokenizerBase) -> Encoder:
    """Return the fastest encoder that gives this tokenizer's ids, for one thread."""
    model = rebuild_model(tokenizer.backend_tokenizer)
    if model is None:
        return _encode_with(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    def encode(sentences: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        ids, lengths = _flatten(processor.encode(list(sentences), num_threads=1))
        # SentencePiece has <unk> <s> </s> first, XLM-R's layout one more.
        return np.where(ids == 0, np.uint32(_UNKNOWN), ids + np.uint32(1)), lengths

    return encode


def rebuild_model(tokenizer: Tokenizer) -> bytes | None:
    """Return the SentencePiece model that `fast_tokenizer` made this tokenizer of, if it did."""
    parts = json.loads(tokenizer.to_str())
    if parts["model"].get("type") != "Unigram" or not parts["normalizer"]:
        return None
    proto = sentencepiece_model_pb2.ModelProto()
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    proto.pieces.add(piece="<unk>", type=kinds.UNKNOWN)
    proto.pieces.add(piece="<s>", type=kinds.CONTROL)
    proto.pieces.add(piece="</s>", type=kinds.CONTROL)
    for piece, score in parts["model"]["vocab"][len(FIRST_TOKENS) : -1]:
        proto.pieces.add(piece=piece, score=score)
    proto.normalizer_spec.precompiled_charsmap = _find_charsmap(parts["normalizer"])
    model = proto.SerializeToString()
    # The proof: it gives this very tokenizer again.
    again = json.loads(fast_tokenizer(model).backend_tokenizer.to_str())
    return model if _essence(again) == _essence(parts) else None


def _find_charsmap(normalizer: dict[str, Any]) -> bytes:
    """Return the first character map in a normalizer's description, or nothing."""
    for step in normalizer.get("normalizers", [normalizer]):
        if step["type"] == "Precompiled":
            return base64.b64decode(step["precompiled_charsmap"])
    return b""


def _essence(parts: dict[str, Any]) -> list[Any]:
    """Return what decides the ids of plain text."""
    return [parts[key] for key in ("normalizer", "pre_tokenizer", "model")]


def _encode_with(tokenizer: Tokenizer) -> Encoder:
    tokenizer.encode_special_tokens = True

    def encode(sentences: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        encodings = tokenizer.encode_batch_fast(list(sentences), add_special_tokens=False)
        return _flatten([encoding.ids for encoding in encodings])

    return encode


def _flatten(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum())), lengths
