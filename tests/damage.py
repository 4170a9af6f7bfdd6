"""A small finished run with every kind of file, and bits of it that flip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.toy_runs import run

RECIPE = """\
name: toy
languages: [en, de]
corpus:
  phrasebook:
    {source_sentences: 300, sentences: 150, test_pairs: 10, aligned_pairs: 10,
     train_examples: 30, test_examples: 10}
vocabulary: {size: 400, monolingual_size: 350}
model: {layers: 1, hidden: 16, heads: 2, ffn: 32, max_positions: 64}
meta: &training
  {steps: 4, batch_size: 4, length: 32, learning_rate: 3e-3, warmup_steps: 1,
   checkpoint_every: 2, log_every: 1}
pretraining: {<<: *training, keep_steps: [2]}
variants:
  xlm: {initialize: none}
  metaxlm+dict: {initialize: both, dictionaries: true}
evaluation:
  finetune:
    udpos: {epochs: 1, learning_rate: 1e-3, length: 32}
"""


def make_run(folder: Path) -> Path:
    """Run the recipe in a folder; return the run's folder."""
    (folder / "toy.yaml").write_text(RECIPE, encoding="utf-8")
    assert run(folder) == 0
    return folder / "runs" / "toy"


def list_files(root: Path) -> list[Path]:
    """Return all files of a run but its locks."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return [path for path in files if not path.name.startswith(".lock")]


def flip(path: Path, bit: int | None = None) -> None:
    """Flip one bit of a file, or the lowest bit of the byte in its middle."""
    content = bytearray(path.read_bytes())
    bit = 8 * (len(content) // 2) if bit is None else bit
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@contextmanager
def flipped(path: Path, bit: int | None = None) -> Iterator[None]:
    """Flip one bit of a file for a while."""
    whole = path.read_bytes()
    flip(path, bit)
    try:
        yield
    finally:
        path.write_bytes(whole)
