"""Read a run folder, and its example sentences.

A run folder, or a published one with the small files only, has results.jsonl, comparisons.json,
recipe.yaml, provenance.json, training logs, the coverage of each variant's initialization, its
dictionaries.json, and data_notes.txt with one sentence per line on the data. Only the results must
be there; `Run.missing` lists what else is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from metaxlm.analysis.claims import Verdict, evaluate_claims
from metaxlm.analysis.paper import AVERAGED, MAIN_VARIANTS
from metaxlm.analysis.results import (
    FEATURES,
    ORIGIN_DIGITS,
    TASKS,
    VARIANTS,
    Row,
    display_name,
    join_names,
    load_results,
    paused_collection,
    read_rows,
    title_task,
)
from metaxlm.analysis.scores import Results
from metaxlm.analysis.stats import COMPARISONS, read_comparisons
from metaxlm.analysis.style import classify_links, describe_links
from metaxlm.digests import require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.files import check_name, read_json, read_text
from metaxlm.manifest import read_manifest
from metaxlm.reading import parse_yaml
from metaxlm.recipe.schema import find_trained

RECIPE = "recipe.yaml"
PROVENANCE = "provenance.json"
COVERAGE = "initialization/coverage.json"
DICTIONARIES = "dictionaries.json"
DICTIONARY_PLACES = (f"dictionaries/{DICTIONARIES}", f"initialization/{DICTIONARIES}")
"""Where a variant may have it: dictionaries that grew for it, or those that it was given."""
DATA_NOTES = "data_notes.txt"
LOG = "log.jsonl"  # the log of a training in a published run
# A finished training has its log in the model folder, an unfinished one beside its checkpoints; a
# sentence encoder has it in its own folder.
_LOG_PLACES = (LOG, "model/training_log.jsonl", "checkpoints/log.jsonl", "training_log.jsonl")
_PARTS = {
    "words": "matched word embeddings",
    "positions": "position embeddings",
    "embedding_norm": "the LayerNorm of the embeddings",
    "layers": "the Transformer body",
    "head": "the prediction head",
}
_PRESETS: dict[str, list[str]] = {
    "none": [], "body": ["layers"], "embeddings": ["words"],
    "remainder": ["positions", "embedding_norm", "head"],
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """The content of a run folder."""

    name: str
    results: Results
    variants: list[str]  # in the recipe's order; those without any file are in it too
    recipe: dict[str, Any]
    recipe_text: str
    logs: dict[str, list[Row]]
    meta_log: list[Row]
    examples: dict[str, dict[str, list[dict[str, Any]]]]  # example sentences by variant and task
    confused: list[Row]  # records of the evaluations that counted confusions of classes
    coverage: dict[str, dict[str, Any]]  # coverage.json by variant that copies word embeddings
    dictionaries: dict[str, dict[str, Row]]  # dictionaries.json by variant, and by language in it
    provenance: Row
    notes: Sequence[str]  # sentences on the data

    @property
    def has_grid(self) -> bool:
        """Whether the recipe has a grid, as those of the paper's tables and figures have."""
        return bool(self.settings("evaluation").get("grid"))

    @cached_property
    def verdicts(self) -> Sequence[Verdict]:
        """The paper's claims on a run with a grid."""
        return evaluate_claims(self.results) if self.has_grid else ()

    def settings(self, *keys: str) -> dict[str, Any]:
        """Return a section of the recipe; empty where it has none."""
        value: Any = self.recipe
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}

    def list_copied_parts(self, variant: str) -> list[str]:
        """List the parts that the recipe copies from the meta-pretrained model."""
        start = self.settings("variants", variant).get("initialize", "both")
        if isinstance(start, dict):
            return [part for part in _PARTS if start.get(part)]
        return _PRESETS.get(str(start), list(_PARTS))

    def describe_initialization(self, variant: str) -> str:
        """Write what a variant is initialized with; nothing when the recipe does not name it."""
        if variant not in self.settings("variants"):
            return ""
        copied = self.list_copied_parts(variant)
        if not copied:
            return "is initialized at random."
        text = f"copies {', '.join(_PARTS[part] for part in copied)} from the meta-pretrained model"
        if "words" not in copied:
            return f"{text}; its word embeddings are random."
        if self.settings("variants", variant).get("dictionaries"):
            text += ", matching words through bilingual dictionaries as well"
        if other := self.settings("variants", variant, "grow").get("variant"):
            text += f", with entries that {display_name(other)} found"
        return f"{text}."

    @cached_property
    def missing(self) -> list[str]:
        """Sentences on what a complete run has and this one lacks."""
        evaluated, tasks = self.results.variants, self.results.tasks
        missing = []
        for variant in self._list_planned():
            if variant not in evaluated:
                state = "is pretrained but not evaluated" if variant in self.logs else "has not run"
                missing.append(f"{display_name(variant)} {state}.")
        rows = [variant for variant in self.variants if variant in evaluated]
        measured = list(dict.fromkeys(map(find_trained, rows)))  # once if words are switched too
        unlogged = [variant for variant in measured if variant not in self.logs]
        copying = [v for v in measured if "words" in self.list_copied_parts(v)]
        unmatched = [variant for variant in copying if variant not in self.coverage]
        logs, matches = (join_names(some, ", ") for some in (unlogged, unmatched))
        has_meta = self.meta_log or self.settings("meta").get("model") is not None
        checks = {
            "There are no sentence-retrieval results.": "tatoeba" not in tasks,
            "There are no word-alignment results.": "alignment" not in tasks,
            "There are no cross-lingual transfer results.": set(tasks) <= set(FEATURES),
            "There is no meta-pretraining log.": not has_meta,
            f"There is no training log for {logs}.": unlogged,
            f"There is no vocabulary-matching record for {matches}.": unmatched,
            "The recipe is not in the run folder.": not self.recipe_text,
        }
        missing += [sentence for sentence, is_missing in checks.items() if is_missing]
        return [*missing, *(self._list_missing_of_grid() if self.has_grid else ())]

    def _list_planned(self) -> list[str]:
        """List the variants that a block of the grid names; all without such a block."""
        blocks = self.settings("evaluation").get("grid") or []
        named = [block.get("variants") for block in blocks if isinstance(block, dict)]
        known = [some for some in named if isinstance(some, list)]
        if not known or len(known) < len(named):
            return self.variants
        return [variant for variant in self.variants if any(variant in some for some in known)]

    def _list_missing_of_grid(self) -> list[str]:
        results, notes = self.results, []
        if absent := [v for v in VARIANTS if v not in (*results.variants, *self.variants)]:
            notes.append(f"Not measured yet: {join_names(absent, ', ')}.")
        if unscored := [t for t in TASKS if t not in FEATURES and t not in results.tasks]:
            notes.append(f"No scores yet on {', '.join(map(title_task, unscored))}.")
        steps = self.settings("pretraining").get("steps")
        for variant, last in results.final_steps.items():
            if isinstance(steps, int) and last is not None and last < steps:
                name = display_name(variant)
                notes.append(f"{name}: the last measured step is {last:,} of {steps:,}.")
        if set(MAIN_VARIANTS) & set(results.variants) and not results.comparisons:
            notes.append("There are no paired tests (comparisons.json).")
        if not self.provenance:
            notes.append("There is no record of time and tokens (provenance.json).")
        if not set(AVERAGED) <= set(results.tasks):
            notes.append("The average over the seven tasks needs all of them.")
        return notes


@paused_collection()
def read_run(run_dir: Path) -> Run:
    """Read a run folder; missing results are an error."""
    require_whole(run_dir)
    recipe, recipe_text = read_recipe(run_dir / RECIPE)
    named = recipe.get("variants")
    named = [check_name(str(v), "variant") for v in named] if isinstance(named, dict) else []
    home = run_dir / "variants"
    folders = sorted(p.name for p in home.glob("[!.]*/"))
    logs = {v: log for v in dict.fromkeys([*named, *folders]) if (log := read_log(home / v))}
    seconds = {
        v: log[-1]["seconds"] / log[-1]["step"] for v, log in logs.items() if log[-1].get("seconds")
    }
    frame, tests = load_results(run_dir), read_comparisons(run_dir / COMPARISONS)
    known = recipe.get("languages")
    languages = frozenset(map(str, known)) if isinstance(known, list) else frozenset()
    repeated = _find_repeated(recipe.get("variants"))
    for row in frame["variant"].dropna().unique():
        trained = find_trained(row)
        if row != trained in repeated:
            repeated[row] = row.replace(trained, repeated[trained], 1)
    results = Results(
        frame, tests, step_seconds=seconds, repeated=repeated, text_languages=languages
    )
    variants = list(dict.fromkeys([*named, *results.variants, *folders]))
    places = {v: home / v / COVERAGE for v in variants}
    notes = read_text(run_dir / DATA_NOTES) if (run_dir / DATA_NOTES).is_file() else ""
    run = Run(
        name=str(recipe.get("name") or run_dir.resolve().name),
        results=results,
        variants=variants,
        recipe=recipe,
        recipe_text=recipe_text,
        logs={v: logs[v] for v in variants if v in logs},
        meta_log=read_log(run_dir / "meta"),
        examples=_read_examples(run_dir, variants),
        confused=_read_confused(run_dir, variants, set(frame["origin"])),
        coverage={v: _read_object(path) for v, path in places.items() if path.is_file()},
        dictionaries={v: one for v in variants if (one := _read_dictionaries(home / v))},
        provenance=_read_object(path) if (path := run_dir / PROVENANCE).is_file() else {},
        notes=[line.strip() for line in notes.splitlines() if line.strip()],
    )
    # A variant that copies no word embeddings may still have a record of what could be copied.
    for variant in [v for v in run.coverage if "words" not in run.list_copied_parts(v)]:
        del run.coverage[variant]
    return run


def _find_repeated(variants: Any) -> dict[str, str]:
    """Return the variants whose settings are those of an earlier one with another seed."""
    first: list[tuple[Row, str]] = []
    repeated: dict[str, str] = {}
    for name, settings in variants.items() if isinstance(variants, dict) else ():
        if isinstance(settings, dict):
            others = {k: v for k, v in settings.items() if k != "seed" and v is not None}
            earlier = next((known for found, known in first if found == others), None)
            if earlier is None:
                first.append((others, str(name)))
            elif settings.get("seed") is not None:
                repeated[str(name)] = earlier
    return repeated


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
    if (path := find_log(folder)) is None:
        return []
    require_whole(path)
    by_step = {}
    for number, row in enumerate(read_rows(path), start=1):
        if "held_out" in row or "spike" in row or row.get("loss", ...) is None:  # no training loss
            continue
        if not isinstance(row.get("step"), int) or not isinstance(row.get("loss"), int | float):
            raise MetaXLMError(f"{path}:{number}: a log row needs `step` and `loss`")
        by_step[row["step"]] = row
    return [by_step[key] for key in sorted(by_step)]


def _read_examples(run_dir: Path, variants: Sequence[str]) -> dict[str, dict[str, list[Any]]]:

    def read(folder: Path) -> list[Any]:
        paths = sorted(folder.glob("*-*/cell.json"))
        return _read_object(paths[0]).get("examples", []) if paths else []

    return {v: {task: read(run_dir / "cells" / v / task) for task in FEATURES} for v in variants}


def _read_confused(run_dir: Path, variants: Sequence[str], origins: set[str]) -> list[Row]:
    """Read the evaluations that the results come from; older ones may still be in the folder."""
    records: list[Row] = []
    folders = (run_dir / "cells" / variant for variant in variants)
    for path in chain.from_iterable(sorted(f.glob("[!.]*/[!.]*-*/cell.json")) for f in folders):
        record = _read_object(path)
        if any(file.get("confusion") for file in record.get("files", ())):
            made = str(read_manifest(path.parent)["fingerprint"])
            records += [record] if made[:ORIGIN_DIGITS] in origins else []
    return records


def _read_dictionaries(folder: Path) -> dict[str, Row]:
    places = (folder / place for place in DICTIONARY_PLACES)
    return next((_read_object(path) for path in places if path.is_file()), {})


def _read_object(path: Path) -> dict[str, Any]:
    require_whole(path)
    value = read_json(path)
    if not isinstance(value, dict):
        raise MetaXLMError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def collect_examples(
    run: Run, task: str, key: Sequence[str], most_per_language: int
) -> dict[str, list[dict[str, Any]]]:
    """Group the examples of all variants by language and sentence, the first few of each language.

    `key` names the fields that identify a sentence. Examples are in the order in which each
    variant's evaluation stored them, so that none is picked by its outcome; where a variant stored
    a sentence at several layers, its best layer is shown.
    """
    results = run.results
    layers = results.best_layers(task, results.variants) if task in results.tasks else {}
    by_sentence: dict[str, dict[str, dict[str, Any]]] = {}
    for variant in run.variants:
        stored = run.examples[variant][task]
        for example in sorted(stored, key=lambda one: one.get("layer") != layers.get(variant)):
            sentences = by_sentence.setdefault(example["language"], {})
            sentence = sentences.setdefault(repr([example[name] for name in key]), {})
            sentence.setdefault(variant, _describe_example(example, task))
    return {
        language: list(sentences.values())[:most_per_language]
        for language, sentences in by_sentence.items()
    }


def _describe_example(example: dict[str, Any], task: str) -> dict[str, Any]:
    """Add the outcome of a retrieval, or the kinds of word links as a matrix."""
    if task == "tatoeba":
        return {**example, "is_right": example["found"] == example["expected"]}
    links = classify_links(*(map(tuple, example[k]) for k in ("predicted", "sure", "possible")))
    kinds = {link: kind for kind, some in links.items() for link in some}
    columns = range(len(example["target_words"]))
    matrix = [
        (word, [kinds.get((i, j), "") for j in columns])
        for i, word in enumerate(example["source_words"])
    ]
    return {**example, "matrix": matrix, "summary": describe_links(links)}
