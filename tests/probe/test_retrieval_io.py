from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from metaxlm.errors import MetaXLMError
from metaxlm.probe.embedding import Embedded
from metaxlm.probe.pool import LayerChoice
from metaxlm.probe.retrieval_io import VectorType, open_sentences, read_vectors, write_vectors

TEXTS = [f"text {number} ß我" for number in range(1, 11)]
LAYERS = [LayerChoice((1,)), LayerChoice((1, 2))]
VECTORS = torch.randn(2, 10, 4, generator=torch.Generator().manual_seed(0))


def deal(vectors: torch.Tensor = VECTORS, size: int = 4) -> Iterator[Embedded]:
    """The texts and vectors in chunks of which the last is smaller."""
    for start in range(0, vectors.shape[1], size):
        rows = slice(start, start + size)
        yield Embedded(TEXTS[rows], vectors[:, rows])


def write(path: Path, num_layers: int = 2, dtype: VectorType = "float16", **changes: Any) -> Path:
    options: dict[str, Any] = {"num_texts": 10, "width": 4, "layers": LAYERS[:num_layers]}
    chunks = changes.pop("chunks", deal(VECTORS[:num_layers]))
    write_vectors(path, chunks, dtype=dtype, **(options | changes))
    return path


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_one_layer_and_several_are_read_back(tmp_path: Path, dtype: VectorType) -> None:
    expected = VECTORS.numpy().astype(dtype)
    for ending, layer in ((".npy", "1"), (".parquet", "1+2")):
        one = read_vectors(write(tmp_path / f"one{ending}", 1, dtype))
        second = read_vectors(write(tmp_path / f"two{ending}", 2, dtype), layer)
        assert one.dtype == second.dtype == dtype
        assert np.array_equal(one, expected[0])
        assert np.array_equal(second, expected[1])
    assert isinstance(read_vectors(tmp_path / "one.npy"), np.memmap)
    assert np.array_equal(np.load(tmp_path / "two.npy"), expected)
    table = pq.read_table(tmp_path / "two.parquet")
    assert table.column_names == ["line", "text", "layer_1", "layer_1+2"]
    assert table["line"].to_pylist() == list(range(1, 11))
    assert table["text"].to_pylist() == TEXTS
    item = {"float16": pa.float16(), "float32": pa.float32()}[dtype]
    assert table["layer_1"].type == pa.list_(item, 4)
    assert np.array_equal(np.array(table["layer_1"].to_pylist(), dtype), expected[0])


def test_vectors_written_by_others(tmp_path: Path) -> None:
    rows = VECTORS[0].double().tolist()
    pq.write_table(pa.table({"id": range(10), "embedding": rows}), tmp_path / "a.parquet")
    assert np.array_equal(read_vectors(tmp_path / "a.parquet"), np.array(rows))
    np.save(tmp_path / "a.npy", np.array(rows))
    assert np.array_equal(read_vectors(tmp_path / "a.npy"), np.array(rows))


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_an_interruption_leaves_the_earlier_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    path.write_text("earlier")

    def stop() -> Iterator[Embedded]:
        yield next(deal())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, chunks=stop())
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(path.name, "earlier")]


def test_values_out_of_range_are_rejected(tmp_path: Path) -> None:
    large = VECTORS.clone()
    large[1, 6, 2] = 70_000
    with pytest.raises(MetaXLMError, match=r"^vector 7 has a value beyond float16's range; write"):
        write(tmp_path / "a.npy", chunks=deal(large))
    assert list(tmp_path.iterdir()) == []
    assert write(tmp_path / "a.npy", 2, "float32", chunks=deal(large)).exists()
    large[0, 4, 0] = float("nan")
    with pytest.raises(MetaXLMError, match=r"^vector 5 has a value that is not finite; the model"):
        write(tmp_path / "a.npy", 2, "float32", chunks=deal(large))


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match=r"a.txt: vectors are written as .npy or .parquet; name"):
        write(tmp_path / "a.txt")
    (tmp_path / "file").touch()
    with pytest.raises(MetaXLMError, match=r"file/a.npy: cannot be written \(File exists\)"):
        write(tmp_path / "file" / "a.npy")
    with pytest.raises(MetaXLMError, match=r"the vectors need 8,000,000,000.0 MB, but only"):
        write(tmp_path / "a.npy", 1, num_texts=10**15)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def save(path: Path, array: Any) -> Path:
    """Write a file of another origin."""
    if isinstance(array, bytes):
        path.write_bytes(array)
    elif path.suffix == ".npy":
        np.save(path, array)
    else:
        pq.write_table(pa.table(array), path)
    return path


def dump(save_as: Callable[..., Any]) -> bytes:
    file = io.BytesIO()
    save_as(file, np.zeros((10, 4), np.float32))
    return file.getvalue()


NAN = np.array([[1.0, 2.0], [3.0, np.nan]])


@pytest.mark.parametrize(
    ("name", "content", "layer", "expected"),
    [
        ("a.npy", np.ones((2, 3), dtype=np.int64), None, "holds int64, but vectors are float16"),
        ("a.npy", np.ones(3), None, r"has the shape \(3,\); vectors are \[texts, numbers\], or"),
        ("a.npy", NAN, None, "a.npy: vector 2 has a value that is not finite"),
        ("a.npy", np.ones((2, 3, 4)), None, r"has several layers \(0, 1\); choose one with"),
        ("a.npy", np.ones((2, 3, 4)), "2", "a.npy: has no layer 2, but 0, 1"),
        ("a.npy", np.ones((3, 4)), "2", "holds one layer only; leave the layer out"),
        ("a.npy", b"text", None, "a.npy: .*not .npy"),
        ("a.npy", dump(np.save)[:-8], None, "a.npy: .*not .npy"),
        ("a.npy", dump(np.savez), None, "a.npy: cannot be read .*damaged or not .npy"),
        ("a.parquet", b"PAR1", None, "a.parquet: .*damaged or cut short"),
        ("a.parquet", {"a": [1], "b": ["x"]}, None, r"none of its columns \(a, b\) holds lists of"),
        ("a.parquet", {"a": [[1.0], [1.0, 2.0]]}, None, "column a has gaps, or vectors of diff"),
        ("a.parquet", {"a": [[1.0, None]]}, None, "column a has gaps"),
        ("a.parquet", {"a": [[1.0]], "b": [[1.0]]}, None, r"has several layers \(a, b\); choose"),
        ("a.parquet", {"layer_1": NAN.tolist()}, "1", "vector 2 has a value that is not finite"),
        ("a.csv", b"1,2", None, "a.csv: vectors are written as .npy or .parquet"),
    ],
)
def test_damaged_and_other_files_are_rejected(
    tmp_path: Path, name: str, content: Any, layer: str | None, expected: str
) -> None:
    with pytest.raises(MetaXLMError, match=expected) as error:
        read_vectors(save(tmp_path / name, content), layer)
    assert "\n" not in str(error.value)


def test_sentences_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    # Only the newline ends a line, not the other line ends of Unicode.
    path.write_bytes("\ufeffone\u2028still one\r\ntwo\x0bstill two\nthree".encode())
    with open_sentences(str(path)) as sentences:
        assert len(sentences) == 3
        assert list(sentences) == ["one\u2028still one", "two\x0bstill two", "three"]
        assert list(sentences) == list(sentences)
        assert sentences.place(3) == f"{path}:3"


@pytest.mark.parametrize("later", ["one\ntwo\n", "one\ntwo\nthree\nfour\n"])
def test_a_changed_file_is_an_error(tmp_path: Path, later: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\nthree\n", encoding="utf-8")
    with open_sentences(str(path)) as sentences:
        path.write_text(later, encoding="utf-8")
        found = []
        with pytest.raises(MetaXLMError, match=r"a.txt: changed while it was read; start again"):
            for text in sentences:
                found.append(text)
        assert found == later.split()[:3]
