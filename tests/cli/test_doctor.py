"""`metaxlm doctor` runs every check and reports failures."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.cli import doctor
from metaxlm.cli.doctor import LEAST_VERSIONS
from metaxlm.data.shards import write_shard
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain import checkpoint
from tests.commands import Command
from tests.conftest import sentences
from tests.toy_runs import write_toy

MACHINE = [
    "python", "torch", "transformers", "device", "precision", "kernels", "matmul", "output folder",
]  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_toy(
        tmp_path,
        vocabulary={"size": 300, "monolingual_size": 280},
        meta={"length": 16},
        model={"layers": 2, "hidden": 32, "ffn": 64},
    )


def examine(metaxlm: Command, *arguments: str | Path) -> tuple[int, dict[str, str]]:
    """Return the exit code, and `status detail` of each check."""
    code, printed, errors = metaxlm("doctor", *arguments)
    assert errors == ""
    lines = [line for line in printed.splitlines() if not line.startswith("verify: ")]
    return code, {line[9:25].strip(): line[:9].strip() + " " + line[26:] for line in lines}


def test_minimum_versions_are_those_of_the_package() -> None:
    path = Path(__file__).parents[2] / "pyproject.toml"
    wanted = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["dependencies"]
    for package, numbers in LEAST_VERSIONS.items():
        (line,) = [line for line in wanted if line.startswith(f"{package}>=")]
        parts = [int(part) for part in line.removeprefix(f"{package}>=").split(".")]
        assert numbers == tuple((*parts, 0)[:2])


def test_a_recipe_before_anything_exists(metaxlm: Command, recipe: Path, tmp_path: Path) -> None:
    code, checks = examine(metaxlm, recipe)
    assert code == 0
    own = ["disk space", "shards", "save and load", "step of meta", "step of xlm"]
    assert list(checks) == [*MACHINE, *own]
    assert checks["shards"].startswith("skipped none yet")
    assert {checks[name].split()[0] for name in own if name != "shards"} == {"ok"}
    assert "loss 5.7" in checks["step of xlm"]  # ln 300
    assert list(tmp_path.iterdir()) == [recipe]


@pytest.mark.usefixtures("without_steps")
def test_shards_are_verified(
    metaxlm: Command, recipe: Path, tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    folder = tmp_path / "runs" / "toy" / "shards"
    for name in ("multilingual/en", "multilingual/de"):
        write_shard(folder / name, sentences(name[-2:]), multilingual_tokenizer)
    code, checks = examine(metaxlm, recipe)
    assert code == 1
    assert "monolingual/en: missing" in checks["shards"]
    write_shard(folder / "monolingual" / "en", sentences("en"), multilingual_tokenizer)
    code, checks = examine(metaxlm, recipe)
    assert (code, checks["shards"].split(",")[0]) == (0, "ok 3")
    tokens = folder / "multilingual" / "de" / "tokens.bin"
    damaged = bytearray(tokens.read_bytes())
    damaged[7] ^= 1
    tokens.write_bytes(damaged)
    code, checks = examine(metaxlm, recipe)
    assert code == 1
    assert checks["shards"].startswith("FAILED")
    assert "tokens.bin: changed" in checks["shards"]


@pytest.mark.usefixtures("without_steps")
def test_a_full_disk(metaxlm: Command, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=100_000))
    code, checks = examine(metaxlm, recipe)
    assert code == 1
    assert checks["disk space"].startswith("FAILED checkpoints and models need 0.0 GB")
    assert "smaller than the recipe's" in checks["save and load"]


@pytest.fixture
def without_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "STEP_LIMIT_S", 1e-9)


@pytest.mark.usefixtures("without_steps")
def test_a_step_that_takes_too_long_is_skipped(metaxlm: Command, recipe: Path) -> None:
    code, checks = examine(metaxlm, recipe)
    assert code == 0
    long = "8 x 32 tokens take more than 0 s on this device; about 0 rows would fit that time"
    assert checks["step of xlm"] == f"skipped {long}"


def test_an_output_that_is_a_file(metaxlm: Command, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file", encoding="utf-8")
    code, checks = examine(metaxlm)
    assert (code, list(checks)) == (1, MACHINE)
    assert "TFLOP/s" in checks["matmul"]
    assert checks["output folder"] == "FAILED runs: is a file; choose another --output"


def test_a_disk_that_changes_data_and_a_step_that_is_not_finite(
    metaxlm: Command, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_load, real_loss = checkpoint.load_newest, MaskedLM.loss_sum

    def load(folder: Path) -> Any:
        loaded = real_load(folder)
        assert loaded is not None
        loaded.moments["exp_avg.head.bias"][3] += 1
        return loaded

    def compute(self: MaskedLM, *arguments: Any) -> Tensor:
        return real_loss(self, *arguments) * float("nan")

    monkeypatch.setattr(checkpoint, "load_newest", load)
    monkeypatch.setattr(MaskedLM, "loss_sum", compute)
    code, checks = examine(metaxlm, recipe)
    assert code == 1
    assert "loaded values differ from saved values" in checks["save and load"]
    assert checks["step of xlm"] == "FAILED 8 x 32 tokens: the loss is nan"
