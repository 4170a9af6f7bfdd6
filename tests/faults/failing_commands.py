"""Runs every command that writes on a disk whose n-th call fails; run by `test_commands.py`.

`python -m tests.faults.failing_commands FOLDER CALLS all|few [NAME ...]` with `faulty_disk.c`
loaded before libc lets CALLS calls of each command fail, one in each run of it, and prints one
JSON object: how the runs ended, and everything that was wrong. Every run is a process of its own,
forked from this one, which has imported everything and computed nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import json
import os
import pkgutil
import random
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import yaml
from safetensors import safe_open
from tests.conftest import make_encoder, sentences
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
TIMED = (
    "provenance.json", "cell.json", "manifest.json", "digests.json", ".stage.json",
    "metaxlm_task.json", "README.md",
)  # fmt: skip
"""Files that may tell how long something took, or list what is complete so far."""
STAGES = (
    "corpus", "vocabulary", "shards", "meta", "initialize", "pretrain", "evaluate", "report",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command; `{out}` in its arguments is a folder that begins as a copy of `before`."""

    name: str
    arguments: Sequence[str]
    before: Path


@dataclass
class Ended:
    """How a run of a command ended."""

    code: int
    output: str
    errors: str
    calls: str


@dataclass
class Attempt:
    """A run with one failed call."""

    call: int
    kind: str
    error: str
    code: int
    line: str
    outcome: str
    wrong: list[str] = field(default_factory=list)


def start(arguments: Sequence[str], slot: Path, at: int | None = None, error: int = 0) -> Ended:
    """Run a command in a forked process; its `at`-th call below the slot's `out` fails."""
    streams = [slot / "stdout", slot / "stderr"]
    control = slot / "control"
    child = os.fork()
    if not child:
        code = 70
        try:
            for number, path in enumerate(streams, start=1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
            os.chdir(slot)
            os.environ["FAULTY_CONTROL"] = str(control)
            sys.argv = ["metaxlm", *(part.format(out=slot / "out") for part in arguments)]
            LIBRARY.faulty_share(bytes(control))
            LIBRARY.faulty_error(error)
            LIBRARY.faulty_arm(b"" if at is None else bytes(slot / "out"), at or 0, 0)
            metaxlm_main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            calls = LIBRARY.faulty_log()
            LIBRARY.faulty_arm(b"", 0, 0)
            (slot / "calls").write_bytes(calls)
            modules = "\n".join(sys.modules)
            (slot / "modules").write_text(modules, encoding="utf-8")
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    output, errors = (path.read_text("utf-8", errors="replace") for path in streams)
    calls = slot / "calls"
    return Ended(code, output, errors, calls.read_text("ascii") if calls.exists() else "")


def make_slot(folder: Path, before: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(before, folder / "out", symlinks=True)
    return folder


def list_digests(folder: Path) -> dict[str, str]:
    """Return the digests of all files but locks, work folders and those with temporary names."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {
        str(name): digest_file(folder / name)
        for name in names
        if not any(part.startswith((".tmp-", ".lock", "work-")) for part in name.parts)
    }


def is_log(name: str) -> bool:
    """Return whether a file only grows, so that a part of it is not damage."""
    return name.endswith("/log.jsonl") or "tfevents" in name or "/logs/" in name


def load(path: Path) -> None:
    """Read a file whose bytes differ from run to run; raise an exception if it is not whole."""
    data = path.read_bytes()
    endings = {".html": b"</html>", ".svg": b"</svg>", ".pdf": b"%%EOF"}
    match path.suffix:
        case ".json":
            json.loads(data)
        case ".jsonl":
            assert data.endswith(b"\n")
            for line in data.splitlines():
                json.loads(line)
        case ".yaml":
            yaml.safe_load(data)
        case ".safetensors":
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118  (it is not a mapping)
                    file.get_tensor(name)
        case ".npz" | ".npy":
            found = np.load(path)
            for name in found if path.suffix == ".npz" else ():
                found[name]
        case ".parquet":
            pq.read_table(path)
        case ".md":
            assert data.endswith(b"\n")
        case ".html" | ".svg" | ".pdf":
            assert data.rstrip().endswith(endings[path.suffix])
        case _:
            raise AssertionError("it is neither the old nor the new file")


@dataclass
class Trial:
    """A command's undisturbed run, and what must be true after a disturbed one."""

    case: Case
    folder: Path
    calls: str
    old: dict[str, str]
    """Digests of the files before the run."""
    new: dict[str, str]
    """Digests of the files after the run."""
    varying: list[str]
    """Files that differ from run to run."""

    @classmethod
    def run(cls, case: Case, folder: Path) -> dict[str, Any]:
        """Run the command twice without a fault; return what is left of a trial and the modules."""
        slots = [make_slot(folder / f"whole-{n}", case.before) for n in range(2)]
        ends = [start(case.arguments, slot, 0) for slot in slots]
        for ended in ends:
            assert ended.code == 0, f"{case.name}: {ended.code} {ended.errors[-2000:]}"
        new, other = (list_digests(slot / "out") for slot in slots)
        return {
            "calls": ends[0].calls,
            "old": list_digests(case.before),
            "new": new,
            "varying": [n for n in new if new[n] != other.get(n) or Path(n).name in TIMED],
            "modules": (slots[0] / "modules").read_text("utf-8").split(),
        }

    def attempt(self, call: int, error: int, *, again: bool) -> Attempt:
        slot = make_slot(self.folder / f"call-{call}-{error}", self.case.before)
        ended = start(self.case.arguments, slot, call, error)
        lines = [line for line in ended.errors.splitlines() if line.strip()]
        kind = ended.calls[call - 1 : call] or "-"
        line = lines[-1] if lines else ""
        found = Attempt(call, kind, errno.errorcode[error], ended.code, line, "")
        if "Traceback" in ended.errors:
            found.outcome = "traceback"
        elif ended.code in (2, 75) and len(lines) == 1:
            found.outcome = "one line"
        elif ended.code == 0 and len(lines) < 2:  # TensorBoard may fail with a line
            found.outcome = "complete"
        else:
            found.outcome = "other"
        wrong = found.wrong
        if found.outcome in ("traceback", "other"):
            wrong.append(f"exit code {ended.code}: {ended.errors[-1500:]}")
        elif found.outcome == "one line" and not self._names_path(lines[0], slot):
            wrong.append(f"names no path: {lines[0]}")
        wrong += self._check_files(slot, is_whole=found.outcome == "complete")
        if again and found.outcome == "one line":
            second = start(self.case.arguments, slot)
            is_there = self._is_whole(slot)
            if second.code and not (is_there and "is there already" in second.errors):
                wrong.append(f"started again: exit code {second.code}: {second.errors[-1500:]}")
            elif not is_there:
                wrong.append("started again: the output is not that of an undisturbed run")
        if not wrong:
            shutil.rmtree(slot)
        return found

    def _names_path(self, line: str, slot: Path) -> bool:
        return line.startswith("metaxlm: ") and str(slot / "out") in line

    def _is_whole(self, slot: Path) -> bool:
        found = list_digests(slot / "out")
        return all(
            name in self.varying or is_log(name) or found.get(name) == digest
            for name, digest in self.new.items()
            if "tfevents" not in name
        )

    def _check_files(self, slot: Path, *, is_whole: bool) -> Iterator[str]:
        """Find files that are neither old nor new, and markers whose files are damaged."""
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


def in_parallel(jobs: Sequence[Callable[[], Any]], folder: Path, processes: int = 2) -> list[Any]:
    """Run jobs in forked processes; return what they return."""
    results: dict[int, Any] = {}
    running: dict[int, int] = {}
    waiting = list(enumerate(jobs))
    while waiting or running:
        while waiting and len(running) < processes:
            number, job = waiting.pop(0)
            child = os.fork()
            if not child:
                try:
                    result = job()
                    value = asdict(result) if isinstance(result, Attempt) else result
                    text = json.dumps(value)
                    (folder / f"result-{number}").write_text(text, encoding="utf-8")
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    sys.stderr.flush()
                    os._exit(1)
            running[child] = number
        child, status = os.wait()
        number = running.pop(child)
        assert status == 0, f"job {number} ended with {status}"
        path = folder / f"result-{number}"
        results[number] = json.loads(path.read_text("utf-8"))
        path.unlink()
    return [results[number] for number in range(len(jobs))]


def import_everything(names: Sequence[str] = ()) -> None:
    """Import what commands import when they need it."""
    if not names:
        found = pkgutil.walk_packages(metaxlm.__path__, "metaxlm.")
        names = [module.name for module in found if "__main__" not in module.name]
    for name in names:
        if name not in sys.modules and not name.startswith("__"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def must(arguments: Sequence[str], slot: Path) -> None:
    slot.mkdir(parents=True, exist_ok=True)
    (slot / "out").mkdir(exist_ok=True)
    ended = start(arguments, slot)
    assert ended.code == 0, f"{arguments}: {ended.errors[-2000:]}"
    import_everything((slot / "modules").read_text("utf-8").split())


def write_inputs(root: Path, lines: Sequence[str]) -> None:
    """Write the texts that commands read, and files that they will replace."""
    first, second = lines[:20], lines[20:40]
    contents = {
        "a.txt": first,
        "b.txt": second,
        "pairs.txt": [" ||| ".join(pair) for pair in zip(first, second, strict=True)],
        "pairs.tsv": ["\t".join(pair) for pair in zip(first, second, strict=True)],
    }
    for name in ("v.npy", "v.parquet", "found.tsv", "links.txt", "page.html", "labels.tsv"):
        contents[f"old/{name}"] = ["what was there before"]
    for name in ("old", "empty"):
        (root / name).mkdir()
    for name, content in contents.items():
        (root / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")


def list_model_cases(root: Path, model: Path, source: Path, target: Path, text: Path) -> list[Case]:
    """Return the commands for one model; `source` is matched to the tokenizer of `target`."""
    old, empty = root / "old", root / "empty"
    one = ["--model", str(model), "--device", "cpu"]
    a, b, pairs = (str(root / name) for name in ("a.txt", "b.txt", "pairs.txt"))
    embed, align = ["embed", *one, "--input", a], ["align", *one, "--input", pairs]
    match = ["match", "--from", str(source), "--to", str(target), "--output", "{out}/start"]
    trim = ["--corpus", str(text), "--min-count", "2", "--output", "{out}/trimmed"]
    retrieve = ["retrieve", *one, "--queries", a, "--keys", b, "--output", "{out}/found.tsv"]
    mine = ["mine", *one, "--source", a, "--target", b, "--output", "{out}/found.tsv"]
    return [
        Case("match", match, empty),
        Case("trim --model", ["trim", "--model", str(model), *trim], empty),
        Case("trim --tokenizer", ["trim", "--tokenizer", str(target), *trim], empty),
        Case("export", ["export", "--model", str(model), "--output", "{out}/exported"], empty),
        Case("embed, npy", [*embed, "--output", "{out}/v.npy"], old),
        Case("embed, parquet", [*embed, "--output", "{out}/v.parquet"], old),
        Case("retrieve", retrieve, old),
        Case("mine", mine, old),
        Case("align", [*align, "--output", "{out}/links.txt"], old),
        Case("align --page", [*align, "--page", "{out}/page.html"], old),
    ]


def make_stages(root: Path) -> list[Case]:
    """Make a run in `base`, stage by stage; keep what is there before each stage."""
    (root / "toy.yaml").write_text(RECIPE, encoding="utf-8")
    options = ["--output", "{out}", "--device", "cpu"]
    cases = []
    base = root / "base"
    (base / "out").mkdir(parents=True)
    for stage in STAGES:
        before = root / "before" / stage
        shutil.copytree(base / "out", before)
        arguments = ["run", str(root / "toy.yaml"), "--stage", stage, *options]
        must(arguments, base)
        cases.append(Case(f"run --stage {stage}", arguments, before))
    return cases


def make_text_case(root: Path, text: Path) -> Case:
    """Return a run on the user's text, which worker processes read and write."""
    values = yaml.safe_load(RECIPE)
    values |= {"name": "text", "corpus": {"source": "text", "path": str(text)}}
    values |= {"engine": {"workers": 1}, "evaluation": {"retrieval": None, "alignment": None}}
    (root / "text.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    arguments = ["run", str(root / "text.yaml"), "--stage", "corpus", "--output", "{out}"]
    return Case("run --stage corpus, text files", arguments, root / "empty")


def make_published(root: Path) -> Path:
    """Make a run that has one cell more than its publication."""
    folder = root / "published"
    shutil.copytree(root / "base/out", folder / "out")
    must(["publish", "{out}/toy", "{out}/p"], folder)
    more = root / "more.yaml"
    more.write_text(f"{RECIPE}  grid: [{{tasks: [xnli], seeds: 2}}]\n", encoding="utf-8")
    must(["run", str(more), "--output", "{out}", "--device", "cpu"], folder)
    return folder / "out"


def make_all(root: Path) -> list[Case]:
    """Make a whole run and everything that the commands read; return all commands that write."""
    stages = make_stages(root)
    run, text = root / "base/out/toy", root / "text"
    text.mkdir()
    for language in ("en", "de"):
        shutil.copy(run / f"corpus/text/{language}/00000.txt", text / f"{language}.txt")
    lines = (text / "de.txt").read_text("utf-8").splitlines()
    write_inputs(root, [line for line in lines if line.strip()])
    model, target = run / "variants/metaxlm/model", run / "vocabulary/multilingual"
    evaluate = ["evaluate", "--model", str(model), "--device", "cpu", "--task", "xnli,tatoeba"]
    evaluate += ["--data", str(run / "corpus/tasks"), "--keep-models", "--limit", "8"]
    evaluate += ["--set", "epochs=1", "--set", "length=32", "--output", "{out}/e"]
    must(evaluate, root / "evaluated")
    tuned = next((root / "evaluated").rglob("metaxlm_task.json")).parent
    predict = ["predict", "--model", str(tuned), "--device", "cpu"]
    predict += ["--input", str(root / "pairs.tsv"), "--output", "{out}/labels.tsv"]
    old, empty, whole = root / "old", root / "empty", root / "whole"
    shutil.copytree(root / "base/out", whole)
    return [
        *stages,
        make_text_case(root, text),
        *list_model_cases(root, model, run / "meta/model", target, run),
        Case("evaluate", evaluate, empty),
        Case("predict", predict, old),
        Case("report", ["report", "{out}/toy"], whole),
        Case("publish", ["publish", "{out}/toy", "{out}/p"], whole),
        Case("publish --add", ["publish", "--add", "{out}/toy", "{out}/p"], make_published(root)),
        Case("corpus stats", ["corpus", "stats", str(run), "--output", "{out}"], empty),
    ]


def make_few(root: Path) -> list[Case]:
    """Return commands that need no run."""
    model, text = root / "bert", root / "text"
    text.mkdir()
    write_inputs(root, sentences("en"))
    (text / "en.txt").write_text("\n".join(sentences("en") * 9), encoding="utf-8")
    in_parallel([partial(make_encoder, model)], root)
    cases = list_model_cases(root, model, model, model, text)
    return [case for case in cases if case.name in ("match", "export", "embed, parquet", "align")]


def choose_calls(count: int, wanted: int, draw: random.Random) -> list[int]:
    """Choose calls over the whole command: one in each of as many equal parts."""
    edges = [round(part * count / wanted) for part in range(wanted + 1)]
    parts = [(a, b) for a, b in pairwise(edges) if a < b]
    return [draw.randint(a + 1, b) for a, b in parts]


def main(root: Path, wanted: int, kind: str, names: Sequence[str]) -> None:
    """Let calls of commands fail, and print how each ended."""
    torch.set_num_threads(1)
    set_quiet(True)
    import_everything()
    cases = make_all(root) if kind == "all" else make_few(root)
    cases = [case for case in cases if not names or case.name in names]
    draw = random.Random(239)
    folders = [root / f"case-{number}" for number in range(len(cases))]
    pairs = list(zip(cases, folders, strict=True))
    whole = in_parallel([partial(Trial.run, *pair) for pair in pairs], root)
    trials = []
    for pair, known in zip(pairs, whole, strict=True):
        import_everything(known.pop("modules"))
        trials.append(Trial(*pair, **known))
    jobs: list[Callable[[], Attempt]] = []
    owners = []
    for number, trial in enumerate(trials):
        for order, call in enumerate(choose_calls(len(trial.calls), wanted, draw)):
            error = ERRORS[(order + number) % len(ERRORS)]
            again = order % 4 == 0
            jobs.append(partial(trial.attempt, call, error, again=again))
            owners.append(trial.case.name)
    attempts = in_parallel(jobs, root)
    table = {
        trial.case.name: {
            "calls": Counter(trial.calls),
            "attempts": [found for owner, found in zip(owners, attempts, strict=True)
                         if owner == trial.case.name],
        }
        for trial in trials
    }  # fmt: skip
    print(json.dumps(table))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
