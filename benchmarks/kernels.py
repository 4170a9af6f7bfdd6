"""The fused kernels one by one, beside what torch offers for the same, on one GPU.

    python benchmarks/kernels.py [--blocks 64 --length 512 --hidden 768 --vocabulary 250002]

Attention is timed forward and backward with dropout. Rates are bytes that must be read and written,
over the time. Products are those of one layer and of the head, in bfloat16 and in float8 with the
cast of their input, which shows what float8 could save.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from metaxlm.errors import MetaXLMError
from metaxlm.model.fused import is_available
from metaxlm.pretraining.device import choose_device

DEVICE = torch.device("cuda")
DROPOUT = 0.1
console = Console(width=100, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("blocks", 64), ("length", 512), ("hidden", 768)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--vocabulary", type=int, default=250_002)
    options = parser.parse_args()
    if not is_available(choose_device("auto")):
        raise MetaXLMError("the kernels need a CUDA device from Ampere on, and Triton")
    torch.manual_seed(0)
    console.print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; {vars(options)}")
    show_attention(options.blocks, options.length, options.hidden)
    show_passes(options.blocks * options.length, options.hidden, options.vocabulary)
    show_products(options.blocks * options.length, options.hidden, options.vocabulary)


def show_attention(blocks: int, length: int, hidden: int) -> None:
    from metaxlm.model.kernels.attention import Shape, attend, attend_backward, make_column_keys

    heads, rows = hidden // 64, blocks * length
    qkv = half(rows, 3 * hidden)
    upstream = half(rows, hidden)
    lengths = torch.full((blocks,), length, dtype=torch.int32, device=DEVICE)
    seed = torch.tensor([1], device=DEVICE)
    keys = make_column_keys(seed, length)
    table = Table("attention of one layer, ms", "with dropout", "without")
    values: dict[str, list[str]] = {}
    for dropout in (DROPOUT, 0.0):
        shape = Shape(blocks, length, heads, 64, dropout)

        def ours(shape: Shape = shape) -> None:
            out, traces = attend(qkv, lengths, keys, seed, 0, shape)
            attend_backward(upstream, qkv, out, traces, lengths, shape)

        values.setdefault("metaxlm", []).append(f"{measure(ours):.3f}")
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            step = torch_attention(qkv, upstream, (blocks, length, heads), dropout)
            with sdpa_kernel(backend):
                values.setdefault(f"torch, {backend.name}", []).append(f"{measure(step):.3f}")
    for name, times in values.items():
        table.add_row(name, *times)
    console.print(table)


def torch_attention(
    qkv: Tensor, upstream: Tensor, sizes: tuple[int, int, int], dropout: float
) -> Callable[[], None]:
    parts = qkv.view(sizes[0], sizes[1], 3, sizes[2], 64).permute(2, 0, 3, 1, 4).unbind(0)
    inputs = [part.detach().requires_grad_() for part in parts]
    gradient = upstream.view(*sizes, 64).transpose(1, 2)

    def step() -> None:
        query, key, value = inputs
        out = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        torch.autograd.grad(out, inputs, gradient)

    return step


def show_passes(rows: int, hidden: int, vocabulary: int) -> None:
    from metaxlm.model.kernels import adamw, cross_entropy, gelu, norm

    seed = torch.tensor([1], device=DEVICE)
    x, residual, wide, d_wide = (half(rows, n) for n in (hidden, hidden, 4 * hidden, 4 * hidden))
    weight, bias = torch.ones(hidden, device=DEVICE), torch.zeros(hidden, device=DEVICE)
    _, total, mean, scale = norm.add_and_normalize(x, residual, weight, bias, 1e-5, 0.1, seed, 1)
    table = Table("one pass", "ms", "TB/s", "torch, ms")

    def add(name: str, num_bytes: float, step: Callable[[], object], peer: float | None) -> None:
        time = measure(step)
        other = "" if peer is None else f"{peer:.3f}"
        table.add_row(name, f"{time:.3f}", f"{num_bytes / time / 1e9:.2f}", other)

    size = 2.0 * rows * hidden
    add("dropout, sum, LayerNorm", 4 * size, lambda: norm.add_and_normalize(
        x, residual, weight, bias, 1e-5, 0.1, seed, 1), None)  # fmt: skip
    add("its gradient", 4 * size, lambda: norm.add_and_normalize_backward(
        x, total, mean, scale, weight, 0.1, seed, 1), None)  # fmt: skip
    add("GELU", 8 * size, lambda: gelu.gelu(wide), measure(lambda: F.gelu(wide)))
    peer = measure(lambda: torch.ops.aten.gelu_backward(d_wide, wide).sum(0, dtype=torch.float32))
    add("its gradient, with the bias", 12 * size, lambda: gelu.gelu_backward(d_wide, wide), peer)
    masked, padded = round(0.15 * rows), -(-vocabulary // 128) * 128
    logits = half(masked, padded)
    labels = torch.randint(0, vocabulary, (masked,), device=DEVICE)
    one = torch.ones((), device=DEVICE)
    _, lse = cross_entropy.cross_entropy(logits, labels, vocabulary)
    size = 2.0 * logits.numel()
    add(
        "cross-entropy", size, lambda: cross_entropy.cross_entropy(logits, labels, vocabulary), None
    )
    add("its gradient, with the bias", 2 * size, lambda: cross_entropy.gradient(
        logits, labels, lse, one, vocabulary), None)  # fmt: skip
    parameter, gradient, first, second = (
        torch.rand(vocabulary, hidden, device=DEVICE) for _ in range(4)
    )
    copy = torch.empty_like(parameter, dtype=torch.bfloat16)
    numbers, no = torch.tensor([1e-4, 1.0, 0.1, 0.1], device=DEVICE), torch.zeros((), device=DEVICE)
    trained = torch.nn.Parameter(parameter.clone())
    trained.grad = gradient
    optimizer = torch.optim.AdamW([trained], fused=True)
    peer = measure(optimizer.step) + measure(lambda: copy.copy_(trained.detach()))
    add("AdamW and the copy, word rows", 30.0 * parameter.numel(), lambda: adamw.update(
        parameter, gradient, first, second, copy, numbers, no, (0.9, 0.98), 1e-6, 0.01
    ), peer)  # fmt: skip
    console.print(table)


def show_products(rows: int, hidden: int, vocabulary: int) -> None:
    padded = -(-vocabulary // 128) * 128
    shapes = {
        "query, key, value": (rows, hidden, 3 * hidden),
        "feed-forward, in": (rows, hidden, 4 * hidden),
        "feed-forward, out": (rows, 4 * hidden, hidden),
        "head": (round(0.15 * rows / 16) * 16, hidden, padded),
    }
    table = Table("product, ms", "bfloat16", "TFLOP/s", "float8", "cast of its input")
    one = torch.ones((), device=DEVICE)
    for name, (n, k, m) in shapes.items():
        x, weight = half(n, k), half(m, k)
        x8, weight8 = x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)

        multiply = partial(torch.mm, x, weight.t())
        scaled = partial(torch._scaled_mm, x8, weight8.t(), one, one, out_dtype=torch.bfloat16)
        time, cast = measure(multiply), measure(partial(x.to, torch.float8_e4m3fn))
        rate = 2 * n * k * m / time / 1e9
        table.add_row(name, f"{time:.3f}", f"{rate:.0f}", f"{measure(scaled):.3f}", f"{cast:.3f}")
    console.print(table)


def half(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, device=DEVICE, dtype=torch.bfloat16)


def measure(step: Callable[[], object], repeats: int = 10) -> float:
    """Return the median of three rounds in milliseconds."""
    for _ in range(3):
        step()
    times = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(repeats):
            step()
        end.record()
        torch.cuda.synchronize()
        times.append(float(begin.elapsed_time(end)) / repeats)
    return sorted(times)[1]


if __name__ == "__main__":
    main()
