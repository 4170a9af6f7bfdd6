"""Token shards: the sentences of a language as a flat, memory-mapped file of token ids.

A shard is a folder with `tokens.bin` (little-endian uint16, or uint32 above 65,536 ids),
`offsets.bin` (uint64: the start of each sentence, and the end), and `manifest.json` with counts,
versions and digests. Special tokens are not stored; packing adds them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from importlib.metadata import version
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metaxlm import __version__
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.files import TEMPORARY_PREFIX, digest_value, read_json, write_json
from metaxlm.manifest import atomic_folder, read_manifest, write_manifest

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

# Characters that are encoded at once: enough for words to repeat, with little memory.
_BATCH_CHARACTERS = 1_000_000
_COPY_BYTES, _COUNTED_AT_ONCE = 1 << 24, 1 << 22
_TOKENS, _OFFSETS, _LENGTHS, _COUNTS = "tokens.bin", "offsets.bin", "lengths.bin", "counts.json"


@dataclass(frozen=True)
class ShardCounts:
    """The amount of text in a shard; language sampling uses it as N_i."""

    documents: int = 0
    sentences: int = 0
    words: int = 0
    tokens: int = 0
    characters: int = 0
    bytes: int = 0
    unknown: int = 0

    def __add__(self, other: ShardCounts) -> ShardCounts:
        return ShardCounts(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Shard:
    """An opened shard; both arrays are memory maps."""

    tokens: NDArray[np.uint16] | NDArray[np.uint32]
    offsets: NDArray[np.uint64]
    counts: ShardCounts

    def sentence(self, index: int) -> NDArray[np.uint16] | NDArray[np.uint32]:
        """Return the token ids of one sentence."""
        return self.tokens[int(self.offsets[index]) : int(self.offsets[index + 1])]

    def count_tokens(self, vocab_size: int) -> NDArray[np.int64]:
        """Return the number of occurrences of each token id, in constant memory."""
        counts = np.zeros(vocab_size, np.int64)
        for start in range(0, len(self.tokens), _COUNTED_AT_ONCE):
            part = self.tokens[start : start + _COUNTED_AT_ONCE]
            counts += np.bincount(part, minlength=vocab_size)
        return counts


def token_dtype(vocab_size: int) -> str:
    """Return the narrowest little-endian type that holds every id."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


class ShardWriter:
    """Tokenizes parts of a language's text and joins them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        from metaxlm.data.encode import SentenceEncoder

        description = json.loads(tokenizer.to_str())
        self._encoder = SentenceEncoder(tokenizer)
        self._unknown_id = _unknown_id(description["model"])
        self._facts = {
            "dtype": token_dtype(max(tokenizer.get_vocab().values()) + 1),
            "metaxlm": __version__,
            "tokenizers": version("tokenizers"),
            "tokenizer": digest_value(description),
        }

    def write_part(
        self, folder: Path, lines: Iterable[str], advance: Callable[[int], None] = lambda _: None
    ) -> None:
        """Tokenize lines (blank ones separate documents) into a part folder."""
        counts = ShardCounts()
        dtype = self._facts["dtype"]
        self._encoder.forget()
        with atomic_folder(folder, internal=True) as temporary:
            files = temporary / _TOKENS, temporary / _LENGTHS
            with files[0].open("wb") as tokens, files[1].open("wb") as lengths:
                for num_documents, batch in _batches(lines):
                    encoded = self._encoder.encode(batch)
                    tokens.write(encoded.ids.astype(dtype).tobytes())
                    full = encoded.lengths[encoded.lengths > 0]
                    lengths.write(full.astype("<u4").tobytes())
                    num_bytes = sum(len(line.encode()) for line in batch)
                    num_unknown = int((encoded.ids == self._unknown_id).sum())
                    sizes = len(encoded.ids), sum(map(len, batch)), num_bytes, num_unknown
                    counts += ShardCounts(num_documents, len(full), encoded.num_words, *sizes)
                    advance(num_bytes)
            write_json(temporary / _COUNTS, self._facts | {"counts": asdict(counts)})

    @staticmethod
    def join(folder: Path, parts: Sequence[Path]) -> ShardCounts:
        """Join the parts of a language, in this order, to its shard."""
        facts = [read_json(part / _COUNTS) for part in parts]
        counts = sum((ShardCounts(**fact.pop("counts")) for fact in facts), ShardCounts())
        assert all(fact == facts[0] for fact in facts), "parts of different tokenizers"
        with atomic_folder(folder) as temporary:
            with (temporary / _TOKENS).open("wb") as joined:
                for part in parts:
                    with (part / _TOKENS).open("rb") as file:
                        shutil.copyfileobj(file, joined, _COPY_BYTES)
            with (temporary / _OFFSETS).open("wb") as file:
                for offsets in _offsets(part / _LENGTHS for part in parts):
                    file.write(offsets.tobytes())
            write_manifest(temporary, facts[0] | {"counts": asdict(counts)})
        return counts


def write_shard(
    folder: Path, lines: Iterable[str], tokenizer: PreTrainedTokenizerBase
) -> ShardCounts:
    """Tokenize lines (blank ones separate documents) into a shard, in this process."""
    writer = ShardWriter(tokenizer.backend_tokenizer)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=folder.parent) as work:
        part = Path(work) / "part"
        writer.write_part(part, lines)
        return writer.join(folder, [part])


def open_shard(folder: Path) -> Shard:
    """Open a shard as memory maps, after a check of its files against the manifest."""
    require_whole(folder)
    manifest: dict[str, Any] = read_manifest(folder)
    counts = ShardCounts(**manifest["counts"])
    if not counts.tokens:
        raise MetaXLMError(f"{folder}: no tokens in the shard; the language's text is empty")
    tokens = np.memmap(folder / _TOKENS, np.dtype(manifest["dtype"]), mode="r")
    return Shard(tokens, np.memmap(folder / _OFFSETS, "<u8", mode="r"), counts)


def _unknown_id(model: dict[str, Any]) -> int:
    """Return the id of the unknown token, or -1 if there is none (byte-level BPE)."""
    if model["type"] == "Unigram":
        return -1 if model["unk_id"] is None else int(model["unk_id"])
    token = model.get("unk_token")
    return -1 if token is None else int(model["vocab"][token])


def _batches(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    batch: list[str] = []
    num_documents = num_characters = 0
    before = ""
    for line in lines:
        previous, before = before, line
        if not line:
            continue
        num_documents += not previous
        batch.append(line)
        num_characters += len(line)
        if num_characters >= _BATCH_CHARACTERS:
            yield num_documents, batch
            batch, num_documents, num_characters = [], 0, 0
    if batch:
        yield num_documents, batch


def _offsets(paths: Iterable[Path]) -> Iterator[NDArray[np.uint64]]:
    total = np.uint64(0)
    yield np.array([total], "<u8")
    for path in paths:
        ends = np.cumsum(np.fromfile(path, "<u4"), dtype="<u8") + total
        if len(ends):
            total = ends[-1]
            yield ends
