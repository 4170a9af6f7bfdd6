"""What a tokenizer.json says about its pieces: which ones are special, and which need others.

Comes in: a fast tokenizer whose model is Unigram, BPE or WordPiece. Goes out: its content and the
rows that `trimming` must keep together. Special tokens are those with a role, those that the
template around a sentence writes, and the unknown one. A piece needs its letters, so that text is
still known when the piece is gone; a merged piece of BPE needs the two it is merged from, or it
could never come about.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError

_MODELS = ("Unigram", "BPE", "WordPiece")
_BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))


@dataclass(frozen=True)
class TokenizerFile:
    """The content of a tokenizer.json, and its tokens by row."""

    content: dict[str, Any]
    row_of: Mapping[str, int]
    """The row of every token, added ones included."""
    specials: frozenset[int]
    """Rows that no tokenizer of this kind works without."""

    @property
    def model(self) -> dict[str, Any]:
        """The part that has the pieces."""
        model: dict[str, Any] = self.content["model"]
        return model

    @cached_property
    def tokens(self) -> dict[int, str]:
        """The token of every row; some vocabularies have rows without any."""
        return {row: token for token, row in self.row_of.items()}

    def find_alphabet(self) -> set[int]:
        """Return the rows of single bytes, where bytes are what any text can be spelled in."""
        names: Iterable[str] = ()
        if self.model.get("byte_fallback"):
            names = _BYTE_PIECES
        elif "ByteLevel" in _list_types(
            [self.content["normalizer"], self.content["pre_tokenizer"]]
        ):
            names = ByteLevel.alphabet()
        return {self.row_of[name] for name in names if name in self.row_of}

    def find_letters(self, rows: Iterable[int]) -> set[int]:
        """Return the rows of the pieces' letters, as they are written in all places of a word.

        A piece with a letter that is no piece itself is returned too: without it, the letter might
        become unknown.
        """
        prefix, suffix = self._affixes
        has_bytes = bool(self.model.get("byte_fallback"))
        found: set[int] = set()
        letters: set[str] = set()
        for row in rows:
            forms = self._spell(self.tokens[row])
            letters.update(form.removeprefix(prefix).removesuffix(suffix) for form in forms)
            if not has_bytes and any(form not in self.row_of for form in forms):
                found.add(row)
        for letter in letters:
            for form in {letter, prefix + letter, letter + suffix, prefix + letter + suffix}:
                if form in self.row_of:
                    found.add(self.row_of[form])
        return found

    def find_ancestors(self, rows: Iterable[int]) -> set[int]:
        """Return the rows and all that they are merged from; without merges, the rows alone."""
        found: set[int] = set()
        stack = list(rows)
        while stack:
            if (row := stack.pop()) not in found:
                found.add(row)
                stack.extend(self._parents.get(row, ()))
        return found

    def find_lowest(self) -> set[int]:
        """Return a row with Unigram's lowest score, from which that of unknown letters is taken."""
        if self.model["type"] != "Unigram":
            return set()
        lowest = min(score for _, score in self.model["vocab"])
        rows = [row for row, (_, score) in enumerate(self.model["vocab"]) if score == lowest]
        return set() if self.specials.intersection(rows) else set(rows[:1])

    def list_merges(self) -> Iterator[tuple[str, str, str]]:
        """Yield BPE's merges: left, right, and what they become."""
        prefix, _ = self._affixes
        for left, right in self.model.get("merges", ()):
            yield left, right, left + right.removeprefix(prefix)

    @cached_property
    def _parents(self) -> dict[int, set[int]]:
        # Converted vocabularies may have several merges that give the same piece; which one does
        # depends on the word, so it needs all.
        parents: dict[int, set[int]] = defaultdict(set)
        for left, right, merged in self.list_merges():
            parents[self.row_of[merged]] |= {self.row_of[left], self.row_of[right]}
        return parents

    @property
    def _affixes(self) -> tuple[str, str]:
        """What marks a piece inside a word (`##`), and at its end (`</w>`)."""
        prefix = self.model.get("continuing_subword_prefix")
        return prefix or "", self.model.get("end_of_word_suffix") or ""

    def _spell(self, token: str) -> list[str]:
        """Return a token's letters as pieces of their own would be written in its place."""
        prefix, suffix = self._affixes
        body = token.removeprefix(prefix)
        first = token[: len(token) - len(body)]
        body, last = body.removesuffix(suffix), suffix if body.endswith(suffix) else ""
        forms = [prefix + letter for letter in body]
        if forms:
            forms[0] = first + body[0]
            forms[-1] += last
        return forms


def read_tokenizer(tokenizer: PreTrainedTokenizerBase) -> TokenizerFile:
    """Read what trimming must know of a tokenizer; refuse those that cannot be trimmed."""
    name = tokenizer.name_or_path or type(tokenizer).__name__
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise MetaXLMError(f"{name}: no fast tokenizer; save one with a tokenizer.json")
    content = json.loads(backend.to_str())
    kind = content["model"]["type"]
    if kind not in _MODELS:
        raise MetaXLMError(
            f"{name}: a vocabulary of kind {kind} cannot be trimmed; only {', '.join(_MODELS)} can"
        )
    row_of: dict[str, int] = tokenizer.get_vocab()
    specials = set(tokenizer.all_special_ids) | set(_list_special_rows(content, row_of))
    return TokenizerFile(content, row_of, frozenset(specials))


def _list_special_rows(content: dict[str, Any], row_of: Mapping[str, int]) -> Iterator[int]:
    yield from (token["id"] for token in content["added_tokens"] if token["special"])
    for step in list_processors(content["post_processor"]):
        yield from (
            row for entry in step.get("special_tokens", {}).values() for row in entry["ids"]
        )
        yield from (step[role][1] for role in ("cls", "sep") if role in step)
    model = content["model"]
    if model.get("unk_id") is not None:
        yield model["unk_id"]
    elif model.get("unk_token") in row_of:
        yield row_of[model["unk_token"]]


def list_processors(processor: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the steps that put special tokens around a sentence, whose rows are in them."""
    if processor is not None and processor["type"] == "Sequence":
        for step in processor["processors"]:
            yield from list_processors(step)
    elif processor is not None:
        yield processor


def _list_types(value: Any) -> set[str]:
    """Return the types of a part of a tokenizer.json and of the steps in it."""
    if isinstance(value, list):
        return set().union(*map(_list_types, value))
    if isinstance(value, dict):
        return {str(value.get("type"))}.union(*map(_list_types, value.values()))
    return set()
