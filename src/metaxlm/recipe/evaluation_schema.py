"""Recipe sections of phase (c), evaluation, and the YAML of a user's own task."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from metaxlm.files import LONGEST_NAME
from metaxlm.recipe.values import Count, Fraction, LanguageCode, Location, Positive, Real, Section

SelectBy = Literal["source", "all", "last"]
OwnKind = Literal[
    "classification", "multi_label", "regression", "tagging", "questions", "multiple_choice"
]
LayoutName = Literal["sib200", "taxi1500", "massive", "belebele"]


class RetrievalRecipe(Section):
    """Tatoeba-style sentence retrieval without finetuning."""

    batch_tokens: Positive = 16_384
    """Tokens per forward pass, including padding."""


class AlignmentRecipe(Section):
    """Word alignment without finetuning, by optimal transport."""

    batch_tokens: Positive = 8_192
    """Tokens per forward pass, including padding."""
    drawn_pairs: Count = 2
    """Number of sentence pairs per language in the report's figures."""


class _Hyperparameters(Section):
    epochs: Count | None = None
    """Number of passes over the training examples; 0 tests the model's own task head as it is."""
    learning_rate: Real | None = None
    """Peak of the linear schedule."""
    batch_size: Positive | None = None
    """Examples per step."""
    weight_decay: Real | None = None
    """Decoupled weight decay."""
    warmup: Fraction | None = None
    """Share of the steps used for warm-up."""
    length: Positive | None = None
    """Maximum input length in tokens, including special tokens."""
    stride: Positive | None = None
    """Tokens between the starts of consecutive windows (long contexts of questions only)."""
    select_by: SelectBy | None = None
    """Choose the epoch by the source language's dev set, by the mean of all, or use the last."""
    switch: Fraction | None = None
    """Share of the training words with a dictionary translation to replace by one, drawn again for
    each epoch; not in the paper."""


class FinetuneRecipe(_Hyperparameters):
    """A task finetuned in the source language; missing keys default to the paper's values, where it
    has one."""

    seeds: Positive = 1
    """Number of seeds; the paper has 5."""


class GridRecipe(Section):
    """A block of evaluation jobs: every combination of task, variant, step and seed."""

    tasks: Annotated[list[str], Field(min_length=1)]
    """Names such as `xnli`, groups (`xtreme`, `amazon`), `tatoeba`, `alignment`."""
    variants: list[str] | None = None
    """Variants to evaluate; null means all."""
    steps: Literal["last", "kept"] = "last"
    """`last`: the finished model; `kept`: also the checkpoints of `pretraining.keep_steps`."""
    seeds: Positive | None = None
    """Number of seeds; null uses the value in `finetune`. Tasks without finetuning have none."""
    languages: list[LanguageCode] | None = None
    """Test languages; null means all that the task's data has."""
    sources: list[LanguageCode] | None = None
    """Languages to finetune in, one at a time; null means the task's default."""
    switch: Annotated[float, Field(gt=0, le=1)] | None = None
    """Finetune with this share of switched words (`evaluation.finetune.NAME.switch`); the rows of
    results are called VARIANT+switched-SHARE."""


class EvaluationRecipe(Section):
    """Phase (c): what to evaluate."""

    data: Location | None = None
    """Folder with the task data; the built-in corpus contains its own."""
    retrieval: RetrievalRecipe | None = RetrievalRecipe()
    """Sentence retrieval; `null` disables it."""
    alignment: AlignmentRecipe | None = AlignmentRecipe()
    """Word alignment; `null` disables it."""
    finetune: dict[str, FinetuneRecipe] = {}
    """Finetuned tasks by name."""
    grid: list[GridRecipe] = []
    """Which tasks to evaluate on which models. By default, all tasks above on every variant,
    finetuned in the source language and tested in the recipe's languages."""


def _parse_label(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("YAML reads yes, no, on, off, true and false as truth values; quote it")
    return str(value) if isinstance(value, int) else value


def _parse_files(value: object) -> object:
    if isinstance(value, str | list):
        raise ValueError("must say the language of each file, such as {de: data/train.tsv}")
    return value


Column = Annotated[str, Field(min_length=1)] | int
"""The name of a column, or its number: from 1, or from -1 backwards."""
Label = Annotated[str, BeforeValidator(_parse_label), Field(min_length=1)]
# Codes become parts of file names.
Code = Annotated[LanguageCode, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
Files = Annotated[dict[Code, Location], BeforeValidator(_parse_files)]
"""One file per language; relative paths are relative to the YAML file."""


class ColumnsRecipe(Section):
    """Columns of a row: names in JSONL or a file with a header, otherwise numbers."""

    text: Column | None = None
    """The text (default `text`)."""
    second: Column | None = None
    """Pairs of texts: the second text."""
    label: Column | None = None
    """The label, the labels or the number of a text (default `label`)."""
    word: int | None = None
    """Tagging: number of the word's column (default the first, in CoNLL-U the second)."""
    tag: int | None = None
    """Tagging: number of the tag's column (default the last, in CoNLL-U the fourth)."""
    context: Column | None = None
    """Multiple choice: the text that the question is about (default `context`, if it exists)."""
    question: Column | None = None
    """Multiple choice: the question (default `question`)."""
    choices: Column | Annotated[list[Column], Field(min_length=2)] | None = None
    """Multiple choice: a column with lists of choices (default `choices`), or a column for each."""
    answer: Column | None = None
    """Multiple choice: number from 1, letter or text of the right choice (default `answer`)."""


class OwnTaskRecipe(_Hyperparameters):
    """A task on the user's own files; docs/own_data.md lists the default hyperparameters."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=LONGEST_NAME)]
    """Name of the task in folders and results."""
    title: str | None = None
    """Name of the task in tables (default `name`)."""
    kind: OwnKind = "classification"
    """A label, several labels or a number per text, a tag per word, the answer to a question in its
    context, or one of the choices for a question; required without `folder`."""
    folder: Location | None = None
    """Folder of a published data set, in place of files by language."""
    layout: LayoutName | None = None
    """Layout of `folder` (default: the one that its files have)."""
    train: Files = {}
    """Training files by language; required without `folder`."""
    dev: Files = {}
    """Files that select the best epoch, by language; without any, the last epoch is used."""
    test: Files = {}
    """Test files by language; rows without a label are predicted but not scored."""
    train_together: bool = True
    """Train one model on all training languages; `false` trains one model per language."""
    columns: ColumnsRecipe = ColumnsRecipe()
    """Which columns to read."""
    labels: list[Label] | None = None
    """All labels or tags (default: those of the training files)."""
    separator: Annotated[str, Field(min_length=1)] | None = None
    """Between the labels of a text (`multi_label` only; default a comma)."""
    metric: (
        Literal["accuracy", "macro_f1", "micro_f1", "pearson", "spearman", "span_f1", "f1"] | None
    ) = None
    """Classification: `accuracy`, `macro_f1` or `micro_f1`; multi_label: `micro_f1` or `macro_f1`;
    regression: `pearson` or `spearman`; tagging: `span_f1` or `accuracy`; questions: `f1`;
    multiple_choice: `accuracy`."""
    clip: Real | None = None
    """Maximum gradient norm (default 1)."""
    adam_epsilon: Real | None = None
    """Epsilon of AdamW (default 1e-8)."""
