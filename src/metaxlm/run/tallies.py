"""The tallies of all jobs of a run in one file, from which its tests over examples can be redone.

A tally has a row of counts per test example: right or wrong, F1 and exact match, or the counts that
an F1 is made of. It has no text, so that it can be published where predictions cannot.

The file is an NPZ archive in an XZ file. Its arrays have the tallies of several jobs on the same
examples, [counts, examples, jobs]: most examples have equal counts in most jobs, which XZ then
stores in a third of the space.
"""

import io
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metaxlm.analysis.results import ORIGIN_DIGITS, Row
from metaxlm.analysis.stats import Floats
from metaxlm.run.jobs import FinishedJob, JobKey, keep_current, list_jobs

FILE_NAME = "tallies.npz.xz"
Tallies = dict[JobKey, dict[str, Floats]]


@dataclass(frozen=True)
class PublishedJob(FinishedJob):
    """A finished job of which only scores and tallies are left."""

    tallies: Mapping[str, Floats]

    def read_tallies(self) -> dict[str, Floats]:
        """Return the published tallies."""
        return dict(self.tallies)


def list_published_jobs(
    rows: Sequence[Row], cells: Sequence[Mapping[str, Any]], tallies: Tallies
) -> list[FinishedJob]:
    """Return the jobs that have tallies, from published scores and provenance.

    Test files of the same split, language and number of examples count as the same file.
    """
    by_origin: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("variant") is not None:
            by_origin.setdefault(row["origin"], []).append(row)
    jobs: list[FinishedJob] = []
    for cell in cells:
        key = JobKey(cell["model"], cell["task"], cell["source"], cell["seed"])
        scores = by_origin.get(cell["origin"][:ORIGIN_DIGITS])
        if key not in tallies or not scores:
            continue
        scenarios = {row["scenario"] for row in scores}
        sizes = {(row["split"], row["language"]): row["examples"] for row in scores}
        files = []
        for (name, language), size in sizes.items():
            # `test-derived` is a test file, and so is the dev file of a task without another one.
            for split in (name.partition("-")[0], "test"):
                if len(tallies[key].get(f"{split}-{language}", ())) == size:
                    place = {"name": name, "split": split, "language": language}
                    files.append(place | {"num_examples": size})
                    break
        record = {
            "task": key.task, "source": key.source, "limit": None,
            "kind": "features" if "features" in scenarios else "finetuned",
            "trained_in_each": "supervised" in scenarios,
            "variant": scores[0]["variant"], "step": scores[0]["step"],
            "files": files,
        }  # fmt: skip
        made = (cell["origin"], str(cell.get("metaxlm", "")), 0.0)
        jobs.append(PublishedJob(key, key.place(Path()), {}, record, *made, tallies[key]))
    return jobs


def collect_tallies(run_dir: Path) -> Tallies:
    """Return the tallies of the jobs whose scores a run shows."""
    jobs, _ = keep_current(list_jobs(run_dir)[0])
    return {job.key: found for job in jobs if (found := job.read_tallies())}


def write_tallies(path: Path, tallies: Mapping[JobKey, Mapping[str, Floats]]) -> None:
    """Write one compressed file; counts up to 255 take a byte before compression."""
    groups: dict[tuple[str, str, tuple[int, ...]], dict[str, Floats]] = {}
    for key, by_name in sorted(tallies.items()):
        for name, tally in by_name.items():
            group = groups.setdefault((key.task, name, tally.shape), {})
            group[f"{key.model}/{key.source}-{key.seed}"] = tally
    arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {}
    for number, ((task, name, _), group) in enumerate(groups.items()):
        place = f"{number}/{task}/{name}"
        arrays[f"{place}/jobs"] = np.array(list(group))
        arrays[f"{place}/counts"] = _shrink(np.stack(list(group.values()), axis=-1)).swapaxes(0, 1)
    with lzma.open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_tallies(path: Path) -> Tallies:
    """Return all tallies of a published run, by job and `SPLIT-LANGUAGE` or `LANGUAGE-LAYER`."""
    tallies: Tallies = {}
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False) as arrays:
        for place in (name.removesuffix("/jobs") for name in arrays.files if "/jobs" in name):
            _, task, name = place.split("/")
            counts = arrays[f"{place}/counts"].swapaxes(0, 1)
            for number, job in enumerate(arrays[f"{place}/jobs"].tolist()):
                model, run = job.split("/")
                source, _, seed = run.rpartition("-")
                of_job = tallies.setdefault(JobKey(model, task, source, int(seed)), {})
                of_job[name] = counts[..., number].astype(np.float64)
    return tallies


def _shrink(counts: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    with np.errstate(invalid="ignore"):  # negative numbers do not fit
        small = counts.astype(np.uint8, casting="unsafe")
    return small if np.array_equal(small, counts) else counts
