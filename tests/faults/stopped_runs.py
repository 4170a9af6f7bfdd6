"""Send a signal to a run at a chosen moment; started by `test_stops.py`.

`python -m tests.faults.stopped_runs RECIPE FOLDER MOMENTS` starts the recipe once for each moment,
and then to its end; MOMENTS is a JSON list with the fields of `Moment`. It prints a JSON list of
how each start ended. Starts are forked from a process that has imported everything, unless the
moment is an import.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from metaxlm.cli import main as run_metaxlm

LIMIT_S = 120.0
IMPORTED = ("cli.run", "cli.options", "data.pipeline", "run.publish")


@dataclass(frozen=True)
class Moment:
    """When a process sends itself a signal."""

    name: str
    place: str
    """`module:function`, the name where it is called; a module alone means its import."""
    call: int = 1
    """Number of the call, counted from 1."""
    after: bool = False
    """Whether the signal follows the call, instead of preceding it."""
    step: int | None = None
    """Count only the calls at this training step."""
    number: int = signal.SIGTERM
    group: bool = False
    """Whether all processes of the group get it, as from a terminal or a scheduler."""


@dataclass(frozen=True)
class End:
    """The result of a start."""

    code: int
    errors: str
    seconds: float | None
    """Time since the signal; None if it was not sent."""
    left: int
    """Number of its processes that are alive a second later."""
    total_s: float = 0.0


class Trigger:
    """Sends the signal, and writes down when."""

    def __init__(self, moment: Moment, record: Path) -> None:
        self.moment, self.record, self.calls = moment, record, 0

    def arm(self) -> None:
        module, _, path = self.moment.place.partition(":")
        if not path:
            sys.meta_path.insert(0, self)
            return
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, importlib.import_module(module))
        setattr(owner, name, self.wrap(getattr(owner, name)))

    def fire(self) -> None:
        self.record.write_text(str(time.time()))
        (os.killpg if self.moment.group else os.kill)(os.getpid(), self.moment.number)

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            step = self.moment.step
            # The second argument is a step or a training state.
            counts = step is None or getattr(arguments[1], "step", arguments[1]) == step
            self.calls += counts
            is_chosen = counts and self.calls == self.moment.call
            if is_chosen and not self.moment.after:
                self.fire()
            result = function(*arguments, **named)
            if is_chosen and self.moment.after:
                self.fire()
            return result

        return call

    def find_spec(self, name: str, path: Sequence[str] | None, target: object) -> ModuleSpec | None:
        """Send the signal when the module is about to be imported."""
        if name == self.moment.place:
            sys.meta_path.remove(self)
            self.fire()
        return None


def run(recipe: Path, folder: Path, moment: Moment | None) -> None:
    """Run the command line in this process."""
    if moment is not None:
        Trigger(moment, folder / "signal").arm()
    # Worker processes import the main module.
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.chdir(folder)  # recorded paths must not depend on it
    sys.argv = ["metaxlm", "run", str(recipe), "--output", "runs", "--device", "cpu"]
    run_metaxlm()


def start(recipe: Path, folder: Path, moment: Moment | None) -> End:
    """Start the command in a session of its own, and wait for its end."""
    begin, record, errors = time.time(), folder / "signal", folder / "errors"
    modules = folder / "modules"
    record.unlink(missing_ok=True)
    if moment is None or ":" in moment.place:
        from tests.faults.programs import fork

        def lead() -> None:
            os.setsid()
            try:
                run(recipe, folder, moment)
            finally:
                modules.write_text("\n".join(sys.modules), encoding="utf-8")

        child = fork(lead, folder / "output", errors)
    else:
        command = [sys.executable, "-m", "tests.faults.stopped_runs", str(recipe), str(folder)]
        with errors.open("wb") as file:
            child = subprocess.Popen(
                [*command, json.dumps(asdict(moment))],
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            ).pid
    code = wait(child)
    end = time.time()
    seconds = end - float(record.read_text()) if record.is_file() else None
    # The resource tracker of multiprocessing ends after its parent.
    while (left := count_group(child)) and time.time() < end + 1.0:
        time.sleep(0.01)
    if modules.is_file():
        from tests.faults.programs import import_modules

        import_modules(modules.read_text("utf-8").split())
    return End(code, errors.read_text("utf-8"), seconds, left, end - begin)


def wait(child: int) -> int:
    """Wait for a process and return its exit code; kill one that does not end."""
    deadline = time.monotonic() + LIMIT_S
    while (found := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            found = os.waitpid(child, 0)
            break
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(found[1])


def count_group(number: int) -> int:
    """Count the processes of a group that are alive."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_text("utf-8").rpartition(")")[2].split()[:3]
        except OSError:
            continue
        found += int(group) == number and state not in "ZX"
    return found


def main() -> None:
    recipe, folder = map(Path, sys.argv[1:3])
    moments = json.loads(sys.argv[3])
    if isinstance(moments, dict):
        run(recipe, folder, Moment(**moments))
        return
    for name in IMPORTED:
        importlib.import_module(f"metaxlm.{name}")
    chosen = [*(Moment(**fields) for fields in moments), None]
    print(json.dumps([asdict(start(recipe, folder, moment)) for moment in chosen]))


if __name__ == "__main__":
    main()
