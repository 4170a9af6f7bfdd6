"""Damaged and hostile files: every reader rejects them in one line, in bounded time and memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.faults.bombs import BOMBS, MOST_BYTES
from tests.faults.fuzzed_readers import READERS, fuzz, share_out, write_seeds
from tests.faults.programs import run_program

from metaxlm.progress import set_quiet

SOME = share_out(200)
MANY = 5_200


@pytest.mark.filterwarnings("default")  # libraries warn about what they read
@pytest.mark.parametrize("name", READERS)
def test_some_damaged_inputs_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    set_quiet(True)
    write_seeds(tmp_path, [name])
    outcome = fuzz(tmp_path, name, SOME[name])
    assert outcome.failures == []


@pytest.fixture(scope="module")
def bombs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    every = 12 if "not faults" in request.config.option.markexpr else 1
    return run_program("bombs", tmp_path_factory.mktemp("bombs"), MOST_BYTES, every)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.faults] * bool(k % 12)) for k, n in enumerate(BOMBS)],
)
def test_small_files_do_not_fill_the_memory(name: str, bombs: dict[str, Any]) -> None:
    wanted, found = BOMBS[name][2], bombs[name]
    if wanted:
        assert found["outcome"].startswith("rejected: ")
        assert wanted in found["outcome"]
    else:
        assert found["outcome"] == "read"
    assert found["peak"] < MOST_BYTES


@pytest.mark.faults
def test_five_thousand_damaged_inputs(tmp_path: Path) -> None:
    def fuzz_part(part: int) -> dict[str, Any]:
        found: dict[str, Any] = run_program("fuzzed_readers", tmp_path / str(part), MANY, part, 2)
        return found

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fuzz_part, range(2))
    outcomes = first | second
    for name, found in outcomes.items():
        print(f"{name}: {found['mutations']} damaged, {found['read']} read, ", end="")
        print(f"{found['rejected']} rejected, {len(found['failures'])} otherwise")
    assert outcomes.keys() == READERS.keys()
    assert sum(found["mutations"] for found in outcomes.values()) >= 5_000
    assert [failure for found in outcomes.values() for failure in found["failures"]] == []
