"""Encode sentences as token ids, each distinct word of a batch only once.

Tokens of SentencePiece and byte-level BPE do not cross spaces, so the ids of a sentence are the ids
of its words, and few words make up most of any text. Other tokenizers encode whole sentences. Text
never becomes a special token: a literal `<s>` or `<mask>` in a corpus is split into pieces.
"""

import base64
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
from tokenizers import Tokenizer

# Words are encoded alone, with a space before all but the first, or as whole sentences.
WordMode = Literal["alone", "spaced", "sentence"]
EncodeTexts = Callable[[list[str]], Iterable[Sequence[int]]]

# Words that are remembered, some 150 bytes each; frequent words occur early in a text.
_KNOWN_WORDS = 1 << 18
_LONGEST_KNOWN = 24
_ID_BYTES = array("I").itemsize
# A noncharacter that only normalizers of `metaxlm.vocab.charsmap` put into text.
_EXACT_MARK = "\U0001fffe"
# Prefix of special tokens in a Unigram model: text has no NUL, so that none matches them.
_UNWRITABLE = "\0"


@dataclass(frozen=True)
class Encoded:
    """Token ids of a batch of sentences."""

    ids: NDArray[np.uint32]  # sentence after sentence
    lengths: NDArray[np.int64]  # tokens in each sentence
    num_words: int  # between spaces


class SentenceEncoder:
    """Encodes batches of sentences, and remembers the first words of a text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        description = json.loads(tokenizer.to_str())
        self.mode = word_mode(description)
        self._encode: EncodeTexts = choose_backend(description)
        self._known: dict[str, bytes] = {}

    def forget(self) -> None:
        """Forget the remembered words, before another text."""
        self._known.clear()

    def encode(self, sentences: Sequence[str]) -> Encoded:
        """Encode sentences whose words are separated by single spaces."""
        words = pc.split_pattern(pa.array(sentences, pa.large_string()), " ")
        offsets = words.offsets.to_numpy()
        flat = words.flatten()
        if self.mode == "sentence":
            rows = [_pack(ids) for ids in self._encode(list(sentences))]
            lengths = np.fromiter(map(len, rows), np.int64, len(rows)) // _ID_BYTES
            return Encoded(_unpack(rows), lengths, len(flat))
        if self.mode == "spaced":  # a space before every word but the first of each sentence
            prefix = np.full(len(flat), " ", object)
            prefix[offsets[:-1][offsets[:-1] < len(flat)]] = ""
            kind = pa.large_string()
            flat = pc.binary_join_element_wise(pa.array(prefix, kind), flat, pa.scalar("", kind))
        distinct = flat.dictionary_encode()
        rows = self._encode_words(distinct.dictionary.to_pylist())
        store = _unpack(rows)
        sizes = np.fromiter(map(len, rows), np.int64, len(rows)) // _ID_BYTES
        chosen = distinct.indices.to_numpy()
        word_lengths = sizes[chosen]
        word_ends = np.cumsum(word_lengths)
        starts = (np.cumsum(sizes) - sizes)[chosen]
        # The position of each id in the store: the start of its word, plus its place in the word.
        places = np.repeat(starts - (word_ends - word_lengths), word_lengths)
        places += np.arange(len(places))
        ends = np.concatenate([[0], word_ends])[offsets[1:]]
        return Encoded(store[places], np.diff(ends, prepend=0), len(flat))

    def _encode_words(self, words: list[str]) -> list[bytes]:
        known = self._known
        rows = [known.get(word) for word in words]
        missing = [place for place, row in enumerate(rows) if row is None]
        new = [words[place] for place in missing]
        for place, word, row in zip(missing, new, map(_pack, self._encode(new)), strict=True):
            rows[place] = row
            if len(known) < _KNOWN_WORDS and len(word) <= _LONGEST_KNOWN:
                known[word] = row
        return [row for row in rows if row is not None]


def choose_backend(description: dict[str, Any]) -> EncodeTexts:
    """Return the function that encodes texts: SentencePiece, which is faster, if it is exact."""
    charsmap = _exact_charsmap(description)
    if charsmap is not None:
        processor = _make_processor(description, charsmap)
        return partial(processor.encode, out_type=int, num_threads=1)
    tokenizer = _without_special_tokens(description)
    encode = partial(tokenizer.encode_batch_fast, add_special_tokens=False)
    # Without special tokens, words that were added after them have smaller ids.
    added = {
        tokenizer.token_to_id(one["content"]): one["id"] for one in description["added_tokens"]
    }
    moved = {here: there for here, there in added.items() if here not in (None, there)}
    if moved:
        return lambda texts: ([moved.get(k, k) for k in one.ids] for one in encode(texts))
    return lambda texts: (encoding.ids for encoding in encode(texts))


def _exact_charsmap(description: dict[str, Any]) -> bytes | None:
    """Return SentencePiece's character map if the tokenizer normalizes exactly by it."""
    has_words = any(not token["special"] for token in description["added_tokens"])
    if description["model"]["type"] != "Unigram" or has_words:  # it does not know added words
        return None
    steps = list(_flatten(description["normalizer"]))
    maps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
    is_exact = any(step.get("content") == _EXACT_MARK for step in steps)
    return base64.b64decode(maps[0]) if len(maps) == 1 and is_exact else None


def _flatten(normalizer: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    if normalizer is not None:
        yield normalizer
        yield from chain.from_iterable(map(_flatten, normalizer.get("normalizers", ())))


def _make_processor(description: dict[str, Any], charsmap: bytes) -> SentencePieceProcessor:
    model, special = description["model"], _special_tokens(description)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.trainer_spec.model_type = proto.trainer_spec.UNIGRAM
    proto.normalizer_spec.precompiled_charsmap = charsmap
    for index, (piece, score) in enumerate(model["vocab"]):
        kind = "CONTROL" if piece in special else "NORMAL"
        kind = "UNKNOWN" if index == model["unk_id"] else kind
        proto.pieces.add(piece=piece, score=score, type=getattr(proto.SentencePiece, kind))
    return SentencePieceProcessor(model_proto=proto.SerializeToString())


def _pack(ids: Sequence[int]) -> bytes:
    return array("I", ids).tobytes()


def _unpack(rows: Iterable[bytes]) -> NDArray[np.uint32]:
    return np.frombuffer(b"".join(rows), np.uint32)


def word_mode(description: dict[str, Any]) -> WordMode:
    """Return how the words of a tokenizer can be encoded, given the content of `tokenizer.json`."""
    outer = description["pre_tokenizer"] or {"type": None}
    steps = outer.get("pretokenizers", [outer])
    kinds, last = [step["type"] for step in steps], steps[-1]
    if kinds in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        whole = last.get("split", True) and last.get("prepend_scheme", "always") == "always"
        return "alone" if whole and last.get("replacement") == "▁" else "sentence"
    if kinds == ["BertPreTokenizer"]:
        return "alone"
    if kinds == ["ByteLevel"] and last.get("use_regex", True):
        return "alone" if last["add_prefix_space"] else "spaced"
    return "sentence"


def _special_tokens(description: dict[str, Any]) -> set[str]:
    return {token["content"] for token in description["added_tokens"] if token["special"]}


def _without_special_tokens(description: dict[str, Any]) -> Tokenizer:
    model, special = description["model"], _special_tokens(description)
    if model["type"] == "Unigram":
        for entry in model["vocab"]:
            if entry[0] in special:
                entry[0] = _UNWRITABLE + entry[0]
    kept = [token for token in description["added_tokens"] if token["content"] not in special]
    plain = {"added_tokens": kept, "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(description | plain))
