"""The tallies of all jobs of a run, from which its tests over examples can be redone.

A tally has a row of counts per test example: right or wrong, F1 and exact match, or the counts that
an F1 is made of. It has no text, so that it can be published where predictions cannot.

A file is an NPZ archive in an XZ file. Its arrays have the tallies of several jobs on the same
examples, [counts, examples, jobs]: most examples have equal counts in most jobs, which XZ then
stores in a third of the space. Jobs that are added later have a file of their own, so that a
repository keeps each of them once.
"""

import io
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from metaxlm.analysis.results import ORIGIN_DIGITS, Row
from metaxlm.analysis.stats import Floats
from metaxlm.reading import reading
from metaxlm.run.compare import list_tested
from metaxlm.run.jobs import FinishedJob, JobKey, keep_current, list_jobs

FILE_NAME = "tallies.npz.xz"
_PATTERN = "tallies*.npz.xz"
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
    """Return the tallies of the jobs whose scores a run shows, of the files that tests use."""
    jobs, _ = keep_current(list_jobs(run_dir)[0])
    tested = list_tested(jobs)
    tallies: Tallies = {}
    for job in jobs:
        for name, tally in job.read_tallies().items():
            if job.record["kind"] == "features" or (job.key, name) in tested:
                tallies.setdefault(job.key, {})[name] = tally
    return tallies


def list_tally_files(folder: Path) -> list[Path]:
    """Return the files of tallies of a published run."""
    return sorted(folder.glob(_PATTERN))


def write_tallies(folder: Path, tallies: Mapping[JobKey, Mapping[str, Floats]]) -> None:
    """Add one compressed file; counts up to 255 take a byte before compression."""
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
    number = len(list_tally_files(folder))
    name = FILE_NAME.replace(".", f"-{number + 1}.", 1) if number else FILE_NAME
    with lzma.open(folder / name, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_tallies(folder: Path) -> Tallies:
    """Return all tallies of a published run, by job and `SPLIT-LANGUAGE` or `LANGUAGE-LAYER`."""
    tallies: Tallies = {}
    for path in list_tally_files(folder):
        with reading(path, ValueError, KeyError, BadZipFile):
            _read_file(path, tallies)
    return tallies


def _read_file(path: Path, tallies: Tallies) -> None:
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False) as arrays:
        for place in (name.removesuffix("/jobs") for name in arrays.files if "/jobs" in name):
            _, task, name = place.split("/")
            counts = arrays[f"{place}/counts"].swapaxes(0, 1)
            for number, job in enumerate(arrays[f"{place}/jobs"].tolist()):
                model, run = job.split("/")
                source, _, seed = run.rpartition("-")
                of_job = tallies.setdefault(JobKey(model, task, source, int(seed)), {})
                of_job[name] = counts[..., number].astype(np.float64)


def _shrink(counts: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    with np.errstate(invalid="ignore"):  # negative numbers do not fit
        small = counts.astype(np.uint8, casting="unsafe")
    return small if np.array_equal(small, counts) else counts
