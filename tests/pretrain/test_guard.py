"""Training notices that it goes wrong, warns, and may return to its last checkpoint."""

from __future__ import annotations

import json
import os
import signal
import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Shards
from tests.trainings import RECIPE, STEEP, Training, crash, ending, rows
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.errors import Interrupted
from metaxlm.pretrain import guard
from metaxlm.pretrain.checkpoint import TrainingState, list_checkpoints, load_newest
from metaxlm.pretrain.log import TrainingLog

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
GUARDED = RECIPE.model_copy(
    update={"steps": 24, "log_every": 1, "held_out": 0, "checkpoint_every": 10, "rewind": True}
)


@pytest.fixture(scope="module")
def training(shards: Shards, tokenizer: Tokenizer) -> Training:
    return Training(shards, tokenizer)


def spikes(folder: Path) -> list[dict[str, Any]]:
    return [{"step": row["step"], **row["spike"]} for row in rows(folder) if "spike" in row]


@pytest.mark.parametrize(
    ("norm", "recent", "found"),
    [(5.1, [1.0] * 10, True), (5.0, [1.0] * 10, False), (9.0, [1.0] * 9, False),
     (9.0, [1.0] * 6 + [3.0] * 5, True), (9.0, [1.0] * 5 + [3.0] * 6, False)],
)  # fmt: skip
def test_a_norm_is_compared_with_the_running_median(
    norm: float, recent: list[float], found: bool
) -> None:
    assert (guard.find_steep(norm, recent) is not None) == found


@pytest.mark.parametrize(("peak", "is_shown"), [(1e12, True), (1.0, False)])
def test_a_peak_below_the_speed_is_not_shown(tmp_path: Path, peak: float, is_shown: bool) -> None:
    state = TrainingState()
    log = TrainingLog(tmp_path / "log.jsonl", state, "training", peak_flops=peak)
    state.step, state.tokens = 1, 100
    log.write_row(state, 1e-3, 1.0, {}, step_flops=1e6)
    assert ("of peak" in log.note) == is_shown
    assert (json.loads((tmp_path / "log.jsonl").read_text())["peak_share"] is not None) == is_shown


def test_published_trainings_that_broke_would_have_warned() -> None:
    """dict+switch broke after step 9,650 and own MetaXLM at 1,100; MiniLM's eight are calm."""
    found: dict[str, list[int]] = {}
    for path in sorted(PUBLISHED.glob("twin*/variants/*/log.jsonl")):
        recent: list[float] = []
        steps = found.setdefault(f"{path.parts[-4]} {path.parts[-2]}", [])
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if "loss" in row:
                if guard.find_steep(row["gradient_norm"], recent):
                    steps.append(row["step"])
                recent = guard.remember(row["gradient_norm"], recent)
    assert 9_850 in found["twin dict+switch"]
    assert {1_100, 1_800} <= {*found["twin metaxlm"]}
    assert not any(steps for name, steps in found.items() if name.startswith("twin_minilm"))


def test_a_held_out_loss_that_rises_while_the_rate_falls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The course of dict+switch, whose last two evaluations rise."""
    path = PUBLISHED / "twin/variants/dict+switch/log.jsonl"
    every = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    state = TrainingState()
    log = TrainingLog(tmp_path / "log.jsonl", state, "training")
    for row in (row for row in every if "held_out" in row):
        state.step = row["step"]
        log.write_held_out(state, row["held_out"], is_falling=row["step"] > 1_000)
    assert [spike["step"] for spike in spikes(tmp_path)] == [11_000, 12_000]
    assert spikes(tmp_path)[0]["lowest"] == pytest.approx(3.20, abs=0.005)
    assert capsys.readouterr().out.count("the held-out loss rose to 3.2") == 1
    assert guard.find_rise(9.0, 3.0, is_falling=False) is None


def test_a_steep_step_between_two_rows_is_noticed(
    training: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = GUARDED.model_copy(update={"steps": 40, "log_every": 2, "rewind": False})
    training.run(tmp_path / "whole", recipe, added={28: STEEP, 34: STEEP})
    found = [spike for spike in spikes(tmp_path / "whole") if "gradient_norm" in spike]
    assert [spike["step"] for spike in found] == [30, 36]  # rows of the steps 29 and 30, ...
    logged = [row for row in rows(tmp_path / "whole") if row["step"] == 30 and "loss" in row]
    assert found[0]["gradient_norm"] > 5 * found[0]["median"] > logged[0]["gradient_norm"]
    assert capsys.readouterr().out.count("a gradient norm was") == 1
    with pytest.raises(RuntimeError, match="crash"):  # between the steep step and its row
        training.run(tmp_path / "parts", recipe, added={28: STEEP, 34: STEEP}, act=crash(29))
    training.run(tmp_path / "parts", recipe, added={28: STEEP, 34: STEEP})
    assert ending(tmp_path / "parts") == ending(tmp_path / "whole")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_rewind_skips_the_batches_and_survives_kills_and_stops(
    training: Training, tmp_path: Path, workers: int
) -> None:
    bad = {16: STEEP}
    training.run(tmp_path / "whole", GUARDED, added=bad, workers=workers)
    [spike] = spikes(tmp_path / "whole")
    assert (spike["step"], spike["from"], spike["to"]) == (11, 17, 10)
    found = load_newest(tmp_path / "whole")
    assert found is not None
    assert (found.state.step, found.state.skipped_batches, found.state.rewinds) == (24, 7, 0)
    logged = [row["step"] for row in rows(tmp_path / "whole") if "loss" in row]
    assert logged == list(range(1, 25))
    norms = [row["gradient_norm"] for row in rows(tmp_path / "whole") if "loss" in row]
    assert max(norms[10:]) < 5 * statistics.median(norms)

    def stop(at: int) -> Any:
        def act(step: int) -> None:
            if step == at:
                os.kill(os.getpid(), signal.SIGTERM)

        return act

    # Stopped between checkpoint and steep step, killed after the return and before the next save.
    parts = tmp_path / "parts"
    with pytest.raises(Interrupted):
        training.run(
            parts, GUARDED.model_copy(update={"keep_checkpoints": 1}), added=bad, act=stop(13)
        )
    assert [path.name[-2:] for path in list_checkpoints(parts)] == ["10", "14"]
    with pytest.raises(RuntimeError, match="crash"):
        training.run(parts, GUARDED, added=bad, act=crash(18))
    assert [path.name[-2:] for path in list_checkpoints(parts)] == ["10"]
    with pytest.raises(Interrupted):
        training.run(parts, GUARDED, added=bad, act=stop(19))
    training.run(parts, GUARDED, added=bad, workers=workers)
    assert ending(parts) == ending(tmp_path / "whole")


def test_training_goes_on_where_a_rewind_cannot_help(training: Training, tmp_path: Path) -> None:
    every = dict.fromkeys((16, 23, 30, 37), STEEP)  # the same step after each return
    training.run(tmp_path / "often", GUARDED, added=every)
    found = spikes(tmp_path / "often")
    assert found[0]["rewinds"] == 3 and found[0]["to"] == 10
    assert {spike["step"] for spike in found[1:]} == {17}
    early = GUARDED.model_copy(update={"checkpoint_every": 20})
    training.run(tmp_path / "early", early, added={16: STEEP})
    assert not any("rewinds" in spike for spike in spikes(tmp_path / "early"))
    assert {spike["step"] for spike in spikes(tmp_path / "early")} == {17}
