"""Nearest neighbors by faiss, for tens of millions of vectors: the same in and out as `nearest.py`.

The exact search multiplies every query with every key, which the paper's test sets (Section 4.4)
need and a GPU does for millions. For far more there are faiss's approximate indexes, by the extra
`metaxlm[faiss]`. Shapes: Q queries, K keys, D dimensions, k neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from metaxlm.errors import MetaXLMError
from metaxlm.probe.nearest import Nearest
from metaxlm.probe.vector_side import Vectors, VectorSide
from metaxlm.progress import track

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 65_536
_MOST_TRAINED = 262_144
"""Keys an index learns its cells from, at most, evenly spread."""


@dataclass(frozen=True)
class FaissIndex:
    """Which index faiss builds over the keys."""

    factory: str = "Flat"
    """As faiss's index_factory reads it: `Flat` (exact), `IVF4096,Flat`, `HNSW32`,
    `OPQ64,IVF65536,PQ64`."""
    search: str = ""
    """How the index is searched, such as `nprobe=32` or `efSearch=128`; faiss's default if empty.
    """


def find_by_faiss(
    queries_QD: Vectors,
    keys_KD: Vectors,
    index: FaissIndex,
    *,
    k: int = 1,
    title: str = "",
) -> Nearest:
    """Return k keys of high cosine of each query; which of equal ones comes first, faiss decides.

    Vectors are read chunk by chunk, and the index holds what its kind needs to.
    """
    if k < 1:
        raise MetaXLMError(f"k is {k}; ask for at least one neighbor")
    faiss = _import_faiss()
    cpu = torch.device("cpu")
    queries, keys = VectorSide(queries_QD, cpu, "queries"), VectorSide(keys_KD, cpu, "keys")
    if queries.width != keys.width:
        raise MetaXLMError(
            f"queries have {queries.width} dimensions and keys {keys.width}; embed both with one "
            f"model and layer"
        )
    built = _build(faiss, keys, index)
    k = min(k, len(keys))
    similarities_Qk = torch.empty(len(queries), k)
    indices_Qk = torch.empty(len(queries), k, dtype=torch.long)
    with track(title or "faiss", len(queries), "queries") as advance:
        for start, end in _list_chunks(len(queries)):
            scores, numbers = built.search(queries.take(start, end).numpy(), k)
            similarities_Qk[start:end] = torch.from_numpy(scores)
            indices_Qk[start:end] = torch.from_numpy(numbers)
            advance(end - start)
    if bool((indices_Qk < 0).any()):
        row = int((indices_Qk < 0).any(dim=1).nonzero()[0]) + 1
        raise MetaXLMError(
            f"faiss's {index.factory} found fewer than {k} keys for query {row:,}; search more of "
            f"the index, as with nprobe=64"
        )
    return Nearest(indices_Qk, similarities_Qk)


def _build(faiss: Any, keys: VectorSide, index: FaissIndex) -> Any:
    """Make the index, let it learn its cells if it has any, and add all keys."""
    try:
        built = faiss.index_factory(keys.width, index.factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise MetaXLMError(
            f"faiss index {index.factory!r}: cannot be built for {keys.width} dimensions; write "
            f"it as for faiss.index_factory, such as IVF4096,Flat"
        ) from error
    if not built.is_trained:
        rows = torch.linspace(0, len(keys) - 1, min(len(keys), _MOST_TRAINED)).long()
        try:
            built.train(keys.take_exactly(rows).float().numpy())
        except RuntimeError as error:
            raise MetaXLMError(
                f"faiss index {index.factory!r}: {len(keys):,} keys are too few to learn its "
                f"cells; use Flat, or fewer cells"
            ) from error
    for start, end in _list_chunks(len(keys)):
        built.add(keys.take(start, end).numpy())
    if index.search:
        try:
            faiss.ParameterSpace().set_index_parameters(built, index.search)
        except RuntimeError as error:
            raise MetaXLMError(
                f"faiss search {index.search!r}: {index.factory} does not know it; write it as "
                f"nprobe=32 or efSearch=128"
            ) from error
    return built


def _list_chunks(count: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK))


def _import_faiss() -> Any:
    try:
        return import_module("faiss")
    except ImportError as error:
        raise MetaXLMError(
            "searching by faiss needs faiss; install it with: pip install 'metaxlm[faiss]'"
        ) from error
