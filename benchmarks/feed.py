"""Masked batches per second: ours beside transformers' collator in a torch DataLoader.

    python benchmarks/feed.py [--run runs/NAME] [--workers 2] [--seconds 5]

Both serve the same blocks of the same shards, on the CPU, with as many workers (ours threads, the
peer processes); the two take turns, and the median of the turns is printed. The peer gets its
blocks as ready arrays in memory, with their special-token masks, so that it has nothing to do but
collate and mask. "host" is our part without masking, which is all that the CPU does when a GPU
trains. `--run` names a run folder that has shards and a vocabulary; without it the built-in corpus
serves, whose sentences are short.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import (
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerBase,
)

from metaxlm.data.demo import write_phrasebook
from metaxlm.data.shards import Shard, open_shard, write_shard
from metaxlm.data.text import read_sentences
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource, Prefetcher
from metaxlm.progress import set_quiet
from metaxlm.recipe import PhrasebookRecipe, TrainingRecipe
from metaxlm.vocab.unigram import train_unigram

SHAPES = ((128, 128), (64, 512))
PEER_BLOCKS = 20_000
TURNS = 3
WARM_UP = 5

Data = tuple[PreTrainedTokenizerBase, dict[str, Shard]]


class ReadyBlocks(Dataset[dict[str, torch.Tensor]]):
    """Blocks in memory, as a tokenizer with `return_special_tokens_mask` would give them."""

    def __init__(self, source: BatchSource, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
        pieces = [source.micro_batch(step) for step in range(max(1, PEER_BLOCKS // rows))]
        self._ids = torch.cat([piece.ids_BL for piece in pieces]).long()
        self._special = torch.isin(self._ids, torch.tensor(tokenizer.all_special_ids)).long()
        self._attention = (self._ids != tokenizer.pad_token_id).long()

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {
            "input_ids": self._ids[index],
            "attention_mask": self._attention[index],
            "special_tokens_mask": self._special[index],
        }


def measure(batches: Iterator[int], seconds: float) -> float:
    """Return tokens per second of an endless stream that says how many tokens each batch has."""
    for _ in range(WARM_UP):
        next(batches)
    start = time.perf_counter()
    tokens = 0
    while time.perf_counter() < start + seconds:
        tokens += next(batches)
    return tokens / (time.perf_counter() - start)


def serve(source: BatchSource, masking: Masking | None, workers: int, seconds: float) -> float:
    """Measure our feed, with masks or without."""
    with Prefetcher(source, 0, 1 << 40, [0], 1, workers) as feed:

        def batches() -> Iterator[int]:
            for step in count():
                (piece,) = feed.get(step)
                if masking is not None:
                    key = source.mask_key(step)
                    masking(piece.ids_BL, piece.lengths_B, piece.rows_B, key, 0.15)
                yield piece.num_tokens

        return measure(batches(), seconds)


def serve_peer(
    blocks: ReadyBlocks, tokenizer: PreTrainedTokenizerBase, rows: int, workers: int, seconds: float
) -> float:
    """Measure the peer."""
    loader = DataLoader(
        blocks,
        rows,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        collate_fn=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
        persistent_workers=workers > 0,
    )

    def batches() -> Iterator[int]:
        while True:
            for batch in loader:
                yield int(batch["attention_mask"].sum())

    return measure(batches(), seconds)


def compare(data: Data, rows: int, length: int, workers: int, seconds: float) -> None:
    """Print ours and the peer for one shape of batch."""
    tokenizer, shards = data
    recipe = TrainingRecipe(batch_size=rows, length=length)
    start = time.perf_counter()
    source = BatchSource(shards, tokenizer, recipe, 1)
    built = time.perf_counter() - start
    masking = Masking(tokenizer, recipe, torch.device("cpu"))
    blocks = ReadyBlocks(source, tokenizer, rows)
    runs: dict[str, Callable[[], float]] = {
        "metaxlm": lambda: serve(source, masking, workers, seconds),
        "metaxlm, host": lambda: serve(source, None, workers, seconds),
        "metaxlm, host, 1 worker": lambda: serve(source, None, 1, seconds),
        "transformers": lambda: serve_peer(blocks, tokenizer, rows, workers, seconds),
    }
    turns = [{name: run() for name, run in runs.items()} for _ in range(TURNS)]
    rates = {name: statistics.median(turn[name] for turn in turns) for name in runs}
    num_tokens = sum(shard.counts.tokens for shard in shards.values())
    print(f"{rows} x {length}, {workers} workers; {num_tokens / 1e6:.0f}M tokens packed in "
          f"{built:.1f} s, {source.padding_share:.2%} padding")  # fmt: skip
    for name, rate in rates.items():
        print(f"  {name:<24} {rate / 1e6:7.2f}M tokens/s  {rate / rows / length:7.0f} steps/s")
    print(f"  ratio                    {rates['metaxlm'] / rates['transformers']:7.2f}", flush=True)


def open_run(folder: Path) -> Data:
    """Open the shards and the vocabulary of a run."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "vocabulary" / "multilingual")
    found = sorted((folder / "shards" / "multilingual").iterdir())
    return tokenizer, {path.name: open_shard(path) for path in found}


def make_data(folder: Path) -> Data:
    """Make shards of the built-in corpus."""
    languages = ["en", "de", "fr", "ru", "tr", "zh"]
    sizes = PhrasebookRecipe(source_sentences=60_000, sentences=9_600)
    write_phrasebook(folder / "phrasebook", languages, 1, sizes)
    texts = {name: list(read_sentences(folder / "phrasebook/text" / name)) for name in languages}
    tokenizer = train_unigram((line for lines in texts.values() for line in lines), 8_000)
    for name, lines in texts.items():
        write_shard(folder / name, lines, tokenizer)
    return tokenizer, {name: open_shard(folder / name) for name in languages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--run", type=Path, help="a run folder with shards and a vocabulary")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    set_quiet(True)
    with TemporaryDirectory(prefix="metaxlm-bench-") as folder:
        data = open_run(options.run) if options.run else make_data(Path(folder))
        for rows, length in SHAPES:
            compare(data, rows, length, options.workers, options.seconds)


if __name__ == "__main__":
    main()
