"""A small finished run with every kind of file, and functions that flip bits of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.toy_runs import run, write_toy


def make_run(folder: Path) -> Path:
    """Run the toy recipe in a folder; return the run's folder."""
    variants = {"xlm": {"initialize": "none"}, "metaxlm+dict": {"dictionaries": True}}
    training = {"steps": 4, "batch_size": 4, "checkpoint_every": 2, "log_every": 1}
    pretraining, model = training | {"keep_steps": [2]}, {"max_positions": 128}
    write_toy(folder, training, variants=variants, pretraining=pretraining, model=model)
    assert run(folder) == 0
    return folder / "runs" / "toy"


def list_files(root: Path) -> list[Path]:
    """Return all files of a run except locks."""
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
    """Flip one bit of a file temporarily."""
    whole = path.read_bytes()
    flip(path, bit)
    try:
        yield
    finally:
        path.write_bytes(whole)
