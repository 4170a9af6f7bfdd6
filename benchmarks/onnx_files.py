"""Sentence vectors on a CPU: torch, ONNX and int8 side by side in one run.

    metaxlm export --model DIR --format onnx --quantize int8 --output exported
    python benchmarks/onnx_files.py exported --sentences 500 --threads 1
    python benchmarks/onnx_files.py exported --choices     # what each way of quantizing costs

All three compute the same batches of the folder's encoder; texts are tokenized before, and batches
are sorted by length. The order alternates, so that other load affects all equally. The table has
the median of the rounds and its ratio to torch. `--choices` quantizes onnx/model.onnx in several
ways and compares the means of the hidden states with those of float32. Needs the extra `onnx`.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic
from rich.console import Console
from rich.table import Table
from torch import Tensor

from metaxlm.probe.onnx_folder import read_sample

console = Console(width=110, highlight=False)
Batch = dict[str, Tensor]
CHOICES: dict[str, dict[str, Any]] = {
    "matrices, one scale per matrix": {"per_channel": False},
    "matrices, a scale per column": {"per_channel": True},
    "the same with 7 bits": {"per_channel": True, "reduce_range": True},
    "the same and embeddings": {"per_channel": True, "reduce_range": True, "more": ["Gather"]},
    "the same without second feed-forward layers": {
        "per_channel": True, "reduce_range": True, "more": ["Gather"], "without_second": True,
    },
}  # fmt: skip


def main() -> None:
    options = parse()
    logging.disable(logging.WARNING)  # onnxruntime recommends steps for images
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    batches = make_batches(options.folder, options.input, options.sentences, options.batch)
    if options.choices:
        compare_choices(options.folder / "onnx" / "model.onnx", batches, options.threads)
        return
    runs = {"torch": ("model.safetensors", open_torch(options.folder))}
    for name in ("model.onnx", "model_int8.onnx"):
        if (options.folder / "onnx" / name).is_file():
            path = options.folder / "onnx" / name
            runs[name] = (f"onnx/{name}", open_onnx(path, options.threads))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _, run in runs.values():
        run_all(run, batches)  # not timed: the first run
    for turn in range(options.rounds):
        names = list(runs)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(measure(runs[name][1], batches))
    print_table(options, times, {name: file for name, (file, _) in runs.items()}, batches)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="written by `metaxlm export --format onnx`")
    parser.add_argument("--input", type=Path, help="sentences (default: the built-in corpus)")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--choices", action="store_true", help="compare ways to quantize")
    return parser.parse_args()


def make_batches(folder: Path, source: Path | None, count: int, size: int) -> list[Batch]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = sorted(read_sample(source).texts[:count], key=len)
    return [
        dict(tokenizer(texts[k : k + size], padding=True, truncation=True, return_tensors="pt"))
        for k in range(0, len(texts), size)
    ]


def open_torch(folder: Path) -> Callable[[Batch], object]:
    model = transformers.AutoModel.from_pretrained(folder).eval()
    return lambda batch: model(**batch).last_hidden_state


def open_onnx(path: Path, threads: int) -> Callable[[Batch], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, {name: value.numpy() for name, value in batch.items()})


def compare_choices(path: Path, batches: list[Batch], threads: int) -> None:
    """Print size and cosine of several ways to quantize a file."""
    expected_ND = embed(open_onnx(path, threads), batches)
    graph = onnx.load(path).graph
    shapes = {tensor.name: tensor.dims for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in shapes]
    narrowing = [n.name for n in products if shapes[n.input[1]][0] > shapes[n.input[1]][1]]
    table = Table(title=f"{len(expected_ND):,} texts, onnxruntime {onnxruntime.__version__}")
    for column in ("weights of 8 bits", "MB", "mean cosine", "lowest"):
        table.add_column(column)
    for name, choice in CHOICES.items():
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "int8.onnx"
            excluded = narrowing if choice.get("without_second") else []
            quantize_dynamic(
                path, target, weight_type=QuantType.QInt8, nodes_to_exclude=excluded,
                op_types_to_quantize=["MatMul", *choice.get("more", ())],
                per_channel=choice["per_channel"], reduce_range=choice.get("reduce_range", False),
            )  # fmt: skip
            found_ND = embed(open_onnx(target, threads), batches)
            megabytes = target.stat().st_size / 1e6
        cosines_N = torch.cosine_similarity(found_ND, expected_ND)
        table.add_row(
            name, f"{megabytes:,.1f}", f"{cosines_N.mean():.4f}", f"{cosines_N.min():.4f}"
        )
    console.print(table)


def embed(run: Callable[[Batch], Any], batches: list[Batch]) -> Tensor:
    parts = []
    for batch in batches:
        mask_BL1 = batch["attention_mask"][..., None]
        hidden_BLD = torch.from_numpy(run(batch)[0])
        parts.append((hidden_BLD * mask_BL1).sum(dim=1) / mask_BL1.sum(dim=1))
    return torch.cat(parts)


def run_all(run: Callable[[Batch], object], batches: list[Batch]) -> None:
    with torch.inference_mode():
        for batch in batches:
            run(batch)


def measure(run: Callable[[Batch], object], batches: list[Batch]) -> tuple[float, float]:
    start, cpu_start = time.perf_counter(), time.process_time()
    run_all(run, batches)
    return time.perf_counter() - start, time.process_time() - cpu_start


def print_table(
    options: argparse.Namespace,
    times: dict[str, list[tuple[float, float]]],
    files: dict[str, str],
    batches: list[Batch],
) -> None:
    num_texts = sum(len(batch["input_ids"]) for batch in batches)
    num_tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
    title = f"{num_texts:,} texts, {num_tokens:,} tokens, {options.threads} thread(s), "
    title += f"{options.rounds} rounds, onnxruntime {onnxruntime.__version__}, "
    title += f"torch {torch.__version__}"
    table = Table(title=title)
    for column in ("file", "MB", "texts/s", "of torch", "CPU s", "of torch", "fastest-slowest s"):
        table.add_column(column)
    base = [statistics.median(column) for column in zip(*times["torch"], strict=True)]
    for name, file in files.items():
        wall, cpu = (statistics.median(column) for column in zip(*times[name], strict=True))
        seconds = sorted(one for one, _ in times[name])
        megabytes = (options.folder / file).stat().st_size / 1e6
        table.add_row(
            file, f"{megabytes:,.1f}", f"{num_texts / wall:,.0f}",
            f"{base[0] / wall:.2f}x", f"{cpu:.2f}", f"{base[1] / cpu:.2f}x",
            f"{seconds[0]:.2f}-{seconds[-1]:.2f}",
        )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    main()
