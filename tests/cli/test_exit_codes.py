"""Failures of disk, memory or terminal: one line and exit code 2."""

from __future__ import annotations

import errno
import io
import lzma
import resource
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE

from metaxlm.cli import app
from metaxlm.cli.exit_codes import explain
from metaxlm.errors import naming
from metaxlm.init.ledger import save_ledger
from metaxlm.init.match_plan import make_plan
from metaxlm.model.model_folder import save_file
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokenizer import load_tokenizer
from tests.commands import Command


def raise_full(path: Path) -> None:
    with naming(path, size=12_345):
        raise OSError(errno.ENOSPC, "No space left on device")


def save_torch(path: Path) -> None:
    torch.save(torch.ones(10_000), path)


def save_tensors(path: Path) -> None:
    save_file({"a": torch.ones(10_000)}, path)


def write_too_much(write: Callable[[Path], object], path: Path) -> None:
    """Write a file that the system truncates after 1,000 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    path.parent.mkdir(exist_ok=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("fail", "line"),
    [
        (lambda path: (path / "a").read_bytes(), "{path}/a: No such file or directory"),
        (lambda path: path.parent.read_bytes(), "{parent}: Is a directory"),
        (lambda path: save_file({"a": torch.ones(2)}, path / "a"), "{path}/a: No such file"),
        (lambda path: Tokenizer(BPE()).save(str(path / "a")), "{path}: No such file"),
        (lambda path: pq.read_table(io.BytesIO(b"none")), "{path}: Could not open Parquet"),
        (lambda path: lzma.decompress(b"damaged"), "{path}: Input format not supported"),
        (lambda path: zlib.decompress(b"damaged"), "{path}: Error -3 while decompressing"),
        (lambda path: write_too_much(save_torch, path / "a"), "{path}: [enforce fail"),
        (lambda path: write_too_much(save_tensors, path / "a"), "{path}/a: File too large"),
        (lambda path: "\ud800".encode(), "{path}: '\\ud800' cannot be written in utf-8"),
        (lambda path: torch.empty(10**15), "out of memory ([enforce fail"),
        (lambda path: np.empty(10**15), "out of memory (Unable to allocate"),
        (raise_full, "{path}: No space left on device (12,345 bytes needed, {free}"),
    ],
)
def test_a_failure_is_one_line_with_the_file(
    tmp_path: Path, fail: Callable[[Path], object], line: str
) -> None:
    path = tmp_path / "absent"
    with pytest.raises(Exception) as caught, naming(path):
        fail(path)
    ending = explain(caught.value)
    assert ending is not None
    free = f"{shutil.disk_usage(tmp_path).free:,}"[:3]
    assert ending[0] == 2
    assert ending[1].startswith(line.format(path=path, parent=tmp_path, free=free))


def test_an_error_names_the_final_file(tmp_path: Path) -> None:
    final, temporary = tmp_path / "model", tmp_path / ".tmp-model"
    with pytest.raises(FileNotFoundError) as caught, naming(final, temporary):
        (temporary / "config.json").read_bytes()
    assert caught.value.filename == str(final / "config.json")
    with pytest.raises(FileNotFoundError) as caught, naming(final, temporary):
        temporary.rename(final)
    assert explain(caught.value) == (2, f"{final}: No such file or directory")
    # Removing a folder reports only the name of an entry.
    with pytest.raises(OSError) as caught, naming(final, temporary):
        raise PermissionError(errno.EACCES, "Permission denied", "config.json")
    assert explain(caught.value) == (2, f"{final}: Permission denied")
    # Inputs keep their names, also in the current folder.
    with pytest.raises(FileNotFoundError) as caught, naming(final, temporary):
        Path("absent.txt").read_bytes()
    assert explain(caught.value) == (2, "absent.txt: No such file or directory")


def test_a_bug_is_reported_with_its_traceback(
    metaxlm: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_check_run", lambda folder: 1 / 0)
    code, _, errors = metaxlm("report", "runs/demo")
    assert code == 1
    *trace, last = errors.splitlines()
    assert trace[0].startswith("Traceback")
    assert trace[-1].startswith("ZeroDivisionError")
    assert last.startswith("metaxlm: this is a bug in metaxlm ")
    assert last.endswith("please report it with the traceback above")


def test_any_text_prints_on_an_ascii_terminal(
    metaxlm: Command, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = load_tokenizer(str(models / "one"))
    token = next(name for name in tokenizer.get_vocab() if name.startswith("▁д"))
    plan = make_plan(tokenizer, tokenizer, MatchingRecipe(), None)
    save_ledger(plan, tmp_path / "ledger.parquet")
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, "ascii"))
    code, _, errors = metaxlm("match", "explain", token)
    assert (code, errors) == (0, "")
    assert rb"\u2581\u0434" in printed.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        ("embed", "--input", "-", "--output", "a.npy"),
        ("retrieve", "--queries", "-", "--keys", "b.txt"),
        ("mine", "--source", "-", "--target", "b.txt"),
        ("align", "--input", "-", "--output", "links.txt"),
        ("align", "--source", "b.txt", "--target", "-"),
    ],
)
def test_a_closed_standard_input_is_named(
    metaxlm: Command, models: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    (metaxlm.folder / "b.txt").write_text("ein Haus\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", None)
    complaint = metaxlm.complaint(*arguments, "--model", models / "one", "--device", "cpu")
    assert complaint.startswith("metaxlm: standard input: closed; name a file")


def test_results_on_the_standard_output_are_utf_8(
    metaxlm: Command, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b.txt").write_text("große Häuser\n", encoding="utf-8")
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, "ascii"))
    arguments = ("--queries", "b.txt", "--keys", "b.txt", "--model", models / "one")
    assert metaxlm("retrieve", *arguments)[0] == 0
    assert "\tgroße Häuser\n" in printed.getvalue().decode("utf-8")
    monkeypatch.setattr(sys, "stdout", None)
    assert "standard output: closed; name a file" in metaxlm.complaint("retrieve", *arguments)


@pytest.mark.parametrize(
    ("redirection", "code", "complaint"),
    [
        (">/dev/full", 2, "metaxlm: standard output: No space left on device; "),
        (">&-", 0, ""),
        ("| true", 2, "metaxlm: standard output: Broken pipe"),
    ],
)
def test_an_output_that_cannot_be_written(
    tmp_path: Path, redirection: str, code: int, complaint: str
) -> None:
    """Use another process, because Python flushes again when it exits."""
    (tmp_path / "xnli").mkdir()
    command = f'sleep 0.2; "{sys.executable}" -m metaxlm data check . '
    command = f"set -o pipefail; ( {command} ) {redirection}"
    done = subprocess.run(
        ["bash", "-c", command], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (code, int(bool(code))), done.stderr
    assert done.stderr.startswith(complaint)
