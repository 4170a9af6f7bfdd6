"""Trim a vocabulary to the tokens that a text uses, and measure the cost.

Most of a multilingual encoder is its embedding matrix (two thirds of the paper's model with XLM-R's
250K tokens), and a few languages use a fraction of it:

    rows = choose_pieces(counts, tokenizer)
    trimmed = trim_tokenizer(tokenizer, rows)

Token i of the trimmed vocabulary is token `rows[i]` of the old one, and `make_plan(trimmed,
tokenizer)` copies its embedding. A text whose tokens are all kept is tokenized as before;
`measure_loss` counts the others.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from metaxlm.analysis.tables import Table, text_table
from metaxlm.errors import MetaXLMError
from metaxlm.hub import walk_json
from metaxlm.languages import language_name

_MODELS = ("Unigram", "BPE", "WordPiece")
_BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_SETTINGS = (
    "model_max_length", "padding_side", "truncation_side", "model_input_names",
    "clean_up_tokenization_spaces", "split_special_tokens", "chat_template", "add_prefix_space",
    "extra_special_tokens",
)  # fmt: skip


class _TokenizerFile:
    """The content of a tokenizer.json, and the tokens that must be kept together.

    A token needs its letters, and a merged token of BPE the two tokens it is merged from.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        name = tokenizer.name_or_path or type(tokenizer).__name__
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise MetaXLMError(f"{name}: not a fast tokenizer; save one with a tokenizer.json")
        self.content: dict[str, Any] = json.loads(backend.to_str())
        self.model: dict[str, Any] = self.content["model"]
        if self.model["type"] not in _MODELS:
            raise MetaXLMError(
                f"{name}: a vocabulary of kind {self.model['type']} cannot be trimmed; only "
                f"{', '.join(_MODELS)} can"
            )
        self.row_of: dict[str, int] = tokenizer.get_vocab()  # added tokens included
        self.tokens = {row: token for token, row in self.row_of.items()}
        # Marks of a token inside a word (`##`) and at its end (`</w>`).
        self.prefix: str = self.model.get("continuing_subword_prefix") or ""
        self.suffix: str = self.model.get("end_of_word_suffix") or ""
        # Tokens with a role, tokens of the template around a sentence, and the unknown token.
        self.specials: set[int] = set(tokenizer.all_special_ids)
        self.specials |= {token["id"] for token in self.content["added_tokens"] if token["special"]}
        self.specials |= {ids[place] for ids, places in _list_ids(self.content) for place in places}
        unknown = self.model.get("unk_id", self.row_of.get(self.model.get("unk_token", "")))
        self.specials |= set() if unknown is None else {unknown}

    def find_alphabet(self) -> set[int]:
        """Return the single bytes of a vocabulary that can spell any text with them."""
        steps = walk_json([self.content["normalizer"], self.content["pre_tokenizer"]])
        names: Iterable[str] = ()
        if self.model.get("byte_fallback"):
            names = _BYTE_PIECES
        elif any(step.get("type") == "ByteLevel" for step in steps):
            names = ByteLevel.alphabet()
        return {self.row_of[name] for name in names if name in self.row_of}

    def find_letters(self, rows: Iterable[int]) -> set[int]:
        """Return letters of tokens in all positions of a word, and tokens with other letters."""
        prefix, suffix = self.prefix, self.suffix
        has_bytes = bool(self.model.get("byte_fallback"))
        found, letters = set[int](), set[str]()
        for row in rows:
            forms = self._spell(self.tokens[row])
            letters.update(form.removeprefix(prefix).removesuffix(suffix) for form in forms)
            if not has_bytes and any(form not in self.row_of for form in forms):
                found.add(row)
        written = {f"{a}{x}{b}" for x in letters for a in ("", prefix) for b in ("", suffix)}
        return found | {self.row_of[form] for form in written if form in self.row_of}

    def find_ancestors(self, rows: Iterable[int]) -> set[int]:
        """Return tokens and all tokens they are merged from."""
        found: set[int] = set()
        stack = list(rows)
        while stack:
            if (row := stack.pop()) not in found:
                found.add(row)
                stack.extend(self._parents.get(row, ()))
        return found

    def find_lowest(self) -> set[int]:
        """Return a token with Unigram's lowest score, which decides that of unknown letters."""
        if self.model["type"] != "Unigram":
            return set()
        lowest = min(score for _, score in self.model["vocab"])
        rows = [row for row, (_, score) in enumerate(self.model["vocab"]) if score == lowest]
        return set() if self.specials.intersection(rows) else set(rows[:1])

    def list_merges(self) -> Iterator[tuple[str, str, str]]:
        """Yield BPE's merges: left, right, and the result."""
        for left, right in self.model.get("merges", ()):
            yield left, right, left + right.removeprefix(self.prefix)

    @cached_property
    def _parents(self) -> dict[int, set[int]]:
        # Converted vocabularies may have several merges with the same result; keep all.
        parents: dict[int, set[int]] = defaultdict(set)
        for left, right, merged in self.list_merges():
            parents[self.row_of[merged]] |= {self.row_of[left], self.row_of[right]}
        return parents

    def _spell(self, token: str) -> list[str]:
        """Return the letters of a token as separate tokens in the same position."""
        body = token.removeprefix(self.prefix)
        first = token[: len(token) - len(body)]
        last = self.suffix if body.endswith(self.suffix) else ""
        body = body.removesuffix(self.suffix)
        forms = [self.prefix + letter for letter in body]
        if forms:
            forms[0] = first + body[0]
            forms[-1] += last
        return forms


def _list_ids(content: dict[str, Any]) -> Iterator[tuple[list[Any], Iterable[int]]]:
    """Yield the lists of the post-processor that have ids, and the places of the ids in them."""
    for step in walk_json(content["post_processor"]):
        if isinstance(step.get("special_tokens"), dict):
            for entry in step["special_tokens"].values():
                yield entry["ids"], range(len(entry["ids"]))
        yield from (
            (step[role], [1]) for role in ("cls", "sep") if isinstance(step.get(role), list)
        )


def choose_pieces(
    counts: NDArray[np.int64],
    tokenizer: PreTrainedTokenizerBase,
    min_count: int = 1,
    size: int | None = None,
) -> NDArray[np.int64]:
    """Return the ids to keep, ascending: tokens that occur `min_count` times, at most `size`.

    Special tokens, bytes, letters of the text, and the parts of merged tokens are always kept.
    """
    file = _TokenizerFile(tokenizer)
    used = [row for row in np.flatnonzero(counts).tolist() if row not in file.specials]
    ordered = sorted((row for row in used if counts[row] >= min_count), key=lambda r: -counts[r])
    if not ordered:
        most = max((int(counts[row]) for row in used), default=0)
        raise MetaXLMError(
            f"trimming: min_count {min_count} leaves special tokens only, the most frequent piece "
            f"occurs {most} times; lower it or give more text"
        )
    always = file.specials | file.find_alphabet() | file.find_lowest()
    kept = file.find_ancestors(always | file.find_letters(used))
    if size is not None and size < len(kept):
        raise MetaXLMError(
            f"trimming: size {size} is too small, special tokens and letters alone are {len(kept)}"
        )
    for row in ordered:
        new = file.find_ancestors([row]) - kept
        if size is None or len(kept) + len(new) <= size:
            kept |= new
        if len(kept) == size:
            break
    return np.array(sorted(kept), np.int64)


def trim_tokenizer(
    tokenizer: PreTrainedTokenizerBase, rows: NDArray[np.int64]
) -> PreTrainedTokenizerBase:
    """Return a generic tokenizer with the ids of `choose_pieces` only, renumbered in order.

    Roles, normalization, templates and settings are kept; truncation and padding are not.
    """
    file = _TokenizerFile(tokenizer)
    new_row = {file.tokens[old]: row for row, old in enumerate(rows.tolist())}
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
    for ids, places in _list_ids(content):
        for place in places:
            ids[place] = new_row[file.tokens[ids[place]]]
    backend = Tokenizer.from_str(json.dumps(content))
    if backend.get_vocab() != new_row:
        raise MetaXLMError(
            "trimming: tokens that were added to the tokenizer are between its pieces, which "
            "tokenizer.json does not support; add them again to a tokenizer that has them last"
        )
    settings = {name: getattr(tokenizer, name) for name in _SETTINGS if hasattr(tokenizer, name)}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **settings, **tokenizer.special_tokens_map
    )


def _trim_model(file: _TokenizerFile, new_row: Mapping[str, int]) -> dict[str, Any]:
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
    merges = [merge[:2] for merge in file.list_merges() if vocab.keys() >= set(merge)]
    return {**model, "vocab": vocab, "merges": merges}


@dataclass(frozen=True)
class TrimLoss:
    """Tokenization of one language's text before and after trimming."""

    rows_before: int
    rows_after: int
    sentences: int
    same: int  # sentences with the same tokens, whose vectors do not change at all
    tokens_before: int
    tokens_after: int
    unknown_before: int
    unknown_after: int

    @property
    def same_share(self) -> float:
        """Share of sentences with the same tokens."""
        return self.same / self.sentences

    @property
    def growth(self) -> float:
        """Relative growth of the number of tokens: 0.01 is one percent."""
        return self.tokens_after / self.tokens_before - 1


def measure_loss(
    before: PreTrainedTokenizerBase,
    after: PreTrainedTokenizerBase,
    texts_by_language: Mapping[str, Sequence[str]],
) -> dict[str, TrimLoss]:
    """Compare how two tokenizers tokenize the sentences of each language."""
    row_of = before.get_vocab()
    old_row = {row: row_of.get(token, -1) for token, row in after.get_vocab().items()}
    backends = []
    for tokenizer in (before, after):
        content = {**_TokenizerFile(tokenizer).content, "truncation": None, "padding": None}
        backends.append(Tokenizer.from_str(json.dumps(content)))
        backends[-1].encode_special_tokens = True  # `<s>` in a text is plain text
    losses = {}
    for language, texts in texts_by_language.items():
        old, new = (
            [one.ids for one in backend.encode_batch_fast(list(texts), add_special_tokens=False)]
            for backend in backends
        )
        if not any(old):
            raise MetaXLMError(f"trimming: no text of {language} to measure the loss on; give some")
        losses[language] = TrimLoss(
            rows_before=len(before),
            rows_after=len(after),
            sentences=len(texts),
            same=sum(a == [old_row[row] for row in b] for a, b in zip(old, new, strict=True)),
            tokens_before=sum(map(len, old)),
            tokens_after=sum(map(len, new)),
            unknown_before=sum(ids.count(before.unk_token_id) for ids in old),
            unknown_after=sum(ids.count(after.unk_token_id) for ids in new),
        )
    return losses


def loss_table(
    losses: Mapping[str, TrimLoss], similarities: Mapping[str, float] | None = None
) -> Table:
    """Return one row per language; `similarities` are mean cosines of vectors before and after."""
    size = next(iter(losses.values()))
    share = 100 * size.rows_after / size.rows_before
    title = f"{size.rows_after:,} of {size.rows_before:,} tokens kept ({share:.1f} %)"
    headings = ["language", "sentences", "same tokens", "tokens", "unknown"]
    rows = []
    for language, loss in losses.items():
        before = 100 * loss.unknown_before / max(1, loss.tokens_before)
        after = 100 * loss.unknown_after / max(1, loss.tokens_after)
        tokens = f"{100 * loss.same_share:.2f} %", f"{100 * loss.growth:+.3f} %"
        unknown = f"{before:.3f} → {after:.3f} %"
        rows.append([language_name(language), f"{loss.sentences:,}", *tokens, unknown])
        if similarities:
            rows[-1].append(f"{similarities[language]:.5f}")
    headings += ["cosine"] if similarities else []
    return text_table("trimming", title, headings, rows, ["On held-out sentences."])
