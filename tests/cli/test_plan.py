"""`metaxlm plan` prints the cost of a recipe and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metaxlm.cli.plan import ASSUMED_SHARE, REACHED_OF_DATASHEET
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.masked_lm import MaskedLM
from tests.commands import Command

RECIPE = """
name: toy
languages: [en, de]
vocabulary: {size: 300, monolingual_size: 280}
model: {layers: 2, hidden: 32, heads: 2, ffn: 64, max_positions: 32}
meta: {steps: 40, batch_size: 8, length: 16, warmup_steps: 4}
pretraining: {steps: 20, batch_size: 8, length: 32, warmup_steps: 2, keep_checkpoints: 1}
variants:
  xlm: {initialize: none}
  metaxlm+dict: {initialize: both, dictionaries: true}
  frozen: {freeze: body}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def plan(metaxlm: Command, *arguments: str | Path) -> dict[str, Any]:
    code, printed, errors = metaxlm("plan", *arguments, "--json")
    assert (code, errors) == (0, "")
    value: dict[str, Any] = json.loads(printed)
    return value


def test_the_table_fits_a_terminal_and_nothing_is_written(
    metaxlm: Command, recipe: Path, tmp_path: Path
) -> None:
    code, printed, errors = metaxlm("plan", recipe, "--on", "rtx 4090")
    assert (code, errors) == (0, "")
    lines = printed.splitlines()
    notes = next(number for number, line in enumerate(lines) if line.startswith("meta: "))
    table = [line.rstrip() for line in lines[:notes]]
    assert max(map(len, table)) <= 80
    assert table[0].startswith("toy on cpu")
    # Title, headings, and one line per training run.
    first_words = [line.split()[0] for line in table if line.strip(" ─")]
    assert first_words == ["toy", "training", "meta", "xlm", "metaxlm+dict", "frozen", "total"]
    assert "RTX-4090: an estimate from its datasheet (165 TFLOP/s)" in printed
    assert list(tmp_path.iterdir()) == [recipe]
    small = lines[next(k for k, line in enumerate(lines) if "on small GPUs" in line) :]
    assert [line.split()[:4] for line in small if " GB " in line] == [
        [str(size), "GB", "1", "false"] for size in (8, 16, 24)
    ]


def test_settings_of_small_gpus(metaxlm: Command, recipe: Path) -> None:
    large = "model={layers: 12, hidden: 768, heads: 12, ffn: 3072, max_positions: 512}"
    training = "pretraining={steps: 20, batch_size: 64, length: 512, warmup_steps: 2}"
    changes = (large, training, "vocabulary.size=250002", "meta.length=512")
    arguments = [word for change in changes for word in ("--set", change)]
    rows = {
        row["name"]: row for row in plan(metaxlm, recipe, *arguments, "--no-measure")["trainings"]
    }
    assert list(rows["xlm"]["fits"]) == ["8 GB", "16 GB", "24 GB"]
    small, middle, _ = rows["xlm"]["fits"].values()
    assert small["gradient_checkpointing"] and not middle["gradient_checkpointing"]
    assert small["compute"] > middle["compute"] == 1.0
    again = plan(metaxlm, recipe, *arguments, "--no-measure", "--set",
                 "execution.gradient_checkpointing=true")["trainings"][1]  # fmt: skip
    assert again["memory_parts"]["activations"] < rows["xlm"]["memory_parts"]["activations"] / 4


def test_numbers(metaxlm: Command, recipe: Path) -> None:
    result = plan(metaxlm, recipe)
    meta, xlm, _, frozen = result["trainings"]
    model = MaskedLM(EncoderConfig(300, 32, 2, 2, 64, 32))
    assert xlm["parameters"] == sum(p.numel() for p in model.parameters())
    assert meta["parameters"] == xlm["parameters"] - 20 * 33
    body = sum(p.numel() for p in model.encoder.layers.parameters())
    assert frozen["trainable"] == xlm["trainable"] - body
    assert (meta["tokens"], xlm["tokens"]) == (40 * 8 * 16, 20 * 8 * 32)
    assert frozen["flops"] < xlm["flops"]
    for row in (xlm, frozen):
        assert row["memory_parts"]["moments"] == 8 * row["trainable"]
    assert xlm["disk_bytes"] == 4 * xlm["parameters"] * (1 + 2 * 3)
    assert xlm["memory_bytes"] == sum(xlm["memory_parts"].values())
    measured = xlm["measured"]
    assert (measured["steps"], measured["rows"]) == (10, 8)
    assert xlm["hours"] == pytest.approx(20 * measured["seconds_per_step"] / 3600)
    assert 0 < measured["peak_share"] < 1
    assert xlm["hours_on"] is None


@pytest.mark.parametrize(
    ("languages", "share"),
    [
        ("[en, de]", 12.58**0.7 / (12.58**0.7 + 5.43**0.7)),  # table 6 of the paper
        ("[en, de, xx]", 1 / 3),
    ],
)
def test_a_teacher_has_its_price(
    metaxlm: Command, recipe: Path, languages: str, share: float
) -> None:
    change = ("--set", f"languages={languages}", "--set", "variants.kd.distill.pooled=1.0")
    more = ("--set", "variants.kd.initialize=none", "--no-measure")
    result = plan(metaxlm, recipe, *change, *more)
    rows = {row["name"]: row for row in result["trainings"]}
    # A forward pass of two layers on the blocks in English: 2 FLOPs per weight and token.
    tokens, weights, attention = 20 * 8 * 32, 2 * (4 * 32**2 + 2 * 32 * 64), 2 * 2 * 32 * 32
    teacher = share * tokens * 2 * (weights + attention)
    assert rows["kd"]["flops"] - rows["xlm"]["flops"] == pytest.approx(teacher)
    assert any(note.startswith(f"kd: with the teacher's forward pass on {share:.0%}")
               for note in result["notes"])  # fmt: skip


def test_without_measuring(metaxlm: Command, recipe: Path) -> None:
    result = plan(metaxlm, recipe, "--no-measure", "--on", "A100")
    for row in result["trainings"]:
        assert row["hours"] is row["measured"] is None
        rate = ASSUMED_SHARE * REACHED_OF_DATASHEET * 312e12
        assert row["hours_on"] == pytest.approx(row["flops"] / rate / 3600)
    assert "–" in metaxlm("plan", recipe, "--no-measure")[1]
    assert "unknown device; known are" in metaxlm.complaint("plan", recipe, "--on", "H900")


def test_imported_models_are_not_trained(metaxlm: Command, recipe: Path, encoder: Path) -> None:
    """The tokens of an imported vocabulary are counted."""
    shape = "model={layers: 1, hidden: 16, heads: 2, ffn: 32, max_positions: 32}"
    existing = (f"vocabulary.model={encoder}", f"meta.model={encoder}")
    settings = (*existing, shape, "pretraining.steps=0")
    result = plan(metaxlm, recipe, *(word for value in settings for word in ("--set", value)))
    assert [row["name"] for row in result["trainings"]] == ["xlm", "metaxlm+dict", "frozen"]
    words = 5 + 14 + 26 + 26
    bert = EncoderConfig(words, 16, 1, 2, 32, 32, position_offset=0, num_token_types=2)
    smaller = MaskedLM(bert)
    assert result["trainings"][0]["parameters"] == sum(p.numel() for p in smaller.parameters())
    assert result["trainings"][0]["hours"] == 0
    assert result["trainings"][0]["measured"] is None
    assert any(f"{encoder} is imported" in note for note in result["notes"])


@pytest.mark.parametrize("command", ["plan", "doctor", "run --dry", "run"])
def test_every_command_rejects_the_models_that_a_run_rejects(
    metaxlm: Command, recipe: Path, encoder: Path, command: str
) -> None:
    for change, expected in {
        f"meta.model={encoder}": f"{encoder}: has 1 layers, the recipe's model.layers is 2; set it",
        "vocabulary.model=./absent": "./absent: no such folder",
    }.items():
        name, *options = command.split()
        message = metaxlm.complaint(name, recipe, *options, "--set", change)
        assert message.startswith(f"metaxlm: {expected}")
    assert list(metaxlm.folder.iterdir()) == [recipe]


def test_a_model_that_does_not_fit_is_reported(metaxlm: Command, recipe: Path) -> None:
    settings = ("model.hidden=65536", "model.layers=96", "model.ffn=262144")
    code, printed, _ = metaxlm(
        "plan", recipe, "--on", "L4", *(word for value in settings for word in ("--set", value))
    )
    assert code == 0
    assert "xlm: not measured, a step of 1 x 32 tokens needs about" in printed
    assert "increase micro_batches" in printed
