"""The tallies of all jobs of a run in one file, from which its tests over examples can be redone.

A tally has a row of counts per test example: right or wrong, F1 and exact match, or the counts that
an F1 is made of. It has no text, so that it can be published where predictions cannot.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from metaxlm.analysis.stats import Floats
from metaxlm.run.jobs import JobKey, keep_current, list_jobs

FILE_NAME = "tallies.npz"
Tallies = dict[JobKey, dict[str, Floats]]


def collect_tallies(run_dir: Path) -> Tallies:
    """Return the tallies of the jobs whose scores a run shows."""
    jobs, _ = keep_current(list_jobs(run_dir)[0])
    return {job.key: found for job in jobs if (found := job.read_tallies())}


def write_tallies(path: Path, tallies: Mapping[JobKey, Mapping[str, Floats]]) -> None:
    """Write one compressed file; counts up to 255 take a byte."""
    arrays = {
        f"{key.model}/{key.task}/{key.source}-{key.seed}/{name}": _shrink(tally)
        for key, by_name in sorted(tallies.items())
        for name, tally in by_name.items()
    }
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_tallies(path: Path) -> Tallies:
    """Return all tallies of a published run, by job and `SPLIT-LANGUAGE` or `LANGUAGE-LAYER`."""
    tallies: Tallies = {}
    with np.load(path, allow_pickle=False) as arrays:
        for full_name in arrays.files:
            model, task, place, name = full_name.split("/")
            source, _, seed = place.rpartition("-")
            of_job = tallies.setdefault(JobKey(model, task, source, int(seed)), {})
            of_job[name] = arrays[full_name].astype(np.float64)
    return tallies


def _shrink(tally: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    with np.errstate(invalid="ignore"):  # negative numbers do not fit
        small = tally.astype(np.uint8, casting="unsafe") if tally.size else tally
    return small if np.array_equal(small, tally) else tally
