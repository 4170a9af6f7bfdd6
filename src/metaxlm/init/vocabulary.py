"""Vocabularies in a normalized notation, so that tokens of different tokenizers can be compared.

A `NormalizedVocab` has the surface form of each token (its text, and whether it starts a word) and
the role of each special token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from metaxlm.data.encode import choose_backend
from metaxlm.errors import MetaXLMError
from metaxlm.vocab.tokens import Form, Kind, detect_kind, find_bytes, read_tokens, surface_form

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Special tokens of a plain list of tokens, which has no roles.
_ROLE_OF_NAME = {
    "<s>": "bos", "[CLS]": "bos", "</s>": "eos", "[SEP]": "eos", "<pad>": "pad", "[PAD]": "pad",
    "<unk>": "unk", "[UNK]": "unk", "<mask>": "mask", "[MASK]": "mask",
}  # fmt: skip
# Settings of a tokenizer; the second is used where the first is not set.
_SETTINGS_OF_ROLE = {
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "mask": ("mask_token",),
}
_BATCH = 50_000


@dataclass(frozen=True)
class NormalizedVocab:
    """A vocabulary as matching needs it."""

    kind: Kind
    tokens: tuple[str, ...]  # by id, as the tokenizer writes them; empty without a token
    forms: tuple[Form | None, ...]  # by id; None for special tokens and incomplete characters
    names: Mapping[int, str | bytes] = field(default_factory=dict)
    """Names to match ids without a form by: the text of a special token, or its bytes."""
    roles: Mapping[str, int] = field(default_factory=dict)  # ids; BERT's [CLS] is `bos`
    specials: frozenset[int] = frozenset()  # ids of all special tokens, with or without a role
    cut: Callable[[Sequence[str], bool], list[list[int]]] | None = None
    """Tokenize texts as words or (False) as continuations of words; the result is empty for a text
    with unknown characters. None for a plain list of tokens."""

    def __len__(self) -> int:
        return len(self.tokens)

    def cut_all(self, texts: Sequence[str], starts_word: bool) -> list[list[int]]:
        """Tokenize any number of texts in bounded memory."""
        assert self.cut is not None
        parts = (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))
        return [ids for part in parts for ids in self.cut(part, starts_word)]


def read_vocabulary(tokenizer: PreTrainedTokenizerBase) -> NormalizedVocab:
    """Read the vocabulary of a transformers tokenizer."""
    kind = detect_kind(tokenizer)
    ids: dict[str, int] = tokenizer.get_vocab()
    tokens = [""] * (max(ids.values()) + 1)
    for row, token in read_tokens(tokenizer, kind).items():
        tokens[row] = token
    roles = {}
    for role, settings in _SETTINGS_OF_ROLE.items():
        named = (tokenizer.special_tokens_map.get(setting) for setting in settings)
        token = next((str(token) for token in named if token is not None), "")
        if token in ids:
            roles[role] = ids[token]
    if "mask" not in roles:
        raise MetaXLMError(
            f"{tokenizer.name_or_path or 'tokenizer'}: has no mask token, so it cannot serve a "
            "masked language model; set one with tokenizer.add_special_tokens"
        )
    specials = frozenset(tokenizer.all_special_ids) | frozenset(roles.values())
    return _make(tokens, kind, roles, specials, tokenizer)


def list_vocabulary(tokens: Iterable[str], kind: Kind) -> NormalizedVocab:
    """Make a vocabulary of a plain list of tokens in the order of their ids."""
    tokens = tuple(tokens)
    roles = {
        _ROLE_OF_NAME[token]: row for row, token in enumerate(tokens) if token in _ROLE_OF_NAME
    }
    return _make(tokens, kind, roles, frozenset(roles.values()), None)


def _make(
    tokens: Sequence[str],
    kind: Kind,
    roles: dict[str, int],
    specials: frozenset[int],
    tokenizer: PreTrainedTokenizerBase | None,
) -> NormalizedVocab:
    forms = tuple(
        None if row in specials else surface_form(token, kind) for row, token in enumerate(tokens)
    )
    names = {
        row: token if row in specials else find_bytes(token, kind) or token
        for row, token in enumerate(tokens)
        if token and forms[row] is None
    }
    cut = None if tokenizer is None else _Cutter(tokenizer, kind, forms, roles.get("unk"))
    return NormalizedVocab(kind, tuple(tokens), forms, names, roles, specials, cut)


class _Cutter:
    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        kind: Kind,
        forms: Sequence[Form | None],
        unknown: int | None,
    ) -> None:
        self._encode = choose_backend(json.loads(tokenizer.backend_tokenizer.to_str()))
        self._kind, self._forms, self._unknown = kind, forms, unknown
        self._continuations = {
            form[0]: row for row, form in enumerate(forms) if form is not None and not form[1]
        }

    def __call__(self, texts: Sequence[str], starts_word: bool) -> list[list[int]]:
        # Byte-level BPE writes the space before a word into the token.
        if self._kind is Kind.BYTE_BPE and starts_word:
            texts = [f" {text}" for text in texts]
        cuts = [[] if self._unknown in ids else list(ids) for ids in self._encode(list(texts))]
        return cuts if starts_word else [self._continue(rows) for rows in cuts]

    def _continue(self, rows: list[int]) -> list[int]:
        """Replace a first token that starts a word by the same text inside a word, if any."""
        form = self._forms[rows[0]] if rows else None
        if form is None or not form[1]:
            return rows
        if not form[0]:
            return rows[1:]
        return [self._continuations.get(form[0], rows[0]), *rows[1:]]
