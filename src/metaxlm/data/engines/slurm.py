"""The Slurm engine: a job array of which each element runs one task, and a bar until all are done.

Comes in: a work and the cluster's settings. Goes out: `launch_script.slurm` in the work folder,
submitted with sbatch, and all tasks complete. datatrove's executor runs the tasks inside the jobs;
what it does on this side is replaced: it would forget all but the last job, submit another one to
add up statistics, and return before anything has run. A job that outlives the process that
submitted it is found again by the next start. All nodes must see the work folder.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dill
from datatrove.executor.slurm import SlurmPipelineExecutor

from metaxlm.config import SlurmRecipe
from metaxlm.data.engines.supervision import Supervised, Work, WorkBar
from metaxlm.data.engines.tasks import (
    THREAD_LIMITS,
    Outcome,
    completion_path,
    read_failure,
    record_failure,
)
from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_file, read_json, write_json, write_text
from metaxlm.stopping import interruptible

_SHORTEST_POLL_S, _LONGEST_POLL_S = 0.5, 15.0
_GRACE_S = 20.0  # files of other machines appear late on network file systems
_USUAL_ARRAY_SIZE = 1001


class SlurmExecutor(Supervised, SlurmPipelineExecutor):  # type: ignore[misc]
    """Runs tasks as elements of Slurm job arrays, one core each."""

    def __init__(self, work: Work, recipe: SlurmRecipe) -> None:
        SlurmPipelineExecutor.__init__(
            self,
            list(work.pipeline),
            tasks=len(work.weights),
            time=recipe.time,
            partition=recipe.partition,
            mem_per_cpu_gb=recipe.memory_gb,
            workers=recipe.max_jobs or -1,
            job_name=re.sub(r"[^\w.-]+", "-", work.title),
            qos=None,
            env_command=recipe.setup,
            sbatch_args={"open-mode": "append", **recipe.options},
            logging_dir=str(work.work_dir),
            slurm_logs_folder=str(work.work_dir / "logs" / "slurm"),
            requeue_signals=None,
        )
        self.work = work
        self._jobs_file = work.work_dir / "slurm_jobs.json"

    def run(self) -> None:
        """Run one task if this is a job of the array; otherwise submit and wait."""
        if "SLURM_ARRAY_TASK_ID" in os.environ:
            SlurmPipelineExecutor.run(self)
        else:
            self.supervise()

    def _run_for_rank(self, rank: int, local_rank: int = 0, node_rank: int = -1) -> Any:
        """Run a task in this job, and show Slurm by the exit code how it ended."""
        outcome = super()._run_for_rank(rank, local_rank, node_rank)
        if outcome.status != "completed":
            sys.exit(f"task {rank}: {outcome.message}")

    def complete(self, ranks: list[int], bar: WorkBar) -> list[Outcome]:
        """Submit the ranks that no earlier job still works on, and wait for all."""
        with interruptible(self.work.title) as check_stop:
            jobs = self._find_earlier_jobs()
            try:
                if jobs:
                    self._wait(jobs, ranks, bar, check_stop)
                left = [rank for rank in ranks if not completion_path(self._dir, rank).exists()]
                if left:
                    jobs = []
                    self._submit(left, jobs)
                    self._wait(jobs, left, bar, check_stop)
            except BaseException:
                with suppress(MetaXLMError):
                    _call("scancel", *jobs)
                raise
        return self._collect(ranks)

    @property
    def _dir(self) -> Path:
        return self.work.work_dir

    def _submit(self, ranks: list[int], jobs: list[str]) -> None:
        """Submit one array, or several if the cluster's arrays are too small; add their ids."""
        found = re.search(r"MaxArraySize\s*=\s*(\d+)", _call("scontrol", "show", "config").stdout)
        self.max_array_size = int(found[1]) if found else _USUAL_ARRAY_SIZE
        size = min(len(ranks), self.max_array_size)
        script = self._write_script(ranks, size)
        limit = f"%{self.workers}" if self.workers > 0 else ""
        for offset in range(math.ceil(len(ranks) / size)):
            last = min(size, len(ranks) - offset * size) - 1
            options = ["--parsable", f"--export=ALL,RUN_OFFSET={offset}"]
            options.append(f"--array=0-{last}{limit}")
            if limit and jobs:  # the limit is one array's; the next waits for it
                options.append(f"--dependency=afterany:{jobs[-1]}")
            answer = _call("sbatch", *options, str(script))
            if answer.returncode:
                reason = " ".join(answer.stderr.split())
                raise MetaXLMError(f"sbatch refused the job ({reason}); see engine.slurm, {script}")
            jobs.append(answer.stdout.strip().partition(";")[0])
            write_json(self._jobs_file, jobs)

    def _write_script(self, ranks: list[int], size: int) -> Path:
        """Write what the jobs read: this executor, the ranks, and the script that starts one."""
        write_json(self._dir / "ranks_to_run.json", ranks)
        executor_file = self._dir / "executor.pik"
        with atomic_file(executor_file) as temporary:
            temporary.write_bytes(dill.dumps(self, fmode=dill.CONTENTS_FMODE))
        python = "python" if self.env_command else shlex.quote(sys.executable)
        command = f"{python} -m datatrove.tools.launch_pickled_pipeline"
        directives = self.get_sbatch_args(size)
        command += f" {shlex.quote(str(executor_file))}"
        script = self._dir / "launch_script.slurm"
        write_text(script, self.get_launch_file_contents(directives, command))
        return script

    def get_sbatch_args(self, max_array: int = 1) -> dict[str, Any]:
        """Return datatrove's directives less those that have no value."""
        directives: dict[str, Any] = super().get_sbatch_args(max_array)
        return {name: value for name, value in directives.items() if value is not None}

    def get_launch_file_contents(self, sbatch_args: dict[str, Any], run_script: str) -> str:
        """Write the script: directives, the user's setup, and the task."""
        directives = [
            f"#SBATCH --{name}" + (f"={_quote(str(value))}" if value != "" else "")
            for name, value in sbatch_args.items()
        ]
        limits = " ".join(f"{name}={value}" for name, value in THREAD_LIMITS.items())
        body = ["set -e", self.env_command, f"export {limits}", f"exec {run_script}"]
        return "\n".join(["#!/bin/bash", *directives, *filter(None, body)]) + "\n"

    def _find_earlier_jobs(self) -> list[str]:
        """Return the jobs of a start that was killed, if they are still in the queue."""
        jobs: list[str] = read_json(self._jobs_file) if self._jobs_file.exists() else []
        return jobs if jobs and self._query(jobs) else []

    def _query(self, jobs: list[str]) -> Counter[str] | None:
        """Count the array elements in the queue by state; None if Slurm does not answer."""
        options = ["--noheader", "--array", "--format=%T", f"--name={self.job_name}"]
        answer = _call("squeue", *options, f"--jobs={','.join(jobs)}")
        if answer.returncode and "Invalid job id" not in answer.stderr:
            return None
        return Counter(answer.stdout.split())

    def _wait(
        self, jobs: list[str], ranks: list[int], bar: WorkBar, check_stop: Callable[[], None]
    ) -> None:
        """Wait until every rank is complete or failed, or no job is left that could do it."""
        start = last_seen = time.monotonic()
        while not self._count(ranks, bar):
            states = self._query(jobs)
            now = time.monotonic()
            if states is None or states:
                last_seen = now
                bar.note(", ".join(f"{n} {state.lower()}" for state, n in (states or {}).items()))
            elif now - last_seen > _GRACE_S:
                return
            pause_s = min(max((now - start) / 10, _SHORTEST_POLL_S), _LONGEST_POLL_S)
            while time.monotonic() < now + pause_s:
                check_stop()
                time.sleep(0.1)

    def _count(self, ranks: list[int], bar: WorkBar) -> bool:
        """Show which ranks are complete; say whether all are settled, one way or the other."""
        completed = {path.name for path in (self._dir / "completions").iterdir()}
        failed = {path.name for path in (self._dir / "failures").iterdir()}
        settled = 0
        for rank in ranks:
            if f"{rank:05d}" in completed:
                bar.finish(rank)
                settled += 1
            else:
                settled += f"{rank:05d}.txt" in failed
        return settled == len(ranks)

    def _collect(self, ranks: list[int]) -> list[Outcome]:
        """Tell how each rank ended, from what it left in the work folder."""
        outcomes, lost = [], []
        for rank in ranks:
            if completion_path(self._dir, rank).exists():
                outcomes.append(Outcome(rank, "completed"))
            elif failure := read_failure(self._dir, rank):
                outcomes.append(failure)
            else:
                lost.append(rank)
        names = ", ".join(map(str, sorted(lost)[:20])) + ", ..." * (len(lost) > 20)
        message = (
            f"jobs of tasks {names} left the queue unfinished (engine.slurm.time, memory_gb, "
            f"setup?); see {self.slurm_logs_folder}"
        )
        for rank in lost:
            outcomes.append(Outcome(rank, "failed", message))
            record_failure(self._dir, outcomes[-1])
        return outcomes


def _call(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call one of Slurm's programs, as from outside of any job."""
    # Inside an allocation its variables would become options of the new job, some in conflict.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
    try:
        return subprocess.run(
            [program, *arguments], env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise MetaXLMError(
            f"`engine: slurm` needs {program}; start from a machine where Slurm's commands are"
        ) from error


def _quote(value: str) -> str:
    return f'"{value}"' if re.search(r"\s", value) else value
