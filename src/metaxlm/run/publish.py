"""Publish a run: copy the inputs of its report into a folder small enough for a repository.

The folder has results and tests between variants (compressed), recipe, provenance, training logs
and coverage, and the report made from these files; `metaxlm report FOLDER` makes it again. It has
no weights and no predictions; with tallies, the tests over examples can be redone.

`publish --add` adds the jobs that a publication lacks, from another run of the same recipe.
Published scores are kept. A run with other settings, training runs or test sets is rejected,
because its scores are not comparable. Training runs are equal if all values of their logs are.
Where the publication has tallies, added models are tested against the published ones too.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from metaxlm import files
from metaxlm.analysis import results, run_folder
from metaxlm.analysis.report import fill_report, write_report
from metaxlm.analysis.run_folder import read_run
from metaxlm.analysis.stats import COMPARISONS, read_comparisons
from metaxlm.errors import MetaXLMError
from metaxlm.finetune.catalog import TASKS
from metaxlm.manifest import atomic_folder, list_foreign_files
from metaxlm.recipe.model_schema import rename_precedence
from metaxlm.recipe.recipe_file import save_values
from metaxlm.run.compare import compare_models
from metaxlm.run.jobs import FinishedJob
from metaxlm.run.layout import RunLayout
from metaxlm.run.stage import Stage, list_changes
from metaxlm.run.tallies import (
    Tallies,
    collect_tallies,
    list_published_jobs,
    list_tally_files,
    read_tallies,
    write_tallies,
)

_JOB = ("model", "task", "source", "seed")
_SPEED = frozenset({"tokens_per_second", "peak_share", "seconds"})
"""Columns of a log that depend on the machine."""
_MAY_DIFFER = {
    "corpus": ("path", "decontaminate"),
    "matching": ("dictionaries",),
    "meta": ("model",),
    "vocabulary": ("model",),
    "sentences": ("teacher", "text", "dictionaries", "parallel"),
    "evaluation": ("data", "grid"),
}
"""Recipe keys with paths, or that only select jobs."""
_NOT_COMPARED = ("engine", "execution", "variants")
"""Sections that do not decide scores, or that are compared by name."""

_ELSEWHERE = "publish into another folder"

Facts = dict[str, Any]


def report_stage(layout: RunLayout, stages: Sequence[Stage]) -> Stage:
    """Return the last stage of a run, which makes the report when a score or the recipe changed."""

    def fill(folder: Path) -> None:
        fill_report(read_run(layout.root), folder)

    finished = tuple(stage for stage in stages if stage.is_complete())
    inputs = {
        "recipe": files.digest_file(layout.recipe),
        "results": files.digest_file(layout.root / results.FILE_NAME),
    }
    return Stage("report", layout.report, inputs, finished, fill, version=5)


def publish(run_dir: Path, folder: Path, *, with_tallies: bool = False) -> None:
    """Write the folder atomically; an earlier publication of the run is replaced.

    It is not replaced if it has jobs or tallies that the run lacks, and tallies stay published.
    """
    run = read_run(run_dir)
    _check_place(run.name, run_dir, folder)
    earlier = read_tallies(folder)
    tallies = collect_tallies(run_dir) if with_tallies or earlier else {}
    lost = _list_scored(folder) - _list_scored(run_dir)
    lost |= {f"tallies of {key.title}" for key in earlier.keys() - tallies.keys()}
    if lost:
        what = f"has results that {run_dir} lacks ({len(lost)}, such as {min(lost)})"
        raise MetaXLMError(f"{folder}: {what}; use --add to keep them, or {_ELSEWHERE}")
    with atomic_folder(folder) as target:
        for name in (results.FILE_NAME, COMPARISONS):
            if (run_dir / name).is_file():
                files.pack(files.read_text(run_dir / name), target / f"{name}{files.PACKED}")
        for name in (run_folder.RECIPE, run_folder.PROVENANCE):
            _copy(run_dir / name, target / name)
        _copy_logs(run_dir, target, run.variants)
        for notes in (run_dir / run_folder.DATA_NOTES, folder / run_folder.DATA_NOTES):
            _copy(notes, target / run_folder.DATA_NOTES)
        if with_tallies or earlier:
            write_tallies(target, tallies)
        write_report(target)


def publish_more(run_dir: Path, folder: Path, *, with_tallies: bool = False) -> Addition:
    """Add the run's jobs that the publication lacks, and their tallies; published ones stay."""
    run = read_run(run_dir)
    _check_place(run.name, run_dir, folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        raise MetaXLMError(f"{folder}: nothing is published there yet; leave out --add")
    addition = add_run(folder, run_dir)
    if not addition.num_added:
        raise MetaXLMError(f"{run_dir}: has no job that {folder} lacks; nothing was changed")
    with atomic_folder(folder) as target:
        files.pack(results.dump_lines(addition.rows), target / f"{results.FILE_NAME}{files.PACKED}")
        files.pack(files.dump_json(addition.comparisons), target / f"{COMPARISONS}{files.PACKED}")
        files.write_text(target / run_folder.RECIPE, save_values(addition.recipe))
        files.write_json(target / run_folder.PROVENANCE, addition.provenance)
        for source in (run_dir, folder):  # published files replace those of the run
            _copy_logs(source, target, [*addition.recipe["variants"]])
            _copy(source / run_folder.DATA_NOTES, target / run_folder.DATA_NOTES)
        for path in (published := list_tally_files(folder)):
            _copy(path, target / path.name)
        if addition.tallies and (with_tallies or published):
            write_tallies(target, addition.tallies)
        write_report(target)
    return addition


def _list_scored(folder: Path) -> set[str]:
    """Return the titles of all jobs in the results of a folder."""
    path = files.find_packed(folder / results.FILE_NAME)
    rows = results.read_rows(path) if path.is_file() else []
    title = "{variant} {task} {source}-{seed} at step {step}"
    keys = ("variant", "task", "source", "seed", "step")
    return {title.format(**{k: row.get(k) for k in keys}) for row in rows if row.get("variant")}


def _list_trainings(variants: Iterable[str]) -> list[str]:
    """Return the folders of all trainings below a run, whether they exist or not."""
    places = (f"variants/{name}{part}" for name in variants for part in ("", "/sentences"))
    return ["meta", *places]


def _copy_logs(source: Path, target: Path, variants: Iterable[str]) -> None:
    for training in _list_trainings(variants):
        if (log := run_folder.find_log(source / training)) is not None:
            _copy(log, target / training / run_folder.LOG)
        for name in (run_folder.COVERAGE, *run_folder.DICTIONARY_PLACES):
            _copy(source / training / name, target / training / name)


def _check_place(name: str, run_dir: Path, folder: Path) -> None:
    """Reject a folder that contains anything but an earlier publication of the run."""
    files.check_output(folder, [run_dir])
    if folder.resolve().is_relative_to(run_dir.resolve()):
        raise MetaXLMError(f"{folder}: is inside the run; name a folder elsewhere")
    list_foreign_files(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    is_published = (folder / f"{results.FILE_NAME}{files.PACKED}").is_file()
    if not is_published or read_run(folder).name != name:
        fix = "name another folder"
        raise MetaXLMError(f"{folder}: exists and is not a publication of {name}; {fix}")


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


@dataclass(frozen=True)
class Addition:
    """A publication joined with a run."""

    rows: list[results.Row]
    comparisons: dict[str, Facts]
    provenance: Facts
    recipe: Facts
    tallies: Tallies  # those that are not published
    num_added: int  # number of new jobs
    num_again: int  # number of jobs that both have; the published ones are kept
    num_changed: int  # number of those with other scores in the run

    def describe(self) -> str:
        """Return a summary for the user."""
        added = f"added {self.num_added} {'job' if self.num_added == 1 else 'jobs'}"
        if not self.num_again:
            return added
        changed = self.num_changed or "none"
        return f"{added}; kept {self.num_again} as published ({changed} had other scores this time)"


def add_run(published: Path, run_dir: Path) -> Addition:
    """Join a publication and a run of the same recipe, or raise an error that says how they differ.

    Tests between variants are added if the run's scores are the published ones. All others are made
    from tallies, if both have them.
    """
    recipe = _join_recipes(published, run_dir)
    _check_logs(published, run_dir)
    # Baselines have a row for each evaluation.
    identity = (*results.IDENTITY, "origin")
    folders = (published, run_dir)
    old, new = (results.read_scores(one / results.FILE_NAME, identity) for one in folders)
    _check_sizes(old, new, run_dir)
    first, second = map(_read_provenance, folders)
    known = {_name_job(job): job for job in first["cells"]}
    jobs = [job for job in second["cells"] if _name_job(job) not in known]
    again = [(known[name], job) for job in second["cells"] if (name := _name_job(job)) in known]
    old_scores, new_scores = _group_scores(old), _group_scores(new)
    changed = []
    for published_job, job in again:
        if old_scores[_origin(published_job)] != new_scores[_origin(job)]:
            changed.append(job)
        elif "losses" in job:
            published_job.setdefault("losses", job["losses"])
    shown = {(job["model"], job["task"]) for job in second["cells"]}
    shown -= {(job["model"], job["task"]) for job in changed}
    origins = set(map(_origin, jobs))
    rows = [*old, *(row for row in new if row.get("origin") in origins)]
    tests = _join_comparisons(_read_comparisons(published), _read_comparisons(run_dir), shown)
    earlier, collected = read_tallies(published), collect_tallies(run_dir)
    tallies = {key: found for key, found in collected.items() if key not in earlier}
    if earlier:
        measured = list_published_jobs(rows, [*first["cells"], *jobs], tallies | earlier)
        more = _redo_tests(measured, recipe["variants"], jobs)
        tests = _join_comparisons(tests, more, {(job.key.model, job.key.task) for job in measured})
    stages = _join_stages(first["stages"], second["stages"], run_dir)
    provenance = {**first, "digest": files.digest_value(recipe), "stages": stages}
    provenance["cells"] = [*first["cells"], *jobs]
    counts = (len(jobs), len(again), len(changed))
    return Addition(rows, tests, provenance, recipe, tallies, *counts)


def _join_recipes(published: Path, run_dir: Path) -> Facts:
    """Add the variants and grid blocks of the run's recipe; reject other differences."""
    old, new = (_read_recipe(folder / run_folder.RECIPE) for folder in (published, run_dir))
    changes = list_changes(_keep_deciding(old), _keep_deciding(new))
    for name, variant in old["variants"].items():
        if name in new["variants"]:
            changes += list_changes(variant, new["variants"][name], f"variants.{name}")
    if changes:
        found = "; ".join(changes[:3])
        raise MetaXLMError(f"{published}: was made with another recipe ({found}); {_ELSEWHERE}")
    first, second = (recipe["evaluation"].get("grid") or [] for recipe in (old, new))
    grid = [*first, *(block for block in second if block not in first)]
    variants = {**old["variants"], **new["variants"]}
    return {**old, "variants": variants, "evaluation": {**old["evaluation"], "grid": grid}}


def _read_recipe(path: Path) -> Facts:
    recipe = run_folder.read_recipe(path)[0]
    if not all(isinstance(recipe.get(key), dict) for key in ("variants", "evaluation")):
        raise MetaXLMError(f"{path}: has no variants and evaluation; restore it")
    if not _is_table(recipe["evaluation"].get("grid") or [], ()):
        raise MetaXLMError(f"{path}: evaluation.grid is not a list of blocks; restore it")
    variants = [variant for variant in recipe["variants"].values() if isinstance(variant, dict)]
    for section in (recipe, *variants):
        if isinstance(matching := section.get("matching"), dict) and "precedence" in matching:
            matching["precedence"] = rename_precedence(matching["precedence"])
    return recipe


def _keep_deciding(recipe: Mapping[str, Any]) -> Facts:
    kept = {name: value for name, value in recipe.items() if name not in _NOT_COMPARED}
    for section, keys in _MAY_DIFFER.items():
        if isinstance(kept.get(section), dict):
            kept[section] = {k: v for k, v in kept[section].items() if k not in keys}
    return kept


def _check_logs(published: Path, run_dir: Path) -> None:
    names = sorted(path.name for path in (run_dir / "variants").glob("[!.]*"))
    for training in _list_trainings(names):
        logs = [run_folder.find_log(folder / training) for folder in (published, run_dir)]
        rows = [results.read_rows(log) for log in logs if log is not None]
        # Other versions warn of other things.
        kept = [[row for row in log if "spike" not in row] for log in rows]
        cut = [[{k: v for k, v in row.items() if k not in _SPEED} for row in log] for log in kept]
        if len(cut) < 2 or cut[0] == cut[1]:
            continue
        old, new = cut
        pairs = zip(old, new, strict=False)
        changes = next((list_changes(*pair) for pair in pairs if pair[0] != pair[1]), [])
        found = changes[0] if changes else f"rows of the log: {len(old)} -> {len(new)}"
        what = f"differs from the published training run ({found})"
        raise MetaXLMError(f"{run_dir / training}: {what}; {_ELSEWHERE}")


def _check_sizes(old: Sequence[results.Row], new: Sequence[results.Row], run_dir: Path) -> None:
    def name(row: results.Row) -> tuple[Any, ...]:
        return row["task"], row.get("split"), row.get("language")

    sizes = {name(row): row.get("examples") for row in old}
    for row in new:
        found = row.get("examples")
        if (expected := sizes.get(name(row), found)) != found:
            what = f"{' '.join(map(str, name(row)))} has {found} examples, the published one"
            raise MetaXLMError(f"{run_dir}: {what} {expected}; evaluate on the same data")


def _read_provenance(folder: Path) -> Facts:
    path = folder / run_folder.PROVENANCE
    found = files.read_json(path)
    tables = {"stages": ("title",), "cells": (*_JOB, "origin")}.items()
    is_dict = isinstance(found, dict)
    if not is_dict or not all(_is_table(found.get(name), keys) for name, keys in tables):
        raise MetaXLMError(f"{path}: has no stages and cells; collect them again")
    return dict(found)


def _is_table(rows: Any, keys: Sequence[str]) -> bool:
    """Return whether this is a list of objects with text or an integer under each key."""
    return isinstance(rows, list) and all(
        isinstance(row, dict) and all(isinstance(row.get(key), str | int) for key in keys)
        for row in rows
    )


def _name_job(job: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(job[key] for key in _JOB)


def _origin(job: Mapping[str, Any]) -> str:
    return str(job["origin"])[: results.ORIGIN_DIGITS]


def _group_scores(rows: Sequence[results.Row]) -> dict[str, dict[tuple[Any, ...], float]]:
    found: dict[str, dict[tuple[Any, ...], float]] = defaultdict(dict)
    for row in rows:
        place = tuple(row.get(key) for key in ("language", "split", "layer", "metric"))
        found[row.get("origin", "")][place] = row["value"]
    return found


def _join_stages(old: Sequence[Facts], new: Sequence[Facts], run_dir: Path) -> list[Facts]:
    """Add new stages, and the digests of weights to published stages without one."""
    again = {stage["title"]: stage for stage in new}
    joined: list[Facts] = []
    for stage in old:
        weights = again.pop(stage["title"], {}).get("weights")
        if weights and stage.get("weights", weights) != weights:
            what = f"{stage['title']} has other weights than the published one"
            raise MetaXLMError(f"{run_dir}: {what}; {_ELSEWHERE}")
        joined.append({**stage, "weights": weights} if weights else stage)
    return [*joined, *again.values()]


def _redo_tests(
    measured: Iterable[FinishedJob], variants: Iterable[str], added: Iterable[Facts]
) -> dict[str, Facts]:
    """Test final models by published tallies, each pair of which one has an added job."""
    finals = [job for job in measured if job.key.model == job.record["variant"]]
    names = list(dict.fromkeys([*variants, *(job.key.model for job in finals)]))
    changed = {(job["model"], job["task"]) for job in added}
    tests, _ = compare_models(finals, TASKS, names, with_layers=True, changed=changed)
    return {files.digest_value(values): values for values in map(asdict, tests)}


def _join_comparisons(
    old: Mapping[str, Facts],
    new: Mapping[str, Facts],
    shown: Set[tuple[str, str]],
) -> dict[str, Facts]:
    """Add tests that are missing or of fewer seeds, if both models are `shown` as in the new."""
    joined = dict(old)

    def name(test: Facts, pair: Facts) -> tuple[Any, ...]:
        place = tuple(test.get(key) for key in ("task", "scenario", "metric", "layer"))
        return (*place, pair["first"], pair["second"])

    tests = joined.values()
    known = {name(test, pair): test["num_seeds"] for test in tests for pair in test["pairs"]}
    for key, test in new.items():
        better = [
            pair
            for pair in test["pairs"]
            if {(pair[side], test["task"]) for side in ("first", "second")} <= shown
            and known.get(name(test, pair), 0) < test["num_seeds"]
        ]
        if not better:
            continue
        replaced = {name(test, pair) for pair in better}
        for other, earlier in list(joined.items()):
            kept = [pair for pair in earlier["pairs"] if name(earlier, pair) not in replaced]
            joined[other] = {**earlier, "pairs": kept}
        joined[files.digest_value([key, better])] = {**test, "pairs": better}
    return {key: test for key, test in joined.items() if test["pairs"]}


def _read_comparisons(folder: Path) -> dict[str, Facts]:
    path = files.find_packed(folder / COMPARISONS)
    read_comparisons(path)  # rejects a damaged file
    return dict(files.read_json(path)) if path.is_file() else {}
