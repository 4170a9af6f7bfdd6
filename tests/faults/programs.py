"""Start programs that cause faults, in processes of their own, and fork processes in them."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not sys.platform.startswith("linux"),
    reason="needs a C compiler (cc) and Linux",
)


def run_program(name: str, *arguments: object, disk: Path | None = None) -> Any:
    """Run `python -m tests.faults.NAME`; return the JSON value of its last line.

    With `disk`, build the library whose calls fail in this folder and load it before libc.
    """
    settings = dict(SETTINGS)
    if disk is not None:
        library, source = disk / "faulty_disk.so", Path(__file__).with_name("faulty_disk.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        settings["LD_PRELOAD"] = str(library)
    done = subprocess.run(
        [sys.executable, "-m", f"tests.faults.{name}", *map(str, arguments)],
        check=False,
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def fork(
    function: Callable[[], object], output: Path | None = None, errors: Path | None = None
) -> int:
    """Call a function in a forked process; return the process id."""
    if child := os.fork():
        return child
    code = 1
    try:
        for number, path in ((1, output), (2, errors)):
            if path is not None:
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
        function()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(child: int) -> int:
    """Wait for a process and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def import_modules(names: Iterable[str]) -> None:
    """Import modules before a fork, so that forked processes need not."""
    for name in names:
        if name not in sys.modules and not name.startswith("__"):
            with suppress(Exception):
                importlib.import_module(name)
