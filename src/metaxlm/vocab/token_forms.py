"""What a token says, freed from how its tokenizer writes it.

Comes in: a token, and the kind of tokenizer it belongs to. Goes out: its canonical form (the text,
and whether it starts a word), and the bytes that it adds to a text. This is what makes "directly
search the word in the monolingual vocabulary" (section 3.2 of the paper) meaningful: XLM-R writes
`▁Haus`, RoBERTa `ĠHaus`, BERT `Haus` for the same word, and their continuations are `haus`, `haus`
and `##haus`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from metaxlm.errors import MetaXLMError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Form = tuple[str, bool]
"""A canonical form: the token's text, and whether it starts a word."""

SENTENCEPIECE_SPACE = "▁"
WORDPIECE_PREFIX = "##"
_BYTE_FALLBACK = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Kind(StrEnum):
    """How a tokenizer writes its tokens."""

    SENTENCEPIECE = "SentencePiece"
    BYTE_BPE = "byte-level BPE"
    WORDPIECE = "WordPiece"


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


def find_bytes(token: str, kind: Kind) -> bytes | None:
    """Return the bytes that a piece of bytes stands for: `<0xC3>` and `Ã` are the same one."""
    if kind is Kind.SENTENCEPIECE and _BYTE_FALLBACK.fullmatch(token):
        return bytes.fromhex(token[3:5])
    if kind is Kind.BYTE_BPE and all(letter in BYTE_OF_LETTER for letter in token):
        return bytes(map(BYTE_OF_LETTER.__getitem__, token))
    return None


def spell(token: str, kind: Kind) -> bytes:
    """Return what a token adds to a text in UTF-8: a space first, if it starts a word."""
    form = find_form(token, kind)
    if form is None:
        return find_bytes(token, kind) or token.encode()
    text, starts_word = form
    return f"{' ' if starts_word else ''}{text}".encode()


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object inside a JSON value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _walk(item)


def _read_sentencepiece(token: str) -> Form | None:
    if _BYTE_FALLBACK.fullmatch(token):
        return None
    starts = token.startswith(SENTENCEPIECE_SPACE)
    return token[starts:].replace(SENTENCEPIECE_SPACE, " "), starts


def _read_byte_bpe(token: str) -> Form | None:
    try:
        text = bytes(map(BYTE_OF_LETTER.__getitem__, token)).decode()
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


BYTE_OF_LETTER = _make_byte_letters()
"""The byte that each letter of a byte-level BPE token stands for."""
