"""Many processes train as one does: the same samples, the same sums, checkpoints that move."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
import torch
from tests.conftest import PARTS, sentences
from tests.model.encoder_kinds import FOREIGN, write_folder
from tests.rank_jobs import Job, Work, fork_ranks, notes, open_shards, run_job, samples
from tests.trainings import CPU, ending, rows
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.data.shards import write_shard
from metaxlm.errors import MetaXLMError
from metaxlm.init.start import match
from metaxlm.model import kernels
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.checkpoint import list_checkpoints, load_newest
from metaxlm.pretrain.distributed import (
    DistributedContext,
    choose_device,
    choose_dtype,
    exact_device,
    widest_float,
)
from metaxlm.pretrain.step import Objective

# Of other families: one layer used twice, and language embeddings that nothing uses.
OTHERS = {"albert": "fsdp", "xlm": "ddp"}
STOP = ((1, 3, signal.SIGTERM),)
TWO = {"micro_batches": 2, "steps": 8, "checkpoint_every": 3, "log_every": 3, "evaluate_every": 6}
HALF = TWO | {"precision": "float16"}
FOUR = {"micro_batches": 4, "steps": 100, "log_every": 1, "evaluate_every": 100}


class Runs:
    """Trainings of one corpus in folders beside each other."""

    def __init__(self, root: Path, tokenizer: Tokenizer) -> None:
        self.root, self.tokenizer = root, tokenizer
        tokenizer.save_pretrained(root / "tokenizer")
        for language in PARTS:
            write_shard(root / "shards" / language, sentences(language), tokenizer)
        self.shards = open_shards(root / "shards")

    def alone(self, name: str, recipe: dict[str, object], **more: object) -> None:
        """Train in this process; give what is there already a new start."""
        job = Job(str(self.root / name), recipe, **more)  # type: ignore[arg-type]
        run_job(job, DistributedContext.alone(CPU), self.shards, self.tokenizer)

    def job(self, name: str, sharding: str, **more: object) -> Job:
        """Describe a training of several processes."""
        settings: dict[str, object] = {"recipe": TWO, "sharding": sharding, **more}
        return Job(str(self / name), **settings)  # type: ignore[arg-type]

    def continue_alone(self, name: str) -> None:
        """Continue what several processes began, in this one; keep what they wrote down."""
        shutil.copytree(self / f"{name}-stopped", self / name)
        self.alone(name, TWO)

    def together(self, size: int, *jobs: Job) -> None:
        """Train in several processes, one job after the other."""
        work = Work(str(self.root / "shards"), str(self.root / "tokenizer"), 60, jobs)
        process = fork_ranks(size, work.write(self.root / f"work-{size}.json"))
        output, _ = process.communicate(timeout=240)
        print(output)
        assert process.returncode == 0, output
        assert "Warning" not in output, output

    def __truediv__(self, name: str) -> Path:
        return self.root / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Runs:
    """Two processes with either sharding: undisturbed, stopped, and continued."""
    runs = Runs(tmp_path_factory.mktemp("runs"), tokenizer)
    runs.alone("one", TWO)
    runs.alone("half-one", HALF)
    for name in ("one-to-ddp", "one-to-fsdp"):
        runs.alone(name, TWO, signals=[(0, 3, signal.SIGTERM)])
    others = []
    for name, sharding in OTHERS.items():
        folder, encoder = (
            write_folder(FOREIGN[name], runs / f"{name}-model"),
            runs / f"{name}-start",
        )
        match(folder, tokenizer).save(encoder)
        runs.alone(f"{name}-one", TWO, encoder=str(encoder))
        others.append(runs.job(f"{name}-two", sharding, encoder=str(encoder)))
    runs.together(
        2,
        *others,
        runs.job("half-ddp", "ddp", recipe=HALF),
        runs.job("ddp", "ddp"),
        runs.job("fsdp", "fsdp"),
        runs.job("ddp-to-ddp", "ddp", signals=STOP, copy=str(runs / "ddp-to-one-stopped")),
        runs.job("ddp-to-ddp", "ddp"),
        runs.job("fsdp-to-one-stopped", "fsdp", signals=STOP),
        runs.job("one-to-ddp", "ddp"),
        runs.job("one-to-fsdp", "fsdp"),
        *(
            runs.job(f"{sharding}-again", sharding, gradient_checkpointing=True)
            for sharding in ("ddp", "fsdp")
        ),
    )
    return runs


def test_two_processes_train_as_one_with_two_micro_batches_to_the_bit(runs: Runs) -> None:
    assert ending(runs / "ddp") == ending(runs / "one")
    assert samples(runs / "ddp", 8) == samples(runs / "one", 8)


def test_two_processes_agree_on_the_scale_of_float16(runs: Runs) -> None:
    """Twice the scale, for two processes, rounds the smallest gradients of float16 differently.

    The differences depend on the CPU: those with float16 instructions have the largest (2e-5).
    """
    check_close(runs / "half-ddp", runs / "half-one", 1e-3, weights=1e-4)
    states = [ending(runs / name)["state"] for name in ("half-ddp", "half-one")]
    assert states[0]["loss_scale"] == states[1]["loss_scale"] == 2.0**16
    assert [state["scale_steps"] for state in states] == [8, 8]


def test_shards_of_a_model_train_as_the_whole_one(runs: Runs) -> None:
    """Their gradient's norm is added in another order: the last bits differ."""
    check_close(runs / "fsdp", runs / "one", 1e-6)


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_layers_computed_again_change_nothing(runs: Runs, sharding: str) -> None:
    assert ending(runs / f"{sharding}-again") == ending(runs / sharding)


def test_other_families_train_together(runs: Runs) -> None:
    """Their tied weights have one gradient, and unused ones none."""
    assert ending(runs / "xlm-two") == ending(runs / "xlm-one")
    check_close(runs / "albert-two", runs / "albert-one", 1e-5)


def check_close(found: Path, expected: Path, tolerance: float, weights: float = 1e-5) -> None:
    pairs = zip(rows(found), rows(expected), strict=True)
    for left, right in pairs:
        assert left.get("loss") == pytest.approx(right.get("loss"), abs=tolerance)
        assert left.get("held_out") == pytest.approx(right.get("held_out"), abs=tolerance)
    left, right = load_newest(found), load_newest(expected)
    assert left is not None and right is not None
    assert left.state.step == right.state.step == 8
    for one, other in ((left.model, right.model), (left.moments, right.moments)):
        assert set(one) == set(other)
        for name, tensor in one.items():
            assert torch.allclose(tensor, other[name], rtol=0, atol=weights), name


def test_a_stop_asked_of_one_process_stops_all_at_the_same_step(runs: Runs) -> None:
    for name in ("ddp-to-one-stopped", "fsdp-to-one-stopped"):
        assert {note["end"] for note in notes(runs / name)} == {"job: stopped after step 4"}
        assert len(notes(runs / name)) == 2
        assert list_checkpoints(runs / name)[-1].name == "step-00000004"


@pytest.mark.parametrize("name", ["ddp-to-ddp", "ddp-to-one", "one-to-ddp"])
def test_a_checkpoint_moves_between_numbers_of_processes_to_the_bit(runs: Runs, name: str) -> None:
    if name.endswith("one"):
        runs.continue_alone(name)
    assert ending(runs / name) == ending(runs / "one")


@pytest.mark.parametrize("name", ["fsdp-to-one", "one-to-fsdp"])
def test_a_checkpoint_moves_in_and_out_of_shards(runs: Runs, name: str) -> None:
    if name.endswith("one"):
        runs.continue_alone(name)
    check_close(runs / name, runs / "one", 1e-6)


@pytest.mark.faults
def test_a_checkpoint_moves_between_ways_of_sharding(runs: Runs) -> None:
    ways = [("ddp", "fsdp"), ("fsdp", "ddp"), ("fsdp", "fsdp")]
    jobs = [
        job
        for first, second in ways
        for job in (
            runs.job(f"{first}-to-{second}", first, signals=STOP),
            runs.job(f"{first}-to-{second}", second),
        )
    ]
    runs.together(2, *jobs)
    for first, second in ways:
        check_close(runs / f"{first}-to-{second}", runs / "one", 1e-6)


@pytest.mark.faults
def test_four_processes_agree_with_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    runs = Runs(tmp_path, tokenizer)
    runs.alone("one", FOUR)
    runs.together(
        4,
        Job(str(runs / "four"), FOUR),
        Job(str(runs / "stopped"), FOUR, signals=STOP),
        Job(str(runs / "stopped"), FOUR),
    )
    losses = [[row["loss"] for row in rows(runs / n) if "loss" in row] for n in ("four", "one")]
    assert len(losses[0]) == 100
    assert losses[0] == pytest.approx(losses[1], rel=0, abs=1e-6)
    assert samples(runs / "four", 100) == samples(runs / "one", 100)
    assert ending(runs / "stopped") == ending(runs / "four")


def test_micro_batches_are_shared_in_order() -> None:
    worlds = [DistributedContext(rank, 2, CPU) for rank in range(2)]
    assert [world.share(4, 8) for world in worlds] == [(range(2), 4), (range(2, 4), 4)]
    assert [world.share(1, 8) for world in worlds] == [(range(1), 2), (range(1, 2), 2)]
    with pytest.raises(MetaXLMError, match="micro_batches is 3, which 2 processes cannot share"):
        worlds[0].share(3, 6)


def test_each_process_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [choose_device("cuda", rank, 2).index for rank in range(2)] == [0, 1]
    with pytest.raises(MetaXLMError, match="3 processes on this machine, but 2 CUDA devices"):
        choose_device("cuda", 0, 3)
    with pytest.raises(MetaXLMError, match="cuda:1: one GPU for 2 processes"):
        choose_device("cuda:1", 0, 2)


def test_auto_takes_a_gpu_of_apple_for_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MetaXLMError, match="mps: found no GPU of Apple"):
        choose_device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert [choose_device(name).type for name in ("auto", "mps", "cpu")] == ["mps", "mps", "cpu"]
    assert choose_device("auto", 0, 2).type == "cpu"
    with pytest.raises(MetaXLMError, match="takes one process, not 2"):
        choose_device("mps", 0, 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("auto").type == "cuda"


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((7, 0), torch.float16), ((7, 5), torch.float16), ((8, 0), torch.bfloat16)],
)
def test_older_gpus_compute_in_float16_without_our_kernels(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(kernels, "find_spec", lambda name: name)
    cuda = torch.device("cuda")
    assert choose_dtype("auto", cuda) == dtype
    assert kernels.is_available(cuda) == (dtype == torch.bfloat16)
    objective = Objective(MaskedLM(EncoderConfig(20, 32, 1, 2, 32)))
    for wanted in (torch.bfloat16, torch.float16):
        # Without a GPU torch warns and turns this off, so set it by hand.
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
        monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind, wanted=wanted: wanted)
        assert objective.uses_fused_kernels(cuda) == (dtype == wanted == torch.bfloat16)
    assert choose_dtype("auto", torch.device("cpu")) == torch.float32


def test_mps_computes_in_float32() -> None:
    mps = torch.device("mps")
    assert (exact_device(mps).type, widest_float(mps)) == ("cpu", torch.float32)
    assert choose_dtype("auto", mps) == choose_dtype("float32", mps) == torch.float32
    for precision in ("bfloat16", "float16"):
        with pytest.raises(MetaXLMError, match=f"{precision} is not supported on mps"):
            choose_dtype(precision, mps)
