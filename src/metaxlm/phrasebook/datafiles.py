"""Reading of the phrasebook's own data files, with the line of every entry for error messages.

In: the TSV and YAML files under `data/`. Out: rows and entries that know where they stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_text

DATA_FOLDER = Path(__file__).parent / "data"
"""Where the data files lie."""


class Row(NamedTuple):
    """One line of a TSV file."""

    cells: list[str]
    where: str


class Entry(NamedTuple):
    """One key of the top level of a YAML file."""

    key: str
    value: Any
    where: str


def read_rows(path: Path, num_columns: int) -> Iterator[Row]:
    """Yield the rows of a TSV file below its header, padded to `num_columns`; `#` is a comment."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if number == 1 or not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        where = f"{path.name}:{number}"
        if len(cells) > num_columns:
            raise MetaXLMError(
                f"{where}: {len(cells)} columns, expected at most {num_columns}; remove the rest"
            )
        yield Row(cells + [""] * (num_columns - len(cells)), where)


def read_entries(path: Path) -> list[Entry]:
    """Return the top-level entries of a YAML mapping in order, refusing a key that comes twice."""
    text = read_text(path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise MetaXLMError(f"{path.name}:{line}: not valid YAML ({error.problem})") from error
    if not isinstance(root, yaml.MappingNode):
        raise MetaXLMError(f"{path.name}:1: expected a mapping at the top level")
    entries: list[Entry] = []
    seen: set[str] = set()
    for key_node, _ in root.value:
        where = f"{path.name}:{key_node.start_mark.line + 1}"
        key = str(key_node.value)
        if key in seen:
            raise MetaXLMError(f"{where}: {key!r} comes twice; keep one")
        seen.add(key)
        entries.append(Entry(key, values[key], where))
    return entries
