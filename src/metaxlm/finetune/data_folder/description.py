"""How a data set is described: the layouts people have it in, as patterns over paths.

`finetuning_sets.py` and `other_sets.py` fill these in for the data of the paper's Section 4;
`checking.py` looks for what they describe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from metaxlm.finetune.data_folder.content import Content
from metaxlm.languages import LANGUAGES

Reading = Literal["yes", "no"]
"""Whether metaxlm reads a layout, or wants another one."""

ALL = ""
"""Key of `DataSet.sizes` for all languages that are not named."""

XX = r"(?P<language>[a-z]{2,3})"
SPLIT = r"(?P<split>train|dev|test)"
VARIANT = r"(?:-(?P<variant>[a-z][\w-]*))?"
START = r"(?:^|/)"
DATA = "evaluation.data: {}"
SEARCHED = "evaluation.data: {folder}"
"""For what `tasks/finding.py` finds wherever it lies below the folder."""


@dataclass(frozen=True)
class Files:
    """One kind of file in a layout."""

    pattern: str
    """Searched in the path, `/` between folders; groups `language`, `split`, `variant`, `folder`.

    `folder` has to be named as the layout's `folder` for metaxlm to read the file as it is. A
    variant such as `derived` is told apart from the split; `subset` is taken for it.
    """
    count: Callable[[Path], Content]
    split: str = ""
    """The split, if the pattern does not have it."""
    language: str = "en"
    """The language, if the pattern does not have it; `content.MANY` if it stands in the file."""


@dataclass(frozen=True)
class Layout:
    """One way in which a data set lies on the disk."""

    name: str
    shape: str
    """What a person should see there."""
    files: tuple[Files, ...]
    reading: Reading
    usage: str
    """What to put into the recipe; or what to do instead.

    `{}` stands for the folder `levels` above the file's own, `{folder}` for the one searched.
    """
    levels: int = 0
    """How many folders above their own the files of one copy have in common."""
    unit: Literal["examples", "entries", "articles", "bytes"] = "examples"
    """What is counted."""
    folder: str = ""
    """The name that the group `folder` needs for metaxlm to read it."""
    is_fallback: bool = False
    """Whether its files are read only where no other layout has the split."""


@dataclass(frozen=True)
class DataSet:
    """One row of the table."""

    name: str
    purpose: str
    home: str
    license: str
    layouts: tuple[Layout, ...]
    needs: Mapping[str, tuple[str, ...]]
    """Languages by split; `a|b` is a need that either split meets."""
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Examples by split and language in the full release, where they are known."""
    archives: str = r"$^"
    """Names of its packed release, as downloaded."""
    traps: Mapping[str, str] = field(default_factory=dict)
    """Patterns of files that are taken for it by mistake, and what to say."""
    advice: str = ""
    """What one has to know about the release, said when it is not complete."""


_BY_NAME = {known.name.lower(): code for code, known in LANGUAGES.items()}
_BY_ISO3 = {known.iso3: code for code, known in LANGUAGES.items()}
_ALIASES = {"jp": "ja", **_BY_ISO3, **_BY_NAME}
_ALIASES |= {known.wiki: code for code, known in reversed(LANGUAGES.items())}


def find_language(text: str) -> str:
    """Return our code for what a file says: a code, a name, Webis's jp; others stay as they are."""
    return text if text in LANGUAGES else _ALIASES.get(text.replace("_", "-"), text)
