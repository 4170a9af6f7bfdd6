"""Everything the report is drawn from, read out of one run folder.

In comes `runs/NAME/`: results.jsonl, recipe.yaml, the training logs, and what each variant's
initialization and evaluation left behind. Out comes a `Run`, with a list of the pieces that are not
there (yet). Only missing results are an error; anything else missing is told to the reader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any

from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.experiments.names import display_name
from metaxlm.experiments.results import read_results, select_final
from metaxlm.files import check_name, find_packed, read_json, read_text
from metaxlm.recipe_file import parse_yaml

Row = Mapping[str, Any]
"""One line of results.jsonl or of a training log."""

PAPER = "paper"
"""Folder of the report in the paper's layout, below the report."""
IDENTITY = (
    "variant", "step", "layer", "task", "scenario", "source", "language", "metric", "seed", "split",
)  # fmt: skip
_KINDS: dict[str, type | UnionType] = {
    **dict.fromkeys(("task", "metric", "scenario", "source", "language", "split", "origin"), str),
    **dict.fromkeys(("step", "layer", "seed", "examples"), int | None),
    "variant": str | None,
}
_PARTS = {
    "words": "matched word rows",
    "positions": "position rows",
    "embedding_norm": "the LayerNorm of the embeddings",
    "layers": "the Transformer body",
    "head": "the prediction head",
}
_PRESETS: dict[str, list[str]] = {"none": [], "body": ["layers"], "embeddings": ["words"]}
RECIPE = "recipe.yaml"
COVERAGE = "initialization/coverage.json"
LOG = "log.jsonl"
"""The log of a training in a published run."""
# A finished training keeps its log with the model, one under way beside its checkpoints.
_LOG_PLACES = (LOG, "model/training_log.jsonl", "checkpoints/log.jsonl")
# Rows of a log that tell something else than the loss in training.
_OTHER_ROWS = frozenset({"held_out", "spike"})


@dataclass(frozen=True)
class Run:
    """A run folder, read."""

    name: str
    rows: list[Row]
    """Of finished models."""
    all_rows: list[Row]
    """Those of checkpoints too."""
    variants: list[str]
    """In the recipe's order; those without any file are in it too."""
    recipe: dict[str, Any]
    recipe_text: str
    logs: dict[str, list[Row]]
    """Training log of each variant that has one."""
    meta_log: list[Row]
    examples: dict[str, dict[str, list[dict[str, Any]]]]
    coverage: dict[str, dict[str, Any]]
    missing: list[str]
    """Sentences for the reader: what is not there, and why it may be so."""

    @property
    def has_grid(self) -> bool:
        """Whether the recipe has a grid, as those of the paper's tables and figures have."""
        evaluation = self.recipe.get("evaluation")
        return isinstance(evaluation, dict) and bool(evaluation.get("grid"))

    @property
    def uses_phrasebook(self) -> bool:
        """Whether the corpus is the built-in, synthetic one."""
        corpus = self.recipe.get("corpus")
        return isinstance(corpus, dict) and corpus.get("source", "phrasebook") == "phrasebook"

    def list_copied_parts(self, variant: str) -> list[str]:
        """List what the recipe has this variant copy from the meta-pretrained model."""
        start = _variant_recipes(self.recipe).get(variant, {}).get("initialize", "both")
        if isinstance(start, dict):
            return [part for part in _PARTS if start.get(part)]
        return _PRESETS.get(str(start), list(_PARTS))

    def starts_random(self, variant: str) -> bool:
        """Whether the recipe says that this variant copies nothing."""
        return not self.list_copied_parts(variant)

    def describe_start(self, variant: str) -> str:
        """Say what a variant starts with, or nothing when the recipe does not tell."""
        if variant not in _variant_recipes(self.recipe):
            return ""
        copied = self.list_copied_parts(variant)
        if not copied:
            return "starts from random values; nothing is copied."
        text = f"copies {', '.join(_PARTS[part] for part in copied)} from the meta-pretrained model"
        if "words" not in copied:
            return f"{text}; its word rows start random."
        if _variant_recipes(self.recipe)[variant].get("dictionaries"):
            text += ", matching words through bilingual dictionaries as well"
        return f"{text}."


def read_run(run_dir: Path) -> Run:
    """Read a run folder; without results there is nothing to report, which is an error."""
    require_whole(run_dir)
    all_rows = read_scores(run_dir / "results.jsonl")
    rows = select_final(all_rows)
    recipe, recipe_text = read_recipe(run_dir / RECIPE)
    variants = _order_variants(run_dir, recipe, rows)
    folders = {variant: run_dir / "variants" / variant for variant in variants}
    logs = {v: log for v in variants if (log := _read_log(folders[v]))}
    examples = _read_examples(run_dir, variants)
    coverage = _read_each(folders, COVERAGE)
    run = Run(
        name=str(recipe.get("name") or run_dir.resolve().name),
        rows=rows,
        all_rows=all_rows,
        variants=variants,
        recipe=recipe,
        recipe_text=recipe_text,
        logs=logs,
        meta_log=_read_log(run_dir / "meta"),
        examples=examples,
        coverage=coverage,
        missing=[],
    )
    # A variant that copies no word rows may still have a record of what it could have copied.
    for variant in [v for v in coverage if "words" not in run.list_copied_parts(v)]:
        del coverage[variant]
    run.missing.extend(_list_missing(run))
    return run


def read_scores(path: Path, identity: Sequence[str] = IDENTITY) -> list[Row]:
    """Read results.jsonl; a row written twice (a repeated evaluation) counts once, the last one.

    Rows are the same if their values under the keys of `identity` are.
    """
    path = find_packed(path)
    if not path.is_file():
        raise MetaXLMError(f"{path}: no results yet; run `metaxlm run RECIPE` up to its evaluation")
    kept: dict[tuple[Any, ...], Row] = {}
    for number, row in enumerate(read_results(path), start=1):
        value = row.get("value")
        if "task" not in row or "metric" not in row:
            raise MetaXLMError(f"{path}:{number}: a result needs `task` and `metric`")
        for key in _KINDS.keys() & row.keys():
            if not isinstance(row[key], _KINDS[key]):
                raise MetaXLMError(
                    f"{path}:{number}: `{key}` of a result is {row[key]!r}; restore the file"
                )
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise MetaXLMError(
                f"{path}:{number}: `value` is {value!r}, not a number; repeat that evaluation"
            )
        kept[tuple(row.get(key) for key in identity)] = row
    if not kept:
        raise MetaXLMError(f"{path}: empty; run `metaxlm run RECIPE` up to its evaluation")
    return list(kept.values())


def _read_examples(run_dir: Path, variants: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """Return the sentences that the cells of the feature tasks keep for the eye."""
    names = {"tatoeba": "retrieval", "alignment": "alignment"}
    found: dict[str, dict[str, list[Any]]] = {}
    for variant in variants:
        for task, name in names.items():
            paths = sorted((run_dir / "cells" / variant / task).glob("*-*/cell.json"))
            for path in paths[:1]:
                require_whole(path)
                examples = _read_object(path).get("examples", [])
                found.setdefault(variant, {key: [] for key in names.values()})[name] = examples
    return found


def find_log(folder: Path) -> Path | None:
    """Return the log of the training in a folder, if there is one."""
    return next((folder / name for name in _LOG_PLACES if (folder / name).is_file()), None)


def _read_log(folder: Path) -> list[Row]:
    """Read a training log in the order of its steps; a resumed step counts once, the last one."""
    path = find_log(folder)
    if path is None:
        return []
    require_whole(path)
    by_step = {}
    for number, row in enumerate(read_results(path), start=1):
        if not _OTHER_ROWS.isdisjoint(row):
            continue
        if row.get("loss", ...) is None:  # every step was skipped
            continue
        if not isinstance(row.get("step"), int) or not isinstance(row.get("loss"), int | float):
            raise MetaXLMError(f"{path}:{number}: a log row needs `step` and `loss`")
        by_step[row["step"]] = row
    return [by_step[step] for step in sorted(by_step)]


def read_recipe(path: Path) -> tuple[dict[str, Any], str]:
    """Read the recipe as plain YAML, so that runs of older versions can still be reported."""
    if not path.is_file():
        return {}, ""
    text = read_text(path)
    _, recipe = parse_yaml(text, str(path))
    if not isinstance(recipe, dict):
        raise MetaXLMError(f"{path}: a recipe is a mapping of keys, found {type(recipe).__name__}")
    return recipe, text


def _read_each(folders: dict[str, Path], name: str) -> dict[str, dict[str, Any]]:
    found = {v: folder / name for v, folder in folders.items() if (folder / name).is_file()}
    for path in found.values():
        require_whole(path)
    return {v: _read_object(path) for v, path in found.items()}


def _read_object(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise MetaXLMError(f"{path}: an object is expected, found {type(found).__name__}")
    return found


def _variant_recipes(recipe: dict[str, Any]) -> dict[str, dict[str, Any]]:
    variants = recipe.get("variants")
    if not isinstance(variants, dict):
        return {}
    return {
        check_name(str(name), "variant"): value if isinstance(value, dict) else {}
        for name, value in variants.items()
    }


def _order_variants(run_dir: Path, recipe: dict[str, Any], rows: list[Row]) -> list[str]:
    """List the recipe's variants, then those that only the results or the folders know."""
    folder = run_dir / "variants"
    found = [str(row["variant"]) for row in rows if row.get("variant") is not None]
    folders = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    visible = [name for name in folders if not name.startswith(".")]
    return list(dict.fromkeys([*_variant_recipes(recipe), *found, *visible]))


def _list_missing(run: Run) -> list[str]:
    """Say what a complete run would have and this one does not."""
    missing = []
    evaluated = {row.get("variant") for row in run.rows}
    for variant in run.variants:
        if variant not in evaluated:
            state = "is pretrained but not evaluated" if variant in run.logs else "has not run"
            missing.append(f"{display_name(variant)} {state}.")
    tasks = {(row.get("scenario"), row["task"]) for row in run.rows}
    if ("features", "tatoeba") not in tasks:
        missing.append("There are no sentence-retrieval results.")
    if ("features", "alignment") not in tasks:
        missing.append("There are no word-alignment results.")
    if not any(scenario == "transfer" for scenario, _ in tasks):
        missing.append("There are no cross-lingual transfer results.")
    if not run.meta_log and not _imports_encoder(run.recipe):
        missing.append("There is no meta-pretraining log.")
    unlogged = [v for v in run.variants if v in evaluated and v not in run.logs]
    if unlogged:
        missing.append(f"There is no training log for {_join(unlogged)}.")
    unmatched = [
        v for v in run.variants
        if v in evaluated and v not in run.coverage and "words" in run.list_copied_parts(v)
    ]  # fmt: skip
    if unmatched:
        missing.append(f"There is no vocabulary-matching record for {_join(unmatched)}.")
    if not run.examples:
        missing.append("The evaluation left no example sentences.")
    if not run.recipe_text:
        missing.append("The recipe is not in the run folder.")
    return missing


def _imports_encoder(recipe: dict[str, Any]) -> bool:
    meta = recipe.get("meta")
    return isinstance(meta, dict) and meta.get("model") is not None


def _join(variants: list[str]) -> str:
    return ", ".join(map(display_name, variants))
