"""The recipes of the paper and its twin run at toy size on the built-in corpus.

All recipes share one run folder, as when a user fills it table by table: each must run the missing
jobs of its table and no others, and its rows must be in the results.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.recipes.paper_tables import (
    AMAZON,
    FEATURES,
    FIVE,
    IDEAS,
    OTHERS,
    TABLES,
    THREE,
    XTREME,
    Table,
)
from tests.toy_runs import run_main
from transformers import PreTrainedTokenizerBase, RobertaConfig, RobertaForMaskedLM

from metaxlm.files import digest_file

RECIPES = Path(__file__).parents[2] / "recipes"
LANGUAGES = {"en", "de"}
STEPS, KEPT = 3, (1, 2)
TOY = [
    *("corpus.source=phrasebook", "corpus.path=null", "evaluation.data=null"),
    "corpus.phrasebook={source_sentences: 300, sentences: 100, test_pairs: 4, aligned_pairs: 2, "
    "train_examples: 8, test_examples: 4}",
    "languages=[en, de]",
    "model={layers: 1, hidden: 16, heads: 2, ffn: 32, max_positions: 64}",
    f"pretraining.keep_steps={list(KEPT)}",
    *("matching.dictionaries=null", "engine.workers=1", "execution.trackers=[]"),
    *(
        f"{training}.{key}"
        for training in ("meta", "pretraining")
        for key in (f"steps={STEPS}", "batch_size=4", "length=32", "warmup_steps=1", "held_out=2")
    ),
    *(
        f"evaluation.finetune.{task}.{key}"
        for task in (*XTREME, *AMAZON)
        for key in ("epochs=1", "length=48", "seeds=1")
    ),
]
NO_REPORT = ("--stage", "evaluate")
OWN_VOCABULARY = ["vocabulary={size: 400, monolingual_size: 400}"]

JobPlace = tuple[str, int, str, str]  # variant, step, task, training language


@dataclass(frozen=True)
class ToyRun:
    root: Path
    overrides: list[str]

    def list_jobs(self) -> set[JobPlace]:
        found = set()
        for path in (self.root / "cells").glob("*/*/[!.]*/cell.json"):
            model, task, place = path.relative_to(self.root / "cells").parts[:3]
            variant, _, step = model.partition("-step-")
            found.add((variant, int(step or STEPS), task, place.removesuffix("-0")))
        return found

    def read_rows(self) -> dict[JobPlace, list[dict[str, Any]]]:
        """Return the results of each job, without baselines such as chance."""
        found: dict[JobPlace, list[dict[str, Any]]] = {}
        for line in (self.root / "results.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            if row["variant"] is not None:
                place = tuple(row[key] for key in ("variant", "step", "task", "source"))
                found.setdefault(place, []).append(row)
        return found

    def digest(self, *parts: str) -> str:
        return digest_file(self.root.joinpath(*parts) / "model.safetensors")

    def stamp(self) -> dict[Path, int]:
        """Return the modification time of each model and job."""
        models = (self.root / "variants").glob("*/model/model.safetensors")
        jobs = (self.root / "cells").glob("*/*/[!.]*/cell.json")
        return {path: path.stat().st_mtime_ns for path in (*models, *jobs)}

    def take(self, recipe: str, expected: set[JobPlace], *more: str) -> None:
        """Run a recipe; check that it ran its jobs and no others, and wrote their rows."""
        before, stamps = self.list_jobs(), self.stamp()
        settings = [part for text in (*TOY, *self.overrides) for part in ("--set", text)]
        place = ("--output", self.root.parent, "--device", "cpu", "--quiet")
        assert run_main("run", RECIPES / f"{recipe}.yaml", *place, *settings, *more) == 0, recipe
        after, rows = self.list_jobs(), self.read_rows()
        assert after - before == expected - before, recipe
        assert self.stamp().items() >= stamps.items(), recipe
        assert set(rows) == after  # including those of other recipes
        for place in expected:
            check_rows(place, rows[place])


def check_rows(place: JobPlace, rows: list[dict[str, Any]]) -> None:
    """Check scenario, languages and layers of a job's rows."""
    _, _, task, source = place
    assert all(0 <= row["value"] <= 1 for row in rows), place
    if task in FEATURES:
        assert {row["scenario"] for row in rows} == {"features"}
        assert {row["layer"] for row in rows} == {0, 1}
        assert {row["language"] for row in rows} == LANGUAGES - {"en"}, place
    elif task in AMAZON:
        found = {(row["language"], row["scenario"]) for row in rows}
        assert found == {(c, "supervised" if c == source else "transfer") for c in LANGUAGES}, place
    else:
        assert {row["scenario"] for row in rows} == {"transfer"}
        assert {"en"} <= {row["language"] for row in rows} <= LANGUAGES, place


def expand(table: Table) -> set[JobPlace]:
    """List the jobs of a table at toy size."""
    return {
        (variant, step, task, source)
        for task in table.tasks
        for step in (*(KEPT if table.along_steps else ()), STEPS)
        for source in (LANGUAGES if task in AMAZON else ["en"])
        for variant in table.variants
    }


@pytest.fixture
def loaded_models(
    tmp_path: Path,
    multilingual_tokenizer: PreTrainedTokenizerBase,
    monolingual_tokenizer: PreTrainedTokenizerBase,
) -> list[str]:
    """Overrides that import a RoBERTa and a shared vocabulary, as in the paper."""
    multilingual_tokenizer.save_pretrained(tmp_path / "shared")
    monolingual_tokenizer.save_pretrained(tmp_path / "roberta")
    torch.manual_seed(1)
    config = RobertaConfig(
        vocab_size=len(monolingual_tokenizer), hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=66,
    )  # fmt: skip
    RobertaForMaskedLM(config).save_pretrained(tmp_path / "roberta")
    return [f"vocabulary.model={tmp_path / 'shared'}", f"meta.model={tmp_path / 'roberta'}"]


def find_others(folder: str) -> set[JobPlace]:
    """List the jobs of `base` that no table has."""
    return expand(Table(OTHERS, FEATURES)) if folder == "twin" else set()


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["twin", "paper"])
def test_table_by_table(folder: str, tmp_path: Path, loaded_models: list[str]) -> None:
    run = ToyRun(tmp_path / folder, OWN_VOCABULARY if folder == "twin" else loaded_models)
    for name, table in TABLES[folder].items():
        run.take(f"{folder}/{name}", expand(table), *NO_REPORT)
    check_variants(run)
    done = run.list_jobs() | find_others(folder)
    run.take(f"{folder}/base", done, *NO_REPORT)
    if folder == "paper":
        return
    run.take("twin/ideas", done | expand(Table(IDEAS, (*XTREME, *FEATURES))), *NO_REPORT)
    # Matching changes the initialization, and switching the training text.
    names = ("metaxlm+dict", *IDEAS)
    start, used, switched = (run.digest("variants", n, "initialization/model") for n in names)
    assert switched == start != used
    assert len({run.digest("variants", name, "model") for name in names}) == 3


def check_variants(run: ToyRun) -> None:
    """Check that the models of tables 3 to 5 differ as they should."""
    names = (*THREE, *OTHERS)
    starts = {name: run.digest("variants", name, "initialization/model") for name in names}
    assert starts["xlm"] == starts["xlm+kd"]
    assert starts["metaxlm"] == starts["freeze"]
    assert len(set(starts.values())) == 5
    assert len({run.digest("variants", name, "model") for name in starts}) == 7
    source, frozen, trained = (
        load_file(run.root / place / "model.safetensors")
        for place in ("meta/model", "variants/freeze/model", "variants/metaxlm/model")
    )
    body = [name for name in source if ".layer." in name]
    assert all(torch.equal(source[name], frozen[name]) for name in body)
    assert not any(torch.equal(source[name], trained[name]) for name in body if "weight" in name)


@pytest.mark.slow
def test_the_twin_with_an_imported_encoder(tmp_path: Path, encoder: Path) -> None:
    run = ToyRun(tmp_path / "twin_minilm", [*OWN_VOCABULARY, f"meta.model={encoder}"])
    expected = expand(Table((*THREE, "dict+use"), (*XTREME, *FEATURES)))
    expected |= expand(Table(THREE, AMAZON))
    expected |= expand(Table(THREE, FEATURES, along_steps=True))
    expected |= expand(Table(("xlm", "metaxlm"), ("mlqa",), along_steps=True))
    expected |= expand(Table(OTHERS, (*FIVE, *FEATURES)))
    run.take("twin/minilm", expected, *NO_REPORT)
    check_variants(run)
    source = load_file(encoder / "model.safetensors")
    taken = load_file(run.root / "meta/model/model.safetensors")
    name = "encoder.layer.0.output.dense.weight"
    [mine] = [tensor for key, tensor in taken.items() if key.endswith(name)]
    assert torch.equal(mine, source[name])
    coverage = run.root / "variants/metaxlm/initialization/coverage.json"
    assert json.loads(coverage.read_text("utf-8"))["by_rule"]["direct"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["paper", "twin"])
def test_base_alone_fills_the_report(folder: str, tmp_path: Path, loaded_models: list[str]) -> None:
    run = ToyRun(tmp_path / folder, OWN_VOCABULARY if folder == "twin" else loaded_models)
    tables = set().union(*(expand(table) for table in TABLES[folder].values()))
    run.take(f"{folder}/base", tables | find_others(folder))
    for page in ("index.html", "report.md"):
        assert (run.root / "report" / page).stat().st_size > 10_000
