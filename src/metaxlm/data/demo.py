"""The phrasebook, the built-in corpus: text in six languages and data for every task.

A seed chooses where a sample starts in the pool of sentences (see `data/phrasebook/README.md`); at
its end, the sample continues at its beginning. No test sentence is in the training data.
"""

import io
import json
import lzma
import tarfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.manifest import atomic_folder
from metaxlm.recipe import PhrasebookRecipe

LANGUAGES = ("en", "de", "fr", "ru", "tr", "zh")
_POOL = "data/phrasebook/pool.tar.xz"
_STRIDE = (3 - 5**0.5) / 2  # of the pool between two seeds: keeps many starts far apart


def write_phrasebook(
    folder: Path, languages: Sequence[str], seed: int, sizes: PhrasebookRecipe | None = None
) -> None:
    """Write `text/XX/00000.txt` and `tasks/` in the published formats; the same bytes per seed."""
    if unknown := [code for code in languages if code not in LANGUAGES]:
        raise MetaXLMError(
            f"corpus.source phrasebook: no text in {', '.join(unknown)}; "
            f"choose languages from {', '.join(LANGUAGES)}"
        )
    if "en" not in languages:
        raise MetaXLMError(f"corpus.source phrasebook: languages are {list(languages)}; add en")
    wanted = (sizes or PhrasebookRecipe()).model_dump()
    pool = lzma.decompress(files("metaxlm").joinpath(_POOL).read_bytes())
    with tarfile.open(fileobj=io.BytesIO(pool)) as tar, atomic_folder(folder) as temporary:
        for file in json.loads(_read(tar, "index.json")):
            if set(file["languages"]) <= set(languages):
                path = temporary / file["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                text = _sample(file, _read(tar, file["path"]), wanted, seed)
                path.write_text(text, encoding="utf-8", newline="\n")


def _read(tar: tarfile.TarFile, name: str) -> str:
    member = tar.extractfile(name)
    assert member is not None, name
    return member.read().decode("utf-8")


def _sample(file: dict[str, Any], text: str, sizes: dict[str, int], seed: int) -> str:
    """Return the content of a file; items of the pool have a blank line between them."""
    if file["size"] is None:
        return text
    count = max(1, sizes[file["size"]] // file["divisor"])
    items = text.removesuffix("\n").split("\n\n")
    is_text = file["path"].startswith("text/")
    available = sum(item.count("\n") + 1 for item in items) if is_text else len(items)
    if count > available:
        raise MetaXLMError(
            f"corpus.phrasebook.{file['size']}: {sizes[file['size']]:,} is too large; the built-in "
            f"corpus has {available * file['divisor']:,}"
        )
    start = int(len(items) * ((seed - 1) * _STRIDE % 1))
    items = items[start:] + items[:start]
    chosen = _cut_documents(items, count) if is_text else items[:count]
    if file.get("numbered"):
        numbered = ((number, item.split("\n")) for number, item in enumerate(chosen))
        chosen = [f"{number} {line}" for number, lines in numbered for line in lines]
    return str(file.get("head", "") + file["joint"].join(chosen) + file.get("foot", "\n"))


def _cut_documents(documents: Sequence[str], num_sentences: int) -> list[str]:
    """Return the first documents; the last one ends where the number of sentences is reached."""
    chosen: list[str] = []
    for document in documents:
        lines = document.split("\n")[:num_sentences]
        chosen.append("\n".join(lines))
        num_sentences -= len(lines)
        if not num_sentences:
            break
    return chosen
