"""Read everything that a report is drawn from out of one run folder.

A run folder, or a published one with the small files only, has results.jsonl, comparisons.json,
recipe.yaml, provenance.json, training logs, the coverage of each variant's initialization, and
data_notes.txt with one sentence per line on the data. Only the results must be there; `Run.missing`
lists what else is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaxlm.analysis.claims import Verdict, judge_claims
from metaxlm.analysis.paper import AVERAGED, MAIN_VARIANTS
from metaxlm.analysis.results import (
    FEATURES,
    TASKS,
    VARIANTS,
    Results,
    Row,
    display_name,
    load_results,
    read_rows,
)
from metaxlm.analysis.stats import COMPARISONS, read_comparisons
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.files import check_name, read_json, read_text
from metaxlm.recipe.load import parse_yaml

RECIPE = "recipe.yaml"
PROVENANCE = "provenance.json"
COVERAGE = "initialization/coverage.json"
DATA_NOTES = "data_notes.txt"
LOG = "log.jsonl"
"""The log of a training in a published run."""
# A finished training has its log in the model folder, an unfinished one beside its checkpoints.
_LOG_PLACES = (LOG, "model/training_log.jsonl", "checkpoints/log.jsonl")
_OTHER_ROWS = frozenset({"held_out", "spike"})
"""Rows of a log without a training loss."""
_PARTS = {
    "words": "matched word embeddings",
    "positions": "position embeddings",
    "embedding_norm": "the LayerNorm of the embeddings",
    "layers": "the Transformer body",
    "head": "the prediction head",
}
_PRESETS: dict[str, list[str]] = {"none": [], "body": ["layers"], "embeddings": ["words"]}


@dataclass(frozen=True)
class Run:
    """The content of a run folder."""

    name: str
    results: Results
    variants: list[str]
    """In the recipe's order; those without any file are in it too."""
    recipe: dict[str, Any]
    recipe_text: str
    logs: dict[str, list[Row]]
    """Training log of each variant that has one."""
    meta_log: list[Row]
    examples: dict[str, dict[str, list[dict[str, Any]]]]
    coverage: dict[str, dict[str, Any]]
    provenance: Mapping[str, Any]
    notes: Sequence[str]
    """Sentences on the data."""
    verdicts: Sequence[Verdict] = ()
    missing: list[str] = field(default_factory=list)
    """Sentences for the reader."""

    @property
    def has_grid(self) -> bool:
        """Whether the recipe has a grid, as those of the paper's tables and figures have."""
        return has_grid(self.recipe)

    @property
    def uses_phrasebook(self) -> bool:
        """Whether the corpus is the built-in, synthetic one."""
        corpus = self.recipe.get("corpus")
        return isinstance(corpus, dict) and corpus.get("source", "phrasebook") == "phrasebook"

    def list_copied_parts(self, variant: str) -> list[str]:
        """List the parts that the recipe copies from the meta-pretrained model."""
        start = _variant_recipes(self.recipe).get(variant, {}).get("initialize", "both")
        if isinstance(start, dict):
            return [part for part in _PARTS if start.get(part)]
        return _PRESETS.get(str(start), list(_PARTS))

    def starts_random(self, variant: str) -> bool:
        """Whether the recipe copies nothing into this variant."""
        return not self.list_copied_parts(variant)

    def describe_initialization(self, variant: str) -> str:
        """Write what a variant is initialized with; nothing when the recipe does not name it."""
        if variant not in _variant_recipes(self.recipe):
            return ""
        copied = self.list_copied_parts(variant)
        if not copied:
            return "is initialized at random."
        text = f"copies {', '.join(_PARTS[part] for part in copied)} from the meta-pretrained model"
        if "words" not in copied:
            return f"{text}; its word embeddings are random."
        if _variant_recipes(self.recipe)[variant].get("dictionaries"):
            text += ", matching words through bilingual dictionaries as well"
        return f"{text}."


def has_grid(recipe: Mapping[str, Any]) -> bool:
    """Say whether a recipe has a grid."""
    evaluation = recipe.get("evaluation")
    return isinstance(evaluation, dict) and bool(evaluation.get("grid"))


def read_run(run_dir: Path, *, judge: bool = True) -> Run:
    """Read a run folder; missing results are an error. Claims are judged if it has a grid."""
    require_whole(run_dir)
    results = Results(load_results(run_dir), read_comparisons(run_dir / COMPARISONS))
    recipe, recipe_text = read_recipe(run_dir / RECIPE)
    variants = _order_variants(run_dir, recipe, results)
    folders = {variant: run_dir / "variants" / variant for variant in variants}
    run = Run(
        name=str(recipe.get("name") or run_dir.resolve().name),
        results=results,
        variants=variants,
        recipe=recipe,
        recipe_text=recipe_text,
        logs={v: log for v in variants if (log := read_log(folders[v]))},
        meta_log=read_log(run_dir / "meta"),
        examples=_read_examples(run_dir, variants),
        coverage={
            v: _read_object(folder / COVERAGE)
            for v, folder in folders.items()
            if (folder / COVERAGE).is_file()
        },
        provenance=_read_provenance(run_dir / PROVENANCE),
        notes=_read_notes(run_dir / DATA_NOTES),
        verdicts=judge_claims(results) if judge and has_grid(recipe) else (),
    )
    # A variant that copies no word embeddings may still have a record of what could be copied.
    for variant in [v for v in run.coverage if "words" not in run.list_copied_parts(v)]:
        del run.coverage[variant]
    run.missing.extend(_list_missing(run))
    return run


def read_recipe(path: Path) -> tuple[dict[str, Any], str]:
    """Read the recipe as plain YAML, so that runs of older versions can still be reported."""
    if not path.is_file():
        return {}, ""
    text = read_text(path)
    _, recipe = parse_yaml(text, str(path))
    if not isinstance(recipe, dict):
        raise MetaXLMError(f"{path}: a recipe is a mapping of keys, found {type(recipe).__name__}")
    return recipe, text


def find_log(folder: Path) -> Path | None:
    """Return the log of the training in a folder, if there is one."""
    return next((folder / name for name in _LOG_PLACES if (folder / name).is_file()), None)


def read_log(folder: Path) -> list[Row]:
    """Read a training log in the order of its steps; of a resumed step the last row counts."""
    path = find_log(folder)
    if path is None:
        return []
    require_whole(path)
    by_step = {}
    for number, row in enumerate(read_rows(path), start=1):
        if not _OTHER_ROWS.isdisjoint(row) or row.get("loss", ...) is None:  # all steps skipped
            continue
        if not isinstance(row.get("step"), int) or not isinstance(row.get("loss"), int | float):
            raise MetaXLMError(f"{path}:{number}: a log row needs `step` and `loss`")
        by_step[row["step"]] = row
    return [by_step[key] for key in sorted(by_step)]


def _read_examples(run_dir: Path, variants: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """Return the example sentences that evaluations of the feature tasks keep."""
    found: dict[str, dict[str, list[Any]]] = {}
    for variant in variants:
        for task in FEATURES:
            paths = sorted((run_dir / "cells" / variant / task).glob("*-*/cell.json"))
            for path in paths[:1]:
                examples = _read_object(path).get("examples", [])
                found.setdefault(variant, {task: [] for task in FEATURES})[task] = examples
    return found


def _read_provenance(path: Path) -> Mapping[str, Any]:
    return _read_object(path) if path.is_file() else {}


def _read_object(path: Path) -> dict[str, Any]:
    require_whole(path)
    found = read_json(path)
    if not isinstance(found, dict):
        raise MetaXLMError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found


def _read_notes(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    return tuple(line.strip() for line in read_text(path).splitlines() if line.strip())


def _variant_recipes(recipe: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    variants = recipe.get("variants")
    if not isinstance(variants, dict):
        return {}
    return {
        check_name(str(name), "variant"): value if isinstance(value, dict) else {}
        for name, value in variants.items()
    }


def _order_variants(run_dir: Path, recipe: Mapping[str, Any], results: Results) -> list[str]:
    """List the recipe's variants, then those that only the results or the folders have."""
    folder = run_dir / "variants"
    folders = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    visible = [name for name in folders if not name.startswith(".")]
    return list(dict.fromkeys([*_variant_recipes(recipe), *results.variants, *visible]))


def _list_missing(run: Run) -> list[str]:
    """Return what a complete run would have and this one lacks."""
    missing = []
    evaluated, tasks = run.results.variants, run.results.tasks
    for variant in run.variants:
        if variant not in evaluated:
            state = "is pretrained but not evaluated" if variant in run.logs else "has not run"
            missing.append(f"{display_name(variant)} {state}.")
    if "tatoeba" not in tasks:
        missing.append("There are no sentence-retrieval results.")
    if "alignment" not in tasks:
        missing.append("There are no word-alignment results.")
    if all(task in FEATURES for task in tasks):
        missing.append("There are no cross-lingual transfer results.")
    meta = run.recipe.get("meta")
    if not run.meta_log and not (isinstance(meta, dict) and meta.get("model") is not None):
        missing.append("There is no meta-pretraining log.")
    if unlogged := [v for v in run.variants if v in evaluated and v not in run.logs]:
        missing.append(f"There is no training log for {', '.join(map(display_name, unlogged))}.")
    unmatched = [
        v for v in run.variants
        if v in evaluated and v not in run.coverage and "words" in run.list_copied_parts(v)
    ]  # fmt: skip
    if unmatched:
        names = ", ".join(map(display_name, unmatched))
        missing.append(f"There is no vocabulary-matching record for {names}.")
    if not run.recipe_text:
        missing.append("The recipe is not in the run folder.")
    return [*missing, *(_list_missing_of_grid(run) if run.has_grid else ())]


def _list_missing_of_grid(run: Run) -> list[str]:
    results, notes = run.results, []
    if absent := [v for v in VARIANTS if v not in results.variants and v not in run.variants]:
        notes.append(f"Not measured yet: {', '.join(map(display_name, absent))}.")
    finetuned = [t for t in TASKS if t not in FEATURES and t not in results.tasks]
    if finetuned:
        notes.append(f"No scores yet on {', '.join(TASKS[task].title for task in finetuned)}.")
    pretraining = run.recipe.get("pretraining")
    steps = pretraining.get("steps") if isinstance(pretraining, dict) else None
    for variant, last in results.final_steps.items():
        if isinstance(steps, int) and last is not None and last < steps:
            notes.append(
                f"{display_name(variant)}: the last measured step is {last:,} of {steps:,}."
            )
    if set(MAIN_VARIANTS) & set(results.variants) and not results.comparisons:
        notes.append("There are no paired tests (comparisons.json).")
    if not run.provenance:
        notes.append("There is no record of time and tokens (provenance.json).")
    if not set(AVERAGED) <= set(results.tasks):
        notes.append("The average over the seven tasks needs all of them.")
    return notes
