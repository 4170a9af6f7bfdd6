"""Extend a WordPiece vocabulary by pieces of other languages.

    extension = extend_wordpiece(tokenizer, {"en": english, "de": german}, "en", 64_000)
    start = match("all-MiniLM-L6-v2", extend=extension)

Old tokens keep their ids, so an encoder keeps nearly all its vectors of text in its own language.
New pieces are trained with SentencePiece on text of the other languages, and those that would also
split words of the source language in a new way are removed. Accents are kept, because other
languages need them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from metaxlm.data.encode import SentenceEncoder
from metaxlm.errors import MetaXLMError
from metaxlm.hub import walk_json
from metaxlm.init.extension import Extension
from metaxlm.scripts import UNSPACED, find_script
from metaxlm.vocab.tokens import SENTENCEPIECE_SPACE, WORDPIECE_PREFIX, Kind, detect_kind
from metaxlm.vocab.unigram import train_model

# A new piece is removed if it occurs this often in the source's text, and its share of the tokens
# there is at least this part of its share in the language that uses it most.
_LEAST_COUNT, _SOURCE_PART = 2, 0.1
# WordPiece reads longer words as unknown; without spaces between words, a clause is one word.
_LONGEST_WORD = 1_000
_BATCH = 10_000


def extend_wordpiece(
    tokenizer: PreTrainedTokenizerBase,
    texts: Mapping[str, Sequence[str]],
    source_language: str,
    size: int,
    coverage: float = 0.9995,
) -> Extension:
    """Return a copy of a WordPiece tokenizer with new pieces, about `size` at most.

    `texts` are sentences by language, those of the source language included; `coverage` is the
    share of the other languages' characters that become pieces.
    """
    others = {code: text for code, text in texts.items() if code != source_language and text}
    if not others:
        raise MetaXLMError("extend: no text of another language to take pieces from")
    description = json.loads(tokenizer.backend_tokenizer.to_str())
    require_wordpiece(tokenizer)
    steps = list(walk_json(description["normalizer"] or {}))
    cased = not any(step.get("lowercase") or step.get("type") == "Lowercase" for step in steps)
    normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=False, strip_accents=False, lowercase=not cased
    )
    description["model"]["vocab"] |= {
        one["content"]: one["id"] for one in description["added_tokens"]
    }
    description["model"]["max_input_chars_per_word"] = _LONGEST_WORD
    description |= {"truncation": None, "padding": None}
    backend = Tokenizer.from_str(json.dumps(description))
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizer])
    words = backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    description = json.loads(backend.to_str())
    sentences = (
        " ".join(word for word, _ in words.pre_tokenize_str(backend.normalizer.normalize_str(one)))
        for text in others.values()
        for one in text
    )
    total = sum(map(len, others.values()))
    model = train_model(sentences, size, total, coverage, exact=False)
    new = _list_pieces(model, description["model"]["vocab"])
    first = max(description["model"]["vocab"].values()) + 1
    extended = _add(description, new, first)
    counts = {code: _count(extended, text) for code, text in texts.items()}
    shares = {code: found / max(1, found.sum()) for code, found in counts.items()}
    most = np.max([shares[code] for code in others], axis=0)
    own = source_language if source_language in texts else None
    is_own = np.zeros(len(most), bool)
    if own is not None:
        is_own = (counts[own] >= _LEAST_COUNT) & (shares[own] >= _SOURCE_PART * most)
    kept = [
        piece
        for number, piece in enumerate(new, first)
        if not is_own[number] or len(piece.removeprefix(WORDPIECE_PREFIX)) == 1
    ]
    return Extension(_wrap(tokenizer, _add(description, kept, first)), tuple(kept), 0)


def require_wordpiece(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise if a vocabulary cannot be extended by pieces."""
    if (kind := detect_kind(tokenizer)) is not Kind.WORDPIECE:
        raise MetaXLMError(
            f"{tokenizer.name_or_path or 'tokenizer'}: a {kind} vocabulary; only WordPiece, such "
            "as BERT's, can be extended by pieces of other languages; train a shared vocabulary"
        )


def _list_pieces(model: bytes, vocabulary: Mapping[str, int]) -> list[str]:
    """Return the pieces of a SentencePiece model that a WordPiece vocabulary does not have.

    Characters, and all pieces of scripts without spaces, become tokens at the start of a word and
    inside it: WordPiece cannot start a word with a piece from inside one.
    """
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    found: dict[str, None] = {}
    for piece in proto.pieces:
        text = piece.piece.removeprefix(SENTENCEPIECE_SPACE)
        if piece.type != piece.NORMAL or not text:
            continue
        is_both = len(text) == 1 or find_script(text) in UNSPACED
        if is_both or text != piece.piece:
            found[text] = None
        if is_both or text == piece.piece:
            found[WORDPIECE_PREFIX + text] = None
    return [token for token in found if token not in vocabulary]


def _add(description: dict[str, Any], pieces: Sequence[str], first: int) -> Tokenizer:
    vocabulary = description["model"]["vocab"] | {
        piece: number for number, piece in enumerate(pieces, first)
    }
    model = description["model"] | {"vocab": vocabulary}
    return Tokenizer.from_str(json.dumps(description | {"model": model}))


def _count(tokenizer: Tokenizer, text: Sequence[str]) -> NDArray[np.int64]:
    encoder, size = SentenceEncoder(tokenizer), tokenizer.get_vocab_size()
    counts = np.zeros(size, np.int64)
    for start in range(0, len(text), _BATCH):
        sentences = [" ".join(one.split()) for one in text[start : start + _BATCH]]
        counts += np.bincount(encoder.encode(sentences).ids, minlength=size)
    return counts


def _wrap(tokenizer: PreTrainedTokenizerBase, backend: Tokenizer) -> PreTrainedTokenizerBase:
    """Return a tokenizer of no particular model, since BERT's would restore its normalizer."""
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        name_or_path=tokenizer.name_or_path,
        **tokenizer.special_tokens_map,
    )
