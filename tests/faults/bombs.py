"""Small files that would fill the memory, and the calls that read them.

`python -m tests.faults.bombs FOLDER [LIMIT]` writes all of them, reads each in a forked process
that may allocate `MOST_BYTES` or LIMIT, and prints a JSON object with the results.
"""

from __future__ import annotations

import json
import lzma
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.faults.fuzzed_readers import consume, limit_memory, measure_memory, read_texts
from tests.faults.programs import fork, wait

from metaxlm.analysis.results import read_scores
from metaxlm.analysis.stats import read_comparisons
from metaxlm.data.documents import Rejection, Split
from metaxlm.data.readers.lines import read_jsonl
from metaxlm.data.readers.parquet import read_parquet
from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.input_lines import read_lines
from metaxlm.init.dictionaries import load_dictionaries
from metaxlm.init.ledger import _SCHEMA, load_ledger
from metaxlm.probe.retrieval_io import read_vectors
from metaxlm.progress import set_quiet
from metaxlm.recipe.recipe_file import load_recipe

MOST_BYTES = 320_000_000
Step = Callable[[Path], Any]
_PIECE = 16_000_000
_MOST_SECONDS = 60
_ROW = {"task": "xnli", "metric": "accuracy", "value": 0.5, "variant": "x" * 100}


def _repeat(name: str, piece: bytes, times: int = 64) -> Step:
    """Write a compressed file of many equal streams, about a gigabyte in all."""

    def write(folder: Path) -> None:
        content = piece * (_PIECE // len(piece))
        (folder / name).write_bytes(lzma.compress(content, preset=0) * times)

    return write


def _compress(name: str, start: bytes, end: bytes, times: int) -> Step:
    """Write many small JSON values."""
    return lambda folder: (folder / name).write_bytes(
        lzma.compress(start + b"[]," * times + end, preset=0)
    )


def _write_line(folder: Path) -> None:
    with (folder / "texts").open("wb") as file:
        file.truncate(1 << 30)


def _read_jsonl(folder: Path) -> None:
    for record in read_jsonl(Split(folder / "de.jsonl.xz"), lambda _: None):
        if isinstance(record, Rejection):
            raise MetaXLMError(f"{record.where}: {record.reason}")


def _write_shared(num_rows: int, text: str, times: int) -> Step:
    """Write one long value that a dictionary gives to many rows."""

    def write(folder: Path) -> None:
        rows = pa.array([0] * num_rows, pa.int32())
        column = pa.DictionaryArray.from_arrays(rows, [text * times])
        _write_rows(folder, column, dictionary_pagesize_limit=1 << 30)

    return write


def _write_page(folder: Path) -> None:
    _write_rows(folder, pa.array(["a" * 350_000_000]), use_dictionary=False)


def _write_rows(folder: Path, column: pa.Array, **options: Any) -> None:
    options |= {"compression": "zstd", "write_statistics": False, "store_schema": False}
    pq.write_table(pa.table({"text": column}), folder / "de.parquet", **options)


def _write_vectors(folder: Path) -> None:
    width = 1_000
    numbers = pa.array(np.zeros(width * 1_000, np.float32))
    table = pa.table({"layer_8": pa.FixedSizeListArray.from_arrays(numbers, width)})
    with pq.ParquetWriter(folder / "vectors.parquet", table.schema) as writer:
        for _ in range(60):
            writer.write_table(table)


def _write_ledger(folder: Path) -> None:
    columns = [
        pa.array(["a" * 1_000_000 if field.name == "token" else None] * 400, field.type)
        for field in _SCHEMA
    ]
    facts = {"source_size": "1", "kind": "SentencePiece", "matching": "{}"}
    table = pa.table(columns, schema=_SCHEMA.with_metadata(facts))
    options = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30}
    pq.write_table(table, folder / "ledger.parquet", **options)


def _write_recipe(folder: Path) -> None:
    lines = ["name: x", "a0: &a0 {x: y}"]
    for level in range(1, 9):
        parts = ", ".join(f"k{number}: *a{level - 1}" for number in range(10))
        lines.append(f"a{level}: &a{level} {{{parts}}}")
    (folder / "recipe.yaml").write_text("\n".join(lines))


def _read(function: Callable[[Path], Any], file: str) -> Step:
    return lambda folder: function(folder / file)


def _read_parquet(folder: Path) -> None:
    consume(read_parquet(Split(folder / "de.parquet", 0, None, 1), lambda _: None))


_WORDS = b"h" * 500 + b" " + b"h" * 500 + b"\n"
_ROWS = json.dumps({**_ROW, "note": "x" * 8_000}).encode() + b"\n"
_RESULTS = _read(read_scores, "results.jsonl")
_COMPARISONS = _read(read_comparisons, "comparisons.json")
_TOO_LONG = "the line has more than"
BOMBS: dict[str, tuple[Step, Step, str]] = {
    "dictionary .xz": (_repeat("en-de.txt.xz", _WORDS), load_dictionaries, "bytes of text"),
    "results.jsonl.xz, one line": (_repeat("results.jsonl.xz", b" " * 1000), _RESULTS, _TOO_LONG),
    "results.jsonl.xz, equal rows": (_repeat("results.jsonl.xz", _ROWS, 12), _RESULTS, ""),
    "comparisons.json.xz": (
        _repeat("comparisons.json.xz", b"[],"), _COMPARISONS, "unpacks to more than",
    ),
    "comparisons.json.xz, small values": (
        _compress("comparisons.json.xz", b"[", b"[]]", 8_000_000), _COMPARISONS, "values",
    ),
    "sentences, one line": (_write_line, read_texts, _TOO_LONG),
    "task data, one line": (_write_line, _read(read_lines, "texts"), _TOO_LONG),
    "corpus JSONL, small values": (
        _compress("de.jsonl.xz", b'{"text": "x", "more": [', b"[]]}\n", 10_000_000),
        _read_jsonl, "invalid_json",
    ),
    "corpus parquet, shared value": (
        _write_shared(5_000, "a", 46_000_000), _read_parquet, "unpacks from",
    ),
    # Below the limit of a row, so that all rows are documents.
    "corpus parquet, shared text": (_write_shared(40, "ab cd ", 1_500_000), _read_parquet, ""),
    "corpus parquet, one page": (_write_page, _read_parquet, "unpacks from"),
    "vectors parquet, equal numbers": (
        _write_vectors, _read(read_vectors, "vectors.parquet"), "unpack to",
    ),
    "ledger, shared token": (_write_ledger, _read(load_ledger, "ledger.parquet"), "unpack"),
    "recipe, aliases": (_write_recipe, _read(load_recipe, "recipe.yaml"), "aliases"),
}  # fmt: skip
"""Functions that write and read a file, and a part of the error; empty if it can be read."""


def run(folder: Path, name: str, limit: int) -> dict[str, Any]:
    """Write a bomb, and read it in a process of its own."""
    write, read, _ = BOMBS[name]
    folder.mkdir(parents=True)
    write(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    result = folder.with_suffix(".json")

    def attempt() -> None:
        signal.alarm(_MOST_SECONDS)
        limit_memory(limit)
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        before = measure_memory("VmRSS")
        try:
            read(folder)
            outcome = "read"
        except MetaXLMError as error:
            outcome = f"rejected: {error}"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {str(error)[:200]}"
        found = {"outcome": outcome, "peak": measure_memory("VmHWM") - before}
        result.write_text(json.dumps(found))

    code = wait(fork(attempt))
    ended = json.loads(result.read_text()) if result.exists() else {"outcome": f"killed, {code}"}
    return {"bytes": size, **ended}


def main(folder: Path, limit: int = MOST_BYTES, every: int = 1) -> None:
    """Run all bombs, or every n-th."""
    set_quiet(True)
    for _, read, _ in BOMBS.values():  # import what they need, which is not what is measured
        with suppress(MetaXLMError, OSError):
            read(folder / "nothing")
    print(json.dumps({name: run(folder / name, name, limit) for name in [*BOMBS][::every]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
