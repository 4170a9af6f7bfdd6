"""Run tasks on the cores of this machine, on Slurm or on Ray, with the same result.

Each task leaves a marker `completions/00000` in the work folder, so that the next run only does the
missing tasks. On Slurm and Ray, all machines have to see the work folder.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from metaxlm import stopping
from metaxlm.errors import MetaXLMError
from metaxlm.files import read_text, remove, write_text
from metaxlm.progress import track

# Workers import this module: keep the imports of the parent process out of it.
if TYPE_CHECKING:
    from metaxlm.recipe import EngineRecipe

Item = TypeVar("Item")
Move = Callable[[int], None]  # of the progress bar by an amount of weight

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MOST_WORKERS = 61 if sys.platform == "win32" else sys.maxsize  # Windows cannot wait for more
_POLL_S, _SLURM_POLL_S, _REPORT_S = 0.1, 10.0, 0.2
_GRACE_S = 20.0  # files of other machines appear late on network file systems
_SMALL_BYTES, _SHOWN_ERRORS = 10_000_000, 3
_RAY_CONNECT_S = 10.0
_RAY_STORE_BYTES = 100_000_000  # tasks exchange files, not objects


def run_tasks(
    function: Callable[[Item], None],
    items: Sequence[Item],
    weights: Sequence[int],
    work_dir: Path,
    engine: EngineRecipe,
    title: str,
    unit: str = "MB",
) -> None:
    """Call a picklable function for each item, and return when all calls are complete.

    A weight is the amount of work of an item: bytes if the unit is `MB`. A failed task does not
    stop the others; one error at the end reports all failures.
    """
    tasks = _Tasks(function, items, weights, work_dir.absolute(), title)
    (tasks.work_dir / "completions").mkdir(parents=True, exist_ok=True)
    remove(tasks.work_dir / "failures")
    left = tasks.find_incomplete()
    if not left:
        return
    # The largest first, so that no worker ends long after the others.
    left.sort(key=lambda rank: (-weights[rank], rank))
    run = {"local": _run_local, "slurm": _run_slurm, "ray": _run_ray}[engine.name]
    with _show_progress(tasks, left, unit) as move:
        if errors := run(tasks, left, engine, move):
            _raise(errors, title, len(items))


def advance(amount: int) -> None:
    """Report progress from inside of a task; cheap, so that tasks can call it often."""
    _reporter.add(amount)


@dataclass(frozen=True)
class _Tasks:
    """A function and its items; as a callable, a step of a datatrove pipeline."""

    function: Callable[[Any], None]
    items: Sequence[Any] = field(repr=False)
    weights: Sequence[int] = field(repr=False)
    work_dir: Path
    title: str

    def find_incomplete(self) -> list[int]:
        completed = {path.name for path in (self.work_dir / "completions").iterdir()}
        return [rank for rank in range(len(self.items)) if f"{rank:05d}" not in completed]

    def add_weights(self, ranks: Iterable[int]) -> int:
        return sum(max(self.weights[rank], 1) for rank in ranks)

    def failure(self, rank: int) -> Path:
        return self.work_dir / "failures" / f"{rank:05d}.txt"

    def __call__(self, data: object, rank: int, world_size: int) -> None:
        del data, world_size  # datatrove writes the completion marker and a log
        _limit_threads()
        try:
            self.function(self.items[rank])
        except Exception as error:
            write_text(self.failure(rank), _describe(error))
            raise

    def collect_errors(self, ranks: Sequence[int]) -> list[Exception]:
        incomplete = set(self.find_incomplete())
        lost = f"a job ended before its task (time, memory, setup?); see {self.work_dir}"
        return [
            MetaXLMError(read_text(path) if (path := self.failure(rank)).exists() else lost)
            for rank in ranks
            if rank in incomplete
        ]


@contextmanager
def _show_progress(tasks: _Tasks, left: Sequence[int], unit: str) -> Iterator[Move]:
    everything = tasks.add_weights(range(len(tasks.items)))
    done = everything - tasks.add_weights(left)
    divisor = 1
    if unit == "MB":
        divisor, unit = (1_000, "kB") if everything < _SMALL_BYTES else (1_000_000, "MB")
    total = max(round(everything / divisor), 1)
    shown = done * total // everything
    with track(tasks.title, total, unit, completed=shown) as show:

        def move(amount: int) -> None:
            nonlocal done, shown
            done = min(done + amount, everything)
            if (units := done * total // everything) > shown:
                show(units - shown)
                shown = units

        yield move
        move(everything)


def _raise(errors: Sequence[Exception], title: str, num_tasks: int) -> None:
    """Raise one error for all failed tasks; an unexpected exception comes first."""
    for error in errors:
        if not isinstance(error, (MetaXLMError, OSError, MemoryError)):
            raise error
    messages = list(dict.fromkeys(map(_describe, errors)))
    shown = " | ".join(messages[:_SHOWN_ERRORS]) + " | ..." * (len(messages) > _SHOWN_ERRORS)
    raise MetaXLMError(f"{title}: {len(errors)} of {num_tasks} tasks failed: {shown}")


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.filename or 'output'}: {os.strerror(error.errno)}"
    if isinstance(error, MemoryError):
        return "out of memory; lower engine.workers or corpus.task_mb"
    text = " ".join(str(error).split())
    return text if isinstance(error, (MetaXLMError, OSError)) else f"{type(error).__name__}: {text}"


# The local executor


def _run_local(
    tasks: _Tasks, ranks: Sequence[int], engine: EngineRecipe, move: Move
) -> list[Exception]:
    # Forks of a process with the threads of torch or tokenizers can deadlock.
    context = get_context("spawn")
    reports, reporter = context.Pipe(duplex=False)
    log = tasks.work_dir / "workers.log"
    has_mask = hasattr(os, "sched_getaffinity")  # on Linux
    cores = len(os.sched_getaffinity(0)) if has_mask else os.cpu_count() or 1
    workers = min(engine.workers or cores, len(ranks), _MOST_WORKERS)
    pool = ProcessPoolExecutor(workers, context, _start_worker, (reporter, log))
    waiting, running = deque(ranks), set[Future[None]]()
    errors: list[Exception] = []
    try:
        with stopping.interruptible(tasks.title) as check_stop:
            while waiting or running:
                check_stop()
                while waiting and len(running) < 2 * workers:
                    running.add(_submit(pool, tasks, waiting.popleft()))
                done, running = wait(running, _POLL_S, FIRST_COMPLETED)
                while reports.poll():
                    move(reports.recv())
                check_stop()
                for error in filter(None, (future.exception() for future in done)):
                    if isinstance(error, BrokenProcessPool) or not isinstance(error, Exception):
                        raise error
                    errors.append(error)
    except BrokenProcessPool as error:
        raise MetaXLMError(
            f"{tasks.title}: a worker process died, probably because memory is short; lower "
            f"engine.workers or corpus.task_mb; see {log}; complete tasks are kept"
        ) from error
    finally:
        for process in list((pool._processes or {}).values()):
            process.kill()  # only incomplete tasks are lost; a worker's own exit takes longer
        pool.shutdown()
        reports.close()
        reporter.close()
    return errors


def _submit(pool: ProcessPoolExecutor, tasks: _Tasks, rank: int) -> Future[None]:
    """Submit a task; a worker that this starts inherits the blocked signals of a process group."""
    marker = tasks.work_dir / "completions" / f"{rank:05d}"
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        return pool.submit(_run_task, tasks.function, tasks.items[rank], marker)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        return pool.submit(_run_task, tasks.function, tasks.items[rank], marker)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _run_task(function: Callable[[Any], None], item: Any, marker: Path) -> None:
    function(item)
    marker.touch()


def _start_worker(reporter: Connection, log: Path) -> None:
    end_with_parent()
    _limit_threads()
    if not hasattr(signal, "pthread_sigmask"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends its workers
    # Output of libraries would damage the progress bar; without a log it is dropped.
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError:
        file = os.open(os.devnull, os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    faulthandler.enable()
    _reporter.send = reporter.send


def end_with_parent() -> None:
    """End this worker process when its parent process ends, however that ends."""

    def wait_for_end() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait_for_end, daemon=True).start()


def _limit_threads() -> None:
    for name in _THREAD_VARIABLES:  # there is a process for each core already
        os.environ.setdefault(name, "1")


class _Reporter:
    def __init__(self) -> None:
        self.send: Callable[[int], None] | None = None
        self.amount, self.last_s = 0, 0.0

    def add(self, amount: int) -> None:
        if self.send is None:
            return
        self.amount += amount
        now = time.monotonic()
        if now - self.last_s >= _REPORT_S:
            # Messages this short are atomic: workers share the pipe without a lock.
            self.send(self.amount)
            self.amount, self.last_s = 0, now


_reporter = _Reporter()


# The executors of datatrove


def _run_slurm(
    tasks: _Tasks, ranks: Sequence[int], engine: EngineRecipe, move: Move
) -> list[Exception]:
    executor_class = _import_executor("slurm").SlurmPipelineExecutor
    settings, folder = engine.slurm, str(tasks.work_dir)
    if settings.partition is None:
        raise MetaXLMError("engine.slurm.partition: missing; name one of those that `sinfo` lists")
    if " " in folder:
        raise MetaXLMError(f"{folder}: `engine: slurm` needs a folder without spaces in its path")
    for program in ("sbatch", "squeue", "scancel"):
        if shutil.which(program) is None:
            raise MetaXLMError(f"`engine: slurm` needs {program}; run on a node with Slurm")
    executor = executor_class(
        [tasks], tasks=len(tasks.items), workers=settings.max_jobs or -1,
        job_name=f"metaxlm-{sha256(folder.encode()).hexdigest()[:12]}",
        env_command=settings.setup or f"export PATH={Path(sys.executable).parent}:$PATH",
        logging_dir=folder, slurm_logs_folder=f"{folder}/slurm_logs",
        time=settings.time, partition=settings.partition, mem_per_cpu_gb=settings.memory_gb,
        sbatch_args=settings.options, qos=None, with_srun=False,
    )  # fmt: skip
    cancel = ["scancel", f"--name={executor.job_name}"]
    with stopping.interruptible(tasks.title) as check_stop:
        subprocess.run(cancel, check=False)  # jobs of a run that was killed
        try:
            executor.run()
            _wait_for_jobs(executor.job_id, tasks, ranks, move, check_stop)
        except subprocess.CalledProcessError as error:
            script = tasks.work_dir / "launch_script.slurm"
            raise MetaXLMError(f"sbatch failed; see its message above, and {script}") from error
        finally:
            subprocess.run(cancel, check=False)
    return tasks.collect_errors(ranks)


def _wait_for_jobs(
    job: str, tasks: _Tasks, ranks: Sequence[int], move: Move, check_stop: Callable[[], None]
) -> None:
    left, start_s = set(ranks), time.monotonic()
    last_seen_s = start_s
    query = ["squeue", "--noheader", f"--jobs={job}"]
    while left:
        incomplete = set(tasks.find_incomplete())
        move(tasks.add_weights(left - incomplete))
        left &= incomplete
        answer = subprocess.run(query, capture_output=True, text=True, check=False)
        # Any other error is temporary: the controller does not respond.
        is_gone = "Invalid job id" in answer.stderr if answer.returncode else not answer.stdout
        now_s = time.monotonic()
        if not is_gone:
            last_seen_s = now_s
        elif now_s - last_seen_s > _GRACE_S:
            return
        end_s = now_s + min(_POLL_S + (now_s - start_s) / 10, _SLURM_POLL_S)
        while left and time.monotonic() < end_s:
            check_stop()
            time.sleep(_POLL_S)


def _run_ray(
    tasks: _Tasks, ranks: Sequence[int], engine: EngineRecipe, move: Move
) -> list[Exception]:
    del move
    executor_class = _import_executor("ray").RayPipelineExecutor
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no data leaves the user's machines
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    address, workers = engine.ray_address, engine.workers
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {"num_cpus": workers, "object_store_memory": _RAY_STORE_BYTES}
        options |= {"include_dashboard": False}
    is_connected = ray.is_initialized()
    handlers = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    try:
        if not is_connected:
            if address not in (None, "auto"):  # Ray would try for minutes
                host, _, port = address.removeprefix("ray://").rpartition(":")
                socket.create_connection((host, int(port)), timeout=_RAY_CONNECT_S).close()
            ray.init(address or "local", **options)
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers.items():  # Ray replaces them
                    signal.signal(number, handler)
    except (OSError, ValueError, ray.exceptions.RayError) as error:
        raise MetaXLMError(
            f"engine.ray_address {address}: cannot connect ({' '.join(str(error).split())[:200]}); "
            "start a cluster with `ray start --head`, or remove the key"
        ) from error
    try:
        settings = {"logging_dir": str(tasks.work_dir), "mem_per_cpu_gb": 0}
        executor_class([tasks], tasks=len(tasks.items), workers=workers or -1, **settings).run()
    finally:
        if not is_connected:
            ray.shutdown()
        stopping.check_stop()  # Ray hides the exception of a signal handler
    return tasks.collect_errors(ranks)


def _import_executor(name: str) -> Any:
    try:
        from loguru import logger

        module = import_module(f"datatrove.executor.{name}")
        import_module("ray" if name == "ray" else "dill")
    except ImportError as error:
        raise MetaXLMError(
            f"`engine: {name}` needs datatrove and Ray; install `metaxlm[cluster]`"
        ) from error
    logger.disable("datatrove")
    return module
