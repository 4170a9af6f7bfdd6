"""The model card: the README.md of an exported model, written from the recipe and the results.

In: the resolved recipe as a plain nested dict, the name of one variant, and the rows of
`results.jsonl`. Out: Markdown with the YAML front matter that the Hugging Face hub reads. It states
nothing that the two do not contain: what the model is, how it was trained (the settings of the
paper's appendix tables), how it scored beside its sister variants, how to load it, and its limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from metaxlm.analysis.results import Row, make_frame
from metaxlm.analysis.scores import Results
from metaxlm.analysis.tables import format_cell, markdown_row, section_cell
from metaxlm.languages import language_name

_SECTIONS = {
    "model": "Encoder",
    "corpus": "Corpus",
    "vocabulary": "Vocabulary",
    "meta": "Meta-pretraining, phase (a)",
    "matching": "Vocabulary matching",
    "pretraining": "Cross-lingual pretraining, phase (b)",
}
_SOURCE_SECTIONS = ("meta", "matching")
# Settings that leave no trace in the weights.
_BOOKKEEPING = ("checkpoint_every", "keep_checkpoints", "log_every")
_PARTS = {
    "words": "word rows",
    "positions": "positions",
    "embedding_norm": "embedding norm",
    "layers": "layers",
    "head": "head",
}


def model_card(
    recipe: Mapping[str, Any],
    variant: str,
    results: Sequence[Row] = (),
    license_id: str = "apache-2.0",
) -> str:
    """Return README.md for one variant of a recipe; `results` may hold all variants' rows."""
    blocks = [
        _front_matter(recipe["languages"], license_id),
        f"# {recipe['name']}: {variant}",
        _describe(recipe, variant),
        _explain_loading(),
        "## How it was trained",
        *_training_tables(recipe, variant),
        "## Results",
        _results_table(results, variant) if results else "None were recorded.",
        "## Limits",
        _limits(recipe, bool(results)),
    ]
    return "\n\n".join(blocks) + "\n"


def _front_matter(languages: Sequence[str], license_id: str) -> str:
    values = {
        "language": list(languages),
        "license": license_id,
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["metaxlm", "multilingual", "cross-lingual", "xlm-roberta"],
    }
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---"


def _copied_parts(recipe: Mapping[str, Any], variant: str) -> list[str]:
    """List what the variant takes from the meta-pretrained model."""
    choice = recipe["variants"][variant]["initialize"]
    if isinstance(choice, Mapping):
        return [_PARTS[part] for part, is_copied in choice.items() if is_copied]
    presets = {"none": [], "body": ["layers"], "embeddings": ["words"], "both": list(_PARTS)}
    return [_PARTS[part] for part in presets[choice]]


def _describe_start(recipe: Mapping[str, Any], variant: str) -> str:
    copied = _copied_parts(recipe, variant)
    if not copied:
        return "It starts from random weights (the XLM baseline of the paper)."
    existing = recipe["meta"].get("model")
    source = (
        f"the existing model `{_show(existing)}`"
        if existing
        else f"a masked language model of {language_name(recipe['source_language'])}"
    )
    text = f"It starts from {source} (meta-pretraining), from which these parts are copied: "
    text += f"{', '.join(copied)}."
    if _PARTS["words"] in copied:
        dictionaries = recipe["variants"][variant]["dictionaries"]
        means = "token and bilingual dictionaries" if dictionaries else "token"
        text += f" Word rows are matched by {means}; the others are drawn at random."
    return text


def _describe(recipe: Mapping[str, Any], variant: str) -> str:
    names = ", ".join(language_name(code) for code in recipe["languages"])
    return (
        "A cross-lingual masked language model of the XLM-RoBERTa architecture for "
        f"{len(recipe['languages'])} languages: {names}. {_describe_start(recipe, variant)} "
        "It was then trained on all these languages by masked language modeling, as described in "
        "*Cross-Lingual Language Model Meta-Pretraining* (Chi et al., 2021)."
    )


def _explain_loading() -> str:
    return """## How to load it

```python
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
model = AutoModel.from_pretrained("path/to/this/folder", add_pooling_layer=False)
```

`AutoModelForMaskedLM` loads the masked language modeling head as well; `AutoModel` mentions that it
leaves `lm_head` out. No remote code is needed."""


def _training_tables(recipe: Mapping[str, Any], variant: str) -> Iterator[str]:
    """Yield one table for each section of the recipe that had a part in this variant."""
    for section, title in _SECTIONS.items():
        if section in _SOURCE_SECTIONS and not _copied_parts(recipe, variant):
            continue
        settings = recipe.get(section) or {}
        if section == "meta" and settings.get("model"):
            settings = {"model": settings["model"]}
        rows = [
            [f"`{key}`", _show(value)]
            for key, value in _flatten(settings)
            if key not in _BOOKKEEPING
        ]
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
    # A card is published; where a folder lay on the trainer's disk is nobody's business.
    return PurePath(text).name if text.startswith(("/", "~")) else text


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(markdown_row(line) for line in [header, ["---"] * len(header), *rows])


def _results_table(results: Sequence[Row], variant: str) -> str:
    """Return the means over languages and seeds: one row per task, one column per variant."""
    found = Results(make_frame(results))
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
        "Means over the test languages that all variants have, and over seeds, in percent. Where a "
        "layer is given, all layers were measured and the best one is shown."
    )
    if any(row[-1] for row in rows):
        header.append("majority")
        note += " `majority` always answers the training set's most frequent label."
    else:
        rows = [row[:-1] for row in rows]
    return f"{_table(['task', 'metric', *header], rows)}\n\n{note}"


def _limits(recipe: Mapping[str, Any], has_results: bool) -> str:
    lines = [
        f"- It saw only the languages listed above, and at most "
        f"{recipe['model']['max_positions']:,} tokens at a time.",
        "- It fills masks and yields vectors; it does not generate text.",
        "- It repeats what its training text says, including what is wrong or unkind in it.",
    ]
    if recipe["corpus"].get("source") == "phrasebook":
        lines.append(
            "- It was trained on generated sentences of a small built-in corpus: it demonstrates "
            "the method and knows nothing beyond those sentences."
        )
    if not has_results:
        lines.append("- It has not been evaluated.")
    return "\n".join(lines)
