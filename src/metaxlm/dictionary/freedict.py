"""Read FreeDict: TEI files, and `.dict.dz` with `.index`, as the DICT protocol and Debian have it.

In TEI, translations are marked. An article of a `.dict` file is text for readers: a line with the
headword, pronunciation and grammar, then translations between numbers, notes and examples. The
first line of each sense that has translations is used.
"""

import gzip
import re
import string
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from metaxlm.dictionary.wiktextract import split_gloss, strip_asides
from metaxlm.errors import MetaXLMError
from metaxlm.reading import MAX_RECORD_BYTES, read_bytes, reading
from metaxlm.streams import open_stream

_DIGITS = {
    ord(letter): value
    for value, letter in enumerate(string.ascii_uppercase + string.ascii_lowercase + "0123456789+/")
}
_INFO = b"00database"  # headwords of articles about the dictionary
_INFO_OF_BODY = ("00-database", "00database")
_PRONUNCIATION = re.compile(r"/[^/]*/")
_NUMBER = re.compile(r"^\s?\d+\. ?")
_ASIDE = re.compile(r"^(?:   |\s*(?:see|Synonyms?|Note|Antonyms?):)")
_TEI = re.compile(r"^\{[^}]*\}")
_ENDINGS = (".dict.dz", ".dict", ".index")


def find_dict_files(path: Path) -> tuple[Path, Path] | None:
    """Return the text and the index of a dictionary in the DICT format, if it is one."""
    ending = next((one for one in _ENDINGS if path.name.endswith(one)), None)
    if ending is None:
        return None
    texts = [path.with_name(path.name.removesuffix(ending) + one) for one in _ENDINGS[:2]]
    text = path if ending != ".index" else next((one for one in texts if one.is_file()), texts[0])
    index = path.with_name(path.name.removesuffix(ending) + ".index")
    if index.is_file() and text.is_file():
        return text, index
    if ending == ".dict":
        return None  # of another format
    missing = index if text.is_file() else text
    raise MetaXLMError(f"{path}: needs {missing.name} beside it; fetch both files")


def read_dict(
    text: Path, index: Path, language: str, dropped: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield headwords and translations into a language, in the order of the text."""
    places = sorted(set(_read_index(index, dropped)))
    position = 0
    with reading(text), _open(text) as stream:
        for offset, length in places:
            if offset < position:
                dropped["overlapping articles"] += 1
                continue
            _skip(stream, offset - position)
            data = stream.read(length)
            position = offset + length
            if len(data) < length:
                raise MetaXLMError(
                    f"{text}: ends before byte {position:,}, where {index.name} has an article; "
                    "fetch both files again"
                )
            try:
                yield from _read_article(data.decode(), language, dropped)
            except UnicodeDecodeError:
                dropped["not UTF-8"] += 1


def _open(text: Path) -> IO[bytes]:
    # A .dz file is gzip with an index of its blocks.
    return cast(IO[bytes], gzip.open(text)) if text.suffix == ".dz" else open_stream(text)


def _read_index(path: Path, dropped: Counter[str]) -> Iterator[tuple[int, int]]:
    for line in read_bytes(path).splitlines():
        fields = line.split(b"\t")
        try:
            _, offset, length = fields[:3]
            place = _decode_number(offset), _decode_number(length)
        except (KeyError, ValueError):
            dropped["not a line of an index"] += 1
            continue
        if not fields[0].startswith(_INFO) and place[1] <= MAX_RECORD_BYTES:
            yield place


def _decode_number(text: bytes) -> int:
    number = 0
    for letter in text:
        number = number * 64 + _DIGITS[letter]
    return number


def _skip(stream: IO[bytes], num_bytes: int) -> None:
    while num_bytes > 0 and (part := stream.read(min(num_bytes, 1 << 20))):
        num_bytes -= len(part)


def _read_article(article: str, language: str, dropped: Counter[str]) -> Iterator[tuple[str, str]]:
    head, *lines = article.strip("\n").split("\n")
    # Several spellings are separated by commas.
    words = strip_asides(_PRONUNCIATION.sub(" ", head)).split(",")
    words = [word for part in words if (word := " ".join(part.split()))]
    if not words or words[0].startswith(_INFO_OF_BODY):
        dropped["no headword"] += not words
        return
    found: list[str] = []
    is_open = True  # whether the sense has no translation yet
    for line in lines:
        is_open = is_open or _NUMBER.match(line) is not None
        if is_open and line.strip() and not _ASIDE.match(line):
            texts, num_long = split_gloss(_NUMBER.sub("", line).replace("~", " "), language)
            dropped["definition, not a translation"] += num_long
            found += texts
            is_open = not texts and not num_long
    dropped["no translation"] += not found
    for word in words:
        for text in found:
            yield word, text


def read_tei(path: Path, dropped: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield headwords and translations of a TEI file, entry by entry."""
    with reading(path, ElementTree.ParseError), open_stream(path) as stream:
        parents: list[ElementTree.Element] = []
        for event, element in ElementTree.iterparse(stream, events=("start", "end")):
            if event == "start":
                parents.append(element)
                continue
            parents.pop()
            if _tag(element) == "entry":
                yield from _read_entry(element, dropped)
                if parents:
                    parents[-1].clear()  # or all entries stay in memory


def _tag(element: ElementTree.Element) -> str:
    return _TEI.sub("", element.tag)


def _text(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def _read_entry(entry: ElementTree.Element, dropped: Counter[str]) -> Iterator[tuple[str, str]]:
    words = [_text(one) for one in entry.iter() if _tag(one) == "orth"]
    texts = [text for one in _find_translations(entry) if (text := _text(one))]
    dropped["no headword"] += not any(words)
    dropped["no translation"] += not texts
    for word in filter(None, words):
        for text in texts:
            yield word, text


def _find_translations(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for child in element:
        tag, kind = _tag(child), child.get("type", "")
        if tag == "cit" and kind.startswith("trans"):
            yield from (one for one in child if _tag(one) == "quote")
        elif tag == "tr":  # of TEI P4
            yield child
        elif tag != "cit":  # an example may have a translation, too
            yield from _find_translations(child)
