"""Collect the results of a run, and test models against each other.

`collect_results` writes the files that reports need: `results.jsonl` (one row per score),
`comparisons.json` (paired tests between variants) and `provenance.json` (fingerprints, digests of
weights, time, steps, tokens, losses of finetuning). `compare_models` compares means over languages,
then over seeds, as in the paper's tables: two models are tested on the same examples of the same
files, with tallies summed over their common seeds (`analysis/stats.py`). P-values by language are
corrected by Holm's method.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from metaxlm import __version__
from metaxlm.analysis import results, stats
from metaxlm.analysis.results import LanguagePair
from metaxlm.analysis.run_folder import PROVENANCE
from metaxlm.analysis.scores import Results
from metaxlm.analysis.stats import TaskComparison, compare_pairs
from metaxlm.digests import CARD, require_whole, write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_value, dump_json, link, read_json
from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.task import Tally, Task
from metaxlm.hub import CONFIG
from metaxlm.manifest import MARKER, atomic_folder, read_sealed
from metaxlm.model.card import model_card
from metaxlm.model.model_folder import WEIGHTS
from metaxlm.progress import say
from metaxlm.recipe import Recipe
from metaxlm.run.jobs import PREDICTIONS, FinishedJob, JobKey
from metaxlm.run.layout import RunLayout
from metaxlm.run.stage import Stage
from metaxlm.run.task_plans import FEATURE_TASKS, PIVOT, name_tally, score_sums
from metaxlm.run.training import TRAINING_LOG

LAYER_RESAMPLES = 2_000  # fewer than for tasks, because every layer is tested


def collect_results(
    recipe: Recipe, layout: RunLayout, stages: Sequence[Stage], jobs: Sequence[FinishedJob]
) -> list[dict[str, Any]]:
    """Write the results of finished jobs, and update the model cards; return the rows."""
    rows = [row for job in jobs for row in make_rows(job, recipe.name, job.record["variant"])]
    if not rows:
        return []
    results.write_results(layout.root / results.FILE_NAME, rows)
    finals = [job for job in jobs if job.record["step"] == recipe.pretraining.steps]
    names = list(dict.fromkeys([*recipe.variants, *(job.key.model for job in finals)]))
    compare_models(finals, TASKS, names, layout.root / stats.COMPARISONS, with_layers=True)
    finished = [stage for stage in stages if stage.was_made()]
    values = recipe.model_dump(mode="json")
    provenance = describe_provenance(values, layout, stages, finished, jobs)
    write_listed(layout.root, PROVENANCE, dump_json(provenance))
    plain = [asdict(row) for row in rows]
    scores = Results(results.make_frame(plain))  # all cards share what it remembers
    for stage in finished:
        if stage.name == "pretrain" and stage.variant is not None:
            architecture = read_json(stage.output / CONFIG)["architectures"][0]
            card = model_card(values, stage.variant, scores, architecture)
            write_listed(stage.output, CARD, card)
    return plain


def make_rows(job: FinishedJob, run: str, variant: str) -> list[results.Result]:
    """Return a row per score of a job."""
    step, seed = job.record["step"], job.key.seed
    return list(results.list_rows(job.record, run, variant, step, seed, job.origin, job.metaxlm))


def describe_provenance(
    recipe: Mapping[str, Any],
    layout: RunLayout,
    stages: Sequence[Stage],
    finished: Sequence[Stage],
    jobs: Sequence[FinishedJob],
) -> dict[str, Any]:
    """Return versions, stages and jobs of a run, including those of other recipes in its folder."""
    variants = {stage.variant for stage in stages}
    folders = [path.parent for path in sorted(layout.root.glob(f"variants/*/model/{MARKER}"))]
    names = [(folder.parent.name, folder) for folder in folders]
    others = [(f"pretrain {name}", name, path) for name, path in names if name not in variants]
    made = [(stage.title, stage.variant, stage.output) for stage in finished]
    cells = []
    for job in jobs:
        facts: dict[str, Any] = {"origin": job.origin, "metaxlm": job.metaxlm}
        facts |= {name: job.record.get(name) for name in ("seconds", "device")}
        if epochs := job.record.get("epochs"):
            facts["losses"] = [round(epoch["loss"], 4) for epoch in epochs]
        cells.append(asdict(job.key) | facts)
    rows = [
        {"title": title, "variant": variant, **_read_stage(folder)}
        for title, variant, folder in [*made, *others]
    ]
    about = {"recipe": recipe["name"], "digest": digest_value(recipe), "metaxlm": __version__}
    return {**about, "torch": torch.__version__, "stages": rows, "cells": cells}


def _read_stage(folder: Path) -> dict[str, Any]:
    marker, log = read_sealed(folder / MARKER), folder / TRAINING_LOG
    facts = {name: marker.get(name) for name in ("fingerprint", "seconds", "device", "finished")}
    if log.is_file():
        require_whole(log)
    rows = [row for row in results.read_rows(log) if "tokens" in row] if log.is_file() else []
    last = max(rows, key=lambda row: int(row["step"]), default={})
    facts |= {"steps": last.get("step"), "tokens": last.get("tokens")}
    if WEIGHTS in marker["files"]:
        facts["weights"] = marker["files"][WEIGHTS]["sha256"]
    return facts


@dataclass(frozen=True)
class _Answers:
    """The tally of one job for one language pair."""

    job: FinishedJob
    pair: LanguagePair
    tally: str
    examples: str
    """Equal for the same examples: the file with its fingerprint, and the number of examples."""


@dataclass
class _Pool:
    """Pairs of models with the same common language pairs and seeds; they share resamples."""

    units: tuple[LanguagePair, ...]
    seeds: frozenset[int]
    pairs: list[tuple[str, str]] = field(default_factory=list)
    by_model: dict[str, list[_Answers]] = field(default_factory=dict)

    def describe(self) -> list[Any]:
        """Return everything that decides the tests, as JSON values."""
        jobs = (answer.job for answers in self.by_model.values() for answer in answers)
        used = {job.origin for job in jobs if job.key.seed in self.seeds}
        return [self.pairs, self.units, sorted(self.seeds), sorted(used)]

    def sum_tallies(self, model: str) -> list[Tally]:
        """Add the tallies of all seeds, for each language pair."""
        sums: dict[LanguagePair, Tally] = {}
        read: dict[Path, dict[str, Tally]] = {}
        for answer in self.by_model[model]:
            job, pair = answer.job, answer.pair
            if job.key.seed in self.seeds and pair in self.units:
                if job.folder not in read:
                    read = {job.folder: job.read_tallies()}
                tally = read[job.folder][answer.tally]
                sums[pair] = sums[pair] + tally if pair in sums else tally
        return [sums[pair] for pair in self.units]


def compare_models(
    jobs: Sequence[FinishedJob],
    tasks: Mapping[str, Task[Any, Any]],
    models: Sequence[str],
    store: Path | None = None,
    resamples: int = stats.RESAMPLES,
    *,
    with_layers: bool = False,
    changed: Collection[tuple[str, str]] | None = None,
) -> tuple[list[TaskComparison], list[str]]:
    """Test every two models on every task and scenario; also return messages about missing tests.

    With layers, tasks without finetuning are tested at every layer. Results are stored in the file
    `store`, and read from it if the jobs did not change. If models and tasks are given as
    `changed`, only the tests with one of these are made.
    """
    known = _read_store(store)
    fresh: dict[str, Any] = {}
    notes = []
    for (task, scenario), answers in _group_answers(jobs).items():
        grouped = {name: [a for a in answers if a.job.key.model == name] for name in models}
        by_model = {name: found for name, found in grouped.items() if found}
        if len(by_model) < 2:
            continue
        if task not in tasks:
            notes.append(f"{task}: not tested, name its YAML file with --task")
            continue
        tested = {name for name in by_model if changed is None or (name, task) in changed}
        pools, apart = _pool_pairs(by_model, tested)
        if apart:
            names = ", ".join(f"{first} and {second}" for first, second in apart)
            why = "no files or no seeds in common"
            notes.append(f"{task} ({scenario}): not tested, {why}: {names}")
        for pool in pools:
            key = digest_value([resamples, scenario, *pool.describe()])
            fresh[key] = known.get(key) or asdict(_compare(tasks[task], scenario, pool, resamples))
    for task in FEATURE_TASKS if with_layers else ():
        measured = [job for job in jobs if job.key.task == task and job.key.model in models]
        tested = {
            job.key.model for job in measured if changed is None or (job.key.model, task) in changed
        }
        if not tested:
            continue
        inputs = [sorted(job.origin for job in measured), list(models)]
        inputs += [sorted(tested)] if changed is not None else []
        for layer in _list_layers(measured):
            key = digest_value([*inputs, layer])
            found = known.get(key) or asdict(_compare_layer(task, layer, measured, models, tested))
            fresh[key] = found
    if store is not None:
        write_listed(store.parent, store.name, dump_json(fresh))
    return [stats.restore_comparison(values) for values in fresh.values()], notes


def _compare(task: Task[Any, Any], scenario: str, pool: _Pool, resamples: int) -> TaskComparison:
    tallies = {name: pool.sum_tallies(name) for name in pool.by_model}
    what = f"{len(tallies)} models on {len(pool.units)} language pairs"
    say(f"{task.name} ({scenario}): testing {what}")

    def score(totals: Tally) -> Tally:
        return task.summarize(totals)[task.metric]

    pairs = []
    for pair in compare_pairs(tallies, score, resamples=resamples, pairs=pool.pairs):
        found = pair.by_language
        corrected = stats.correct_holm([difference.p_value for difference in found])
        both = zip(found, corrected, strict=True)
        pairs.append(replace(pair, by_language=tuple(replace(d, p_value=p) for d, p in both)))
    sizes = tuple(len(tally) for tally in next(iter(tallies.values())))
    return TaskComparison(
        task.name, scenario, task.metric, pool.units, sizes, len(pool.seeds), tuple(pairs)
    )


def _compare_layer(
    task: str,
    layer: int,
    jobs: Sequence[FinishedJob],
    models: Sequence[str],
    tested: Collection[str],
) -> TaskComparison:
    """Test every two models at one layer of a task without finetuning, by the mean of languages.

    One of the two is among `tested`.
    """
    by_model = {job.key.model: job.read_tallies() for job in jobs}
    ordered = {name: by_model[name] for name in models if name in by_model}
    names = (name for tallies in ordered.values() for name in tallies)
    languages = [
        language
        for language in dict.fromkeys(name.rpartition("-")[0] for name in names)
        if len({len(t.get(name_tally(language, layer), ())) for t in ordered.values()}) == 1
        and all(name_tally(language, layer) in tallies for tallies in ordered.values())
    ]
    keys = [name_tally(language, layer) for language in languages]
    counts = {name: [tallies[key] for key in keys] for name, tallies in ordered.items()}
    wanted = [pair for pair in combinations(counts, 2) if pair[0] in tested or pair[1] in tested]
    found = compare_pairs(
        counts, lambda sums: score_sums(task, sums), resamples=LAYER_RESAMPLES, pairs=wanted
    )
    pairs = tuple(replace(pair, by_language=()) for pair in found)
    sizes = tuple(len(tally) for tally in next(iter(counts.values())))
    units = tuple((PIVOT, language) for language in languages)
    return TaskComparison(
        task,
        "features",
        {**results.TASKS, **results.MORE_FEATURES}[task].metric,
        units,
        sizes,
        1,
        pairs,
        layer,
    )


def _list_layers(jobs: Sequence[FinishedJob]) -> list[int]:
    if len(jobs) < 2:
        return []
    sets = [{int(name.rpartition("-")[2]) for name in job.read_tallies()} for job in jobs]
    return sorted(set.intersection(*sets))


def list_tested(jobs: Sequence[FinishedJob]) -> set[tuple[JobKey, str]]:
    """Return the tallies of finetuned jobs that tests use, by job and name."""
    every = _group_answers(jobs).values()
    return {(answer.job.key, answer.tally) for answers in every for answer in answers}


def _group_answers(jobs: Sequence[FinishedJob]) -> dict[tuple[str, str], list[_Answers]]:
    """Group answers by task and scenario; use one split of each task."""
    found: dict[tuple[str, str], list[_Answers]] = {}
    for task in dict.fromkeys(job.key.task for job in jobs):
        mine = [job for job in jobs if job.key.task == task and job.record["kind"] != "features"]
        scored = [(job, file) for job in mine for file in job.record["files"]]
        scored = [(job, file) for job, file in scored if file["num_examples"]]
        places = ((job.key.model, file["name"], file["language"]) for job, file in scored)
        splits = results.choose_splits(places)
        for job, file in scored:
            language = file["language"]
            if splits.get((job.key.model, language)) != file["name"]:
                continue
            listed = job.inputs.get("files", [])
            entries = [entry for entry in listed if entry[:2] == [file["name"], language]]
            examples = digest_value([entries, file["num_examples"], job.record["limit"]])
            pair, tally = (job.key.source, language), f"{file['split']}-{language}"
            answers = _Answers(job, pair, tally, examples)
            found.setdefault((task, results.find_scenario(job.record, language)), []).append(
                answers
            )
    return found


def _pool_pairs(
    by_model: Mapping[str, list[_Answers]], tested: Collection[str]
) -> tuple[list[_Pool], list[tuple[str, str]]]:
    """Group every two models by what both have; also return pairs with nothing in common.

    One of the two is among `tested`. A model with fewer seeds or languages must not reduce the
    tests between others.
    """
    pools: dict[tuple[tuple[LanguagePair, ...], frozenset[int]], _Pool] = {}
    apart = []
    order = dict.fromkeys(answer.pair for answers in by_model.values() for answer in answers)
    have = {
        name: {(a.pair, a.examples, a.job.key.seed) for a in answers}
        for name, answers in by_model.items()
    }
    for first, second in combinations(by_model, 2):
        if first not in tested and second not in tested:
            continue
        shared: dict[LanguagePair, set[int]] = {}
        for pair, _, seed in have[first] & have[second]:
            shared.setdefault(pair, set()).add(seed)
        units = tuple(pair for pair in order if pair in shared)
        seeds = frozenset(set.intersection(*shared.values()) if shared else ())
        if not seeds:
            apart.append((first, second))
            continue
        pool = pools.setdefault((units, seeds), _Pool(units, seeds))
        pool.pairs.append((first, second))
        pool.by_model |= {name: by_model[name] for name in (first, second)}
    return list(pools.values()), apart


def _read_store(store: Path | None) -> dict[str, Any]:
    """Return stored tests; a damaged file has none."""
    if store is None or not store.is_file():
        return {}
    try:
        require_whole(store)
        return dict(read_json(store))
    except (MetaXLMError, TypeError, ValueError):
        return {}


def link_predictions(output: Path, jobs: Sequence[FinishedJob]) -> None:
    """Link the predictions of all jobs in XTREME's layout: MODEL/seed-N/TASK/test-XX.tsv.

    Finetuning in another language than English is in `TASK/from-XX`, and predictions for the first
    M examples of each file are in `seed-N-first-M`.
    """
    with atomic_folder(output / PREDICTIONS) as temporary:
        for job in jobs:
            key, limit = job.key, job.record["limit"]
            seed = f"seed-{key.seed}-first-{limit}" if limit else f"seed-{key.seed}"
            folder = temporary / key.model / seed / key.task
            folder = folder if key.source == "en" else folder / f"from-{key.source}"
            for path in sorted((job.folder / PREDICTIONS).glob("test-*")):
                folder.mkdir(parents=True, exist_ok=True)
                link(path, folder / path.name)
