"""The model card: README.md of an exported model, from the recipe and the results.

It has the YAML front matter of the Hugging Face hub, how the model was trained (the settings of the
paper's appendix tables), its scores beside the other variants, how to load it, and its limits.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from metaxlm.analysis.scores import Results
from metaxlm.analysis.tables import format_cell, markdown_row, section_cell
from metaxlm.hub import HUB, is_hub_name
from metaxlm.languages import language_name
from metaxlm.model.front_matter import (
    INDEX,
    PIPELINES,
    list_codes,
    list_scores,
    make_index,
    write_front_matter,
)

_SECTIONS = {
    "model": "Encoder",
    "corpus": "Corpus",
    "vocabulary": "Vocabulary",
    "meta": "Meta-pretraining, phase (a)",
    "matching": "Vocabulary matching",
    "pretraining": "Cross-lingual pretraining, phase (b)",
}
_BOOKKEEPING = ("checkpoint_every", "keep_checkpoints", "log_every")  # no effect on the weights
_LOADING = """## How to load it

```python
from transformers import {auto}, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
model = {auto}.from_pretrained("path/to/this/folder")
```

`AutoModel` loads the encoder alone, `AutoModelForMaskedLM` the language model; both report the
tensors that they do not load. No remote code is needed."""
_PARTS = {
    "words": "token embeddings",
    "positions": "positions",
    "embedding_norm": "embedding norm",
    "layers": "layers",
    "head": "head",
}


def model_card(
    recipe: Mapping[str, Any],
    variant: str,
    results: Results | None = None,
    architecture: str = "XLMRobertaForMaskedLM",
) -> str:
    """Return README.md of one variant; `results` may have the scores of all variants.

    `architecture` is the class in config.json.
    """
    ending = next((name for name in PIPELINES if architecture.endswith(name)), "ForMaskedLM")
    about = {
        "language": list_codes(recipe["languages"]),
        "license": "apache-2.0",
        "base_model": _base_model(recipe, variant),
        "library_name": "transformers",
        "pipeline_tag": PIPELINES[ending],
        "tags": ["metaxlm", "multilingual", "cross-lingual"],
        INDEX: make_index(
            f"{recipe['name']}-{variant}", list_scores(results, variant) if results else ()
        ),
    }
    blocks = [
        write_front_matter(about).rstrip(),
        f"# {recipe['name']}: {variant}",
        _describe(recipe, variant, architecture),
        _LOADING.format(auto=f"AutoModel{ending}"),
        "## How it was trained",
        *_training_tables(recipe, variant),
        "## Results",
        _results_table(results, variant) if results else "None were recorded.",
        "## Limits",
        _limits(recipe, results is not None),
    ]
    return "\n\n".join(blocks) + "\n"


def _base_model(recipe: Mapping[str, Any], variant: str) -> str | None:
    """Return the name on the hub of the encoder that a variant was initialized from."""
    existing = recipe["meta"].get("model")
    is_base = existing and is_hub_name(existing) and _copied_parts(recipe, variant)
    return str(existing).removeprefix(HUB) if is_base else None


def _copied_parts(recipe: Mapping[str, Any], variant: str) -> list[str]:
    choice = recipe["variants"][variant]["initialize"]
    if isinstance(choice, Mapping):
        return [_PARTS[part] for part, is_copied in choice.items() if is_copied]
    presets = {"none": [], "body": ["layers"], "embeddings": ["words"], "both": list(_PARTS)}
    return [_PARTS[part] for part in presets[choice]]


def _describe(recipe: Mapping[str, Any], variant: str, architecture: str) -> str:
    names = ", ".join(language_name(code) for code in recipe["languages"])
    copied = _copied_parts(recipe, variant)
    start = "It was initialized randomly (the XLM baseline of the paper)."
    if copied:
        source = f"a masked language model of {language_name(recipe['source_language'])}"
        if existing := recipe["meta"].get("model"):
            source = f"the existing model `{_show(existing)}`"
        start = f"It was initialized from {source} (meta-pretraining) by copying these parts: "
        start += f"{', '.join(copied)}."
    if _PARTS["words"] in copied:
        has_dictionaries = recipe["variants"][variant]["dictionaries"]
        means = "spelling and bilingual dictionaries" if has_dictionaries else "spelling"
        start += f" Tokens are matched by {means}; unmatched embeddings are random."
    return (
        f"A cross-lingual encoder, loaded as `{architecture}`, for {len(recipe['languages'])} "
        f"languages: {names}. {start} "
        "It was then trained on all these languages by masked language modeling, as described in "
        "*Cross-Lingual Language Model Meta-Pretraining* (Chi et al., 2021)."
    )


def _training_tables(recipe: Mapping[str, Any], variant: str) -> Iterator[str]:
    for section, title in _SECTIONS.items():
        if section in ("meta", "matching") and not _copied_parts(recipe, variant):
            continue
        settings = recipe.get(section) or {}
        if section == "meta" and settings.get("model"):
            settings = {"model": settings["model"]}
        found = _flatten(settings)
        rows = [[f"`{key}`", _show(value)] for key, value in found if key not in _BOOKKEEPING]
        if rows:
            yield f"### {title}\n\n{_table(['setting', 'value'], rows)}"


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value


def _show(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_show, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    # The card is published: do not show local paths.
    return PurePath(text).name if text.startswith(("/", "~")) else text


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(markdown_row(line) for line in [header, ["---"] * len(header), *rows])


def _results_table(found: Results, variant: str) -> str:
    """Return means over languages and seeds: one row per task, one column per variant."""
    columns = found.variants
    sections = list(found.sections(found.tasks, columns).values())
    if not sections:
        return "None were recorded."
    rows = []
    for section in sections:
        cells = []
        for name in columns:
            layer = f" (layer {section.layers[name]})" if name in section.layers else ""
            cell = section_cell(section, name)
            cells.append("" if cell.value is None else f"{format_cell(cell)}{layer}")
        level = section.baseline("majority", section.shared)
        where = f" ({section.scenario})" if section.task.trained_in_each else ""
        metric = f"{' / '.join(section.metrics)} {'↓' if section.task.lower else '↑'}"
        majority = "" if level is None else f"{100 * level:.1f}"
        rows.append([f"{section.task.name}{where}", metric, *cells, majority])
    header = [f"**{name}** (this model)" if name == variant else name for name in columns]
    note = (
        "Means over the test languages that all variants have, and over seeds, in percent. A layer "
        "in parentheses is the best of all measured layers."
    )
    if any(row[-1] for row in rows):
        header.append("majority")
        note += " `majority` predicts the most frequent label of the training set."
    else:
        rows = [row[:-1] for row in rows]
    return f"{_table(['task', 'metric', *header], rows)}\n\n{note}"


def _limits(recipe: Mapping[str, Any], has_results: bool) -> str:
    lines = [
        f"- It was trained on the languages listed above only, with at most "
        f"{recipe['model']['max_positions']:,} tokens per sequence.",
        "- It fills masks and gives vectors; it does not generate text.",
        "- It reproduces its training text, including errors and biases.",
    ]
    if recipe["corpus"].get("source") == "phrasebook":
        lines.append(
            "- It was trained on generated sentences of a small built-in corpus: it demonstrates "
            "the method and has no other knowledge."
        )
    if not has_results:
        lines.append("- It has not been evaluated.")
    return "\n".join(lines)
