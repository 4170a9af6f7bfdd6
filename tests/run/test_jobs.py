"""Evaluation jobs are written atomically, and run again when their inputs change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaxlm import __version__
from metaxlm.run import jobs
from metaxlm.run.jobs import EvalJob, JobKey, keep_current, list_jobs, read_job
from metaxlm.run.verify import verify

RECORD: dict[str, Any] = {"task": "xnli", "files": [], "limit": None}
TALLIES = {"test-de": np.array([[1.0, 1.0], [0.0, 1.0]])}
RESULT = (RECORD, TALLIES, {"test-de.tsv": "neutral\nentailment\n"})


def make_job(output: Path, seed: int = 0, model: str = "m", **inputs: Any) -> EvalJob:
    key = JobKey(model, "xnli", "en", seed)
    values = {"settings": {"epochs": 1}, "limit": None, "seed": [1, seed], **inputs}
    return EvalJob(key, key.place(output), values)


def write_job(output: Path, *arguments: Any, **inputs: Any) -> EvalJob:
    job = make_job(output, *arguments, **inputs)
    job.write(*RESULT)
    return job


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert make_job(tmp_path).find_reason() == ""
    job = write_job(tmp_path)
    assert job.find_reason() is None
    assert job.folder == tmp_path / "cells" / "m" / "xnli" / "en-0"
    stored = read_job(job.key, job.folder)
    assert (stored.record, stored.origin) == (RECORD, job.fingerprint)
    np.testing.assert_array_equal(stored.read_tallies()["test-de"], TALLIES["test-de"])
    assert (job.folder / "predictions" / "test-de.tsv").read_text("utf-8").startswith("neutral")
    manifest = json.loads((job.folder / "manifest.json").read_text("utf-8"))
    assert set(manifest) == {"fingerprint", "inputs", "metaxlm", "files", "seal"}
    found = verify(tmp_path)
    assert (found.problems, found.files) == ({}, 3)


def test_an_update_repeats_only_jobs_that_it_invalidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "__version__", "0.0.1")
        write_job(tmp_path)
    job = make_job(tmp_path)
    assert job.find_reason() is None
    stored = read_job(job.key, job.folder)
    assert stored.metaxlm == "0.0.1" and stored.origin != job.fingerprint
    assert job.has_fingerprint(stored.origin, "0.0.1")
    assert not job.has_fingerprint(stored.origin, "0.0.2")
    assert make_job(tmp_path, limit=8).find_reason() == "again, changed: limit: None -> 8"
    monkeypatch.setattr(jobs, "VERSION", jobs.VERSION + 1)
    assert make_job(tmp_path).find_reason() == (
        f"again, changed: how metaxlm evaluates: 0.0.1 -> {__version__}"
    )


@pytest.mark.parametrize(
    "name", ["cell.json", "tallies.npz", "predictions/test-de.tsv", "manifest.json"]
)
@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_damage_is_detected(tmp_path: Path, name: str, how: str) -> None:
    job = write_job(tmp_path)
    path = job.folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if how != "remove":
        path.write_bytes(content if how == "flip" else content[:-1])
    assert (job.find_reason() or "").startswith("again, damaged: ")
    found, problems = list_jobs(tmp_path)
    assert found == []
    assert problems[0].startswith(f"{job.folder}: skipped, damaged: ")
    job.write(*RESULT)
    assert job.find_reason() is None


def test_a_failed_write_keeps_the_earlier_result(tmp_path: Path) -> None:
    job = write_job(tmp_path)

    def fail(folder: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_job(tmp_path, limit=3).write(*RESULT, fail)
    assert job.find_reason() is None
    assert not list(tmp_path.rglob(".tmp-*"))


def test_seeds_with_other_settings_are_skipped(tmp_path: Path) -> None:
    for seed in range(3):
        write_job(tmp_path, seed)
    changed = write_job(tmp_path, 1, settings={"epochs": 5})
    kept, notes = keep_current(list_jobs(tmp_path)[0], [make_job(tmp_path, 7)])
    assert [job.key.seed for job in kept] == [0, 2]
    assert "skipped seeds 1, which used other settings" in notes[0]
    os.utime(changed.folder / "cell.json", (2e9, 2e9))
    kept, notes = keep_current(list_jobs(tmp_path)[0])  # the newest, if none is requested
    assert [job.key.seed for job in kept] == [1]
    assert "skipped seeds 0, 2" in notes[0]
