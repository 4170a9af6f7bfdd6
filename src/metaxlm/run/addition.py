"""Add to a publication the evaluations that it lacks, from a second run of the same recipe.

Published scores stay as they are. A run with other settings, trainings or test sets is rejected,
because its scores could not be compared with the published ones. Trainings are the same if their
logs are, digit by digit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from metaxlm.analysis.results import FILE_NAME as RESULTS
from metaxlm.analysis.results import IDENTITY, ORIGIN_DIGITS, Row, read_rows, read_scores
from metaxlm.analysis.run_folder import PROVENANCE, RECIPE, find_log, read_recipe
from metaxlm.analysis.stats import COMPARISONS, read_comparisons
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_value, find_packed, read_json
from metaxlm.finetune.catalog import GROUPS
from metaxlm.run.stage import list_changes

_CELL = ("model", "task", "source", "seed")
_PACE = frozenset({"tokens_per_second", "peak_share", "seconds"})
"""What a log tells of the machine and not of the training."""
_ELSEWHERE = {
    "corpus": ("path",),
    "matching": ("dictionaries",),
    "meta": ("model",),
    "evaluation": ("data", "grid"),
}
"""Keys of a recipe that may differ: where files lie, and what is measured."""
_ASIDE = ("engine", "execution", "variants")
"""Sections that decide no score, or are looked at one by one."""


@dataclass(frozen=True)
class Addition:
    """A publication with what a run adds to it."""

    rows: list[Row]
    comparisons: dict[str, dict[str, Any]]
    provenance: dict[str, Any]
    recipe: dict[str, Any]
    num_added: int
    """Cells that are new."""
    num_again: int
    """Cells that both have; the published ones stay."""
    num_changed: int
    """Those of them with other scores."""

    def describe(self) -> str:
        """Say what came in, and what was there."""
        told = f"added {self.num_added} {'cell' if self.num_added == 1 else 'cells'}"
        if not self.num_again:
            return told
        stay = f"{self.num_again} {'stays' if self.num_again == 1 else 'stay'} as published"
        return f"{told}; {stay} ({self.num_changed or 'none'} had other scores this time)"


def add_run(published: Path, run_dir: Path) -> Addition:
    """Join a publication and a run of the same recipe, or say where they differ."""
    old_recipe, new_recipe = (read_recipe(folder / RECIPE)[0] for folder in (published, run_dir))
    _check_recipes(old_recipe, new_recipe, published, run_dir)
    _check_trainings(published, run_dir)
    # Baselines have a row for each evaluation.
    identity = (*IDENTITY, "origin")
    old, new = (read_scores(folder / RESULTS, identity) for folder in (published, run_dir))
    _check_files(old, new, run_dir)
    first, second = (_read_provenance(folder) for folder in (published, run_dir))
    known = {_name_cell(cell): cell for cell in first["cells"]}
    cells = [cell for cell in second["cells"] if _name_cell(cell) not in known]
    again = [(known[name], cell) for cell in second["cells"] if (name := _name_cell(cell)) in known]
    old_scores, new_scores = _gather_scores(old), _gather_scores(new)
    changed = [
        cell for there, cell in again if old_scores[_trace(there)] != new_scores[_trace(cell)]
    ]
    _add_losses([pair for pair in again if pair[1] not in changed])
    shown = {(cell["model"], cell["task"]) for cell in second["cells"]}
    shown -= {(cell["model"], cell["task"]) for cell in changed}
    origins = set(map(_trace, cells))
    recipe = _join_recipes(old_recipe, new_recipe)
    return Addition(
        rows=[*old, *(row for row in new if row.get("origin") in origins)],
        comparisons=_join_comparisons(published, run_dir, shown),
        provenance=first
        | {
            "digest": digest_value(recipe),
            "stages": _join_stages(first["stages"], second["stages"], run_dir),
            "cells": [*first["cells"], *cells],
        },
        recipe=recipe,
        num_added=len(cells),
        num_again=len(again),
        num_changed=len(changed),
    )


def _check_recipes(
    old: Mapping[str, Any], new: Mapping[str, Any], published: Path, run_dir: Path
) -> None:
    for recipe, folder in ((old, published), (new, run_dir)):
        if not all(isinstance(recipe.get(key), dict) for key in ("variants", "evaluation")):
            raise MetaXLMError(f"{folder / RECIPE}: has no variants and evaluation; restore it")
        grid = recipe["evaluation"].get("grid") or []
        if not isinstance(grid, list) or not all(map(_is_block, grid)):
            raise MetaXLMError(f"{folder / RECIPE}: evaluation.grid is not a grid; restore it")
    shared = [name for name in old["variants"] if name in new["variants"]]
    changes = [
        *list_changes(_keep_deciding(old), _keep_deciding(new)),
        *(
            change
            for name in shared
            for change in list_changes(
                old["variants"][name], new["variants"][name], f"variants.{name}"
            )
        ),
    ]
    if changes:
        raise MetaXLMError(
            f"{published}: was made with another recipe ({'; '.join(changes[:3])}); "
            f"publish into another folder"
        )


def _is_block(block: Any) -> bool:
    """Tell whether a part of a grid has lists of names where it must."""
    return isinstance(block, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names)
        for names in (block.get("tasks"), block.get("variants") or [])
    )


def _keep_deciding(recipe: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in recipe.items() if name not in _ASIDE}
    for section, keys in _ELSEWHERE.items():
        if isinstance(kept.get(section), dict):
            kept[section] = {k: v for k, v in kept[section].items() if k not in keys}
    return kept


def _check_trainings(published: Path, run_dir: Path) -> None:
    """Refuse a run one of whose trainings went another way than the published one of its name."""
    names = sorted(path.name for path in (run_dir / "variants").glob("[!.]*"))
    for training in ("meta", *(f"variants/{name}" for name in names)):
        logs = [find_log(folder / training) for folder in (published, run_dir)]
        if None in logs:
            continue
        old, new = ([_drop_pace(row) for row in read_rows(log)] for log in logs if log)
        if old == new:
            continue
        pairs = zip(old, new, strict=False)
        changes = next((list_changes(*pair) for pair in pairs if pair[0] != pair[1]), [])
        found = changes[0] if changes else f"rows of the log: {len(old)} -> {len(new)}"
        raise MetaXLMError(
            f"{run_dir / training}: is another training than the published one ({found}); "
            f"publish into another folder"
        )


def _drop_pace(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in _PACE}


def _check_files(old: Sequence[Row], new: Sequence[Row], run_dir: Path) -> None:
    """Refuse test sets of another size than the published ones."""
    sizes = {_name_file(row): row.get("examples") for row in old}
    for row in new:
        found = row.get("examples")
        expected = sizes.get(_name_file(row), found)
        if found != expected:
            name = " ".join(map(str, _name_file(row)))
            raise MetaXLMError(
                f"{run_dir}: {name} has {found} examples, the published one {expected}; measure "
                f"with the same data"
            )


def _name_file(row: Row) -> tuple[Any, ...]:
    return row["task"], row.get("split"), row.get("language")


def _read_provenance(folder: Path) -> dict[str, Any]:
    found = read_json(folder / PROVENANCE)
    if not isinstance(found, dict) or not all(
        _is_table(found.get(name), keys)
        for name, keys in (("stages", ("title",)), ("cells", (*_CELL, "origin")))
    ):
        raise MetaXLMError(f"{folder / PROVENANCE}: tells no stages and cells; collect them again")
    return found


def _is_table(rows: Any, keys: Sequence[str]) -> bool:
    """Tell whether these are objects with texts or whole numbers under all keys."""
    return isinstance(rows, list) and all(
        isinstance(row, dict) and all(isinstance(row.get(key), str | int) for key in keys)
        for row in rows
    )


def _name_cell(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[key] for key in _CELL)


def _add_losses(pairs: Sequence[tuple[dict[str, Any], Mapping[str, Any]]]) -> None:
    """Let published cells have the losses of equal ones where theirs are not known."""
    for published, cell in pairs:
        if "losses" in cell:
            published.setdefault("losses", cell["losses"])


def _join_stages(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], run_dir: Path
) -> list[Mapping[str, Any]]:
    """Add new stages, and to published ones the digest of their weights where it is not known."""
    again = {stage["title"]: stage for stage in new}
    joined: list[Mapping[str, Any]] = []
    for stage in old:
        weights = again.pop(stage["title"], {}).get("weights")
        if weights and stage.get("weights", weights) != weights:
            raise MetaXLMError(
                f"{run_dir}: {stage['title']} ended with other weights than the published one; "
                f"publish into another folder"
            )
        joined.append({**stage, "weights": weights} if weights else stage)
    return [*joined, *again.values()]


def _join_recipes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Let the published recipe have the other's variants and blocks of the grid as well."""
    first, second = (recipe["evaluation"].get("grid") or [] for recipe in (old, new))
    variants = {**old["variants"], **new["variants"]}
    grid = _drop_covered([*first, *second], list(variants))
    return {**old, "variants": variants, "evaluation": {**old["evaluation"], "grid": grid}}


def _drop_covered(
    blocks: Sequence[Mapping[str, Any]], variants: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Drop blocks of a grid that ask for nothing that the others do not."""
    kept = list(blocks)
    for block in blocks:
        others = [other for other in kept if other is not block]
        asked = (_list_parts(other, variants) for other in others)
        if _list_parts(block, variants) <= set().union(*asked):
            kept = others
    return kept


def _list_parts(block: Mapping[str, Any], variants: Sequence[str]) -> set[tuple[str, ...]]:
    tasks = [task for name in block["tasks"] for task in GROUPS.get(name, (name,))]
    # Kept checkpoints come with the finished model.
    steps = ("last", "kept") if block.get("steps") == "kept" else ("last",)
    rest = str([block.get(key) for key in ("seeds", "languages", "sources")])
    return set(product(tasks, block.get("variants") or variants, steps, [rest]))


def _trace(cell: Mapping[str, Any]) -> str:
    """Return what rows call the cell that they come from."""
    return str(cell["origin"])[:ORIGIN_DIGITS]


def _gather_scores(rows: Sequence[Row]) -> dict[str, dict[tuple[Any, ...], float]]:
    """Return all scores of each cell."""
    found: dict[str, dict[tuple[Any, ...], float]] = defaultdict(dict)
    for row in rows:
        place = tuple(row.get(key) for key in ("language", "split", "layer", "metric"))
        found[row.get("origin", "")][place] = row["value"]
    return found


def _join_comparisons(
    published: Path, run_dir: Path, shown: set[tuple[str, str]]
) -> dict[str, dict[str, Any]]:
    """Add tests that are missing or of fewer seeds, if their scores are those that are shown.

    `shown` are models and tasks of which the run has no other scores than the publication.
    """
    joined, new = map(_read_comparisons, (published, run_dir))
    known = {
        _name_test(test, pair): test["num_seeds"]
        for test in joined.values()
        for pair in test["pairs"]
    }
    for key, test in new.items():
        better = [
            pair
            for pair in test["pairs"]
            if {(pair[side], test["task"]) for side in ("first", "second")} <= shown
            and known.get(_name_test(test, pair), 0) < test["num_seeds"]
        ]
        if better:
            _drop_pairs(joined, {_name_test(test, pair) for pair in better})
            joined[digest_value([key, better])] = {**test, "pairs": better}
    return joined


def _drop_pairs(tests: dict[str, dict[str, Any]], names: set[tuple[Any, ...]]) -> None:
    """Remove tests between two models that better ones take the place of."""
    for key, test in list(tests.items()):
        kept = [pair for pair in test["pairs"] if _name_test(test, pair) not in names]
        if kept:
            tests[key] = {**test, "pairs": kept}
        else:
            del tests[key]


def _read_comparisons(folder: Path) -> dict[str, dict[str, Any]]:
    path = find_packed(folder / COMPARISONS)
    read_comparisons(path)  # refuses what is damaged
    return dict(read_json(path)) if path.is_file() else {}


def _name_test(test: Mapping[str, Any], pair: Mapping[str, Any]) -> tuple[Any, ...]:
    place = tuple(test.get(key) for key in ("task", "scenario", "metric", "layer"))
    return (*place, pair["first"], pair["second"])
