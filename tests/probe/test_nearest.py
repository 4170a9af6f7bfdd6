from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.probe import nearest
from metaxlm.probe.nearest import FaissIndex, Nearest, find_both, find_by_faiss, find_nearest

SHAPES = [(57, 83, 8, 1), (700, 1_300, 32, 4), (1_300, 1_100, 24, 1), (5, 900, 16, 7)]
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def draw(count: int, width: int, seed: int) -> Tensor:
    """Vectors of very different lengths, around a common direction as an encoder's are."""
    random = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, width, generator=random) + 2 * torch.arange(width) / width
    return vectors * 9 ** torch.randn(count, 1, generator=random)


def search_fully(queries: Tensor, keys: Tensor, k: int) -> Nearest:
    """The definition: all cosines in float64, rounded to float32, sorted stably."""
    full = F.normalize(queries.double(), dim=1) @ F.normalize(keys.double(), dim=1).T
    found = full.float().sort(dim=1, descending=True, stable=True)
    return Nearest(found.indices[:, :k], found.values[:, :k])


def check_equal(found: Nearest, expected: Nearest) -> None:
    assert torch.equal(found.indices_Qk, expected.indices_Qk)
    assert torch.equal(found.similarities_Qk, expected.similarities_Qk)


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [(SHAPES[0], 31), (SHAPES[1], 96), (SHAPES[2], 2_048), (SHAPES[2], 256), (SHAPES[3], 96)],
)
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_CUDA])]
)
def test_both_directions_equal_the_full_matrix(
    shape: tuple[int, int, int, int], chunk: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_queries, num_keys, width, k = shape
    monkeypatch.setitem(nearest.CHUNKS, device, chunk)
    monkeypatch.setattr(nearest, "_ROWS_AT_ONCE", {device: 300})
    queries, keys = draw(num_queries, width, 1), draw(num_keys, width, 2)
    keys[num_keys // 2 :: 5] = 3 * keys[0]
    forward, backward = find_both(queries, keys, k=k, device=torch.device(device))
    check_equal(forward, search_fully(queries, keys, k))
    check_equal(backward, search_fully(keys, queries, k))
    check_equal(find_nearest(queries, keys, k=k, device=torch.device(device)), forward)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_rounded_products_give_the_same_answer(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "_choose_precision", lambda device: precision)
    queries, keys = draw(3_000, 12, 1), draw(2_500, 12, 2)
    forward, backward = find_both(queries, keys, k=2)
    check_equal(forward, search_fully(queries, keys, 2))
    check_equal(backward, search_fully(keys, queries, 2))


def test_float64_decides_differences_below_float32() -> None:
    random = torch.Generator().manual_seed(5)
    base = torch.randn(64, generator=random, dtype=torch.float64)
    queries, keys = (
        base + 3e-4 * torch.randn(n, 64, generator=random, dtype=torch.float64) for n in (50, 3_000)
    )
    expected = search_fully(queries, keys, 1)
    units = [F.normalize(side.float(), dim=1) for side in (queries, keys)]
    assert not torch.equal((units[0] @ units[1].T).argmax(1), expected.indices_Qk[:, 0])
    check_equal(find_nearest(queries, keys), expected)


@pytest.mark.parametrize("precision", ["medium", "highest"])
def test_the_users_matmul_precision_is_ignored_and_kept(precision: str) -> None:
    """At `medium` some CPUs multiply in bfloat16."""
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        queries, keys = draw(600, 64, 6), draw(5_000, 64, 7)
        check_equal(find_nearest(queries, keys), search_fully(queries, keys, 1))
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


def test_arrays_files_and_half_precision(tmp_path: Path) -> None:
    queries, keys = draw(300, 16, 8).half(), draw(2_000, 16, 9).half()
    np.save(tmp_path / "keys.npy", keys.numpy())
    mapped = np.load(tmp_path / "keys.npy", mmap_mode="r")
    expected = search_fully(queries, keys, 2)
    check_equal(find_nearest(queries.numpy(), mapped, k=2), expected)
    check_equal(find_nearest(queries, keys, k=2), expected)
    bfloat = queries.bfloat16()
    check_equal(find_nearest(bfloat, keys), search_fully(bfloat, keys, 1))


def test_zero_vectors_have_the_cosine_0() -> None:
    queries, keys = torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[-1.0, 0.0], [0, 0]])
    found = find_nearest(queries, keys)
    assert found.indices_Qk.tolist() == [[0], [1]]
    assert found.similarities_Qk.tolist() == [[0.0], [0.0]]
    assert find_nearest(torch.eye(3), torch.eye(3)[:2], k=5).indices_Qk.shape == (3, 2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_rejected(bad: float) -> None:
    keys = torch.eye(4)
    keys[2, 1] = bad
    with pytest.raises(MetaXLMError, match="keys: vector 3 has a value that is not finite"):
        find_nearest(torch.eye(4), keys)
    with pytest.raises(MetaXLMError, match="queries: vector 3 has"):
        find_both(keys, torch.eye(4))
    with pytest.raises(MetaXLMError, match="queries have 3 dimensions and keys 2"):
        find_nearest(torch.eye(3), torch.eye(2))
    with pytest.raises(MetaXLMError, match="floats, but these are int64"):
        find_nearest(np.eye(3, dtype=np.int64), torch.eye(3))


def test_faiss_equals_the_exact_search() -> None:
    pytest.importorskip("faiss", reason="faiss is an extra")
    queries, keys = draw(70, 12, 1), draw(90, 12, 2)
    exact = find_nearest(queries, keys, k=3)
    for factory, search in (("Flat", ""), ("HNSW16", "efSearch=200"), ("IVF2,Flat", "nprobe=2")):
        found = find_by_faiss(queries, keys, FaissIndex(factory, search), k=3)
        assert torch.equal(found.indices_Qk, exact.indices_Qk), factory
        torch.testing.assert_close(found.similarities_Qk, exact.similarities_Qk)
    for index, message in (
        (FaissIndex("IVG4"), "faiss index 'IVG4': cannot be built"),
        (FaissIndex("IVF4096,Flat"), "90 keys are too few"),
        (FaissIndex("Flat", "nprobes=3"), "faiss search 'nprobes=3'"),
        (FaissIndex("IVF40,Flat"), "found fewer than 20 keys for query"),
    ):
        with pytest.raises(MetaXLMError, match=message):
            find_by_faiss(queries, keys, index, k=20)


def test_without_faiss_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MetaXLMError, match=r"pip install 'metaxlm\[faiss\]'"):
        find_by_faiss(torch.eye(2), torch.eye(2), FaissIndex())
