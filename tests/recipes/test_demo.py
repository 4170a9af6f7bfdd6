"""The demo as shipped: what the README claims of it holds for three seeds."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest
import torch

from metaxlm.cli import main
from metaxlm.files import digest_file


def retrieval(run_dir: Path, variant: str) -> float:
    """Return the accuracy of a variant's best layer, averaged over languages."""
    lines = (run_dir / "results.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    by_layer: dict[int, list[float]] = {}
    for row in rows:
        if (row["variant"], row["task"], row["metric"]) == (variant, "tatoeba", "accuracy"):
            by_layer.setdefault(row["layer"], []).append(row["value"])
    return max(sum(values) / len(values) for values in by_layer.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_method_shows_itself(seed: int, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        arguments = ["demo", "--quiet", "--output", str(tmp_path), "--set", f"seed={seed}"]
        patch.setattr(sys, "argv", ["metaxlm", *arguments])
        main()
    assert not ended.value.code
    xlm, metaxlm, with_dictionaries = (
        retrieval(tmp_path / "demo", name) for name in ("xlm", "metaxlm", "metaxlm+dict")
    )
    assert xlm < metaxlm < with_dictionaries
    golden = json.loads((Path(__file__).parents[1] / "golden/demo.json").read_text("utf-8"))[
        "models"
    ]
    here = (platform.machine(), torch.__version__.partition("+")[0], torch.get_num_threads())
    if seed == 1 and here == (golden["machine"], golden["torch"], golden["threads"]):
        found = {name: digest_file(tmp_path / "demo" / name) for name in golden["sha256"]}
        assert found == golden["sha256"]
