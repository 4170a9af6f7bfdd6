"""Find the files of a language in a corpus folder, and split them for parallel tasks.

layout                                                          source
en.txt   en.txt.xz   en-00000.txt                               text
en.jsonl.zst   en-00000-of-00002.jsonl                          jsonl
20231101.en/train-00000-of-00041.parquet   en-00000.parquet     parquet
enwiki-20240101-pages-articles-multistream.xml.bz2   en.xml     dump
enwiki-20240101-pages-articles1.xml-p1p41242.bz2 (and so on)    dump
en/...   enwiki/...   20231101.en/... with any file of its kind, at any depth
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import Literal

from metaxlm.data.documents import Split
from metaxlm.data.readers.lines import WINDOW_BYTES
from metaxlm.errors import MetaXLMError
from metaxlm.files import walk_files
from metaxlm.languages import wiki_code
from metaxlm.streams import find_compression

Source = Literal["text", "jsonl", "parquet", "dump"]

_COMPRESSED = r"(?:\.(?:gz|bz2|xz|zst))?"
_ENDINGS: dict[Source, str] = {
    "text": rf"\.txt{_COMPRESSED}",
    "jsonl": rf"\.(?:jsonl|ndjson){_COMPRESSED}",
    "parquet": r"\.parquet",
    "dump": rf"\.xml(?:-p\d+p\d+)?{_COMPRESSED}",
}
# A part starts with a digit: `en-US.txt` is another language.
_PART = r"[._-](?:(?:train|part|shard|split)[._-]?)?\d[\w.-]*?"
# Wiki, date and content; `enwiktionary-` is not a Wikipedia.
_WIKIMEDIA = re.compile(r"[a-z_]+wik[a-z]+-(?:\d{8}|latest)-.*")
_DUMP = re.compile(
    r"(?P<wiki>[a-z_]+)wiki-(?P<date>\d{8}|latest)-"
    r"(?P<kind>pages-articles(?:-multistream)?|pages-meta-current)(?P<part>\d*)" + _ENDINGS["dump"]
)
_HIDDEN = re.compile(r"(?:^|/)[._]")
_NO_TEXT = re.compile(r"(?:readme|licen[cs]e)\..*", re.IGNORECASE)
_NUM_SHOWN = 6


def find_inputs(folder: Path, source: Source, language: str) -> list[Path]:
    """Return the sorted files of a language; raise an error if there are none or several copies."""
    if not folder.is_dir():
        raise MetaXLMError(f"{folder}: no such folder; set corpus.path to the folder of the files")
    wiki = wiki_code(language)
    own = rf"{re.escape(language)}(?:/|(?:{_PART})?{_ENDINGS[source]})"
    code = re.escape(_database(wiki))
    shared = rf"{code}wiki/|\d{{8}}\.{re.escape(wiki)}/"
    if source == "dump":
        shared += f"|{code}wiki-.*"
    # Several languages may share a Wikipedia: files under the language's own code come first.
    names = [f"{own}|{shared}"] if wiki == language else [own, shared]
    found = (_find_places(folder, source, wiki, name) for name in names)
    places: dict[Path, list[Path]] = next(filter(None, found), {})
    if not places:
        raise MetaXLMError(_describe_missing(folder, source, language))
    files = sorted(file for files in places.values() for file in files)
    if len(places) > 1 or _are_doubtful(files, source, folder):
        raise MetaXLMError(
            f"{folder}: several files for language {language!r} that may hold the same text "
            f"({_shorten([str(file.relative_to(folder)) for file in files])}); keep one copy"
        )
    return files


def split_input(path: Path, source: Source, target: int) -> list[Split]:
    """Split a file into parts of about `target` bytes, as far as its format allows."""
    # Imported here: a text corpus needs neither pyarrow nor a parser of wikitext.
    if source == "parquet":
        from metaxlm.data.readers.parquet import split_parquet

        return split_parquet(path, target)
    if source == "dump":
        try:
            from metaxlm.data.readers.dump import split_dump
        except ModuleNotFoundError as error:
            raise MetaXLMError(
                f"{path}: reading a dump of Wikipedia needs {error.name}; install it with: "
                "pip install 'metaxlm[wikipedia]'"
            ) from error

        return split_dump(path, target)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise MetaXLMError(f"{path}: cannot be read ({error.strerror})") from error
    if find_compression(path) is not None or not size:
        return [Split(path, size=size)]
    step = max(1, -(-target // WINDOW_BYTES)) * WINDOW_BYTES
    bounds = ((start, min(start + step, size)) for start in range(0, size, step))
    return [Split(path, start, stop, stop - start) for start, stop in bounds]


def _database(wiki: str) -> str:
    return wiki.replace("-", "_")


def _find_places(folder: Path, source: Source, wiki: str, names: str) -> dict[Path, list[Path]]:
    """Return the files with matching names by place: the folder itself, or a folder in it."""
    places: defaultdict[Path, list[Path]] = defaultdict(list)
    for entry in folder.iterdir():
        if entry.is_dir() and re.fullmatch(names, f"{entry.name}/"):
            inner = (file for file in walk_files(entry) if _is_input(file, source, wiki))
            if files := [f for f in inner if not _HIDDEN.search(str(f.relative_to(entry)))]:
                places[entry] = files
        elif entry.is_file() and re.fullmatch(names, entry.name) and _is_input(entry, source, wiki):
            places[folder].append(entry)
    return dict(places)


def _is_input(file: Path, source: Source, wiki: str) -> bool:
    """Return whether a file has the right format and is not of another Wikipedia."""
    if not re.fullmatch(f".+{_ENDINGS[source]}", file.name) or _NO_TEXT.fullmatch(file.name):
        return False
    if not _WIKIMEDIA.fullmatch(file.name):
        return True
    dump = _DUMP.fullmatch(file.name)
    return source == "dump" and dump is not None and dump["wiki"] == _database(wiki)


def _are_doubtful(files: list[Path], source: Source, folder: Path) -> bool:
    """Return whether files may have the same text: other compressions, parts, dates."""
    ending = _COMPRESSED if source == "dump" else _ENDINGS[source]
    bare = {file.with_name(re.sub(f"{ending}$", "", file.name)) for file in files}
    series = {_describe_series(file, source, folder) for file in files}
    return len(bare) < len(files) or len(series) > 1


def _describe_series(file: Path, source: Source, folder: Path) -> tuple[object, ...]:
    if source == "dump" and (dump := _DUMP.fullmatch(file.name)):
        return dump["date"], dump["kind"], bool(dump["part"])
    is_part = re.fullmatch(f".+?{_PART}{_ENDINGS[source]}", file.name) is not None
    return (file.parent == folder and is_part,)


def _describe_missing(folder: Path, source: Source, language: str) -> str:
    wiki = wiki_code(language)
    wanted = {
        "text": f"{language}.txt, {language}.txt.xz, {language}/*.txt",
        "jsonl": f"{language}.jsonl, {language}.jsonl.zst, {language}/*.jsonl",
        "parquet": f"{language}.parquet, {language}/*.parquet, 20231101.{wiki}/*.parquet",
        "dump": f"{_database(wiki)}wiki-20240101-pages-articles.xml.bz2, {language}.xml",
    }[source]
    present = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    return (
        f"{folder}: no file for language {language!r}; `source: {source}` reads files like "
        f"{wanted}; here are {_shorten(present) or 'none at all'}"
    )


def _shorten(names: list[str]) -> str:
    shown = ", ".join(names[:_NUM_SHOWN])
    left = len(names) - _NUM_SHOWN
    return f"{shown} and {left} more" if left > 0 else shown
