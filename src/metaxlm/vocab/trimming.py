"""Vocabulary trimming: only the pieces that the user's languages use stay.

Comes in: a tokenizer, and how often text of the languages that matter uses each row (for example
`corpus.frequencies.count_corpus`). Goes out: a tokenizer of the same kind with fewer rows, in the
old order. Most of a multilingual encoder is its embedding matrix (of the
paper's model, with XLM-R's 250K pieces, two thirds), and three languages use a fraction of it:

    rows = choose_pieces(counts, tokenizer)
    trimmed = trim_tokenizer(tokenizer, rows)

A vocabulary is trimmed before matching, or a finished model after pretraining: matching its own
vocabulary to the trimmed one (`make_plan(trimmed, tokenizer)`) copies every row that stays. Row i
of the trimmed vocabulary is row `rows[i]` of the old one. A sentence whose pieces all stay is cut
as before; what becomes of others is measured by `trimming_loss`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from metaxlm.errors import MetaXLMError
from metaxlm.vocab.tokenizer_file import TokenizerFile, list_processors, read_tokenizer

_SETTINGS = (
    "model_max_length",
    "padding_side",
    "truncation_side",
    "model_input_names",
    "clean_up_tokenization_spaces",
    "split_special_tokens",
    "chat_template",
    "add_prefix_space",
    "extra_special_tokens",
)


def choose_pieces(
    counts: NDArray[np.int64],
    tokenizer: PreTrainedTokenizerBase,
    min_count: int = 1,
    size: int | None = None,
) -> NDArray[np.int64]:
    """Return the rows to keep, ascending: those used at least `min_count` times.

    With `size`, the most frequent of them (of equal ones the earlier), so many that there are at
    most `size` rows in all. Whatever the counts, these stay: special tokens; the byte alphabet;
    letters that the text uses, so that what is known in it stays known; what kept pieces are
    merged from.
    """
    if min_count < 1:
        raise MetaXLMError(f"trimming: min_count is {min_count}; it must be at least 1")
    file = read_tokenizer(tokenizer)
    _check_counts(counts, file)
    used = [row for row in np.flatnonzero(counts).tolist() if row not in file.specials]
    ordered = sorted((row for row in used if counts[row] >= min_count), key=lambda r: -counts[r])
    if not ordered:
        most = max((int(counts[row]) for row in used), default=0)
        raise MetaXLMError(
            f"trimming: min_count {min_count} leaves special tokens only, the most frequent piece "
            f"occurs {most} times; lower it or give more text"
        )
    always = set(file.specials) | file.find_alphabet() | file.find_lowest()
    kept = file.find_ancestors(always | file.find_letters(used))
    if size is None:
        kept |= file.find_ancestors(ordered)
    elif size < len(kept):
        raise MetaXLMError(
            f"trimming: size {size} is too small, special tokens and letters alone are {len(kept)}"
        )
    else:
        _fill(kept, ordered, file, size)
    return np.array(sorted(kept), np.int64)


def _check_counts(counts: NDArray[np.int64], file: TokenizerFile) -> None:
    size = max(file.tokens) + 1
    if counts.shape != (size,):
        raise MetaXLMError(
            f"trimming: counts of shape {counts.shape} for a vocabulary of {size} rows; count with "
            "the tokenizer that is to be trimmed"
        )
    lost = [row for row in np.flatnonzero(counts).tolist() if row not in file.tokens]
    if lost:
        raise MetaXLMError(
            f"trimming: row {lost[0]} was counted, but has no token; count with the tokenizer that "
            "is to be trimmed"
        )


def _fill(kept: set[int], ordered: Iterable[int], file: TokenizerFile, size: int) -> None:
    """Add pieces, each with all it is merged from, while they fit."""
    for row in ordered:
        if len(kept) == size:
            return
        new = file.find_ancestors([row]) - kept
        if len(kept) + len(new) <= size:
            kept |= new


def trim_tokenizer(
    tokenizer: PreTrainedTokenizerBase, rows: NDArray[np.int64]
) -> PreTrainedTokenizerBase:
    """Return a tokenizer with these rows only, renumbered in the old order.

    Roles, normalization, templates and settings stay; a length or padding asked of the old one
    does not. The class is transformers' generic one, which takes a tokenizer.json as it stands.
    """
    file = read_tokenizer(tokenizer)
    tokens = _check_rows(np.asarray(rows), file)
    new_row = {token: row for row, token in enumerate(tokens)}
    content = {
        **file.content,
        "truncation": None,
        "padding": None,
        "model": _trim_model(file, new_row),
        "added_tokens": [
            {**token, "id": new_row[token["content"]]}
            for token in file.content["added_tokens"]
            if token["content"] in new_row
        ],
    }
    for step in list_processors(content["post_processor"]):
        _renumber(step, file, new_row)
    backend = Tokenizer.from_str(json.dumps(content))
    if backend.get_vocab() != new_row:
        raise MetaXLMError(
            "trimming: tokens that were added to the tokenizer stand between its pieces, which no "
            "tokenizer.json can say; add them again to a tokenizer that has them last"
        )
    return _wrap(backend, tokenizer)


def _check_rows(rows: NDArray[np.int64], file: TokenizerFile) -> list[str]:
    """Return the tokens of the rows, if a tokenizer can be made of them."""
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer) or (np.diff(rows) <= 0).any():
        raise MetaXLMError(
            "trimming: rows must be whole numbers, ascending, none twice; see numpy.unique"
        )
    kept = rows.tolist()
    if lost := [row for row in kept if row not in file.tokens]:
        raise MetaXLMError(
            f"trimming: row {lost[0]} has no token; the vocabulary's rows are 0 to "
            f"{max(file.tokens)}"
        )
    if specials := sorted(file.specials.difference(kept)):
        names = ", ".join(file.tokens[row] for row in specials)
        raise MetaXLMError(f"trimming: rows without the special tokens {names}; add them")
    if parents := sorted(file.find_ancestors(kept).difference(kept)):
        raise MetaXLMError(
            f"trimming: rows without {file.tokens[parents[0]]!r} (row {parents[0]}) and "
            f"{len(parents) - 1} more, of which others are merged; choose_pieces adds them"
        )
    return [file.tokens[row] for row in kept]


def _trim_model(file: TokenizerFile, new_row: Mapping[str, int]) -> dict[str, Any]:
    """Return the part with the pieces: fewer, and merges only of what is left."""
    model = file.model
    if model["type"] == "Unigram":
        unknown = model["unk_id"]
        return {
            **model,
            "vocab": [entry for entry in model["vocab"] if entry[0] in new_row],
            "unk_id": None if unknown is None else new_row[model["vocab"][unknown][0]],
        }
    vocab = {token: new_row[token] for token in model["vocab"] if token in new_row}
    if model["type"] == "WordPiece":
        return {**model, "vocab": vocab}
    merges = [
        (left, right)
        for left, right, merged in file.list_merges()
        if merged in vocab and left in vocab and right in vocab
    ]
    return {**model, "vocab": vocab, "merges": merges}


def _renumber(step: dict[str, Any], file: TokenizerFile, new_row: Mapping[str, int]) -> None:
    """Give a step that puts special tokens around a sentence their new rows."""
    for entry in step.get("special_tokens", {}).values():
        entry["ids"] = [new_row[file.tokens[row]] for row in entry["ids"]]
    for role in ("cls", "sep"):
        if role in step:
            step[role][1] = new_row[file.tokens[step[role][1]]]


def _wrap(backend: Tokenizer, old: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return the transformers tokenizer, with the old one's roles and settings."""
    settings = {name: getattr(old, name) for name in _SETTINGS if hasattr(old, name)}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **settings, **old.special_tokens_map)
