"""Does torch.compile pay where transformers computes an encoder? Eager and compiled side by side.

Steps of finetuning on random batches of 32 sequences, whose lengths spread like those of XNLI and
are padded to the longest: what `metaxlm evaluate` does for encoders of other families. Prints for
each family the time of the first ten steps, with compilation, and the steps per second after them.

    python benchmarks/compiled_finetuning.py [--families electra,modernbert] [--device cuda]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, ElectraConfig, ModernBertConfig

WARM_UP, STEPS, BATCH, CLASSES, VOCABULARY = 10, 60, 32, 3, 32_000
Batch = tuple[Tensor, Tensor, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", default="electra,modernbert")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    for family in options.families.split(","):
        rates = []
        for name in ("eager", "compiled"):
            model = make_model(family, options.layers, options.width).to(device).train()
            if name == "compiled":
                model.compile(dynamic=True)
            first, rate = measure(model, device, options.steps)
            rates.append(rate)
            print(f"{family}, {name}: first {WARM_UP} steps {first:.1f} s, then {rate:.1f} steps/s")
        print(f"{family}: compiled is {rates[1] / rates[0]:.2f} times as fast as eager")


def make_model(family: str, layers: int, width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "num_labels": CLASSES,
    }
    if family == "electra":
        config = ElectraConfig(embedding_size=width, **shape)
    else:
        specials = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        config = ModernBertConfig(**shape, **specials, cls_token_id=1, sep_token_id=2)
    model: torch.nn.Module = AutoModelForSequenceClassification.from_config(config)
    return model


def measure(model: torch.nn.Module, device: torch.device, steps: int) -> tuple[float, float]:
    """Return the seconds of the first steps, and the steps per second after them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    random = np.random.default_rng(0)
    seconds = []
    for count in (WARM_UP, steps):
        start = time.perf_counter()
        for ids_BL, mask_BL, labels_B in draw_batches(random, count, device):
            with torch.autocast(device.type, torch.bfloat16, device.type == "cuda"):
                logits_BC = model(input_ids=ids_BL, attention_mask=mask_BL).logits
            loss = torch.nn.functional.cross_entropy(logits_BC.float(), labels_B)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[0], steps / seconds[1]


def draw_batches(random: np.random.Generator, count: int, device: torch.device) -> Iterator[Batch]:
    for _ in range(count):
        lengths = np.clip(random.lognormal(3.55, 0.45, BATCH).astype(int), 8, 128)
        lengths_B = torch.from_numpy(lengths).to(device)
        ids = random.integers(5, VOCABULARY, (BATCH, lengths.max()))
        mask_BL = torch.arange(lengths.max(), device=device) < lengths_B[:, None]
        labels = random.integers(0, CLASSES, BATCH)
        yield torch.from_numpy(ids).to(device), mask_BL.long(), torch.from_numpy(labels).to(device)


if __name__ == "__main__":
    main()
