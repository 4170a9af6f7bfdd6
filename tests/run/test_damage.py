"""A flipped bit in any file of a run is detected by `verify` and by commands that read it."""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.commands import Command
from tests.damage import flip, flipped, list_files

from metaxlm.digests import DIGESTS
from metaxlm.files import digest_file
from metaxlm.manifest import MANIFEST, MARKER, find_damage

XLM, DICT = "variants/xlm", "variants/metaxlm+dict"
START = f"{DICT}/initialization"
KEPT = f"{XLM}/steps/step-00000002"
MODEL = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"]
KINDS = [
    *("recipe.yaml", "inputs.json", "results.jsonl", "comparisons.json", "provenance.json"),
    "digests.json",
    *("corpus/.stage.json", "corpus/text/*/*.txt", "corpus/text/*/manifest.json"),
    "corpus/tasks/**/*",
    *("vocabulary/.stage.json", "vocabulary/*/tokenizer.json", "vocabulary/*/manifest.json"),
    "vocabulary/*/tokenizer_config.json",
    *("shards/.stage.json", "shards/*/*/tokens.bin", "shards/*/*/offsets.bin"),
    "shards/*/*/manifest.json",
    *(f"meta/model/{name}" for name in (*MODEL, "training_log.jsonl", ".stage.json")),
    *(f"variants/*/model/{name}" for name in (*MODEL, "training_log.jsonl", ".stage.json")),
    *(f"variants/*/initialization/model/{name}" for name in MODEL),
    *(f"variants/*/initialization/{name}" for name in ("*.json", "ledger.parquet", ".stage.json")),
    *(f"variants/*/steps/*/{name}" for name in (*MODEL, "manifest.json")),
    *("**/checkpoints/.stage.json", "**/checkpoints/log.jsonl", "**/checkpoints/tensorboard/*"),
    *("**/checkpoints/step-*/*.safetensors", "**/checkpoints/step-*/*.json"),
    *("cells/*/*/*/cell.json", "cells/*/*/*/tallies.npz", "cells/*/*/*/predictions/*"),
    "cells/*/*/*/manifest.json",
    *("report/.stage.json", "report/index.html", "report/report.md"),
    *("report/figures/*", "report/tables/*"),
]


def test_all_files_of_a_run_are_listed(toy_run: Path) -> None:
    found = {path for kind in KINDS for path in toy_run.glob(kind) if path.is_file()}
    assert found == set(list_files(toy_run))


def test_every_flipped_bit_is_named(toy_run: Path, metaxlm: Command) -> None:
    paths = [next(p for p in sorted(toy_run.glob(kind)) if p.is_file()) for kind in KINDS]
    lists = [path for path in paths if path.name in (MANIFEST, MARKER, DIGESTS)]
    others = [path for path in paths if path not in lists]
    for damaged in (others, *([path] for path in lists)):  # a damaged list lists nothing
        with ExitStack() as stack:
            for path in damaged:
                stack.enter_context(flipped(path))
            code, _, errors = metaxlm("verify", toy_run)
        assert code == 1
        assert len(errors.splitlines()) == len(damaged) + 1
        assert all(f" {path}: " in errors for path in damaged)
        assert f"{toy_run}: {len(damaged)} damaged or missing of" in errors


def test_an_undamaged_run_passes_and_other_files_are_named(copied: Path, metaxlm: Command) -> None:
    code, printed, errors = metaxlm("verify", copied)
    assert (code, errors) == (0, "")
    assert "not checked" not in printed
    (copied / "data_notes.txt").touch()
    code, printed, _ = metaxlm("verify", copied)
    assert code == 0
    assert "not checked, because they have no stored digest: data_notes.txt" in printed


EMBED = ["embed", "--input", "sentences.txt", "--output", "vectors.npy", "--model"]
TRIM = ["trim", "--tokenizer", "RUN/vocabulary/multilingual", "--output", "trimmed", "--corpus"]
RUN = ["run", "toy.yaml", "--device", "cpu"]
READERS = [
    (f"{XLM}/model/model.safetensors", [*EMBED, f"RUN/{XLM}"]),
    (f"{XLM}/model/tokenizer.json", [*EMBED, f"RUN/{XLM}"]),
    (f"{KEPT}/model.safetensors", [*EMBED, f"RUN/{KEPT}"]),
    (f"{START}/model/model.safetensors", [*EMBED, f"RUN/{START}/model"]),
    (f"{START}/model/config.json", [*EMBED, f"RUN/{DICT}/checkpoints/step-00000004"]),
    ("meta/model/model.safetensors", [*EMBED, "RUN/meta"]),
    ("shards/multilingual/de/tokens.bin", ["match", "--from", "RUN/meta/model", "--to",
     "RUN/vocabulary/multilingual", "--corpus", "RUN", "--output", "matched"]),
    ("corpus/text/de/00000.txt", [*TRIM, "RUN/corpus"]),
    ("vocabulary/multilingual/tokenizer.json", [*TRIM, "RUN"]),
    ("corpus/tasks/tatoeba/tatoeba.deu-eng.deu", ["evaluate", "--model", f"RUN/{XLM}", "--task",
     "tatoeba", "--data", "RUN/corpus/tasks"]),
    (f"{START}/ledger.parquet", ["match", "explain", "the", f"RUN/{START}"]),
    (f"{START}/coverage.json", ["match", "show", f"RUN/{START}"]),
    ("recipe.yaml", [*EMBED, "RUN"]),
    *((name, ["report", "RUN"]) for name in (
        "results.jsonl", "recipe.yaml", "comparisons.json", f"{XLM}/model/training_log.jsonl",
        f"{START}/coverage.json", "cells/xlm/tatoeba/en-0/cell.json",
    )),
    ("provenance.json", ["publish", "RUN", "published"]),
    ("inputs.json", RUN),
    ("digests.json", RUN),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), READERS)
def test_commands_reject_a_damaged_file(
    name: str, arguments: list[str], toy_run: Path, tmp_path: Path, metaxlm: Command
) -> None:
    (tmp_path / "sentences.txt").write_text("the cat\n", encoding="utf-8")
    shutil.copy(toy_run.parent.parent / "toy.yaml", tmp_path)
    more = ["--output", str(toy_run.parent)] if arguments == RUN else []
    before = sorted(tmp_path.iterdir())
    with flipped(toy_run / name):
        error = metaxlm.complaint(*(word.replace("RUN", str(toy_run)) for word in arguments), *more)
    assert f"{toy_run / name}" in error
    assert "run again" in error
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("damaged", "variant", "removed", "stage"),
    [
        ("meta/model/model.safetensors", "metaxlm+dict", ["initialization"], "initialize"),
        ("shards/multilingual/de/tokens.bin", "xlm", ["model", "checkpoints"], "pretrain"),
    ],
)
def test_a_damaged_stage_is_made_again_before_another_reads_it(
    copied: Path, metaxlm: Command, damaged: str, variant: str, removed: list[str], stage: str
) -> None:
    folder = copied / "variants" / variant
    place = "initialization/model" if stage == "initialize" else "model"
    files = [copied / damaged, folder / place / "model.safetensors"]
    before = [digest_file(path) for path in files]
    flip(files[0])
    for name in removed:
        shutil.rmtree(folder / name)
    code, printed, errors = metaxlm(*RUN, "--stage", stage, "--variant", variant)
    assert code == 0, errors
    again = re.findall(r"^(.+): running again, its files are damaged", printed, re.MULTILINE)
    assert again == [damaged.partition("/")[0]]
    assert [digest_file(path) for path in files] == before


def test_a_damaged_kept_model_is_written_again_from_its_checkpoint(
    copied: Path, metaxlm: Command
) -> None:
    weights = copied / KEPT / "model.safetensors"
    before = digest_file(weights)
    flip(weights)
    shutil.rmtree(copied / XLM / "model")
    code, _, errors = metaxlm(*RUN, "--stage", "pretrain", "--variant", "xlm")
    assert code == 0, errors
    assert digest_file(weights) == before
    assert not find_damage(weights.parent)


def test_a_training_does_not_continue_a_damaged_log(copied: Path, metaxlm: Command) -> None:
    log = copied / XLM / "checkpoints" / "log.jsonl"
    flip(log)
    shutil.rmtree(copied / XLM / "model")
    arguments = [*RUN, "--stage", "pretrain", "--variant", "xlm"]
    assert f"{log.relative_to(copied.parent.parent)}: its rows up to step" in metaxlm.complaint(
        *arguments
    )
    log.rename(log.with_name("damaged.jsonl"))
    assert metaxlm(*arguments)[0] == 0
    assert metaxlm("verify", copied)[0] == 0


def test_a_damaged_marker_does_not_cost_the_checkpoints(copied: Path, metaxlm: Command) -> None:
    checkpoints = copied / XLM / "checkpoints"
    flip(checkpoints / ".stage.json")
    shutil.rmtree(copied / XLM / "model")
    before = list_files(checkpoints)
    error = metaxlm.complaint(*RUN, "--stage", "pretrain", "--variant", "xlm")
    assert ".stage.json: damaged" in error
    assert list_files(checkpoints) == before
