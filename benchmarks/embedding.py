"""Sentence vectors: `embed_texts` and sentence-transformers, side by side in one run.

    python benchmarks/embedding.py --model DIR --input sentences.txt --sentences 4000
    python benchmarks/embedding.py --builtin       # a small random encoder, the built-in corpus

Both load one folder, the sentence-transformers export of the encoder, and give the mean of its last
layer over all tokens in float32, in the order of the input; tokenizing is timed with the rest. The
peer runs with its own batch size of 32 and with a larger one. The order alternates, so that other
load affects all equally. How much of what is computed is padding is counted, not timed. Needs
`sentence-transformers`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from metaxlm.data.demo import write_phrasebook
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.pretrain.distributed import choose_device
from metaxlm.probe.embedding import embed_texts, plan_work
from metaxlm.probe.pool import LayerChoice, find_frame, tokenize_texts
from metaxlm.probe.sentence_folder import export_sentence_transformers
from metaxlm.progress import set_quiet
from metaxlm.randomness import generator
from metaxlm.recipe import PhrasebookRecipe
from random_encoder import make_random_encoder

console = Console(width=110, highlight=False)
OURS = "metaxlm"
PEER = "sentence-transformers"
PEER_BATCHES = (32, 128)


@dataclass(frozen=True)
class Times:
    """One pass over all sentences."""

    seconds: float
    cpu_s: float


def main() -> None:
    options = parse()
    if importlib.util.find_spec("sentence_transformers") is None:
        sys.exit("the peer is not installed: pip install sentence-transformers")
    set_quiet(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device = choose_device(options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = read_texts(options.input, folder)
        start = make_small(texts) if options.builtin else load_encoder(options.model)
        export_sentence_transformers(start, folder / "model")
        compare(folder / "model", pick(texts, options.sentences), device, options.rounds)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder of an encoder, ours or Hugging Face's")
    parser.add_argument("--builtin", action="store_true", help="a random encoder instead")
    parser.add_argument("--input", type=Path, help="sentences (default: the built-in corpus)")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.builtin == (options.model is not None):
        parser.error("say either --model or --builtin")
    return options


def read_texts(path: Path | None, folder: Path) -> list[str]:
    """Return the sentences of a file, or of the built-in corpus, each once."""
    if path is None:
        sizes = PhrasebookRecipe(source_sentences=8_000, sentences=100)
        write_phrasebook(folder / "data", ["en", "de"], 0, sizes)
        (path,) = (folder / "data" / "text" / "en").glob("*.txt")
    lines = path.read_text(encoding="utf-8").split("\n")
    return sorted({line.strip() for line in lines if line.strip()})


def pick(texts: list[str], count: int) -> list[str]:
    order = generator(0, "benchmark sentences").permutation(len(texts))[:count]
    return [texts[k] for k in order]


def make_small(texts: list[str]) -> AnyEncoder:
    """Return an encoder of random weights that fits the texts."""
    encoder, tokenizer = make_random_encoder(
        texts, 600, width=128, layers=3, heads=2, positions=128
    )
    return AnyEncoder("small", tokenizer, encoder.encoder)


def compare(folder: Path, texts: list[str], device: torch.device, rounds: int) -> None:
    """Let every contender embed all texts some times, and print the table."""
    import sentence_transformers

    model = load_encoder(folder)
    peer = sentence_transformers.SentenceTransformer(str(folder), device=str(device))
    contenders: dict[str, Callable[[list[str]], Tensor]] = {OURS: partial(run_ours, model, device)}
    for size in PEER_BATCHES:
        contenders[f"{PEER}, batch {size}"] = partial(run_peer, peer, size)
    lengths = count_tokens(model, texts)
    print_setting(model, lengths, device, sentence_transformers.__version__)
    paddings = [find_padding(lengths, device)]
    paddings += [measure_padding(peer, texts, lengths, size) for size in PEER_BATCHES]
    vectors = [contender(texts) for contender in contenders.values()]  # not timed: the first run
    times: dict[str, list[Times]] = {name: [] for name in contenders}
    for turn in range(rounds):
        names = list(contenders)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(measure(contenders[name], texts))
    print_table(times, paddings, vectors, len(texts))


def run_ours(model: AnyEncoder, device: torch.device, texts: list[str]) -> Tensor:
    last = [LayerChoice((model.encoder.config.num_layers,))]
    return embed_texts(model, texts, device, layers=last)[0]


def run_peer(peer: Any, batch_size: int, texts: list[str]) -> Tensor:
    found = peer.encode(texts, batch_size=batch_size, show_progress_bar=False)
    return torch.from_numpy(found)


def measure(contender: Callable[[list[str]], Tensor], texts: list[str]) -> Times:
    start, cpu_start = time.perf_counter(), time.process_time()
    contender(texts)
    return Times(time.perf_counter() - start, time.process_time() - cpu_start)


def count_tokens(model: AnyEncoder, texts: list[str]) -> list[int]:
    frame, limit = find_frame(model.tokenizer), model.encoder.config.max_positions
    ids, _ = tokenize_texts(model.tokenizer, texts, frame, limit)
    return [len(row) for row in ids]


def find_padding(lengths: list[int], device: torch.device) -> float:
    """Return the share of padding in what we compute (all texts here are one chunk)."""
    batches = plan_work(lengths, device, batch_tokens=16_384)
    computed = sum(len(batch) * max(lengths[k] for k in batch) for batch in batches)
    return 1 - sum(lengths) / computed


def measure_padding(peer: Any, texts: list[str], lengths: list[int], batch_size: int) -> float:
    """Return the share of padding in the token ids that the peer's encoder looks up."""
    computed = 0

    def look(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal computed
        computed += inputs[0].numel()

    words = next(module for module in peer.modules() if isinstance(module, nn.Embedding))
    hook = words.register_forward_pre_hook(look)
    run_peer(peer, batch_size, texts)
    hook.remove()
    return 1 - sum(lengths) / computed


def print_setting(model: AnyEncoder, lengths: list[int], device: torch.device, peer: str) -> None:
    config = model.encoder.config
    where = f"CPU, {torch.get_num_threads()} threads"
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    console.print(
        f"{where}, torch {torch.__version__}, transformers {transformers.__version__}, "
        f"sentence-transformers {peer}\n"
        f"{config.num_layers} layers of {config.hidden_size}; {len(lengths):,} sentences of "
        f"{np.mean(lengths):.1f} tokens on average, {max(lengths)} at most"
    )


def print_table(
    times: dict[str, list[Times]], paddings: list[float], vectors: list[Tensor], count: int
) -> None:
    table = Table("", "sentences/s", "seconds", "CPU s", "padding", "difference", "ours is faster")
    ours = times[OURS]
    for (name, runs), padding, found_ND in zip(times.items(), paddings, vectors, strict=True):
        ratios = [it.seconds / own.seconds for it, own in zip(runs, ours, strict=True)]
        seconds = float(np.median([run.seconds for run in runs]))
        table.add_row(
            name,
            f"{count / seconds:,.0f}",
            f"{seconds:.2f}",
            f"{np.median([run.cpu_s for run in runs]):.2f}",
            f"{padding:.1%}",
            f"{(found_ND - vectors[0]).abs().max():.1e}",
            f"{np.median(ratios):.2f} x",
        )
    console.print(table)


if __name__ == "__main__":
    main()
