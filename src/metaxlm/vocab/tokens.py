"""Tokens: special tokens, and the text of a token independent of its tokenizer's notation.

XLM-R writes `▁Haus`, RoBERTa `ĠHaus`, BERT `Haus` for the same word, and `haus`, `haus` and
`##haus` inside a word. The surface form (text, starts a word) makes "directly search the word in
the monolingual vocabulary" (section 3.2 of the paper) meaningful.
"""

import json
import re
from enum import StrEnum
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from metaxlm.errors import MetaXLMError
from metaxlm.hub import walk_json

FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
"""The first ids of both vocabularies, as in RoBERTa; the mask is last."""
MASK_TOKEN = "<mask>"

Form = tuple[str, bool]  # a surface form: the text of a token, and whether it starts a word

SENTENCEPIECE_SPACE = "▁"
WORDPIECE_PREFIX = "##"
_BYTE_FALLBACK = re.compile(r"<0x[0-9A-Fa-f]{2}>")
LETTER_OF_BYTE: dict[int, str] = bytes_to_unicode()
BYTE_OF_LETTER = {letter: byte for byte, letter in LETTER_OF_BYTE.items()}
"""The byte of each letter of a byte-level BPE token."""


def mask_token() -> AddedToken:
    """Return the mask, which includes the space before it because it replaces a word."""
    return AddedToken(MASK_TOKEN, lstrip=True, special=True)


def wrap_tokenizer(tokenizer: Tokenizer, **settings: Any) -> PreTrainedTokenizerBase:
    """Return a transformers tokenizer with the roles of the special tokens."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", cls_token="<s>",
        sep_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token=mask_token(), **settings,
    )  # fmt: skip


def boundary_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """Return the ids of `<s>` and `</s>`, or of BERT's `[CLS]` and `[SEP]`."""
    first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
    first = tokenizer.cls_token_id if first is None else first
    last = tokenizer.sep_token_id if last is None else last
    if first is None or last is None or tokenizer.pad_token_id is None:
        raise MetaXLMError(
            f"{tokenizer.name_or_path or 'tokenizer'}: has no tokens for the start, the end and "
            "the padding of a text; set them with tokenizer.add_special_tokens"
        )
    return first, last


class Kind(StrEnum):
    """The notation of a tokenizer."""

    SENTENCEPIECE = "SentencePiece"
    BYTE_BPE = "byte-level BPE"
    WORDPIECE = "WordPiece"


def detect_kind(tokenizer: PreTrainedTokenizerBase) -> Kind:
    """Detect the notation of a tokenizer from its components."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    name = tokenizer.name_or_path or type(tokenizer).__name__
    if backend is None:
        raise MetaXLMError(
            f"{name}: a tokenizer without tokenizer.json cannot be read; convert it to a fast one"
        )
    model = type(backend.model).__name__
    parts = (backend.normalizer, backend.pre_tokenizer, backend.decoder)
    nodes = list(walk_json([json.loads(part.__getstate__()) for part in parts if part is not None]))
    types = sorted({str(node["type"]) for node in nodes if "type" in node})
    if model == "WordPiece":
        prefix = backend.model.continuing_subword_prefix
        if prefix != WORDPIECE_PREFIX:
            raise MetaXLMError(
                f"{name}: WordPiece with the prefix {prefix!r}; only {WORDPIECE_PREFIX!r} is known"
            )
        return Kind.WORDPIECE
    if "ByteLevel" in types:
        return Kind.BYTE_BPE
    # Some SentencePiece models have no Metaspace: their normalizer writes the mark.
    if "Metaspace" in types or any(node.get("content") == SENTENCEPIECE_SPACE for node in nodes):
        return Kind.SENTENCEPIECE
    raise MetaXLMError(
        f"{name}: cannot tell where its words start (model {model}, parts "
        f"{', '.join(types) or 'none'}); known are {', '.join(Kind)}"
    )


def read_tokens(tokenizer: PreTrainedTokenizerBase, kind: Kind) -> dict[int, str]:
    """Return the tokens by id; words that were added have the notation of all others."""
    tokens = {row: token for token, row in tokenizer.get_vocab().items()}
    for row, added in tokenizer.added_tokens_decoder.items():
        if added.special or not added.lstrip:  # `init/extension.py` adds words with their space
            continue
        if kind is Kind.SENTENCEPIECE:
            tokens[row] = SENTENCEPIECE_SPACE + added.content
        elif kind is Kind.BYTE_BPE:
            tokens[row] = "".join(LETTER_OF_BYTE[byte] for byte in f" {added.content}".encode())
    return tokens


def surface_form(token: str, kind: Kind) -> Form | None:
    """Return the surface form of a token; None for bytes that are not a whole character."""
    if not token:
        return None
    match kind:
        case Kind.SENTENCEPIECE:
            if _BYTE_FALLBACK.fullmatch(token):
                return None
            starts = token.startswith(SENTENCEPIECE_SPACE)
            return token[starts:].replace(SENTENCEPIECE_SPACE, " "), starts
        case Kind.BYTE_BPE:
            try:
                text = bytes(map(BYTE_OF_LETTER.__getitem__, token)).decode()
            except (KeyError, UnicodeDecodeError):
                return None
            starts = text.startswith(" ")
            return text[starts:], starts
        case Kind.WORDPIECE:
            continues = token.startswith(WORDPIECE_PREFIX) and len(token) > len(WORDPIECE_PREFIX)
            return (token[len(WORDPIECE_PREFIX) :], False) if continues else (token, True)


def find_bytes(token: str, kind: Kind) -> bytes | None:
    """Return the bytes of a byte token: those of `<0xC3>` and `Ã` are the same."""
    if kind is Kind.SENTENCEPIECE and _BYTE_FALLBACK.fullmatch(token):
        return bytes.fromhex(token[3:5])
    if kind is Kind.BYTE_BPE and all(letter in BYTE_OF_LETTER for letter in token):
        return bytes(map(BYTE_OF_LETTER.__getitem__, token))
    return None


def spell(token: str, kind: Kind) -> bytes:
    """Return the UTF-8 bytes that a token adds to a text, with a space before a word."""
    form = surface_form(token, kind)
    if form is None:
        return find_bytes(token, kind) or token.encode()
    return f"{' ' if form[1] else ''}{form[0]}".encode()
