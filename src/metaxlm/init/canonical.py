"""Canonical tokens: what a token says, freed from how its tokenizer writes it.

Comes in: a tokenizer, or a plain list of tokens. Goes out: a `Vocabulary` that knows for each row
its canonical form (the text, and whether it starts a word), and which row has which special role.
`metaxlm.vocab.token_forms` tells what one token says; this is the whole vocabulary, as section
3.2 of the paper searches it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from metaxlm.data.encode import choose_backend
from metaxlm.errors import MetaXLMError
from metaxlm.vocab.token_forms import Form, Kind, detect_kind, find_bytes, find_form

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Names of special tokens in a plain list of tokens, which cannot say what they are for.
_ROLE_OF_NAME = {
    "<s>": "bos", "[CLS]": "bos", "</s>": "eos", "[SEP]": "eos", "<pad>": "pad", "[PAD]": "pad",
    "<unk>": "unk", "[UNK]": "unk", "<mask>": "mask", "[MASK]": "mask",
}  # fmt: skip
# A tokenizer names its special tokens itself; the second name serves where the first is not set.
_SETTINGS_OF_ROLE = {
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "mask": ("mask_token",),
}
_CUT_AT_ONCE = 50_000


@dataclass(frozen=True)
class Vocabulary:
    """All that matching needs to know about a tokenizer."""

    kind: Kind
    tokens: tuple[str, ...]
    """The tokens as the tokenizer writes them, by row; a row without a token has an empty one."""
    forms: tuple[Form | None, ...]
    """Canonical forms by row; None for special tokens and for broken-off bytes."""
    names: Mapping[int, str | bytes] = field(default_factory=dict)
    """What to match rows without a form by: a special token's text, or the bytes themselves."""
    roles: Mapping[str, int] = field(default_factory=dict)
    """Rows of the special tokens by what they do; BERT's [CLS] and [SEP] are `bos` and `eos`."""
    specials: frozenset[int] = frozenset()
    """Rows of all special tokens, with or without a role."""
    cut: Callable[[Sequence[str], bool], list[list[int]]] | None = None
    """Cuts texts into rows as the tokenizer does, as words or (False) as continuations of words;
    empty where it does not know a character."""

    def __len__(self) -> int:
        return len(self.tokens)


def read_vocabulary(tokenizer: PreTrainedTokenizerBase) -> Vocabulary:
    """Read the vocabulary of a transformers tokenizer."""
    kind = detect_kind(tokenizer)
    rows: dict[str, int] = tokenizer.get_vocab()
    tokens = [""] * (max(rows.values()) + 1)
    for token, row in rows.items():
        tokens[row] = token
    roles = _find_roles(tokenizer, rows)
    if "mask" not in roles:
        raise MetaXLMError(
            f"{tokenizer.name_or_path or 'tokenizer'}: has no mask token, so it cannot serve a "
            "masked language model; set one with tokenizer.add_special_tokens"
        )
    specials = frozenset(tokenizer.all_special_ids) | frozenset(roles.values())
    forms = _list_forms(tokens, kind, specials)
    names = _list_names(tokens, kind, forms, specials)
    cut = _Cutter(tokenizer, kind, forms, roles.get("unk"))
    return Vocabulary(kind, tuple(tokens), forms, names, roles, specials, cut)


def list_vocabulary(tokens: Iterable[str], kind: Kind) -> Vocabulary:
    """Make a vocabulary of a plain list of tokens in the order of their rows."""
    tokens = tuple(tokens)
    roles = {
        _ROLE_OF_NAME[token]: row for row, token in enumerate(tokens) if token in _ROLE_OF_NAME
    }
    specials = frozenset(roles.values())
    forms = _list_forms(tokens, kind, specials)
    names = _list_names(tokens, kind, forms, specials)
    return Vocabulary(kind, tokens, forms, names, roles, specials)


class _Cutter:
    """Cuts texts as a tokenizer does, at the start of a word or inside one."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        kind: Kind,
        forms: Sequence[Form | None],
        unknown: int | None,
    ) -> None:
        self._encode = choose_backend(json.loads(tokenizer.backend_tokenizer.to_str()))
        self._kind = kind
        self._forms = forms
        self._unknown = unknown
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
        """Exchange a first token that starts a word for its twin inside a word, if there is one."""
        form = self._forms[rows[0]] if rows else None
        if form is None or not form[1]:
            return rows
        if not form[0]:
            return rows[1:]
        return [self._continuations.get(form[0], rows[0]), *rows[1:]]


def cut_all(vocabulary: Vocabulary, texts: Sequence[str], starts_word: bool) -> list[list[int]]:
    """Cut any number of texts, in bounded memory."""
    assert vocabulary.cut is not None
    cuts: list[list[int]] = []
    for start in range(0, len(texts), _CUT_AT_ONCE):
        cuts += vocabulary.cut(texts[start : start + _CUT_AT_ONCE], starts_word)
    return cuts


def _find_roles(tokenizer: PreTrainedTokenizerBase, rows: Mapping[str, int]) -> dict[str, int]:
    roles = {}
    for role, settings in _SETTINGS_OF_ROLE.items():
        tokens = (tokenizer.special_tokens_map.get(setting) for setting in settings)
        token = next((str(token) for token in tokens if token is not None), None)
        if token is not None and token in rows:
            roles[role] = rows[token]
    return roles


def _list_forms(
    tokens: Sequence[str], kind: Kind, specials: frozenset[int]
) -> tuple[Form | None, ...]:
    return tuple(
        None if row in specials else find_form(token, kind) for row, token in enumerate(tokens)
    )


def _list_names(
    tokens: Sequence[str], kind: Kind, forms: Sequence[Form | None], specials: frozenset[int]
) -> dict[int, str | bytes]:
    """Name the rows without a form, so that bytes meet across notations."""
    return {
        row: token if row in specials else find_bytes(token, kind) or token
        for row, token in enumerate(tokens)
        if token and forms[row] is None
    }
