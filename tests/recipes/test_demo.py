"""The demo supports the claims of the README for three seeds."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest
import torch
from tests.toy_runs import run_main

from metaxlm.files import digest_file


def retrieval(run_dir: Path, variant: str) -> float:
    """Return the accuracy of a variant's best layer, averaged over languages."""
    by_layer: dict[int, list[float]] = {}
    for row in map(json.loads, (run_dir / "results.jsonl").read_text("utf-8").splitlines()):
        if (row["variant"], row["task"], row["metric"]) == (variant, "tatoeba", "accuracy"):
            by_layer.setdefault(row["layer"], []).append(row["value"])
    return max(sum(values) / len(values) for values in by_layer.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_demo_reproduces_the_ranking(seed: int, tmp_path: Path) -> None:
    settings = ("--output", tmp_path, "--set", f"seed={seed}")
    assert run_main("demo", "--quiet", *settings, workers=True) == 0
    xlm, metaxlm, with_dictionaries = (
        retrieval(tmp_path / "demo", name) for name in ("xlm", "metaxlm", "metaxlm+dict")
    )
    assert xlm < metaxlm < with_dictionaries
    stored = (Path(__file__).parents[1] / "golden/demo.json").read_text("utf-8")
    golden = json.loads(stored)["models"]
    here = (platform.machine(), torch.__version__.partition("+")[0], torch.get_num_threads())
    if seed == 1 and here == (golden["machine"], golden["torch"], golden["threads"]):
        found = {name: digest_file(tmp_path / "demo" / name) for name in golden["sha256"]}
        assert found == golden["sha256"]
