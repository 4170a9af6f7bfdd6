"""Small files that would fill the memory, and the calls that read them.

`python -m tests.faults.bombs FOLDER [LIMIT]` writes all of them, reads each in a forked process
that may allocate `MOST_BYTES` or LIMIT, and prints a JSON object with the results.
"""

from __future__ import annotations

import json
import lzma
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.faults.fuzzed_readers import limit_memory, use

from metaxlm.errors import MetaXLMError

MOST_BYTES = 320_000_000
Step = Callable[[Path], Any]
_PIECE = 16_000_000
_MOST_SECONDS = 60


def _repeat(path: Path, piece: bytes, times: int = 64) -> None:
    """Write a compressed file of many equal streams, about a gigabyte in all."""
    content = piece * (_PIECE // len(piece))
    path.write_bytes(lzma.compress(content, preset=0) * times)


def _write_dictionary(folder: Path) -> None:
    _repeat(folder / "en-de.txt.xz", b"h" * 500 + b" " + b"h" * 500 + b"\n")


def _write_long_row(folder: Path) -> None:
    _repeat(folder / "results.jsonl.xz", b" " * 1000)


def _write_many_rows(folder: Path) -> None:
    row = {
        "task": "xnli",
        "metric": "accuracy",
        "value": 0.5,
        "variant": "x" * 100,
        "note": "x" * 8_000,
    }
    _repeat(folder / "results.jsonl.xz", json.dumps(row).encode() + b"\n", 12)


def _write_comparisons(folder: Path) -> None:
    _repeat(folder / "comparisons.json.xz", b"[],")


def _write_values(folder: Path) -> None:
    text = b"[" + b"[]," * 8_000_000 + b"[]]"
    (folder / "comparisons.json.xz").write_bytes(lzma.compress(text, preset=0))


def _write_line(folder: Path) -> None:
    with (folder / "texts").open("wb") as file:
        file.truncate(1 << 30)


def _read_sentences(folder: Path) -> None:
    with use("probe.retrieval_io:open_sentences")(str(folder / "texts")) as sentences:
        list(sentences)


def _write_jsonl(folder: Path) -> None:
    line = b'{"text": "x", "more": [' + b"[]," * 10_000_000 + b"[]]}\n"
    (folder / "de.jsonl.xz").write_bytes(lzma.compress(line, preset=0))


def _read_jsonl(folder: Path) -> None:
    from metaxlm.data.documents import Rejection, Split
    from metaxlm.data.readers.lines import read_jsonl

    for record in read_jsonl(Split(folder / "de.jsonl.xz"), lambda _: None):
        if isinstance(record, Rejection):
            raise MetaXLMError(f"{record.where}: {record.reason}")


def _write_shared_value(folder: Path) -> None:
    """Write one long value that a dictionary gives to many rows."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 5_000, pa.int32()), ["a" * 46_000_000])
    _write_rows(folder, {"text": column}, dictionary_pagesize_limit=1 << 30)


def _write_shared_text(folder: Path) -> None:
    """Write such a value below the limit of a row, so that all rows are documents."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 40, pa.int32()), ["ab cd " * 1_500_000])
    _write_rows(folder, {"text": column}, dictionary_pagesize_limit=1 << 30)


def _write_page(folder: Path) -> None:
    _write_rows(folder, {"text": pa.array(["a" * 350_000_000])}, use_dictionary=False)


def _write_rows(folder: Path, columns: dict[str, Any], **options: Any) -> None:
    path = folder / "de.parquet"
    pq.write_table(
        pa.table(columns), path, compression="zstd", write_statistics=False, store_schema=False,
        **options,
    )  # fmt: skip


def _read_parquet(folder: Path) -> None:
    from metaxlm.data.documents import Split
    from metaxlm.data.readers.parquet import read_parquet

    for _ in read_parquet(Split(folder / "de.parquet", 0, None, 1), lambda _: None):
        pass


def _write_vectors(folder: Path) -> None:
    width = 1_000
    numbers = pa.array(np.zeros(width * 1_000, np.float32))
    column = pa.FixedSizeListArray.from_arrays(numbers, width)
    table = pa.table({"layer_8": column})
    with pq.ParquetWriter(folder / "vectors.parquet", table.schema) as writer:
        for _ in range(60):
            writer.write_table(table)


def _write_ledger(folder: Path) -> None:
    from metaxlm.init.ledger import _SCHEMA

    num_rows = 400
    columns = [
        pa.array(["a" * 1_000_000 if field.name == "token" else None] * num_rows, field.type)
        for field in _SCHEMA
    ]
    facts = {"source_size": "1", "kind": "SentencePiece", "matching": "{}"}
    table = pa.table(columns, schema=_SCHEMA.with_metadata(facts))
    pq.write_table(
        table, folder / "ledger.parquet", compression="zstd", dictionary_pagesize_limit=1 << 30
    )


def _write_recipe(folder: Path) -> None:
    lines = ["name: x", "a0: &a0 {x: y}"]
    for level in range(1, 9):
        parts = ", ".join(f"k{number}: *a{level - 1}" for number in range(10))
        lines.append(f"a{level}: &a{level} {{{parts}}}")
    (folder / "recipe.yaml").write_text("\n".join(lines))


def _call(name: str, file: str = "") -> Step:
    """Return a function that reads a file, or a folder, by a function of metaxlm."""
    return lambda folder: use(name)(folder / file)


_READ_DICTIONARY = _call("init.dictionaries:load_dictionaries")
_READ_RESULTS = _call("analysis.results:read_scores", "results.jsonl")
_READ_COMPARISONS = _call("analysis.stats:read_comparisons", "comparisons.json")
_READ_LINES = _call("finetune.readers.input_lines:read_lines", "texts")
_READ_VECTORS = _call("probe.retrieval_io:read_vectors", "vectors.parquet")
_READ_LEDGER = _call("init.ledger:load_ledger", "ledger.parquet")
_READ_RECIPE = _call("recipe.recipe_file:load_recipe", "recipe.yaml")
BOMBS: dict[str, tuple[Step, Step, str]] = {
    "dictionary .xz": (_write_dictionary, _READ_DICTIONARY, "bytes of text"),
    "results.jsonl.xz, one line": (_write_long_row, _READ_RESULTS, "the line has more than"),
    "results.jsonl.xz, equal rows": (_write_many_rows, _READ_RESULTS, ""),
    "comparisons.json.xz": (_write_comparisons, _READ_COMPARISONS, "unpacks to more than"),
    "comparisons.json.xz, small values": (_write_values, _READ_COMPARISONS, "values"),
    "sentences, one line": (_write_line, _read_sentences, "the line has more than"),
    "task data, one line": (_write_line, _READ_LINES, "the line has more than"),
    "corpus JSONL, small values": (_write_jsonl, _read_jsonl, "invalid_json"),
    "corpus parquet, shared value": (_write_shared_value, _read_parquet, "unpacks from"),
    "corpus parquet, shared text": (_write_shared_text, _read_parquet, ""),
    "corpus parquet, one page": (_write_page, _read_parquet, "unpacks from"),
    "vectors parquet, equal numbers": (_write_vectors, _READ_VECTORS, "unpack to"),
    "ledger, shared token": (_write_ledger, _READ_LEDGER, "unpack"),
    "recipe, aliases": (_write_recipe, _READ_RECIPE, "aliases"),
}
"""Functions that write and read a file, and a part of the error; empty if it can be read."""


def run(folder: Path, name: str, limit: int) -> dict[str, Any]:
    """Write a bomb, and read it in a process of its own."""
    write, read, _ = BOMBS[name]
    folder.mkdir(parents=True)
    write(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    source, sink = os.pipe()
    if not (child := os.fork()):
        signal.alarm(_MOST_SECONDS)
        limit_memory(limit)
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        before = _measure("VmRSS")
        try:
            read(folder)
            told = "read"
        except MetaXLMError as error:
            told = f"rejected: {error}"
        except BaseException as error:
            told = f"{type(error).__name__}: {str(error)[:200]}"
        found = {"outcome": told, "peak": _measure("VmHWM") - before}
        os.write(sink, json.dumps(found).encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as file:
        found = file.read()
    _, status = os.waitpid(child, 0)
    ended = json.loads(found) if found else {"outcome": f"killed, status {status}"}
    return {"bytes": size, **ended}


def _measure(name: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(row.split()[1]) for row in status.splitlines() if row.startswith(name)) * 1024


def main(folder: Path, limit: int = MOST_BYTES) -> None:
    """Run all bombs."""
    from metaxlm.progress import set_quiet

    set_quiet(True)
    for _, read, _ in BOMBS.values():  # import what they need, which is not what is measured
        with suppress(MetaXLMError, OSError):
            read(folder / "nothing")
    print(json.dumps({name: run(folder / str(k), name, limit) for k, name in enumerate(BOMBS)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
