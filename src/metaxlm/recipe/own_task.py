"""A task of the user's own files: what its YAML may say (`docs/own_data.md` is the guide)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from metaxlm.files import LONGEST_NAME
from metaxlm.recipe.values import Fraction, LanguageCode, Location, Positive, Real, Section

Column = Annotated[str, Field(min_length=1)] | int
"""The name of a column, or its number: from 1, or from -1 backwards."""

Code = Annotated[LanguageCode, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
"""A language's code; it becomes a part of file names."""


def _parse_label(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("YAML reads yes, no, on, off, true and false as truth values; quote it")
    return str(value) if isinstance(value, int) else value


Label = Annotated[str, BeforeValidator(_parse_label), Field(min_length=1)]


def _parse_files(value: object) -> object:
    if isinstance(value, str | list):
        raise ValueError("must say the language of each file, such as {de: data/train.tsv}")
    return value


Files = Annotated[dict[Code, Location], BeforeValidator(_parse_files)]
"""One file for each language; relative paths start at the YAML's folder."""

OwnKind = Literal["classification", "tagging", "questions"]
OwnMetric = Literal["accuracy", "macro_f1", "span_f1", "f1"]


class ColumnsRecipe(Section):
    """Where in a row things stand: names in a file with a header or in JSONL, otherwise numbers."""

    text: Column | None = None
    """Classification: the text; `text` if nothing is said."""
    second: Column | None = None
    """Classification: a second text, if the label is about a pair."""
    label: Column | None = None
    """Classification: the label; `label` if nothing is said."""
    word: int | None = None
    """Tagging: number of the word's column; the first, in CoNLL-U the second."""
    tag: int | None = None
    """Tagging: number of the tag's column; the last, in CoNLL-U the fourth."""


class OwnTaskRecipe(Section):
    """A task of the user's own files."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=LONGEST_NAME)]
    """What folders and results call the task."""
    title: str | None = None
    """What tables call it; the name if nothing is said."""
    kind: OwnKind
    """A label for each text, a tag for each word, or the answer to a question in its context."""
    train: Annotated[Files, Field(min_length=1)]
    """Training files by language."""
    dev: Files = {}
    """Files that pick the best epoch, by language; without any, the last epoch is taken."""
    test: Files = {}
    """Files to be scored, by language; rows without a label are predicted only."""
    train_together: bool = True
    """One model of all training languages; `false` trains one in each of them."""
    columns: ColumnsRecipe = ColumnsRecipe()
    """Which columns are read."""
    labels: list[Label] | None = None
    """All labels or tags; those of the training files if nothing is said."""
    metric: OwnMetric | None = None
    """`accuracy` or `macro_f1`; tagging: `span_f1` or `accuracy`; questions: `f1`."""
    epochs: Positive | None = None
    """Passes over the training examples; by default 5, for tagging 10, for questions 3."""
    learning_rate: Real | None = None
    """Peak of the linear schedule; by default 2e-5, for questions 3e-5."""
    batch_size: Positive | None = None
    """Sequences in a step; 32."""
    weight_decay: Real | None = None
    """Decoupled weight decay; 0.01."""
    length: Positive | None = None
    """Longest sequence in tokens, special tokens included; 256, for questions 384."""
    stride: Positive | None = None
    """Questions: tokens from the start of a window of a long context to that of the next; 128."""
    warmup: Fraction | None = None
    """Share of the steps that warm up; 0.1."""
    select_by: Literal["source", "all", "last"] | None = None
    """Which dev files pick the epoch: the training language's (default), all, or none."""
    clip: Real | None = None
    """Largest gradient norm; 1."""
    adam_epsilon: Real | None = None
    """Epsilon of AdamW; 1e-8."""
