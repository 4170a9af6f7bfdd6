"""Read Wiktextract's JSON lines, as kaikki.org has them, in little memory.

A line is a word with its senses. In the edition of the source language, its words have
translations, and words of the target language have glosses, which are translations where they are
short. In the edition of the target language it is the other way round. Most lines name other
languages only; a search for the quoted language code drops them before JSON is parsed.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from metaxlm.data.documents import Split
from metaxlm.data.readers.lines import read_windows
from metaxlm.dictionary.entries import Entry
from metaxlm.languages import LANGUAGES, list_codes
from metaxlm.reading import has_too_many_values
from metaxlm.streams import Meter

_EDITION_LINES = 2_000  # that are read to find the language of an edition
_MOST_WORDS = 3  # of a translation within a gloss; a longer one is a definition
_MOST_LETTERS = 12  # the same in a text without spaces
_ASIDE = re.compile(r"\([^()]*\)|（[^（）]*）|\[[^\[\]]*\]|\{[^{}]*\}|<[^<>]*>|\"[^\"]*\"")
_SEPARATOR = re.compile(r"[,;/，；、،؛]| or (?=\S)")
_ENGLISH_LEAD = re.compile(r"(?:to|a|an|the|to be) (?=\S)", re.IGNORECASE)


def read_wiktextract(
    path: Path, language: str, source_language: str, dropped: Counter[str]
) -> Iterator[Entry]:
    """Yield the entries of a file of any edition."""
    targets, sources = list_codes(language), list_codes(source_language)
    edition = _find_edition(path)
    # The edition of the target language names it nowhere in the entry of an English word.
    needed = targets if edition in sources else targets | sources
    needles = [f'"{code}"'.encode() for code in sorted(needed)]
    for record in _read_records(path, needles, dropped):
        word, code = record.get("word"), record.get("lang_code")
        if not isinstance(word, str) or not word or not isinstance(code, str):
            dropped["no word or language"] += 1
        elif code in sources:
            for translation in _list_translations(record, targets, dropped):
                yield Entry(word, translation)
            if edition is None or edition in targets:
                for gloss in _list_glosses(record, language, dropped):
                    yield Entry(word, gloss)
        elif code in targets:
            for translation in _list_translations(record, sources, dropped):
                yield Entry(translation, word)
            if edition in sources:
                for gloss in _list_glosses(record, source_language, dropped):
                    yield Entry(gloss, word)


def split_gloss(gloss: str, language: str) -> tuple[list[str], int]:
    """Return the translations in a gloss in a language, and the number of longer parts."""
    parts = _SEPARATOR.split(strip_asides(gloss))
    parts = [" ".join(part.split()).strip(" .:!?。-–…") for part in parts]
    texts = list(filter(None, parts))
    if language == "en":
        texts = [_ENGLISH_LEAD.sub("", text, count=1) for text in texts]
    short = [
        text
        for text in texts
        if text.count(" ") < _MOST_WORDS and (" " in text or text.isascii() or _is_short(text))
    ]
    return short, len(texts) - len(short)


def strip_asides(text: str) -> str:
    """Remove everything in brackets or quotes."""
    before = ""
    while before != text:  # brackets may be nested
        before, text = text, _ASIDE.sub(" ", text)
    return text


def _is_short(text: str) -> bool:
    # Only scripts without spaces have definitions of one "word".
    return len(text) <= _MOST_LETTERS or ord(text[0]) < 0x0E00


def _read_lines(path: Path, dropped: Counter[str], needles: list[bytes]) -> Iterator[bytes]:
    find = re.compile(b"|".join(map(re.escape, needles))).search
    for window in read_windows(Split(path), Meter(_ignore, 0)):
        if find(window.data):
            yield from filter(find, window.data.split(b"\n"))
        dropped["line too long"] += window.too_long is not None


def _ignore(_: int) -> None:
    pass


def _read_records(
    path: Path, needles: list[bytes], dropped: Counter[str]
) -> Iterator[dict[str, Any]]:
    for line in _read_lines(path, dropped, needles):
        try:
            record = None if has_too_many_values(line) else json.loads(line)
        except UnicodeDecodeError:
            dropped["not UTF-8"] += 1
            continue
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield record
        else:
            dropped["not a JSON object"] += 1


def _find_edition(path: Path) -> str | None:
    """Return the language in which an edition explains words: that of words with translations.

    A file of one language may have no translations. Then the edition is English, or None if
    languages do not have their English names.
    """
    codes: Counter[str] = Counter()
    names: Counter[bool] = Counter()
    for record in islice(_read_records(path, [b'"lang_code"'], Counter()), _EDITION_LINES):
        code = record.get("lang_code")
        if isinstance(code, str):
            parts = (record, *_list_items(record, "senses"))
            codes[code] += sum(len(_list_items(part, "translations")) for part in parts)
            if code in LANGUAGES:
                names[record.get("lang") == LANGUAGES[code].name] += 1
    [(code, count)] = codes.most_common(1) or [("", 0)]
    if count:
        return code
    return "en" if names[True] >= names[False] else None


def _list_items(value: Any, key: str) -> list[dict[str, Any]]:
    items = value.get(key)
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []


def _list_translations(
    record: dict[str, Any], codes: frozenset[str], dropped: Counter[str]
) -> Iterator[str]:
    """Yield the translations of the word and of its senses, in their order."""
    for part in (record, *_list_items(record, "senses")):
        for item in _list_items(part, "translations"):
            if item.get("code") in codes or item.get("lang_code") in codes:
                word = item.get("word")
                if isinstance(word, str) and word:
                    yield word
                else:
                    dropped["translation without a word"] += 1


def _list_glosses(record: dict[str, Any], language: str, dropped: Counter[str]) -> Iterator[str]:
    for sense in _list_items(record, "senses"):
        glosses = sense.get("glosses")
        if "form_of" in sense or "alt_of" in sense or "no-gloss" in (sense.get("tags") or ()):
            dropped["inflected form"] += 1
        elif isinstance(glosses, list) and glosses and isinstance(glosses[-1], str):
            # Earlier ones are headings of groups of senses.
            texts, num_long = split_gloss(glosses[-1], language)
            dropped["definition, not a translation"] += num_long
            yield from texts
        else:
            dropped["sense without a gloss"] += 1
