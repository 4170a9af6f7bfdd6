"""Published tallies are those of the jobs, and give the same tests."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.commands import Command

from metaxlm.analysis.stats import compare_pairs, find_comparison, read_comparisons
from metaxlm.errors import MetaXLMError
from metaxlm.run.compare import LAYER_RESAMPLES
from metaxlm.run.jobs import JobKey, list_jobs
from metaxlm.run.tallies import FILE_NAME, read_tallies, write_tallies
from metaxlm.run.task_plans import score_sums


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_counts_and_fractions_come_back(tmp_path: Path, dtype: type) -> None:
    found = {JobKey("a+b", "xnli", "zh-Hant", 2): {"test-de": np.array([[1.0, 0], [200, 3]])}}
    if dtype is np.float64:
        found[JobKey("xlm", "mlqa", "en", 0)] = {"dev-en": np.array([[1 / 3, 1.0], [300, 1]])}
    found[JobKey("a+b", "xnli", "zh-Hant", 3)] = {"test-de": np.array([[0.0, 7], [9, 3]])}
    found[JobKey("other-limit", "xnli", "en", 0)] = {"test-de": np.array([[5.0, 1]])}
    write_tallies(tmp_path, found)
    again = read_tallies(tmp_path)
    assert again.keys() == found.keys()
    for key, tallies in found.items():
        for name, tally in tallies.items():
            np.testing.assert_array_equal(again[key][name], tally)
            assert again[key][name].dtype == np.float64


@pytest.mark.parametrize("content", ["cut", lzma.compress(b"text"), lzma.compress(b"PK\x03\x04")])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes | str) -> None:
    found = {JobKey("xlm", "xnli", "en", 0): {"test-de": np.array([[1.0, 0]])}}
    write_tallies(tmp_path, found)
    write_tallies(tmp_path, found)
    path = tmp_path / "tallies-2.npz.xz"
    path.write_bytes(path.read_bytes()[:-20] if isinstance(content, str) else content)
    with pytest.raises(MetaXLMError, match=r"tallies-2\.npz\.xz: cannot be read .*; restore it"):
        read_tallies(tmp_path)


def test_a_published_test_can_be_redone(metaxlm: Command, toy_run: Path, tmp_path: Path) -> None:
    code, _, errors = metaxlm("publish", toy_run, tmp_path / "published", "--tallies")
    assert code == 0, errors
    first = (tmp_path / "published" / FILE_NAME).read_bytes()
    code, _, errors = metaxlm("publish", toy_run, tmp_path / "published")
    assert code == 0, errors
    assert (tmp_path / "published" / FILE_NAME).read_bytes() == first
    shutil.copytree(toy_run, tmp_path / "toy", ignore=shutil.ignore_patterns("cells"))
    code, _, errors = metaxlm("publish", tmp_path / "toy", tmp_path / "published")
    assert code != 0 and "such as tallies of" in errors
    assert (tmp_path / "published" / FILE_NAME).read_bytes() == first
    tallies = read_tallies(tmp_path / "published")
    jobs = {job.key: job.read_tallies() for job in list_jobs(toy_run)[0]}
    assert tallies.keys() == {key for key, found in jobs.items() if found}
    comparisons = read_comparisons(tmp_path / "published" / "comparisons.json")
    tested = next(one for one in comparisons if one.task == "tatoeba")
    [pair, *_] = tested.pairs
    names = [f"{language}-{tested.layer}" for _, language in tested.units]
    by_model = {
        key.model: [found[name] for name in names]
        for key, found in tallies.items()
        if key.task == "tatoeba" and key.model in (pair.first, pair.second)
    }
    [again] = compare_pairs(
        by_model,
        lambda sums: score_sums("tatoeba", sums),
        resamples=LAYER_RESAMPLES,
        pairs=[(pair.first, pair.second)],
    )
    assert again.mean == pair.mean
    found = find_comparison(
        comparisons, "tatoeba", (pair.first, pair.second), "features", tested.layer
    )
    assert found is not None and found[1].mean == again.mean
