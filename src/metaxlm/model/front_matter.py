"""The YAML front matter of model cards, which the Hugging Face hub reads: languages, scores ...

Every writer of a model folder uses it, so that a folder can be uploaded as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from metaxlm.analysis.results import title_task
from metaxlm.analysis.scores import Results
from metaxlm.analysis.stats import mean
from metaxlm.digests import CARD
from metaxlm.errors import MetaXLMError
from metaxlm.files import read_text
from metaxlm.hub import HUB, first_line, is_hub_name
from metaxlm.progress import say
from metaxlm.reading import parse_yaml

INDEX = "model-index"
PIPELINES = {  # by the ending of the architecture
    "ForMaskedLM": "fill-mask",
    "ForQuestionAnswering": "question-answering",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
}
_TASK_TYPES = {  # the hub's names; other tasks are classification
    "udpos": "token-classification", "panx": "token-classification",
    "xquad": "question-answering", "mlqa": "question-answering", "tydiqa": "question-answering",
    "tatoeba": "sentence-similarity", "sts": "sentence-similarity", "alignment": "word-alignment",
}  # fmt: skip
_INHERITED = ("language", "license", "base_model")
_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
Values = dict[str, Any]


@dataclass(frozen=True)
class Score:
    """One score of a model, for the hub's model-index."""

    task: str
    language: str
    metric: str
    value: float  # a fraction
    split: str = "test"
    note: str = ""  # how it was measured
    kind: str = ""  # the hub's name of the task; default: by the task


def write_front_matter(values: Mapping[str, Any]) -> str:
    """Return the front matter with its two lines of dashes; empty values are left out."""
    filled = {key: value for key, value in values.items() if value}
    return f"---\n{yaml.safe_dump(filled, sort_keys=False, allow_unicode=True, width=100)}---\n"


def read_front_matter(card: str, where: str) -> tuple[Values, str]:
    """Split a card into the values of its front matter and the text after it."""
    match = re.match(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", card, re.DOTALL | re.MULTILINE)
    if match is None:
        return {}, card
    values = parse_yaml(match[1], where)[1]
    if not isinstance(values, dict):
        raise MetaXLMError(f"{where}: its front matter is not a mapping; write `key: value` lines")
    return values, card[match.end() :]


def describe_class(architecture: str, *, has_modules: bool) -> Values:
    """Return library, pipeline and tags of the class in config.json."""
    if has_modules:
        return {
            "library_name": "sentence-transformers",
            "pipeline_tag": "sentence-similarity",
            "tags": ["sentence-transformers", "feature-extraction", "metaxlm"],
        }
    ending = (name for name in PIPELINES if architecture.endswith(name))
    pipeline = PIPELINES.get(next(ending, ""), "feature-extraction")
    return {"library_name": "transformers", "pipeline_tag": pipeline, "tags": ["metaxlm"]}


def describe_sentence_encoder(source: str) -> Values:
    """Return the front matter of a sentence-transformers folder made from a model."""
    return read_inherited(source) | describe_class("", has_modules=True)


def read_inherited(source: str | Path) -> Values:
    """Return language, license and base model that a new model has from its source.

    The base model of a name on the hub is that name, of a local folder what its card names.
    """
    if is_hub_name(source):
        return {"base_model": str(source).removeprefix(HUB)}
    path = Path(source).expanduser() / CARD
    try:
        values = read_front_matter(read_text(path), str(path))[0] if path.is_file() else {}
    except MetaXLMError as error:
        say(f"note: {path}: {first_line(error)}; the new card has no language and no license")
        return {}
    return {key: values[key] for key in _INHERITED if key in values}


def list_codes(languages: Iterable[str]) -> list[str]:
    """Return the codes of languages that the hub accepts."""
    codes = (code.replace("_", "-") for code in languages)
    return [code for code in codes if _CODE.fullmatch(code)]


def list_scores(results: Results, variant: str) -> Iterator[Score]:
    """Yield the scores of one model of a run by task and language, means over seeds."""
    if variant not in results.variants:
        return
    for section in results.sections(results.tasks, [variant]).values():
        layer = section.layers.get(variant)
        notes = [f"layer {layer}, the best of all"] if layer is not None else []
        for metric in section.metrics:
            for pair, seeds in section.read(variant, metric).items():
                source, language = pair
                if not seeds or (section.is_crossed and source != section.sources[0]):
                    continue
                trained = [] if layer is not None else [f"trained in {source}"]
                count = [f"mean of {len(seeds)} seeds"] if len(seeds) > 1 else []
                split = results.file(section.task.name, section.scenario, pair)[0]
                note = ", ".join([*trained, *notes, *count])
                yield Score(section.task.name, language, metric, mean(seeds), split, note)


def make_index(name: str, scores: Iterable[Score], earlier: Any = ()) -> list[Values]:
    """Return the hub's model-index of a model; scores replace earlier ones of the same data."""
    entries: dict[tuple[Any, ...], Values] = {}
    for entry in _list_entries(earlier):
        entries[_identify(entry)] = entry
    fresh: dict[tuple[Any, ...], Values] = {}
    for score in scores:
        kind = score.kind or _TASK_TYPES.get(score.task, "text-classification")
        entry = {
            "task": {"type": kind},
            "dataset": {
                "name": f"{title_task(score.task)} ({score.language})",
                "type": score.task,
                "config": score.language,
                "split": score.split,
            },
            "metrics": [],
        }
        note = f", {score.note}" if score.note else ""
        fresh.setdefault(_identify(entry), entry)["metrics"].append(
            {
                "type": score.metric,
                "value": round(100 * score.value, 2),
                "name": f"{score.metric} in percent{note}",
            }
        )
    results = list((entries | fresh).values())
    return [{"name": name, "results": results}] if results else []


def _list_entries(index: Any) -> Iterator[Values]:
    for model in index if isinstance(index, Sequence) else ():
        results = model.get("results") if isinstance(model, dict) else None
        yield from (entry for entry in results or () if isinstance(entry, dict))


def _identify(entry: Values) -> tuple[Any, ...]:
    data = entry.get("dataset")
    return tuple(
        (data if isinstance(data, dict) else {}).get(k) for k in ("type", "config", "split")
    )
