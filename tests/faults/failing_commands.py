"""Run every command that writes on a disk where one call fails; started by `test_commands.py`.

`python -m tests.faults.failing_commands FOLDER SHARE all|few [NAME ...]` lets `SHARE` times
`Case.calls` calls of each command fail, one per run, and prints a JSON object: how the runs ended,
and everything that was wrong. Every run is forked from a process that has imported everything and
computed nothing.
"""

from __future__ import annotations

import ctypes
import errno
import json
import multiprocessing
import os
import pkgutil
import random
import shutil
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
import yaml
from safetensors.torch import load_file
from tests.conftest import make_encoder, sentences
from tests.faults.programs import fork, import_modules, wait
from tests.toy_runs import make_toy

import metaxlm
from metaxlm.cli import main as metaxlm_main
from metaxlm.files import digest_file
from metaxlm.progress import set_quiet
from metaxlm.run.verify import verify

ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES)
LIBRARY = ctypes.CDLL(None)
LIBRARY.faulty_log.restype = ctypes.c_char_p
RECIPE = make_toy(
    {"steps": 4, "batch_size": 4, "checkpoint_every": 2, "log_every": 1},
    variants={"metaxlm": {"initialize": "both"}},
    evaluation={"finetune": {"xnli": {"epochs": 1, "length": 32, "seeds": 1}}},
)
# Files that may contain durations, or a list of the files that are complete.
TIMED = ("provenance.json", "cell.json", "manifest.json", "digests.json", ".stage.json",
         "metaxlm_task.json", "README.md")  # fmt: skip
STAGES = ["corpus", "vocabulary", "shards", "meta", "initialize", "pretrain", "evaluate", "report"]
SLOW = 8  # failing calls of commands that draw figures or start worker processes
ENDINGS = {".html": b"</html>", ".svg": b"</svg>", ".pdf": b"%%EOF"}


@dataclass(frozen=True)
class Case:
    """A command; `{out}` in its arguments is a folder that begins as a copy of `before`."""

    name: str
    arguments: Sequence[str]
    before: Path
    calls: int = 13  # number of failing calls to try


class Ended(NamedTuple):
    """The result of a command."""

    code: int
    errors: str
    calls: str


def start(arguments: Sequence[str], slot: Path, at: int | None = None, error: int = 0) -> Ended:
    """Run a command in a forked process; its `at`-th call below `slot/out` fails."""
    control, calls = slot / "control", slot / "calls"

    def run() -> None:
        os.chdir(slot)
        os.environ["FAULTY_CONTROL"] = str(control)
        sys.argv = ["metaxlm", *(part.format(out=slot / "out") for part in arguments)]
        # Worker processes import the main module, and this one takes many seconds.
        sys.modules["__main__"] = types.ModuleType("__main__")
        LIBRARY.faulty_share(bytes(control))
        LIBRARY.faulty_error(error)
        LIBRARY.faulty_arm(b"" if at is None else bytes(slot / "out"), at or 0, 0)
        try:
            metaxlm_main()
        finally:
            made = LIBRARY.faulty_log()
            LIBRARY.faulty_arm(b"", 0, 0)
            calls.write_bytes(made)
            (slot / "modules").write_text("\n".join(sys.modules), encoding="utf-8")

    code = wait(fork(run, slot / "stdout", slot / "stderr"))
    errors = (slot / "stderr").read_text("utf-8", errors="replace")
    return Ended(code, errors, calls.read_text("ascii") if calls.exists() else "")


def make_slot(folder: Path, before: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(before, folder / "out", symlinks=True)
    return folder


def list_digests(folder: Path) -> dict[str, str]:
    """Return the digests of all files but locks, work folders and temporary files."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {
        str(name): digest_file(folder / name)
        for name in names
        if not any(part.startswith((".tmp-", ".lock", "work-")) for part in name.parts)
    }


def is_log(name: str) -> bool:
    """Return whether a file only grows, so that a part of it is not damage."""
    return name.endswith("/log.jsonl") or "tfevents" in name or "/logs/" in name


def _read_lines(path: Path) -> list[bytes]:
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return data.splitlines()


LOADERS: dict[str, Callable[[Path], Any]] = {
    ".json": lambda path: json.loads(path.read_bytes()),
    ".yaml": lambda path: yaml.safe_load(path.read_bytes()),
    ".jsonl": lambda path: [json.loads(line) for line in _read_lines(path)],
    ".md": _read_lines,
    ".safetensors": load_file,
    ".npz": lambda path: dict(np.load(path)),
    ".npy": np.load,
    ".parquet": pq.read_table,
}


def load(path: Path) -> None:
    """Read a file whose bytes differ from run to run; raise an exception if it is incomplete."""
    if path.suffix in ENDINGS:
        assert path.read_bytes().rstrip().endswith(ENDINGS[path.suffix])
    else:
        assert path.suffix in LOADERS, "it is neither the old nor the new file"
        LOADERS[path.suffix](path)


@dataclass
class Trial:
    """An undisturbed run of a command, and the checks of disturbed ones."""

    case: Case
    folder: Path
    calls: str
    old: dict[str, str]  # digests of the files before the run
    new: dict[str, str]  # digests of the files after the run
    varying: list[str]  # files that differ from run to run
    modules: list[str]

    @classmethod
    def run(cls, case: Case, folder: Path) -> Trial:
        """Run the command twice without a fault."""
        slots = [make_slot(folder / f"whole-{n}", case.before) for n in range(2)]
        ends = [start(case.arguments, slot, 0) for slot in slots]
        for ended in ends:
            assert ended.code == 0, f"{case.name}: {ended.code} {ended.errors[-2000:]}"
        new, other = (list_digests(slot / "out") for slot in slots)
        varying = [n for n in new if new[n] != other.get(n) or Path(n).name in TIMED]
        modules = (slots[0] / "modules").read_text("utf-8").split()
        return cls(case, folder, ends[0].calls, list_digests(case.before), new, varying, modules)

    def attempt(self, call: int, error: int, again: bool) -> dict[str, Any]:
        """Run the command with one failing call; return how it ended and what was wrong."""
        begin = time.monotonic()
        slot = make_slot(self.folder / f"call-{call}-{error}", self.case.before)
        ended = start(self.case.arguments, slot, call, error)
        lines = [line for line in ended.errors.splitlines() if line.strip()]
        wrong = []
        outcome = "other"
        if ended.code in (2, 75) and len(lines) == 1:
            outcome = "one line"
            if not (lines[0].startswith("metaxlm: ") and str(slot / "out") in lines[0]):
                wrong.append(f"names no path: {lines[0]}")
        elif ended.code == 0 and len(lines) < 2:  # TensorBoard may fail with a line
            outcome = "complete"
        else:
            wrong.append(f"exit code {ended.code}: {ended.errors[-1500:]}")
        wrong += self._check_files(slot, is_whole=outcome == "complete")
        if again and outcome == "one line":
            second = start(self.case.arguments, slot)
            is_whole = self._is_whole(slot)
            if second.code and not (is_whole and "is there already" in second.errors):
                wrong.append(f"second run: exit code {second.code}: {second.errors[-1500:]}")
            elif not is_whole:
                wrong.append("second run: the output is not that of an undisturbed run")
        if not wrong:
            shutil.rmtree(slot)
        wrong = [f"call {call} ({ended.calls[call - 1 : call]}), {errno.errorcode[error]}: {line}"
                 for line in wrong]  # fmt: skip
        return {"outcome": outcome, "wrong": wrong, "seconds": time.monotonic() - begin}

    def _is_whole(self, slot: Path) -> bool:
        found = list_digests(slot / "out")
        return all(
            name in self.varying or is_log(name) or found.get(name) == digest
            for name, digest in self.new.items()
            if "tfevents" not in name
        )

    def _check_files(self, slot: Path, *, is_whole: bool) -> Iterator[str]:
        """Find files that are neither old nor new, and lists of damaged files."""
        for name, digest in list_digests(slot / "out").items():
            if digest in (self.old.get(name), self.new.get(name)) or is_log(name):
                continue
            try:
                assert name in self.varying or name not in self.new, "it is not the new file"
                load(slot / "out" / name)
            except Exception as error:
                yield f"{name} is half written: {type(error).__name__} {error}"
        if any((slot / "out").rglob("manifest.json")):
            for path, problem in verify(slot / "out").problems.items():
                if ".tmp-" not in str(path) and "/work-" not in str(path):
                    yield f"{path}: {problem}"
        if is_whole and not self._is_whole(slot):
            yield "exit code 0, but the output is not that of an undisturbed run"


def run_jobs(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run jobs in two forked processes; return their results."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def must(command: str, slot: Path) -> None:
    """Run a command that has to succeed."""
    ended = start(command.split(" "), slot)
    assert ended.code == 0, f"{command}: {ended.errors[-2000:]}"
    import_modules((slot / "modules").read_text("utf-8").split())


def write_inputs(root: Path, lines: Sequence[str]) -> None:
    """Write the texts that commands read, and files that they will replace."""
    pairs = list(zip(lines[:20], lines[20:40], strict=True))
    contents = {
        "a.txt": lines[:20],
        "b.txt": lines[20:40],
        "pairs.txt": [" ||| ".join(pair) for pair in pairs],
    }
    for name in ("v.npy", "v.parquet", "found.tsv", "links.txt", "page.html"):
        contents[f"old/{name}"] = ["the earlier content"]
    for name in ("old", "empty"):
        (root / name).mkdir()
    for name, content in contents.items():
        (root / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")


def list_model_cases(root: Path, model: Path, source: Path, target: Path, text: Path) -> list[Case]:
    """Return the commands for one model; `source` is matched to the tokenizer of `target`."""
    one = f"--model {model} --device cpu"
    a, b, pairs = (root / name for name in ("a.txt", "b.txt", "pairs.txt"))
    trim = f"--corpus {text} --min-count 2 --output {{out}}/trimmed"
    new = {
        "match": f"match --from {source} --to {target} --output {{out}}/start",
        "trim --model": f"trim --model {model} {trim}",
        "trim --tokenizer": f"trim --tokenizer {target} {trim}",
        "export": f"export --model {model} --output {{out}}/exported",
    }
    replaced = {
        "embed, npy": f"embed {one} --input {a} --output {{out}}/v.npy",
        "embed, parquet": f"embed {one} --input {a} --output {{out}}/v.parquet",
        "retrieve": f"retrieve {one} --queries {a} --keys {b} --output {{out}}/found.tsv",
        "mine": f"mine {one} --source {a} --target {b} --output {{out}}/found.tsv",
        "align": f"align {one} --input {pairs} --output {{out}}/links.txt",
        "align --page": f"align {one} --input {pairs} --page {{out}}/page.html",
    }
    return [
        Case(name, arguments.split(" "), root / before)
        for before, commands in (("empty", new), ("old", replaced))
        for name, arguments in commands.items()
    ]


def make_stages(root: Path) -> list[Case]:
    """Make a run in `base`, stage by stage; keep the files before each stage."""
    (root / "toy.yaml").write_text(RECIPE, encoding="utf-8")
    cases = []
    base = root / "base"
    (base / "out").mkdir(parents=True)
    for stage in STAGES:
        before = root / "before" / stage
        shutil.copytree(base / "out", before)
        command = f"run {root}/toy.yaml --stage {stage} --output {{out}} --device cpu"
        must(command, base)
        calls = SLOW if stage in ("shards", "report") else 13
        cases.append(Case(f"run --stage {stage}", command.split(" "), before, calls))
    return cases


def make_all(root: Path) -> list[Case]:
    """Make a whole run and all inputs of the commands; return all commands that write."""
    stages = make_stages(root)
    run, text = root / "base/out/toy", root / "text"
    text.mkdir()
    for language in ("en", "de"):
        shutil.copy(run / f"corpus/text/{language}/00000.txt", text / f"{language}.txt")
    lines = (text / "de.txt").read_text("utf-8").splitlines()
    write_inputs(root, [line for line in lines if line.strip()])
    model, target = run / "variants/metaxlm/model", run / "vocabulary/multilingual"
    # A run on the user's text, which worker processes read and write.
    values = yaml.safe_load(RECIPE)
    values |= {"name": "text", "corpus": {"source": "text", "path": str(text)}}
    values |= {"engine": {"workers": 1}, "evaluation": {"retrieval": None, "alignment": None}}
    (root / "text.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    whole, empty = root / "whole", root / "empty"
    shutil.copytree(root / "base/out", whole)
    # A run that has one evaluation job more than its publication.
    folder, more = root / "published", root / "more.yaml"
    shutil.copytree(whole, folder / "out")
    must("publish {out}/toy {out}/p", folder)
    more.write_text(f"{RECIPE}  grid: [{{tasks: [xnli], seeds: 2}}]\n", encoding="utf-8")
    must(f"run {more} --output {{out}} --device cpu", folder)
    evaluate = f"evaluate --model {model} --device cpu --task xnli,tatoeba --keep-models --limit 8"
    evaluate += f" --data {run}/corpus/tasks --set epochs=1 --set length=32 --output {{out}}/e"
    corpus = f"run {root}/text.yaml --stage corpus --output {{out}}"
    others: dict[str, Any] = {
        "evaluate": (evaluate, empty, 13),
        "report": ("report {out}/toy", whole, SLOW),
        "publish": ("publish {out}/toy {out}/p", whole, SLOW),
        "publish --add": ("publish --add {out}/toy {out}/p", folder / "out", SLOW),
        "corpus stats": (f"corpus stats {run} --output {{out}}", empty, 13),
    }
    return [
        *stages,
        Case("run --stage corpus, text files", corpus.split(" "), empty, SLOW),
        *list_model_cases(root, model, run / "meta/model", target, run),
        *(Case(name, command.split(" "), *rest) for name, (command, *rest) in others.items()),
    ]


def make_few(root: Path) -> list[Case]:
    """Return commands that need no run."""
    model, text = root / "bert", root / "text"
    text.mkdir()
    write_inputs(root, sentences("en"))
    (text / "en.txt").write_text("\n".join(sentences("en") * 9), encoding="utf-8")
    run_jobs([partial(make_encoder, model)])
    cases = list_model_cases(root, model, model, model, text)
    return [case for case in cases if case.name in ("match", "embed, parquet")]


def choose_calls(count: int, wanted: int, draw: random.Random) -> list[int]:
    """Choose one call in each of as many equal parts of a command."""
    edges = [round(part * count / wanted) for part in range(wanted + 1)]
    return [draw.randint(a + 1, b) for a, b in pairwise(edges) if a < b]


def main(root: Path, share: float, kind: str, names: Sequence[str]) -> None:
    """Let calls of commands fail, and print how each run ended."""
    torch.set_num_threads(1)
    set_quiet(True)
    found = pkgutil.walk_packages(metaxlm.__path__, "metaxlm.")
    import_modules(module.name for module in found if "__main__" not in module.name)
    cases = make_all(root) if kind == "all" else make_few(root)
    cases = [case for case in cases if not names or case.name in names]
    draw = random.Random(239)
    trials: list[Trial] = run_jobs(
        [partial(Trial.run, case, root / f"case-{n}") for n, case in enumerate(cases)]
    )
    jobs: list[tuple[str, Callable[[], dict[str, Any]]]] = []
    for number, trial in enumerate(trials):
        import_modules(trial.modules)
        calls = choose_calls(len(trial.calls), max(1, round(share * trial.case.calls)), draw)
        for order, call in enumerate(calls):
            error = ERRORS[(order + number) % len(ERRORS)]
            jobs.append((trial.case.name, partial(trial.attempt, call, error, order % 4 == 0)))
    attempts = run_jobs([job for _, job in jobs])
    table: dict[str, Any] = {
        trial.case.name: {"calls": Counter(trial.calls), "attempts": []} for trial in trials
    }
    for (name, _), attempt in zip(jobs, attempts, strict=True):
        table[name]["attempts"].append(attempt)
    print(json.dumps(table))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:])
