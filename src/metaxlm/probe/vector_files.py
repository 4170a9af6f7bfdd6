"""Vectors on disk: chunks of vectors come in, a `.npy` or `.parquet` file goes out, and back.

The sentence vectors of the paper's Section 4.4 for use elsewhere. A `.npy` file has the shape
[N, D], or [Y, N, D] of several choices of layers, and is memory-mapped by whoever reads it. A
`.parquet` file has the columns `line`, `text` and, for each choice, a list of D numbers such as
`layer_8`. Both are written chunk by chunk, so they may be larger than memory, and whole or not at
all. Shapes: N texts, D hidden, C texts of a chunk, Y choices of layers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from metaxlm.data.readers.parquet import check_table, open_parquet, reading_parquet
from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_file
from metaxlm.probe.embedding import Embedded
from metaxlm.probe.layers import LayerChoice
from metaxlm.reading import open_file, reading

VectorType = Literal["float16", "float32"]
Array = npt.NDArray[Any]

ENDINGS = (".npy", ".parquet")
_PREFIX = "layer_"
_ROWS_CHECKED = 65_536
_ARROW_TYPES = {"float16": pa.float16(), "float32": pa.float32()}


def check_ending(path: Path) -> None:
    """Refuse a file name that does not say which kind of file is meant."""
    if path.suffix not in ENDINGS:
        raise MetaXLMError(f"{path}: vectors are written as {' or '.join(ENDINGS)}; name it so")


def write_vectors(
    path: Path,
    chunks: Iterable[Embedded],
    *,
    num_texts: int,
    width: int,
    layers: Sequence[LayerChoice],
    dtype: VectorType = "float16",
) -> None:
    """Write the vectors of `num_texts` texts in order; an interruption leaves no file."""
    check_ending(path)
    assert num_texts > 0, "numpy maps no empty file"
    write = _write_npy if path.suffix == ".npy" else _write_parquet
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _require_space(path.parent, len(layers) * num_texts * width * np.dtype(dtype).itemsize)
        with atomic_file(path) as temporary:
            done = write(temporary, _convert(chunks, dtype), num_texts, width, layers, dtype)
            assert done == num_texts, f"{done} vectors of {num_texts} texts"
    except OSError as error:
        raise MetaXLMError(
            f"{path}: cannot be written ({error.strerror or error}); choose another --output"
        ) from error


def _require_space(folder: Path, needed_bytes: int) -> None:
    """Refuse to begin what would end after hours on a full disk."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise MetaXLMError(
            f"{folder}: the vectors need {needed_bytes / 1e6:,.1f} MB, but only "
            f"{free_bytes / 1e6:,.1f} MB are free; choose fewer layers, float16 or another --output"
        )


def _convert(chunks: Iterable[Embedded], dtype: VectorType) -> Iterator[tuple[list[str], Array]]:
    """Yield texts and vectors in the type of the file; refuse what that type cannot hold."""
    done = 0
    for texts, vectors_YCD in chunks:
        with np.errstate(over="ignore"):  # said below, with the line
            array_YCD = vectors_YCD.numpy().astype(dtype)
        finite_C = np.isfinite(array_YCD).all(axis=(0, 2))
        if not finite_C.all():
            number = done + int(np.argmin(finite_C)) + 1
            reason = (
                f"a value beyond {dtype}'s range; write float32 instead"
                if vectors_YCD[:, number - done - 1].isfinite().all()
                else "a value that is not finite; the model is damaged"
            )
            raise MetaXLMError(f"vector {number:,} has {reason}")
        yield texts, array_YCD
        done += len(texts)


def _write_npy(
    path: Path,
    chunks: Iterable[tuple[list[str], Array]],
    num_texts: int,
    width: int,
    layers: Sequence[LayerChoice],
    dtype: VectorType,
) -> int:
    """Write where each vector belongs: the tables of several layers stand one after the other."""
    shape = (len(layers), num_texts, width) if len(layers) > 1 else (num_texts, width)
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    vector_bytes = width * np.dtype(dtype).itemsize
    done = 0
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        first = file.tell()
        for texts, array_YCD in chunks:
            for index, array_CD in enumerate(array_YCD):
                file.seek(first + (index * num_texts + done) * vector_bytes)
                file.write(array_CD.tobytes())
            done += len(texts)
    return done


def _write_parquet(
    path: Path,
    chunks: Iterable[tuple[list[str], Array]],
    num_texts: int,  # noqa: ARG001  (a parquet file need not know)
    width: int,
    layers: Sequence[LayerChoice],
    dtype: VectorType,
) -> int:
    vector = pa.list_(_ARROW_TYPES[dtype], width)
    fields = [pa.field("line", pa.int64()), pa.field("text", pa.string())]
    fields += [pa.field(f"{_PREFIX}{choice}", vector) for choice in layers]
    done = 0
    # Vectors hardly compress; texts do.
    columns = {"compression": {"text": "zstd"}, "use_dictionary": False}
    with pq.ParquetWriter(path, pa.schema(fields), **columns) as writer:
        for texts, array_YCD in chunks:
            lines = pa.array(range(done + 1, done + len(texts) + 1), pa.int64())
            lists = [
                pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), width)
                for rows in array_YCD
            ]
            writer.write_table(pa.table([lines, pa.array(texts), *lists], pa.schema(fields)))
            done += len(texts)
    return done


def read_vectors(path: Path, layer: str | None = None, width: int | None = None) -> Array:
    """Return the vectors of a file, [N, D]; those of a `.npy` file stay on the disk until used.

    `layer` chooses among several: `8` is the column `layer_8`, or the ninth table of a `.npy`
    file. `width` is the D that is needed, if one is.
    """
    check_ending(path)
    vectors_ND = _read_npy(path, layer) if path.suffix == ".npy" else _read_parquet(path, layer)
    if vectors_ND.size == 0:
        raise MetaXLMError(f"{path}: holds no vectors")
    if not np.issubdtype(vectors_ND.dtype, np.floating):
        raise MetaXLMError(f"{path}: holds {vectors_ND.dtype}, but vectors are float16 or float32")
    if width is not None and vectors_ND.shape[1] != width:
        raise MetaXLMError(
            f"{path}: vectors of {vectors_ND.shape[1]} numbers, but {width} are needed; embed both "
            "sides with one model"
        )
    for start in range(0, len(vectors_ND), _ROWS_CHECKED):
        finite_C = np.isfinite(vectors_ND[start : start + _ROWS_CHECKED]).all(axis=1)
        if not finite_C.all():
            number = start + int(np.argmin(finite_C)) + 1
            raise MetaXLMError(f"{path}: vector {number:,} has a value that is not finite")
    return vectors_ND


def _read_npy(path: Path, layer: str | None) -> Array:
    found = open_npy(path)
    if found.ndim == 3:
        numbers = [str(number) for number in range(len(found))]
        found = found[int(_choose(path, layer, numbers))]
    elif layer is not None and found.ndim == 2:
        raise MetaXLMError(f"{path}: holds one layer only; leave the layer out")
    if found.ndim != 2:
        raise MetaXLMError(
            f"{path}: has the shape {found.shape}; vectors are [texts, numbers], or [layers, "
            "texts, numbers]"
        )
    return found


def open_npy(path: Path) -> Array:
    """Map a `.npy` file into memory."""
    open_file(path).close()  # refuses what is missing, or no file
    # Its header is a piece of Python, which fails in as many ways.
    kinds = (ValueError, TypeError, KeyError, OverflowError, SyntaxError, MemoryError, TokenError)
    with reading(path, *kinds, fix="damaged or not .npy: write it again"):
        return np.lib.format.open_memmap(path, mode="r")


def _read_parquet(path: Path, layer: str | None) -> Array:
    with reading_parquet(path), open_parquet(path) as file:
        schema = file.schema_arrow
        columns = [field.name for field in schema if _is_vector(field.type)]
        if not columns:
            raise MetaXLMError(
                f"{path}: none of its columns ({', '.join(schema.names)}) holds lists of floats"
            )
        wanted = columns[0]
        if layer is not None or len(columns) > 1:
            names = {name.removeprefix(_PREFIX): name for name in columns}
            wanted = names[_choose(path, layer, list(names))]
        check_table(path, file, [wanted])
        column = file.read([wanted], use_threads=False).column(0).combine_chunks()
        column.validate(full=True)
    numbers, lengths = column.flatten(), column.value_lengths().unique()
    # Where there is no vector there is no length either, which makes one more.
    if numbers.null_count or len(lengths) > 1:
        raise MetaXLMError(f"{path}: column {wanted} has gaps, or vectors of different lengths")
    return np.asarray(numbers.to_numpy()).reshape(
        len(column), lengths[0].as_py() if len(lengths) else 0
    )


def _is_vector(kind: pa.DataType) -> bool:
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)
    return bool(is_list and pa.types.is_floating(kind.value_type))


def _choose(path: Path, wanted: str | None, known: Sequence[str]) -> str:
    if wanted in known:
        return str(wanted)
    several = ", ".join(known[:20])
    if wanted is None:
        raise MetaXLMError(f"{path}: has several layers ({several}); say which with --layer")
    raise MetaXLMError(f"{path}: has no layer {wanted}, but {several}")
