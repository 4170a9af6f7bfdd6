"""The Ray engine on a real cluster on this machine, with workers and drivers that are killed.

Drivers run in processes of their own: Ray warns a lot, and the suite takes warnings for errors.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.engines.pipeline_steps import (
    MakeDocuments,
    WriteDocuments,
    is_alive,
    read_executions,
    read_results,
    wait_until,
)

from metaxlm.config import EngineRecipe
from metaxlm.data.engines import run_tasks

if importlib.util.find_spec("ray") is None:
    pytest.skip("ray is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[3]

DRIVER = """
import sys
from pathlib import Path
from metaxlm.config import EngineRecipe
from metaxlm.data.engines import run_tasks
from metaxlm.errors import Interrupted, MetaXLMError
from tests.data.engines.pipeline_steps import *

engine = EngineRecipe(name="ray", workers=2, ray_address=sys.argv[1] if sys.argv[1] else None)
for name in sys.argv[3:]:
    folder = Path(sys.argv[2]) / name
    folder.mkdir()
    pipelines = {
        "same": [MakeDocuments(), WriteDocuments(folder)],
        "killed": [WaitForFile(folder, {0})],
        "waiting": [WaitForFile(folder, {0, 1})],
        "faults": [Misbehave(folder, {0: "die", 1: "user error", 2: "noise"})],
    }
    try:
        run_tasks(pipelines[name], [4_000, 3_000, 2_000, 1_000], folder / "work", engine, name)
    except MetaXLMError as error:
        print(error)
    except Interrupted as stop:
        print(stop)
        sys.exit(75)
"""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Both sides know a token of their own, whatever the user has set up for his clusters."""
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[str]:
    """A cluster of one node with two cores."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    log = tmp_path_factory.mktemp("ray") / "head.log"
    options = [f"--port={port}", "--node-ip-address=127.0.0.1", "--num-cpus=2", "--block"]
    options += ["--include-dashboard=false", "--object-store-memory=100000000"]
    with log.open("w") as file:
        head = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", *options],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "Ray runtime started" in log.read_text(), timeout_s=60)
        yield f"127.0.0.1:{port}"
    finally:
        head.terminate()
        head.wait(60)


def start_driver(
    environment: dict[str, str], address: str, folder: Path, *names: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", DRIVER, address, str(folder), *names],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_pids(folder: Path, *ranks: int) -> list[int]:
    files = [folder / f"pid-{rank}" for rank in ranks]
    wait_until(lambda: all(file.exists() for file in files), timeout_s=60)
    return [int(file.read_text()) for file in files]


def test_tasks_on_a_cluster(environment: dict[str, str], address: str, tmp_path: Path) -> None:
    # One driver does it all, because connecting takes seconds.
    driver = start_driver(environment, address, tmp_path, "same", "killed", "faults", "waiting")
    killed = tmp_path / "killed"
    [pid] = read_pids(killed, 0)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: read_executions(killed).count(0) == 2)
    (killed / "go").touch()
    pids = read_pids(tmp_path / "waiting", 0, 1)
    driver.terminate()
    out, _ = driver.communicate(timeout=20)
    # How far it is, is told again where that takes long.
    lines = [line for line in out.splitlines() if " left" not in line or " 10/10 kB" in line]
    # Nothing but our own lines, whatever workers print and however they die.
    assert len(lines) == 4, out

    local = tmp_path / "local"
    local.mkdir()
    pipeline = [MakeDocuments(), WriteDocuments(local)]
    run_tasks(pipeline, [4, 3, 2, 1], local / "work", EngineRecipe(workers=2), "local")
    assert read_results(tmp_path / "same") == read_results(local)
    assert lines[0].startswith("same: 10/10 kB")

    assert Counter(read_executions(killed)) == {0: 2, 1: 1, 2: 1, 3: 1}
    assert len(read_results(killed)) == 4
    assert lines[1].startswith("killed: 10/10 kB")

    assert Counter(read_executions(tmp_path / "faults")) == {0: 3, 1: 1, 2: 1, 3: 1}
    assert lines[2].startswith(
        "faults: 2 of 4 tasks failed: task 0: its worker died (WorkerCrashedError), 3 times"
    )
    assert lines[2].endswith(" | page 1: cut short; fetch it again")

    assert (driver.returncode, lines[3]) == (75, "waiting: stopped")
    wait_until(lambda: not any(map(is_alive, pids)))


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True])
def test_tasks_end_with_a_killed_driver(
    environment: dict[str, str], address: str, tmp_path: Path, own: bool
) -> None:
    driver = start_driver(environment, "" if own else address, tmp_path, "waiting")
    pids = read_pids(tmp_path / "waiting", 0, 1)
    driver.kill()
    driver.communicate()
    wait_until(lambda: not any(map(is_alive, pids)))


def test_no_cluster_there(environment: dict[str, str], tmp_path: Path) -> None:
    driver = start_driver(environment, "127.0.0.1:9", tmp_path, "same")
    out, _ = driver.communicate(timeout=60)
    assert out == (
        "engine.ray_address 127.0.0.1:9: no Ray cluster answers there; start one with "
        "`ray start --head`, or leave the key out\n"
    )


@pytest.mark.slow
def test_cluster_that_wants_a_token(
    environment: dict[str, str], address: str, tmp_path: Path
) -> None:
    driver = start_driver(environment | {"RAY_AUTH_MODE": "disabled"}, address, tmp_path, "same")
    out, _ = driver.communicate(timeout=90)
    assert f"engine.ray_address {address}: the cluster wants its token" in out
