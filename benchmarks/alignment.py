"""Word alignment: our batches and simalign's pairs, side by side in one run.

    python benchmarks/alignment.py --model DIR --data DIR --language de --layer 8
    python benchmarks/alignment.py --model DIR --data DIR --device cuda
    python benchmarks/alignment.py --builtin        # a small random encoder, the built-in corpus

Both sides get the same encoder folder, the same layer and the same sentence pairs in words, and do
the same: tokenize, encode each side by itself, link pieces by cosine (argmax, itermax, match), turn
links of pieces into links of words. All of it is timed, loading is not. The order alternates, so
that other load affects both equally. simalign always computes every layer; ours stops at the chosen
layer. Needs `simalign` and `networkx`; their folder may be in PYTHONPATH.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table

from metaxlm.data.demo import write_phrasebook
from metaxlm.finetune.readers.parallel import read_word_alignment
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.model.huggingface import save_pretrained
from metaxlm.pretrain.distributed import choose_device
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import align_words
from metaxlm.probe.pair_states import Links
from metaxlm.probe.pool import LayerChoice, parse_layers
from metaxlm.progress import set_quiet
from metaxlm.recipe import PhrasebookRecipe
from random_encoder import make_random_encoder

console = Console(width=110, highlight=False)
METHODS = {"argmax": ("a", "inter"), "itermax": ("i", "itermax"), "match": ("m", "mwmf")}
"""Our name, simalign's letter for it, and the key of its answer."""

Pair = tuple[list[str], list[str]]
Contender = Callable[[Sequence[Pair]], list[Links]]


def main() -> None:
    options = parse()
    if any(importlib.util.find_spec(name) is None for name in ("simalign", "networkx")):
        sys.exit("the peer is missing: pip install simalign networkx")
    set_quiet(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device = choose_device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads"
    console.print(
        f"{name}{threads}, torch {torch.__version__}, transformers {transformers.__version__}"
    )
    with tempfile.TemporaryDirectory() as folder:
        if options.builtin:
            options.model, options.data = make_builtin(Path(folder), options.language)
        model = load_encoder(options.model)
        num_layers = model.encoder.config.num_layers
        (choice,) = parse_layers(options.layer or str(round(num_layers * 2 / 3)), num_layers)
        gold = read_word_alignment(options.data, options.language)
        pairs = [(list(pair.source), list(pair.target)) for pair in gold.pairs[: options.pairs]]
        console.print(f"{options.model}: layer {choice} of {num_layers}; {len(pairs)} pairs")
        table = Table("", "metaxlm", "simalign", "faster", "less CPU", "same pairs", "same links")
        for method in options.methods.split(","):
            ours = make_ours(model, method, choice, device)
            peer = make_peer(options.model, method, choice, device)
            table.add_row(method, *compare(ours, peer, pairs, options.rounds))
        console.print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder of an encoder, ours or Hugging Face's")
    parser.add_argument("--data", type=Path, help="folder with wordalign")
    parser.add_argument("--builtin", action="store_true", help="instead of --model and --data")
    parser.add_argument("--language", default="de")
    parser.add_argument("--layer", help="one layer; two thirds of the depth by default")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--pairs", type=int, help="at most; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if not options.builtin and not (options.model and options.data):
        parser.error("say --model and --data, or --builtin")
    if unknown := set(options.methods.split(",")) - set(METHODS):
        parser.error(f"--methods: {', '.join(sorted(unknown))}; known: {', '.join(METHODS)}")
    return options


def make_builtin(folder: Path, language: str) -> tuple[str, Path]:
    """Write the built-in corpus and an encoder of random weights that fits it."""
    sizes = PhrasebookRecipe(source_sentences=5_000, sentences=2_000, aligned_pairs=100)
    write_phrasebook(folder / "data", ["en", language], 0, sizes)
    texts = sorted((folder / "data" / "text").glob("*/*.txt"))
    lines = [line for path in texts for line in path.read_text(encoding="utf-8").split("\n")]
    encoder, tokenizer = make_random_encoder(
        lines, 1_000, width=128, layers=6, heads=4, positions=256
    )
    save_pretrained(encoder, tokenizer, folder / "model", "")
    return str(folder / "model"), folder / "data" / "tasks"


def make_ours(
    model: AnyEncoder, method: Any, choice: LayerChoice, device: torch.device
) -> Contender:
    settings = AlignSettings(method=method, encoding="separate")

    def run(pairs: Sequence[Pair]) -> list[Links]:
        (links,) = align_words(model, pairs, device, settings=settings, layers=[choice])
        return links

    return run


def make_peer(folder: str, method: str, choice: LayerChoice, device: torch.device) -> Contender:
    from simalign import SentenceAligner  # type: ignore[import-not-found,unused-ignore]

    logging.disable(logging.INFO)
    letter, key = METHODS[method]
    (layer,) = choice.numbers
    aligner = SentenceAligner(
        model=folder,
        token_type="bpe",
        matching_methods=letter,
        device=str(device),
        layer=layer,
    )

    def run(pairs: Sequence[Pair]) -> list[Links]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [frozenset(aligner.get_word_aligns(*pair)[key]) for pair in pairs]

    return run


def compare(
    ours: Contender, peer: Contender, pairs: Sequence[Pair], rounds: int
) -> tuple[str, str, str, str, str, str]:
    """Let both align all pairs several times; return a row of the table."""
    for contender in (ours, peer):
        contender(pairs[:8])
    seconds, cpu_s = np.zeros((2, rounds)), np.zeros((2, rounds))
    found: list[list[Links]] = [[], []]
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            start, cpu_start = time.perf_counter(), time.process_time()
            found[side] = (ours, peer)[side](pairs)
            seconds[side, number] = time.perf_counter() - start
            cpu_s[side, number] = time.process_time() - cpu_start
    same_pairs = sum(a == b for a, b in zip(*found, strict=True)) / len(pairs)
    common = sum(len(a & b) for a, b in zip(*found, strict=True))
    either = sum(len(a | b) for a, b in zip(*found, strict=True))
    our_speed, peer_speed = (f"{len(pairs) / np.median(times):,.1f} pairs/s" for times in seconds)
    return (
        our_speed,
        peer_speed,
        f"{np.median(seconds[1] / seconds[0]):.1f} times",
        f"{np.median(cpu_s[1] / cpu_s[0]):.1f} times",
        f"{same_pairs:.1%}",
        f"{common / either:.2%}",
    )


if __name__ == "__main__":
    main()
