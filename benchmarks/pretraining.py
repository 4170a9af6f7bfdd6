"""Training steps a second: ours and transformers' XLMRobertaForMaskedLM, side by side in one run.

Both train on the same batches with AdamW. The peer computes logits for every position, as its
loss does; ours only for the masked ones. The matmul ceiling of the device is measured in the same
run, so that figures from different machines can be compared as shares of it.

    python benchmarks/pretraining.py [--layers 4 --hidden 128 --vocabulary 4000 --batch 64x64]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.pretraining.device import choose_device


def main() -> None:
    options = parse()
    device = choose_device(options.device)
    sequences, length = map(int, options.batch.split("x"))
    torch.manual_seed(0)
    ids_BL = torch.randint(5, options.vocabulary, (sequences, length), device=device)
    rows_M = torch.randperm(ids_BL.numel(), device=device)[: int(0.15 * ids_BL.numel())]
    steps = {
        "transformers": peer_step(options, ids_BL, rows_M),
        "metaxlm": our_step(options, ids_BL, rows_M),
    }
    seconds = measure_alternately(steps, options.repeats, device)
    ceiling = measure_ceiling(device)
    flops = count_flops(options, sequences, length, len(rows_M))
    table = Table("", "ms a step", "tokens/s", "share of the matmul ceiling")
    for name, value in seconds.items():
        share = flops / value / ceiling
        rate = ids_BL.numel() / value
        table.add_row(name, f"{value * 1e3:.1f}", f"{rate:,.0f}", f"{share:.1%}")
    console = Console()
    console.print(f"{device}, {torch.get_num_threads()} threads; {vars(options)}")
    console.print(f"matmul ceiling {ceiling / 1e12:.2f} TFLOP/s")
    console.print(table)
    console.print(f"ratio: {seconds['transformers'] / seconds['metaxlm']:.2f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--batch", default="64x64", help="sequences x tokens")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def our_step(options: argparse.Namespace, ids_BL: Tensor, rows_M: Tensor) -> Callable[[], None]:
    config = EncoderConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        num_layers=options.layers,
        num_heads=options.heads,
        ffn_size=4 * options.hidden,
    )
    model = MaskedLM(config).to(ids_BL.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    labels_M = ids_BL.view(-1)[rows_M]

    def step() -> None:
        with torch.autocast(ids_BL.device.type, torch.bfloat16, enabled=ids_BL.is_cuda):
            logits_MV = model(ids_BL, None, rows_M)
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(logits_MV.float(), labels_M))
        optimizer.step()

    return step


def peer_step(options: argparse.Namespace, ids_BL: Tensor, rows_M: Tensor) -> Callable[[], None]:
    config = XLMRobertaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.hidden,
        max_position_embeddings=514,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    model = XLMRobertaForMaskedLM(config).to(ids_BL.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    labels_BL = torch.full_like(ids_BL, -100)
    labels_BL.view(-1)[rows_M] = ids_BL.view(-1)[rows_M]

    def step() -> None:
        with torch.autocast(ids_BL.device.type, torch.bfloat16, enabled=ids_BL.is_cuda):
            loss = model(input_ids=ids_BL, labels=labels_BL).loss
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def measure_alternately(
    steps: dict[str, Callable[[], None]], repeats: int, device: torch.device
) -> dict[str, float]:
    """Take turns, so that a busy machine slows all alike; return the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 2):
        for name, step in steps.items():
            synchronize(device)
            start = time.perf_counter()
            step()
            synchronize(device)
            if turn >= 2:
                times[name].append(time.perf_counter() - start)
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}


def measure_ceiling(device: torch.device) -> float:
    """Return the FLOP/s of a large matrix product in the type that training uses."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))

    def multiply() -> None:
        torch.mm(a, b)

    return 2 * size**3 / measure_alternately({"matmul": multiply}, 10, device)["matmul"]


def count_flops(options: argparse.Namespace, sequences: int, length: int, masked: int) -> float:
    """Count what a step must do at least: three products (forward, two backward) per weight."""
    body = options.layers * 12 * options.hidden**2
    attention = options.layers * 2 * length * options.hidden
    head = options.hidden * (options.vocabulary + options.hidden)
    return float(6 * (sequences * length * (body + attention) + masked * head))


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
