"""Canonical tokens: what a token says, freed from how its tokenizer writes it.

Comes in: a tokenizer, or a plain list of tokens. Goes out: a `Vocabulary` that knows for each row
its canonical form (the text, and whether it starts a word), and which row has which special role.
This is what makes "directly search the word in the monolingual vocabulary" (section 3.2 of the
paper) meaningful: XLM-R writes `▁Haus`, RoBERTa `ĠHaus`, BERT `Haus` for the same word, and their
continuations are `haus`, `haus` and `##haus`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from metaxlm.corpus.encoding import choose_backend
from metaxlm.errors import MetaXLMError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Form = tuple[str, bool]
"""A canonical form: the token's text, and whether it starts a word."""

SENTENCEPIECE_SPACE = "▁"
WORDPIECE_PREFIX = "##"

ROLES = ("bos", "eos", "pad", "unk", "mask")
"""Special tokens by what they do; BERT's [CLS] and [SEP] are `bos` and `eos`."""

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
_BYTE_FALLBACK = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Kind(StrEnum):
    """How a tokenizer writes its tokens."""

    SENTENCEPIECE = "SentencePiece"
    BYTE_BPE = "byte-level BPE"
    WORDPIECE = "WordPiece"


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
    """Rows of the special tokens by role."""
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


def find_form(token: str, kind: Kind) -> Form | None:
    """Return the canonical form of one token, or None if it is not text on its own."""
    if not token:
        return None
    match kind:
        case Kind.SENTENCEPIECE:
            return _read_sentencepiece(token)
        case Kind.BYTE_BPE:
            return _read_byte_bpe(token)
        case Kind.WORDPIECE:
            return _read_wordpiece(token)


def detect_kind(tokenizer: PreTrainedTokenizerBase) -> Kind:
    """Tell from a tokenizer's parts how it writes its tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    name = tokenizer.name_or_path or type(tokenizer).__name__
    if backend is None:
        raise MetaXLMError(
            f"{name}: a tokenizer without tokenizer.json cannot be read; convert it to a fast one"
        )
    model = type(backend.model).__name__
    parts = (backend.normalizer, backend.pre_tokenizer, backend.decoder)
    settings = [json.loads(part.__getstate__()) for part in parts if part is not None]
    types = sorted({str(node["type"]) for node in _walk(settings) if "type" in node})
    if model == "WordPiece":
        prefix = backend.model.continuing_subword_prefix
        if prefix != WORDPIECE_PREFIX:
            raise MetaXLMError(
                f"{name}: WordPiece with the prefix {prefix!r}; only {WORDPIECE_PREFIX!r} is known"
            )
        return Kind.WORDPIECE
    if "ByteLevel" in types:
        return Kind.BYTE_BPE
    # Some SentencePiece models come without Metaspace: their normalizer writes the mark.
    writes_mark = any(node.get("content") == SENTENCEPIECE_SPACE for node in _walk(settings))
    if "Metaspace" in types or writes_mark:
        return Kind.SENTENCEPIECE
    raise MetaXLMError(
        f"{name}: cannot tell where its words start (model {model}, parts "
        f"{', '.join(types) or 'none'}); known are {', '.join(Kind)}"
    )


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


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object inside a JSON value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _walk(item)


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
        row: token if row in specials else _read_bytes(token, kind)
        for row, token in enumerate(tokens)
        if token and forms[row] is None
    }


def _read_bytes(token: str, kind: Kind) -> str | bytes:
    """Return the bytes that a token without text stands for: `<0xC3>` and `Ã` are the same one."""
    if kind is Kind.SENTENCEPIECE and _BYTE_FALLBACK.fullmatch(token):
        return bytes.fromhex(token[3:5])
    if kind is Kind.BYTE_BPE and all(letter in _BYTE_OF_LETTER for letter in token):
        return bytes(map(_BYTE_OF_LETTER.__getitem__, token))
    return token


def _read_sentencepiece(token: str) -> Form | None:
    if _BYTE_FALLBACK.fullmatch(token):
        return None
    starts = token.startswith(SENTENCEPIECE_SPACE)
    return token[starts:].replace(SENTENCEPIECE_SPACE, " "), starts


def _read_byte_bpe(token: str) -> Form | None:
    try:
        text = bytes(map(_BYTE_OF_LETTER.__getitem__, token)).decode()
    except (KeyError, UnicodeDecodeError):
        return None
    starts = text.startswith(" ")
    return text[starts:], starts


def _read_wordpiece(token: str) -> Form:
    continues = token.startswith(WORDPIECE_PREFIX) and len(token) > len(WORDPIECE_PREFIX)
    return (token[len(WORDPIECE_PREFIX) :], False) if continues else (token, True)


def _make_byte_letters() -> dict[str, int]:
    """Return the byte each letter stands for in byte-level BPE.

    Printable Latin-1 characters stand for themselves; the other bytes got letters from 256 on, in
    their order, so that a space (the 33rd of them) is `Ġ`.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in sorted(printable)}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF_LETTER = _make_byte_letters()
