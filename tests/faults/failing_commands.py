"""Runs every command that writes on a disk whose n-th call fails; run by `test_commands.py`.

`python -m tests.faults.failing_commands FOLDER CALLS [NAME ...]` with `faulty_disk.c` loaded before
libc lets CALLS calls of each command fail, one in each run of it, and prints one JSON object: how
the runs ended, and everything that was wrong. Every run is a process of its own, forked from this
one, which has imported everything and computed nothing.
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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import yaml
from safetensors import safe_open

import metaxlm
from metaxlm.cli import main as metaxlm_main
from metaxlm.experiments.verification import verify
from metaxlm.files import digest_file

ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES)
LIBRARY = ctypes.CDLL(None)
LIBRARY.faulty_log.restype = ctypes.c_char_p
RECIPE = """\
name: toy
languages: [en, de]
corpus:
  phrasebook:
    {source_sentences: 300, sentences: 200, test_pairs: 20, aligned_pairs: 10,
     train_examples: 20, test_examples: 10}
vocabulary: {size: 400, monolingual_size: 350}
model: {layers: 2, hidden: 16, heads: 2, ffn: 32, max_positions: 64}
meta: &training
  {steps: 4, batch_size: 4, length: 32, learning_rate: 3e-3, warmup_steps: 2,
   checkpoint_every: 2, log_every: 1}
pretraining: {<<: *training}
variants:
  metaxlm: {initialize: both}
evaluation:
  finetune:
    xnli: {epochs: 1, length: 32, seeds: 1}
"""
STAGES = (
    "corpus", "vocabulary", "shards", "meta", "initialize", "pretrain", "evaluate", "report",
)  # fmt: skip
NAMES = {
    "text corpus": "run --stage corpus (text)",
    **{stage: f"run --stage {stage}" for stage in STAGES},
}


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
    """Return the digests of all files but locks and those with a temporary name."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {
        str(name): digest_file(folder / name)
        for name in names
        if not any(part.startswith((".tmp-", ".lock")) for part in name.parts)
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
        case ".html" | ".svg" | ".pdf":
            assert data.rstrip().endswith(endings[path.suffix])
        case _:
            raise AssertionError("it is neither the old nor the new file")


class Trial:
    """A command's undisturbed run, and what must be true after a disturbed one."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        self.old = list_digests(case.before)
        slots = [make_slot(folder / f"whole-{n}", case.before) for n in range(2)]
        ends = [start(case.arguments, slot, 0) for slot in slots]
        for ended in ends:
            assert ended.code == 0, f"{case.name}: {ended.code} {ended.errors[-2000:]}"
        self.calls = ends[0].calls
        self.modules = (slots[0] / "modules").read_text("utf-8").split()
        self.new, other = (list_digests(slot / "out") for slot in slots)
        self.varying = {name for name in self.new if self.new[name] != other.get(name)}

    def attempt(self, call: int, error: int, *, again: bool) -> Attempt:
        slot = make_slot(self.folder / f"call-{call}-{error}", self.case.before)
        ended = start(self.case.arguments, slot, call, error)
        lines = [line for line in ended.errors.splitlines() if line.strip()]
        kind = ended.calls[call - 1 : call] or "-"
        found = Attempt(
            call, kind, errno.errorcode[error], ended.code, lines[-1] if lines else "", ""
        )
        if "Traceback" in ended.errors:
            found.outcome = "traceback"
        elif ended.code in (2, 75) and len(lines) == 1:
            found.outcome = "one line"
        elif ended.code == 0 and not lines:
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
            if second.code and not (is_there and "exists" in second.errors):
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
                if ".tmp-" not in str(path):
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


def build_cases(root: Path) -> list[Case]:
    """Make a whole run, and everything that the commands read."""
    recipe = root / "toy.yaml"
    recipe.write_text(RECIPE, encoding="utf-8")
    cases = []
    base = root / "base"
    for stage in STAGES:
        arguments = ["run", str(recipe), "--stage", stage, "--output", "{out}", "--device", "cpu"]
        before = root / "before" / stage
        if stage == "corpus":
            before.mkdir(parents=True)
        else:
            shutil.copytree(base / "out", before)
        must(arguments, base)
        cases.append(Case(f"run --stage {stage}", arguments, before))
    run = base / "out" / "toy"
    text = root / "text"
    text.mkdir()
    for language in ("en", "de"):
        source = (run / f"corpus/text/{language}/00000.txt").read_text("utf-8")
        (text / f"{language}.txt").write_text(source, encoding="utf-8")
    values = yaml.safe_load(RECIPE)
    values["corpus"] = {"source": "text", "path": str(text), "engine": {"workers": 1}}
    values["evaluation"] = {"retrieval": None, "alignment": None}
    values["name"] = "text"
    (root / "text.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    model, data = run / "variants/metaxlm/model", run / "corpus/tasks"
    lines = text.joinpath("de.txt").read_text("utf-8").split("\n")
    lines = [line for line in lines if line.strip()][:40]
    files = {"a.txt": lines[:20], "b.txt": lines[20:]}
    files["pairs.txt"] = [f"{a} ||| {b}" for a, b in zip(lines[:20], lines[20:], strict=True)]
    files["nli.tsv"] = [f"{a}\t{b}" for a, b in zip(lines[:20], lines[20:], strict=True)]
    for name, content in files.items():
        (root / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    a, b, pairs, nli = (str(root / name) for name in files)
    one = ["--model", str(model), "--device", "cpu"]
    evaluate = ["evaluate", *one, "--task", "xnli,tatoeba", "--data", str(data), "--keep-models"]
    evaluate += ["--limit", "8", "--set", "epochs=1", "--set", "length=32", "--output", "{out}/e"]
    made = root / "made"
    must(evaluate, made)
    tuned = next((made / "out/e").rglob("metaxlm_task.json")).parent
    old = root / "old"
    old.mkdir()
    for name in ("v.npy", "v.parquet", "found.tsv", "links.txt", "page.html", "labels.tsv"):
        (old / name).write_text("what was there before\n", encoding="utf-8")
    empty = root / "empty"
    empty.mkdir()
    published = root / "published"
    must(["publish", str(run), "{out}/p"], published)
    again = root / "before-report"
    shutil.copytree(base / "out", again)
    search = ["--queries", a, "--keys", b, "--k", "2"]
    mine = ["--source", a, "--target", b]
    stats = ["corpus", "stats", str(run), "--output", "{out}"]
    start_from = ["--from", str(run / "meta/model"), "--to", str(run / "vocabulary/multilingual")]
    trim = ["--corpus", str(run), "--min-count", "2", "--output", "{out}/trimmed"]
    tokenizer = ["--tokenizer", str(run / "vocabulary/multilingual")]
    cases += [
        Case("run --stage corpus, text files",
             ["run", str(root / "text.yaml"), "--stage", "corpus", "--output", "{out}"], empty),
        Case("match", ["match", *start_from, "--output", "{out}/start"], empty),
        Case("trim --model", ["trim", "--model", str(model), *trim], empty),
        Case("trim --tokenizer", ["trim", *tokenizer, *trim], empty),
        Case("export", ["export", "--model", str(model), "--output", "{out}/exported"], empty),
        Case("evaluate", evaluate, empty),
        Case("predict", ["predict", "--model", str(tuned), "--input", nli, "--output",
                         "{out}/labels.tsv", "--device", "cpu"], old),
        Case("embed, npy", ["embed", *one, "--input", a, "--output", "{out}/v.npy"], old),
        Case("embed, parquet", ["embed", *one, "--input", a, "--output", "{out}/v.parquet"], old),
        Case("retrieve", ["retrieve", *one, *search, "--output", "{out}/found.tsv"], old),
        Case("mine", ["mine", *one, *mine, "--output", "{out}/found.tsv"], old),
        Case("align", ["align", *one, "--input", pairs, "--output", "{out}/links.txt"], old),
        Case("align --page", ["align", *one, "--input", pairs, "--page", "{out}/page.html"], old),
        Case("report", ["report", "{out}/toy"], again),
        Case("publish", ["publish", str(run), "{out}/p"], empty),
        Case("publish --add", ["publish", "--add", str(run), "{out}/p"], published / "out"),
        Case("corpus stats", stats, empty),
    ]  # fmt: skip
    return cases


def choose_calls(count: int, wanted: int, draw: random.Random) -> list[int]:
    """Choose calls over the whole command: one in each of as many equal parts."""
    edges = [round(part * count / wanted) for part in range(wanted + 1)]
    parts = [(a, b) for a, b in zip(edges, edges[1:], strict=False) if a < b]
    return [draw.randint(a + 1, b) for a, b in parts]


def main(root: Path, wanted: int, names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    import_everything()
    cases = [case for case in build_cases(root) if not names or case.name in names]
    draw = random.Random(239)
    trials = []
    for number, case in enumerate(cases):
        trial = Trial(case, root / f"case-{number}")
        import_everything(trial.modules)
        trials.append(trial)
    jobs: list[Callable[[], Attempt]] = []
    owners = []
    for number, trial in enumerate(trials):
        for order, call in enumerate(choose_calls(len(trial.calls), wanted, draw)):
            error = ERRORS[(order + number) % len(ERRORS)]
            again = order % 4 == 0
            jobs.append(lambda t=trial, c=call, e=error, a=again: t.attempt(c, e, again=a))
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
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
