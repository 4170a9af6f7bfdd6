"""The results table: every score is one row, and every table and figure is drawn from the rows.

A row is a JSON line `{run, variant, step, layer, task, scenario, source, language, metric, value,
examples, seed, split, version, origin}`; `collection.py` makes them of all complete cells. The
scenario is `features`, `supervised` (trained and tested in one language, for tasks that are trained
in several) or `transfer`. Rows of no variant are levels that need no
model: `majority` and `chance` in the task's metric, `majority_NAME` and `chance_NAME` in others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from metaxlm import __version__
from metaxlm.digests import write_listed
from metaxlm.errors import MetaXLMError
from metaxlm.files import check_name
from metaxlm.reading import decode_line, json_loads, read_lines
from metaxlm.streams import open_stream

FILE_NAME = "results.jsonl"
Row = Mapping[str, Any]
"""One line of it."""
TUNING = ("train", "dev", "validation")
"""How the names of splits begin that are not for final scores where there is a test set."""
_NAMES = ("run", "variant", "task", "language", "source", "metric", "split")
"""Values of a row that become names of files."""
ORIGIN_DIGITS = 12
"""Of a cell's fingerprint, in a row."""


@dataclass(frozen=True)
class Result:
    """One score."""

    run: str
    variant: str | None
    step: int | None
    layer: int | None
    task: str
    scenario: str
    source: str
    language: str
    metric: str
    value: float
    examples: int
    seed: int
    split: str
    version: str = __version__
    """Of metaxlm, which measured it."""
    origin: str = ""
    """Fingerprint of the cell that it comes from, shortened."""


def list_rows(
    record: Mapping[str, Any],
    run: str,
    variant: str,
    step: int | None,
    seed: int,
    origin: str = "",
    version: str = __version__,
) -> list[Result]:
    """Return the rows of one cell of an evaluation; files without labels have none.

    Where only the first examples of each file were taken, the name of the split says so.
    """
    limited = f"-first-{record['limit']}" if record.get("limit") else ""
    about = {"run": run, "task": record["task"], "source": record["source"], "seed": seed}
    about |= {"origin": origin[:ORIGIN_DIGITS], "version": version}
    rows = []
    for file in record["files"]:
        place = {
            "language": file["language"],
            "layer": file.get("layer"),
            "examples": file["num_examples"],
            "split": file["name"] + limited,
            "scenario": find_scenario(record, file["language"]),
        }
        for name, value in file["values"].items():
            rows.append(
                Result(**about, **place, variant=variant, step=step, metric=name, value=value)
            )
        for name, value in _list_levels(record, file):
            rows.append(Result(**about, **place, variant=None, step=None, metric=name, value=value))
    return rows


def find_scenario(record: Mapping[str, Any], language: str) -> str:
    """Name the scenario of a cell's scores in one language."""
    if record["kind"] == "features":
        return "features"
    is_diagonal = record["trained_in_each"] and language == record["source"]
    return "supervised" if is_diagonal else "transfer"


def _list_levels(record: Mapping[str, Any], file: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for level in ("majority", "chance"):
        for name, value in file.get(level, {}).items():
            yield (level if name == record["metric"] else f"{level}_{name}"), value


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Write rows as JSON lines, and the digest of the file into the list of its folder."""
    write_listed(path.parent, path.name, dump_lines(map(asdict, results)))


def dump_lines(rows: Iterable[Row]) -> str:
    """Return rows as JSON lines."""
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows; a broken line is named."""
    with open_stream(path) as stream:
        for number, line in read_lines(stream, path):
            text = decode_line(number, line, path)
            row = json_loads(text, f"{path}:{number}", is_line=True)
            if not isinstance(row, dict):
                raise MetaXLMError(
                    f"{path}:{number}: a result is a JSON object, found {text[:40]!r}"
                )
            for key in _NAMES:
                if isinstance(name := row.get(key), str):
                    try:
                        check_name(name, key)
                    except MetaXLMError as error:
                        raise MetaXLMError(f"{path}:{number}: {error}") from error
            yield row


def find_final_steps(rows: Iterable[Row]) -> dict[str, int | None]:
    """Return the largest step of each variant; None where its rows name none."""
    found: dict[str, int | None] = {}
    for row in rows:
        if (variant := row.get("variant")) is not None:
            step, known = row.get("step"), found.get(variant)
            found[variant] = known if step is None or (known or -1) > step else int(step)
    return found


def select_final(rows: Sequence[Row]) -> list[Row]:
    """Keep the rows of finished models, and those of no variant."""
    steps = find_final_steps(rows)
    return [
        row
        for row in rows
        if (variant := row.get("variant")) is None or row.get("step") == steps[variant]
    ]


def is_tuning(split: str) -> bool:
    """Say whether a split of this name is for choosing rather than for final scores."""
    return split.startswith(TUNING)


def choose_split(found: Iterable[tuple[str, str]]) -> bool:
    """Of (split, language), say whether dev sets are shown: if more languages have those."""
    pairs = list(found)
    tested, tuned = (
        {language for split, language in pairs if is_tuning(split) == tuning}
        for tuning in (False, True)
    )
    return len(tuned) > len(tested)
