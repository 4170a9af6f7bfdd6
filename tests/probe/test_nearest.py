from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.probe import nearest
from metaxlm.probe.nearest import (
    BFLOAT16,
    FULL,
    TF32,
    Nearest,
    ScreenSide,
    VectorSide,
    bound_errors,
    find_both,
    find_nearest,
    round_bits,
    split_number,
)

ALL_BITS = pytest.mark.parametrize("bits", [FULL, TF32, BFLOAT16])
SHAPES = [(57, 83, 8, 1), (700, 1_300, 32, 4), (1_300, 1_100, 24, 1), (5, 900, 16, 7)]


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


@pytest.fixture
def screen_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Screen as precisely as asked, whatever this CPU does best."""
    return lambda bits: monkeypatch.setattr(nearest, "choose_bits", lambda _: bits)


@ALL_BITS
@pytest.mark.parametrize("case", ["both", "first", "second"])
def test_the_error_of_the_screening_is_bounded(bits: int, case: str) -> None:
    """What fast units multiply is as near to the cosines as is reckoned with, whichever loses."""
    cpu, axes = torch.device("cpu"), torch.cat([torch.eye(48), -torch.eye(48)])
    first = VectorSide(axes if case == "second" else draw(900, 48, 13), cpu, "")
    second = VectorSide(axes if case == "first" else draw(700, 48, 14), cpu, "")
    fast = [ScreenSide(first, second, bits, is_first=True)]
    fast += [ScreenSide(second, first, bits, is_first=False)]
    rows = [side.take(0, len(side.side)) for side in fast]
    if bits != FULL:
        assert all(torch.equal(round_bits(side, bits), side) for side in rows)
    cosines = first.take_exactly(slice(None)) @ second.take_exactly(slice(None)).T
    off = (rows[0].double() @ rows[1].double().T - cosines).abs()
    for off_N, bound_N in (
        (off.amax(dim=1), bound_errors(fast[0], fast[1], 2.0**-24)),
        (off.amax(dim=0), bound_errors(fast[1], fast[0], 2.0**-24)),
    ):
        assert bool((off_N <= bound_N).all())
        assert float(bound_N.max()) < {FULL: 1e-4, TF32: 1e-3, BFLOAT16: 8e-3}[bits]


@ALL_BITS
@pytest.mark.parametrize(("num_queries", "num_keys", "width", "k"), SHAPES)
@pytest.mark.parametrize("chunks", [(None, None), (64, 96), (31, 50)])
def test_both_directions_equal_the_full_matrix_whatever_the_chunks(
    num_queries: int,
    num_keys: int,
    width: int,
    k: int,
    chunks: tuple[int | None, int | None],
    bits: int,
    screen_with: Callable[[int], None],
) -> None:
    screen_with(bits)
    queries, keys = draw(num_queries, width, 1), draw(num_keys, width, 2)
    keys[num_keys // 2 :: 5] = 3 * keys[0]  # many equal ones
    sizes = {"query_chunk": chunks[0], "key_chunk": chunks[1]}
    forward, backward = find_both(queries, keys, k=k, **sizes)
    check_equal(forward, search_fully(queries, keys, k))
    check_equal(backward, search_fully(keys, queries, k))
    check_equal(find_nearest(queries, keys, k=k, **sizes), forward)


def test_more_rows_than_are_screened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(nearest._ROWS_AT_ONCE, "cpu", 128)
    queries, keys = draw(1_000, 12, 3), draw(700, 12, 4)
    forward, backward = find_both(queries, keys, k=2, query_chunk=32, key_chunk=64)
    check_equal(forward, search_fully(queries, keys, 2))
    check_equal(backward, search_fully(keys, queries, 2))


@pytest.mark.parametrize("k", [1, 3])
def test_few_vectors_are_multiplied_in_one_go_on_a_gpu(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where starting a product is what takes time, a small search starts two."""
    monkeypatch.setitem(nearest._ONE_GROUP, "cpu", nearest._ONE_GROUP["cuda"])
    products = []
    pack = nearest._pack
    monkeypatch.setattr(nearest, "_pack", lambda *given: products.append(1) or pack(*given))
    queries, keys = draw(1_000, 12, 3), draw(700, 12, 4)
    forward, backward = find_both(queries, keys, k=k)
    check_equal(forward, search_fully(queries, keys, k))
    check_equal(backward, search_fully(keys, queries, k))
    assert len(products) == 2


def test_of_equal_keys_the_first_wins_across_chunks() -> None:
    keys = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    for key_chunk in (1, 2, 3, 4):
        found = find_nearest(torch.tensor([[3.0, 0.0]]), keys, k=3, key_chunk=key_chunk)
        assert found.indices_Qk.tolist() == [[1, 2, 3]]


@ALL_BITS
def test_differences_below_float32_products_are_seen(
    bits: int, screen_with: Callable[[int], None]
) -> None:
    """Neighbors whose float32 products are noise are told apart by float64."""
    screen_with(bits)
    random = torch.Generator().manual_seed(5)
    base = torch.randn(64, generator=random, dtype=torch.float64)
    steps = torch.randn(3_000, 64, generator=random, dtype=torch.float64)
    keys = base + 3e-4 * steps
    queries = base + 3e-4 * torch.randn(50, 64, generator=random, dtype=torch.float64)
    expected = search_fully(queries, keys, 1)
    in_float32 = (F.normalize(queries.float(), dim=1) @ F.normalize(keys.float(), dim=1).T).argmax(
        1
    )
    assert not torch.equal(in_float32, expected.indices_Qk[:, 0])
    check_equal(find_nearest(queries, keys, key_chunk=32), expected)


@pytest.mark.parametrize("precision", ["medium", "highest"])
def test_the_users_precision_is_neither_used_nor_changed(
    precision: str, screen_with: Callable[[int], None]
) -> None:
    """At `medium` some CPUs multiply in bfloat16, whose error nobody would have reckoned with."""
    screen_with(FULL)
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
    check_equal(find_nearest(queries.numpy(), mapped, k=2, key_chunk=128), expected)
    check_equal(find_nearest(queries, keys, k=2), expected)
    bfloat = queries.bfloat16()
    check_equal(find_nearest(bfloat, keys), search_fully(bfloat, keys, 1))


def test_a_vector_of_zeros_is_like_nothing() -> None:
    found = find_nearest(
        torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([[-1.0, 0.0], [0, 0]])
    )
    assert found.indices_Qk.tolist() == [[0], [1]]
    assert found.similarities_Qk.tolist() == [[0.0], [0.0]]


def test_no_more_neighbors_than_keys() -> None:
    assert find_nearest(torch.eye(3), torch.eye(3)[:2], k=5).indices_Qk.shape == (3, 2)


@pytest.mark.parametrize(("bits", "most"), [(FULL, 1.05), (TF32, 1.2), (BFLOAT16, 2.5)])
def test_little_is_multiplied_twice(
    bits: int, most: float, monkeypatch: pytest.MonkeyPatch, screen_with: Callable[[int], None]
) -> None:
    """The second, exact multiplication is for a few groups of a row, not for all."""
    screen_with(bits)
    counted = []
    take_exactly = VectorSide.take_exactly

    def count(side: VectorSide, rows: slice | Tensor) -> Tensor:
        if isinstance(rows, Tensor):
            counted.append(len(rows))
        return take_exactly(side, rows)

    monkeypatch.setattr(VectorSide, "take_exactly", count)
    queries, keys = draw(2_000, 32, 10), draw(8_192, 32, 11)
    find_nearest(queries, keys)
    assert len(queries) <= sum(counted) < most * len(queries)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_named(bad: float) -> None:
    keys = torch.eye(4)
    keys[2, 1] = bad
    with pytest.raises(MetaXLMError, match="keys: vector 3 has a value that is not finite"):
        find_nearest(torch.eye(4), keys)
    with pytest.raises(MetaXLMError, match="queries: vector 3 has"):
        find_both(keys, torch.eye(4))


def test_other_mistakes() -> None:
    with pytest.raises(MetaXLMError, match="queries have 3 dimensions and keys 2"):
        find_nearest(torch.eye(3), torch.eye(2))
    with pytest.raises(MetaXLMError, match="k is 0"):
        find_nearest(torch.eye(3), torch.eye(3), k=0)
    with pytest.raises(MetaXLMError, match=r"the shape is \(1, 3, 3\)"):
        find_nearest(torch.eye(3)[None], torch.eye(3))
    with pytest.raises(MetaXLMError, match="keys: no vectors"):
        find_nearest(torch.eye(3), torch.empty(0, 3))
    with pytest.raises(MetaXLMError, match="floats, but these are int64"):
        find_nearest(np.eye(3, dtype=np.int64), torch.eye(3))


@pytest.mark.parametrize("bits", [TF32, BFLOAT16])
def test_rounding_leaves_what_fast_units_read(bits: int) -> None:
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(12))
    rounded = round_bits(values, bits)
    assert bool((rounded.view(torch.int32) & ((1 << (23 - bits)) - 1) == 0).all())
    assert float(((rounded - values) / values).abs().max()) <= 2.0 ** -(bits + 1)
    assert torch.equal(round_bits(rounded, bits), rounded)
    if bits == BFLOAT16:
        assert torch.equal(rounded.bfloat16().float(), rounded)
    parts = split_number(values.double(), bits)
    assert torch.equal(round_bits(parts, bits), parts)
    torch.testing.assert_close(parts.double().sum(dim=1), values.double(), atol=0, rtol=2.0**-23)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("num_queries", "num_keys", "width", "k"), SHAPES)
def test_the_gpu_finds_the_same(num_queries: int, num_keys: int, width: int, k: int) -> None:
    queries, keys = draw(num_queries, width, 1), draw(num_keys, width, 2)
    keys[num_keys // 2 :: 5] = 3 * keys[0]
    for found, expected in zip(
        find_both(queries, keys, k=k, device=torch.device("cuda"), key_chunk=64),
        (search_fully(queries, keys, k), search_fully(keys, queries, k)),
        strict=True,
    ):
        check_equal(found, expected)
