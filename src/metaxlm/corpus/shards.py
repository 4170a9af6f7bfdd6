"""Token shards: the sentences of one language as a flat, memory-mapped file of token ids.

Comes in: sentences and a tokenizer. Goes out: a folder with `tokens.bin` (little-endian uint16, or
uint32 above 65,536 rows), `offsets.bin` (uint64, where each sentence starts, plus the end), and
`manifest.json` with counts and digests. Special tokens are not stored; packing adds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_path, digest_file, read_json, write_json

_BATCH = 4_096
_FILES = ("tokens.bin", "offsets.bin")


@dataclass(frozen=True)
class ShardCounts:
    """How much text a shard holds; language sampling takes its N_i from here."""

    sentences: int
    tokens: int
    characters: int
    bytes: int
    unknown: int


@dataclass(frozen=True)
class Shard:
    """An opened shard; both arrays are memory maps."""

    tokens: NDArray[np.uint16] | NDArray[np.uint32]
    offsets: NDArray[np.uint64]
    counts: ShardCounts

    def sentence(self, index: int) -> NDArray[np.uint16] | NDArray[np.uint32]:
        """Return the token ids of one sentence."""
        return self.tokens[int(self.offsets[index]) : int(self.offsets[index + 1])]


def token_dtype(vocab_size: int) -> str:
    """Return the narrowest little-endian type that holds every id."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def write_shard(
    folder: Path, sentences: Iterable[str], tokenizer: PreTrainedTokenizerBase
) -> ShardCounts:
    """Tokenize sentences into a shard folder; sentences without a token are left out."""
    dtype = token_dtype(len(tokenizer))
    num_characters = num_bytes = num_unknown = 0
    lengths: list[int] = []
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        with (temporary / "tokens.bin").open("wb") as file:
            for batch in _batches(sentences):
                num_characters += sum(map(len, batch))
                num_bytes += sum(len(sentence.encode()) for sentence in batch)
                encodings = tokenizer.backend_tokenizer.encode_batch_fast(
                    batch, add_special_tokens=False
                )
                rows = [np.array(encoding.ids, dtype) for encoding in encodings if encoding.ids]
                lengths.extend(map(len, rows))
                flat = np.concatenate(rows) if rows else np.array([], dtype)
                num_unknown += int((flat == tokenizer.unk_token_id).sum())
                file.write(flat.tobytes())
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype="<u8")]).astype("<u8")
        offsets.tofile(temporary / "offsets.bin")
        counts = ShardCounts(len(lengths), int(offsets[-1]), num_characters, num_bytes, num_unknown)
        manifest = {
            "dtype": dtype,
            "counts": asdict(counts),
            "sha256": {name: digest_file(temporary / name) for name in _FILES},
        }
        write_json(temporary / "manifest.json", manifest)
    return counts


def open_shard(folder: Path) -> Shard:
    """Open a shard as memory maps; sizes are checked against the manifest."""
    manifest = read_json(folder / "manifest.json")
    counts = ShardCounts(**manifest["counts"])
    dtype = np.dtype(manifest["dtype"])
    expected = {
        "tokens.bin": counts.tokens * dtype.itemsize,
        "offsets.bin": (counts.sentences + 1) * 8,
    }
    for name, size in expected.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            raise MetaXLMError(
                f"{path}: found {found} bytes, the manifest says {size}; "
                f"delete {folder} and run again"
            )
    if not counts.tokens:
        raise MetaXLMError(f"{folder}: the shard holds no tokens; the language's text is empty")
    tokens = np.memmap(folder / "tokens.bin", dtype, mode="r")
    return Shard(tokens, np.memmap(folder / "offsets.bin", "<u8", mode="r"), counts)


def _batches(sentences: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(sentences)
    while batch := list(islice(iterator, _BATCH)):
        yield batch
