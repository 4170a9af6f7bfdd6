"""Paired tests between the models of an evaluation, from the tallies of its cells.

Scores are compared as the paper's tables have them: mean over languages, then over seeds. Two
models are tested on the same examples of the same files, their tallies summed over the seeds that
both have (`analysis/stats.py`); p-values by language are corrected after Holm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from metaxlm.analysis.results import TASKS, LanguagePair, choose_splits, find_scenario
from metaxlm.analysis.stats import (
    RESAMPLES,
    Floats,
    TaskComparison,
    compare_pairs,
    correct_holm,
    restore_comparison,
)
from metaxlm.digests import require_whole, write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_value, dump_json, link, read_json
from metaxlm.finetune.task import Tally, Task
from metaxlm.manifest import atomic_folder
from metaxlm.progress import say
from metaxlm.run.cells import PREDICTIONS, StoredCell
from metaxlm.run.features import (
    FEATURE_TASKS,
    PIVOT,
    name_tally,
    score_sums,
)

LAYER_RESAMPLES = 2_000
"""There are many layers, and nobody asks for the fourth digit."""


@dataclass(frozen=True)
class _Answers:
    """What one cell says about one unit."""

    cell: StoredCell
    unit: LanguagePair
    place: str
    """Name of the tally."""
    identity: str
    """Equal for the same examples."""


@dataclass
class _Pool:
    """Pairs of models with the same units and seeds in common; they share their draws."""

    units: tuple[LanguagePair, ...]
    seeds: frozenset[int]
    pairs: list[tuple[str, str]] = field(default_factory=list)
    by_model: dict[str, list[_Answers]] = field(default_factory=dict)

    def describe(self) -> list[Any]:
        """Return what decides its tests, as JSON values."""
        cells = (answer.cell for found in self.by_model.values() for answer in found)
        used = {cell.fingerprint for cell in cells if cell.key.seed in self.seeds}
        return [self.pairs, self.units, sorted(self.seeds), sorted(used)]


def keep_current(
    cells: Sequence[StoredCell], wanted: Iterable[str] = ()
) -> tuple[list[StoredCell], list[str]]:
    """Leave out cells that were made in another way than their neighbors of other seeds.

    Of several ways, the one that was asked for counts (`wanted`: bases), else the newest.
    """
    asked = set(wanted)
    groups: dict[tuple[str, str, str], list[StoredCell]] = {}
    for cell in cells:
        groups.setdefault((cell.key.model, cell.key.task, cell.key.source), []).append(cell)
    kept, notes = [], []
    for (model, task, source), group in groups.items():
        bases = {cell.basis for cell in group}
        best = max(group, key=lambda cell: (cell.basis in asked, cell.written)).basis
        kept += [cell for cell in group if cell.basis == best]
        if len(bases) > 1:
            left = sorted(cell.key.seed for cell in group if cell.basis != best)
            notes.append(
                f"{model} {task} {source}: seeds {', '.join(map(str, left))} were made from other "
                f"settings or files and are left out"
            )
    return kept, notes


def compare_models(
    cells: Sequence[StoredCell],
    tasks: Mapping[str, Task[Any, Any]],
    models: Sequence[str],
    store: Path | None = None,
    resamples: int = RESAMPLES,
    *,
    with_layers: bool = False,
) -> tuple[list[TaskComparison], list[str]]:
    """Test every two models on every task and scenario; also say what could not be tested.

    With layers, the tasks without finetuning are tested at every layer. Results are kept in the
    file `store`, and taken from there if the cells are the same.
    """
    known = _read_store(store)
    fresh: dict[str, Any] = {}
    comparisons, notes = [], []
    for (task, scenario), answers in _gather(cells).items():
        by_model = _by_model(answers, models)
        if len(by_model) < 2:
            continue
        if task not in tasks:
            notes.append(f"{task}: not tested, name its YAML file with --task")
            continue
        pools, apart = _pool_pairs(by_model)
        if apart:
            names = ", ".join(f"{first} and {second}" for first, second in apart)
            notes.append(
                f"{task} ({scenario}): not tested, no files or no seeds in common: {names}"
            )
        for pool in pools:
            key = digest_value([resamples, scenario, *pool.describe()])
            fresh[key] = known.get(key) or asdict(_compare(tasks[task], scenario, pool, resamples))
            comparisons.append(restore_comparison(fresh[key]))
    for task in FEATURE_TASKS if with_layers else ():
        measured = [cell for cell in cells if cell.key.task == task and cell.key.model in models]
        ask = [sorted(cell.fingerprint for cell in measured), list(models)]
        for layer in _list_layers(measured):
            key = digest_value([*ask, layer])
            fresh[key] = known.get(key) or asdict(compare_layer(task, layer, measured, models))
            comparisons.append(restore_comparison(fresh[key]))
    if store is not None:
        write_listed(store.parent, store.name, dump_json(fresh))
    return comparisons, notes


def _compare(task: Task[Any, Any], scenario: str, pool: _Pool, resamples: int) -> TaskComparison:
    tallies = {
        name: _sum_tallies(found, pool.units, pool.seeds) for name, found in pool.by_model.items()
    }
    say(f"{task.name} ({scenario}): testing {len(tallies)} models, "
        f"{len(pool.units)} sets of examples")  # fmt: skip

    def score(totals: Tally) -> Floats:
        return task.summarize(totals)[task.metric]

    pairs = []
    for pair in compare_pairs(tallies, score, resamples=resamples, pairs=pool.pairs):
        corrected = correct_holm([difference.p_value for difference in pair.by_language])
        by_language = tuple(
            replace(difference, p_value=p)
            for difference, p in zip(pair.by_language, corrected, strict=True)
        )
        pairs.append(replace(pair, by_language=by_language))
    sizes = tuple(len(tally) for tally in next(iter(tallies.values())))
    return TaskComparison(
        task.name, scenario, task.metric, pool.units, sizes, len(pool.seeds), tuple(pairs)
    )


def compare_layer(
    task: str, layer: int, cells: Sequence[StoredCell], models: Sequence[str]
) -> TaskComparison:
    """Test every two models at one layer of a task without finetuning, by the mean of languages."""
    by_model = {cell.key.model: cell.read_tallies() for cell in cells}
    ordered = {name: by_model[name] for name in models if name in by_model}
    languages = [
        language
        for language in dict.fromkeys(
            name.rpartition("-")[0] for tallies in ordered.values() for name in tallies
        )
        if len({len(t.get(name_tally(language, layer), ())) for t in ordered.values()}) == 1
        and all(name_tally(language, layer) in tallies for tallies in ordered.values())
    ]
    counts = {
        name: [tallies[name_tally(language, layer)] for language in languages]
        for name, tallies in ordered.items()
    }
    found = compare_pairs(counts, lambda sums: score_sums(task, sums), resamples=LAYER_RESAMPLES)
    pairs = tuple(replace(pair, by_language=()) for pair in found)
    sizes = tuple(len(tally) for tally in next(iter(counts.values())))
    units = tuple((PIVOT, language) for language in languages)
    return TaskComparison(task, "features", TASKS[task].metric, units, sizes, 1, pairs, layer)


def _list_layers(cells: Sequence[StoredCell]) -> list[int]:
    """Return the layers that all cells have tallies of; none for fewer than two cells."""
    if len(cells) < 2:
        return []
    sets = [{int(name.rpartition("-")[2]) for name in cell.read_tallies()} for cell in cells]
    return sorted(set.intersection(*sets))


def _gather(cells: Sequence[StoredCell]) -> dict[tuple[str, str], list[_Answers]]:
    """Sort what cells say by task and scenario; one split of each task."""
    chosen = {
        task: choose_splits(
            (cell.key.model, file["name"], file["language"])
            for cell in cells
            if cell.key.task == task
            for file in cell.record["files"]
            if file["num_examples"]
        )
        for task in {cell.key.task for cell in cells}
    }
    found: dict[tuple[str, str], list[_Answers]] = {}
    for cell in cells:
        if cell.record["kind"] == "features":
            continue
        for file in cell.record["files"]:
            place = (cell.key.model, file["language"])
            if file["num_examples"] and chosen[cell.key.task].get(place) == file["name"]:
                scenario = find_scenario(cell.record, file["language"])
                answers = _Answers(
                    cell,
                    (cell.key.source, file["language"]),
                    f"{file['split']}-{file['language']}",
                    _identify(cell, file),
                )
                found.setdefault((cell.key.task, scenario), []).append(answers)
    return found


def _identify(cell: StoredCell, file: Mapping[str, Any]) -> str:
    """Return what is equal for the same examples: the file as it was, and how much of it."""
    facts = [
        entry
        for entry in cell.inputs.get("files", [])
        if entry[:2] == [file["name"], file["language"]]
    ]
    return digest_value([facts, file["num_examples"], cell.record["limit"]])


def _by_model(answers: Sequence[_Answers], models: Sequence[str]) -> dict[str, list[_Answers]]:
    found: dict[str, list[_Answers]] = {}
    for name in models:
        if of_model := [answer for answer in answers if answer.cell.key.model == name]:
            found[name] = of_model
    return found


def _pool_pairs(
    by_model: Mapping[str, list[_Answers]],
) -> tuple[list[_Pool], list[tuple[str, str]]]:
    """Sort every two models by what both have; also return those that have nothing in common.

    A model with fewer seeds or languages must not take any from the tests between the others.
    """
    pools: dict[tuple[tuple[LanguagePair, ...], frozenset[int]], _Pool] = {}
    apart = []
    order = dict.fromkeys(answer.unit for found in by_model.values() for answer in found)
    for first, second in combinations(by_model, 2):
        both = {name: by_model[name] for name in (first, second)}
        shared = _find_shared_seeds(*both.values())
        units = tuple(unit for unit in order if unit in shared)
        seeds = frozenset.intersection(*shared.values()) if shared else frozenset()
        if not seeds:
            apart.append((first, second))
            continue
        pool = pools.setdefault((units, seeds), _Pool(units, seeds))
        pool.pairs.append((first, second))
        pool.by_model |= both
    return list(pools.values()), apart


def _find_shared_seeds(
    first: Sequence[_Answers], second: Sequence[_Answers]
) -> dict[LanguagePair, frozenset[int]]:
    """Return the units that both models have on the same examples, with the seeds of both there."""
    have, has = (
        {(a.unit, a.identity, a.cell.key.seed) for a in found} for found in (first, second)
    )
    both = have & has
    units = {unit for unit, _, _ in both}
    return {unit: frozenset(seed for u, _, seed in both if u == unit) for unit in units}


def _sum_tallies(
    found: Sequence[_Answers], units: Sequence[LanguagePair], seeds: frozenset[int]
) -> list[Tally]:
    """Add up the tallies of all seeds, for each unit."""
    sums: dict[LanguagePair, Tally] = {}
    read: dict[Path, dict[str, Tally]] = {}
    for answer in found:
        cell, unit = answer.cell, answer.unit
        if cell.key.seed in seeds and unit in units:
            if cell.folder not in read:
                read = {cell.folder: cell.read_tallies()}
            tally = read[cell.folder][answer.place]
            sums[unit] = sums[unit] + tally if unit in sums else tally
    return [sums[unit] for unit in units]


def _read_store(store: Path | None) -> dict[str, Any]:
    """Return earlier tests; those of a damaged file are made again."""
    if store is None or not store.is_file():
        return {}
    try:
        require_whole(store)
        found = read_json(store)
    except MetaXLMError:
        return {}
    return found if isinstance(found, dict) else {}


def link_predictions(output: Path, cells: Sequence[StoredCell]) -> None:
    """Lay the predictions of all cells out as XTREME wants them: MODEL/seed-N/TASK/test-XX.tsv.

    Trainings in another language than English stand apart, in `TASK/from-XX`, and files of which
    only the first examples were taken in `seed-N-first-M`.
    """
    with atomic_folder(output / PREDICTIONS) as temporary:
        for cell, path in _list_predictions(cells):
            key, limit = cell.key, cell.record["limit"]
            seed = f"seed-{key.seed}-first-{limit}" if limit else f"seed-{key.seed}"
            folder = temporary / key.model / seed / key.task
            folder = folder if key.source == "en" else folder / f"from-{key.source}"
            folder.mkdir(parents=True, exist_ok=True)
            link(path, folder / path.name)


def _list_predictions(cells: Sequence[StoredCell]) -> Iterator[tuple[StoredCell, Path]]:
    for cell in cells:
        for path in sorted((cell.folder / PREDICTIONS).glob("test-*")):
            yield cell, path
