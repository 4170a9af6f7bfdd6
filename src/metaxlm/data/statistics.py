"""Sizes, sampling probabilities and token counts of a corpus, by language.

The table of `metaxlm corpus stats` is the paper's appendix table of Wikipedia sizes, with more
columns. All functions take a run folder, or a folder of shards or of prepared text; token counts
also take a folder with files such as `de.txt.xz`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from metaxlm.analysis.tables import Table, render_markdown, text_table
from metaxlm.data.decontaminate import TEST_SENTENCE, describe_removed
from metaxlm.data.documents import Document
from metaxlm.data.shards import open_shard
from metaxlm.data.text import merge_reasons, read_sentences
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_value, write_text
from metaxlm.languages import LANGUAGES, language_name, rebalance
from metaxlm.manifest import MANIFEST, read_manifest
from metaxlm.progress import say
from metaxlm.scripts import UNSPACED

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedTokenizerBase

SizeUnit = Literal["bytes", "characters", "tokens"]
Manifests = dict[Path, dict[str, Any]]  # by folder, whose name is the language

_PLACES = {
    "tokens": ("shards/multilingual", "multilingual", "."),
    "text": ("corpus/text", "text", "."),
}
_BATCH_SENTENCES, _WHOLE_FILE = 5_000, 1 << 62
_COUNTS = ("bytes", "documents", "sentences", "words", "characters", "tokens", "unknown")
_HEADINGS = (
    "language", "MB", "documents", "sentences", "tokens", "tokens/word", "unknown", "sampled",
)  # fmt: skip
_SIZE_COLOR, _DRAWN_COLOR = "#0b6fad", "#c8500a"


@dataclass(frozen=True)
class LanguageStatistics:
    """A row of the table."""

    language: str
    bytes: int
    documents: int
    sentences: int
    words: int
    characters: int
    tokens: int | None  # None before tokenization, as the next one
    unknown: int | None
    probability: float  # share of the blocks that are sampled from this language

    @property
    def tokens_per_word(self) -> float | None:
        """Mean number of tokens per word; None for scripts without spaces."""
        known = LANGUAGES.get(self.language)
        if self.tokens is None or (known and known.script in UNSPACED):
            return None
        return self.tokens / max(1, self.words)

    @property
    def unknown_rate(self) -> float | None:
        """Share of unknown tokens."""
        return None if self.unknown is None else self.unknown / max(1, self.tokens or 0)


def _find(folder: Path, key: Literal["tokens", "text"]) -> Manifests:
    """Return the shards or the prepared text of a run, or of a folder in it."""
    for place in _PLACES[key]:
        manifests = sorted((folder / place).glob(f"*/{MANIFEST}"))
        facts = {path.parent: read_manifest(path.parent) for path in manifests}
        found = {path: one for path, one in facts.items() if key in (one.get("counts") or {})}
        if found:
            return found
    return {}


def collect_statistics(folder: Path, alpha: float, unit: SizeUnit) -> list[LanguageStatistics]:
    """Return the rows of the table, largest language first."""
    counts = {path.name: facts["counts"] for path, facts in _find(folder, "tokens").items()} or {
        path.name: facts["counts"]["text"] for path, facts in _find(folder, "text").items()
    }
    if not counts:
        raise MetaXLMError(
            f"{folder}: no shards or prepared text; name a run folder such as runs/demo, or a "
            "folder of shards"
        )
    if unit not in next(iter(counts.values())):
        raise MetaXLMError(f"--unit {unit}: the text in {folder} is not tokenized yet")
    shares = rebalance({language: facts[unit] for language, facts in counts.items()}, alpha)
    rows = [
        LanguageStatistics(name, **{k: facts.get(k) for k in _COUNTS}, probability=shares[name])
        for name, facts in counts.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.language))


def describe_losses(folder: Path) -> list[str]:
    """Describe what corpus preparation left out: records, paragraphs, sentences of test sets."""
    found = _find(folder, "text")
    counts = [facts["counts"] for facts in found.values()]
    records = sum(facts["records"] for facts in counts)
    titles = {"rejected": f"rejected of {records:,} records", "dropped": "dropped paragraphs"}
    lines = []
    for key, title in titles.items() if counts else ():
        reasons = merge_reasons(facts[key] or {} for facts in counts)
        shown = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        lines.append(f"{title}: {shown or 'none'}")
    dropped = {path.name: facts["counts"]["dropped"] or {} for path, facts in found.items()}
    if any(TEST_SENTENCE in reasons for reasons in dropped.values()):
        lines.append(describe_removed([(k, v.get(TEST_SENTENCE, 0)) for k, v in dropped.items()]))
    return lines


def statistics_table(rows: Sequence[LanguageStatistics], alpha: float) -> Table:
    """Return one row per language and their sum."""
    title = f"Corpus, sampled at alpha = {alpha:g}"
    return text_table("corpus", title, _HEADINGS, map(_cells, rows), totals=[_total(rows)])


def _cells(row: LanguageStatistics) -> list[str]:
    per_word, unknown = row.tokens_per_word, row.unknown_rate
    return [
        f"{row.language} {language_name(row.language)}",
        f"{row.bytes / 1e6:,.1f}",
        f"{row.documents:,}",
        f"{row.sentences:,}",
        "–" if row.tokens is None else f"{row.tokens:,}",
        "–" if per_word is None else f"{per_word:.2f}",
        "–" if unknown is None else f"{100 * unknown:.3f} %",
        f"{100 * row.probability:.2f} %",
    ]


def _total(rows: Sequence[LanguageStatistics]) -> list[str]:
    sums: Any = {key: sum(getattr(row, key) or 0 for row in rows) for key in _COUNTS}
    if rows[0].tokens is None:
        sums |= {"tokens": None, "unknown": None}
    cells = _cells(LanguageStatistics("", **sums, probability=1.0))
    cells[0], cells[5], cells[7] = f"{len(rows)} languages", "", "100 %"
    return cells


def draw_statistics(rows: Sequence[LanguageStatistics], alpha: float) -> Figure:
    """Draw each language's share of the text beside its share of the training."""
    # Imported here: only this needs matplotlib, which takes a while.
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    from metaxlm.analysis.style import GRID, INK, drawing_style

    with drawing_style():
        figure = Figure(figsize=(5.7, 0.7 + 0.2 * len(rows)))
        axis = figure.add_subplot()
        total = sum(row.bytes for row in rows)
        places = range(len(rows))
        natural = [100 * row.bytes / total for row in rows]
        drawn = [100 * row.probability for row in rows]
        axis.hlines(places, natural, drawn, color=GRID.light, linewidth=3, zorder=1)
        axis.scatter(natural, places, 22, _SIZE_COLOR, label="share of the text", zorder=2)
        axis.scatter(
            drawn, places, 22, _DRAWN_COLOR, marker="D", label=f"sampled at alpha = {alpha:g}",
            zorder=3,
        )  # fmt: skip
        axis.set_yticks(places, [language_name(row.language) for row in rows])
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.tick_params(colors=INK.light)
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return figure


def write_statistics(
    folder: Path, rows: Sequence[LanguageStatistics], alpha: float, losses: Sequence[str]
) -> None:
    """Write the table as Markdown and the figure as SVG and PDF."""
    from metaxlm.analysis.style import write_figure

    notes = tuple(f"{line[0].upper()}{line[1:]}." for line in losses)
    table = replace(statistics_table(rows, alpha), notes=notes)
    write_text(folder / "corpus.md", render_markdown(table))
    write_figure(folder, "corpus", draw_statistics(rows, alpha))


def count_corpus(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    languages: Sequence[str] | None = None,
    limit: int | None = None,
) -> dict[str, NDArray[np.int64]]:
    """Return for each language the number of occurrences of each token id.

    Without shards of this tokenizer, at most `limit` sentences per language are tokenized.
    """
    shards = {path.name: (path, facts) for path, facts in _find(folder, "tokens").items()}
    if shards and set(languages or ()) <= shards.keys():
        wanted = digest_value(json.loads(tokenizer.backend_tokenizer.to_str()))
        chosen = {name: shards[name] for name in languages or shards}
        if all(facts["tokenizer"] == wanted for _, facts in chosen.values()):
            size = _count_ids(tokenizer)
            return {name: open_shard(path).count_tokens(size) for name, (path, _) in chosen.items()}
        if not list_languages(folder):
            raise MetaXLMError(
                f"{folder}: its shards were made with another tokenizer, and it has no text to "
                "count instead; name a run, or a folder with text"
            )
        say(f"{folder}: its shards were made with another tokenizer; counting its text instead")
    found = languages or list_languages(folder)
    if not found:
        raise MetaXLMError(
            f"{folder}: no text in it; name a run, a folder of shards or of prepared text, or one "
            "with files such as de.txt or de.txt.xz"
        )
    return {
        language: count_sentences(islice(read_corpus(folder, language), limit), tokenizer)
        for language in found
    }


def count_sentences(
    sentences: Iterable[str], tokenizer: PreTrainedTokenizerBase
) -> NDArray[np.int64]:
    """Return the number of occurrences of each token id in sentences."""
    from metaxlm.data.encode import SentenceEncoder

    encoder = SentenceEncoder(tokenizer.backend_tokenizer)
    counts = np.zeros(_count_ids(tokenizer), np.int64)
    sentences = iter(sentences)
    while batch := list(islice(sentences, _BATCH_SENTENCES)):
        counts += np.bincount(encoder.encode(batch).ids, minlength=len(counts))
    return counts


def list_languages(folder: Path) -> list[str]:
    """Return the languages with text in a folder."""
    from metaxlm.data.readers.inputs import find_inputs

    found = [path.name for path in _find(folder, "text")]
    if not found and folder.is_dir():
        names = {re.split(r"[._-]", entry.name)[0] for entry in folder.iterdir()}
        for name in names & LANGUAGES.keys():
            with suppress(MetaXLMError):
                found += [name] if find_inputs(folder, "text", name) else []
    return sorted(found)


def read_corpus(folder: Path, language: str) -> Iterator[str]:
    """Yield the sentences, or the lines, of a language."""
    from metaxlm.data.readers.inputs import find_inputs, split_input
    from metaxlm.data.readers.lines import read_text

    prepared = {path.name: path for path in _find(folder, "text")}
    if language in prepared:
        yield from read_sentences(prepared[language])
        return
    for path in find_inputs(folder, "text", language):
        for split in split_input(path, "text", _WHOLE_FILE):
            for record in read_text(split, lambda _: None):
                if isinstance(record, Document):
                    yield from (" ".join(line.split()) for line in record.text.split("\n"))


def _count_ids(tokenizer: PreTrainedTokenizerBase) -> int:
    return int(max(tokenizer.get_vocab().values())) + 1
