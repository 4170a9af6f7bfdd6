"""Exact nearest neighbors: our search and faiss's flat index, side by side in one run.

    python benchmarks/retrieval.py                                  # 100,000 x 100,000 x 384, CPU
    python benchmarks/retrieval.py --device cuda --size 1000000     # ours on a GPU
    python benchmarks/retrieval.py --size 4000 --runs 1             # a minute's look

Both sides are float32 files of unit vectors around a common direction, each key a noisy copy of
one query. Every search runs in its own process, in turns, so that other load affects all equally.
Its peak memory (ru_maxrss) includes the libraries. Reading the files and
building the index (faiss must copy the keys) are part of the search. Ours finds both directions at
once; faiss finds one, and "both" is two of its searches. faiss's wheel brings an OpenBLAS that does
not know newer CPUs and takes its slowest kernels there; so it also runs with OPENBLAS_CORETYPE as
given (SKYLAKEX where the CPU has AVX-512), which is the best it can do. faiss: pip install
faiss-cpu.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import torch

console = Console(width=110, highlight=False)
OURS, OURS_BOTH, FAISS, FAISS_TUNED = "metaxlm", "metaxlm, both ways", "faiss", "faiss, CPU named"


@dataclass(frozen=True)
class Outcome:
    seconds: float
    cpu_s: float
    peak_mib: float
    found: np.ndarray[Any, Any]


def main() -> None:
    options = parse()
    if options.worker:
        run_worker(options)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        files = write_vectors(Path(folder), options.size, options.keys or options.size, options.dim)
        if options.device.startswith("cuda"):
            measure_gpu(files, options)
        else:
            compare(files, options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=100_000, help="queries")
    parser.add_argument("--keys", type=int, help="as many as queries, if not given")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--k", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3, help="of each contender")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--core", help="OPENBLAS_CORETYPE for faiss; what fits, if not given")
    parser.add_argument("--folder", help="for the vectors; the system's temporary one if not given")
    parser.add_argument("--worker", choices=[OURS, OURS_BOTH, FAISS], help=argparse.SUPPRESS)
    parser.add_argument("--files", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def guess_core() -> str:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return {"AVX512": "SKYLAKEX", "AVX2": "HASWELL"}.get(capability, "")


def write_vectors(folder: Path, num_queries: int, num_keys: int, width: int) -> tuple[Path, Path]:
    """Write both sides chunk by chunk, so that this process stays small too."""
    paths = folder / "queries.npy", folder / "keys.npy"
    common = np.random.default_rng(0).standard_normal(width, dtype=np.float32)
    for path, count, side in zip(paths, (num_queries, num_keys), (1, 2), strict=True):
        out = np.lib.format.open_memmap(path, "w+", np.float32, (count, width))
        for start in range(0, count, 65_536):
            rows = slice(start, min(start + 65_536, count))
            shape = (rows.stop - rows.start, width)
            own = np.random.default_rng([0, start]).standard_normal(shape, dtype=np.float32)
            noise = np.random.default_rng([side, start]).standard_normal(shape, dtype=np.float32)
            vectors = own + noise + common
            out[rows] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        out.flush()
    return paths


def compare(files: tuple[Path, Path], options: argparse.Namespace) -> None:
    import torch

    options.core = guess_core() if options.core is None else options.core
    contenders = [OURS, OURS_BOTH]
    if importlib.util.find_spec("faiss") is None:
        console.print("faiss is not installed (pip install faiss-cpu): ours alone")
    else:
        contenders += [FAISS] + ([FAISS_TUNED] if options.core else [])
    keys = options.keys or options.size
    console.print(
        f"{options.size:,} queries x {keys:,} keys x {options.dim}, float32, k = {options.k}; "
        f"{options.threads} threads; torch {torch.__version__}; load {os.getloadavg()[0]:.1f}"
    )
    outcomes: dict[str, list[Outcome]] = {name: [] for name in contenders}
    for number in range(options.runs):
        turn = number % len(contenders)
        for name in contenders[turn:] + contenders[:turn]:
            outcome = start_worker(name, files, options)
            outcomes[name].append(outcome)
            console.print(
                f"  run {number + 1}, {name}: {outcome.seconds:.1f} s, {outcome.cpu_s:.1f} CPU s, "
                f"{outcome.peak_mib:.0f} MiB"
            )
    print_table(outcomes, 2e-9 * options.size * keys * options.dim)


def start_worker(name: str, files: tuple[Path, Path], options: argparse.Namespace) -> Outcome:
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    if name == FAISS_TUNED:
        environment["OPENBLAS_CORETYPE"] = options.core
    found = files[0].with_name("found.npy")
    command = [sys.executable, __file__, "--worker", FAISS if name == FAISS_TUNED else name]
    command += ["--files", *map(str, files), str(found), "--k", str(options.k)]
    command += ["--threads", str(options.threads), "--device", options.device]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    printed = json.loads(done.stdout.splitlines()[-1])
    return Outcome(printed["seconds"], printed["cpu_s"], printed["peak_mib"], np.load(found))


def run_worker(options: argparse.Namespace) -> None:
    """Search once in this process, and print what it took."""
    first, second = (np.load(path, mmap_mode="r") for path in options.files[:2])
    search = make_faiss_search(options) if options.worker == FAISS else make_our_search(options)
    search(first[:256], second[:1_024])  # libraries load their kernels on the first call
    begun, cpu_begun = time.perf_counter(), time.process_time()
    found = search(first, second)
    took, cpu_took = time.perf_counter() - begun, time.process_time() - cpu_begun
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.save(options.files[2], found)
    print(json.dumps({"seconds": took, "cpu_s": cpu_took, "peak_mib": peak_mib}))


def make_our_search(options: argparse.Namespace) -> Any:
    import torch

    from metaxlm.probe.nearest import find_both, find_nearest

    torch.set_num_threads(options.threads)
    device = torch.device(options.device)

    def search(first: Any, second: Any) -> Any:
        if options.worker == OURS:
            return find_nearest(first, second, k=options.k, device=device).indices_Qk.numpy()
        return find_both(first, second, k=options.k, device=device)[0].indices_Qk.numpy()

    return search


def make_faiss_search(options: argparse.Namespace) -> Any:
    faiss = importlib.import_module("faiss")
    faiss.omp_set_num_threads(options.threads)

    def search(first: Any, second: Any) -> Any:
        index = faiss.IndexFlatIP(second.shape[1])
        for start in range(0, len(second), 65_536):
            index.add(np.array(second[start : start + 65_536]))
        parts = [
            index.search(np.array(first[start : start + 65_536]), options.k)[1]
            for start in range(0, len(first), 65_536)
        ]
        return np.concatenate(parts)

    return search


def print_table(outcomes: dict[str, list[Outcome]], gigaflop: float) -> None:
    ours = outcomes[OURS]
    table = Table(
        "", "seconds", "to ours", "CPU s", "to ours", "GFLOP/s", "peak MiB", "found as ours"
    )
    for name, runs in outcomes.items():
        seconds = np.median([run.seconds for run in runs])
        ratios = [run.seconds / own.seconds for run, own in zip(runs, ours, strict=True)]
        cpu_ratios = [run.cpu_s / own.cpu_s for run, own in zip(runs, ours, strict=True)]
        same = np.mean([(run.found == ours[0].found).mean() for run in runs])
        table.add_row(
            name,
            f"{seconds:.1f}",
            f"{np.median(ratios):.2f}",
            f"{np.median([run.cpu_s for run in runs]):.1f}",
            f"{np.median(cpu_ratios):.2f}",
            f"{gigaflop / seconds:.0f}",
            f"{max(run.peak_mib for run in runs):.0f}",
            f"{same:.4%}",
        )
    console.print(table)
    if FAISS in outcomes:
        peers = [name for name in (FAISS, FAISS_TUNED) if name in outcomes]
        for name in peers:
            seconds, own, both = (
                np.median([run.seconds for run in outcomes[key]]) for key in (name, OURS, OURS_BOTH)
            )
            console.print(
                f"{name} takes {seconds / own:.2f} times our time one way, and "
                f"{2 * seconds / both:.2f} times for both ways"
            )


def measure_gpu(files: tuple[Path, Path], options: argparse.Namespace) -> None:
    """Run ours on a GPU: seconds, TFLOP/s, and the share of what its matmul reaches alone."""
    import torch

    from metaxlm.probe.nearest import CHUNKS, find_both, find_nearest

    device = torch.device(options.device)
    ceiling = measure_ceiling(device, CHUNKS["cuda"], options.dim)
    first, second = (torch.from_numpy(np.load(path)).to(device) for path in files)
    name = torch.cuda.get_device_name(device)
    console.print(
        f"{name}, torch {torch.__version__}: {len(first):,} queries x {len(second):,} keys x "
        f"{options.dim}, float32, k = {options.k}; float32 matmul alone {ceiling:.0f} TFLOP/s"
    )
    teraflop = 2e-12 * len(first) * len(second) * options.dim
    table = Table("", "seconds", "TFLOP/s", "of the matmul alone", "peak GiB")
    find_both(first[:20_000], second[:20_000], k=options.k)
    for label, search in (("one way", find_nearest), ("both ways", find_both)):
        times = []
        torch.cuda.reset_peak_memory_stats(device)
        for _ in range(options.runs):
            torch.cuda.synchronize(device)
            begun = time.perf_counter()
            search(first, second, k=options.k)
            times.append(time.perf_counter() - begun)
        seconds = float(np.median(times))
        peak = torch.cuda.max_memory_allocated(device) / 2**30
        rate = teraflop / seconds
        table.add_row(
            label, f"{seconds:.2f}", f"{rate:.0f}", f"{rate / ceiling:.0%}", f"{peak:.1f}"
        )
    console.print(table)
    check_sample(first, second, options.k)


def measure_ceiling(device: torch.device, chunk: int, width: int) -> float:
    """Return the TFLOP/s of float32 products of the blocks' shape, into the same memory."""
    import torch

    backend: Any = torch.backends.cuda.matmul
    before, backend.fp32_precision = backend.fp32_precision, "ieee"
    rows, columns = (torch.randn(chunk, width, device=device) for _ in range(2))
    out = torch.empty(chunk, chunk, device=device)
    for count in (20, 200):
        torch.cuda.synchronize(device)
        begun = time.perf_counter()
        for _ in range(count):
            torch.mm(rows, columns.T, out=out)
        torch.cuda.synchronize(device)
        took = time.perf_counter() - begun
    backend.fp32_precision = before
    return 2e-12 * chunk * chunk * width * 200 / took


def check_sample(first: torch.Tensor, second: torch.Tensor, k: int) -> None:
    """Compare some queries with the full row of similarities in float64."""
    import torch

    from metaxlm.probe.nearest import find_nearest

    rows = torch.linspace(0, len(first) - 1, min(512, len(first)), device=first.device).long()
    keys = torch.nn.functional.normalize(second.double(), dim=1)
    found = find_nearest(first[rows], second, k=k).indices_Qk[:, 0].to(first.device)
    queries = torch.nn.functional.normalize(first[rows].double(), dim=1)
    expected = torch.cat(
        [(part @ keys.T).float().argmax(dim=1) for part in torch.split(queries, 64)]
    )
    same = (found == expected).double().mean()
    console.print(f"{len(rows)} queries against all cosines in float64: {same:.2%} the same")


if __name__ == "__main__":
    main()
