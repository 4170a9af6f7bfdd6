"""How often each token occurs in a user's text, language by language.

Comes in: a folder with text in any of the forms that a user has: a run, shards, prepared text, or
files such as `de.txt.xz`. Goes out: the sentences of a language, or the counts of each token of a
tokenizer. Matching weighs its coverage with them, trimming decides by them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.data.documents import Document
from metaxlm.data.encode import SentenceEncoder
from metaxlm.data.places import find_shards, find_texts
from metaxlm.data.readers.inputs import find_inputs, split_input
from metaxlm.data.readers.text import read_text
from metaxlm.data.shards import open_shard
from metaxlm.data.text import read_sentences
from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_value
from metaxlm.languages import LANGUAGES
from metaxlm.progress import say

_BATCH_SENTENCES = 5_000
_WHOLE_FILE = 1 << 62


def count_corpus(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    languages: Sequence[str] | None = None,
    limit: int | None = None,
) -> dict[str, NDArray[np.int64]]:
    """Return for each language how often its text uses each row of a tokenizer.

    Shards of the same tokenizer are counted as they are. Other text is tokenized, at most `limit`
    sentences of each language.
    """
    shards = {path.name: (path, facts) for path, facts in find_shards(folder).items()}
    if shards and set(languages or ()) <= shards.keys():
        wanted = digest_value(json.loads(tokenizer.backend_tokenizer.to_str()))
        chosen = {name: shards[name] for name in languages or shards}
        if all(facts["tokenizer"] == wanted for _, facts in chosen.values()):
            rows = _count_rows(tokenizer)
            return {name: open_shard(path).count_tokens(rows) for name, (path, _) in chosen.items()}
        if not list_languages(folder):
            raise MetaXLMError(
                f"{folder}: its shards were made with another tokenizer, and there is no text to "
                "count instead; name a run, or a folder with text"
            )
        say(f"{folder}: its shards were made with another tokenizer; counting its text instead")
    found = languages or list_languages(folder)
    if not found:
        raise MetaXLMError(
            f"{folder}: no text in it; name a run, a folder of shards or of prepared text, or one "
            "with files such as de.txt or de.txt.xz"
        )
    return {
        language: count_sentences(islice(read_corpus(folder, language), limit), tokenizer)
        for language in found
    }


def count_sentences(
    sentences: Iterable[str], tokenizer: PreTrainedTokenizerBase
) -> NDArray[np.int64]:
    """Return how often sentences use each row of a tokenizer."""
    encoder = SentenceEncoder(tokenizer.backend_tokenizer)
    counts = np.zeros(_count_rows(tokenizer), np.int64)
    sentences = iter(sentences)
    while batch := list(islice(sentences, _BATCH_SENTENCES)):
        counts += np.bincount(encoder.encode(batch).ids, minlength=len(counts))
    return counts


def list_languages(folder: Path) -> list[str]:
    """Return the languages whose text is in a folder."""
    prepared = [path.name for path in find_texts(folder)]
    if prepared or not folder.is_dir():
        return sorted(prepared)
    names = {re.split(r"[._-]", entry.name)[0] for entry in folder.iterdir()}
    return sorted(name for name in names & LANGUAGES.keys() if _has_text(folder, name))


def read_corpus(folder: Path, language: str) -> Iterator[str]:
    """Yield the sentences, or the lines, of one language."""
    prepared = {path.name: path for path in find_texts(folder)}
    if language in prepared:
        yield from read_sentences(prepared[language])
        return
    for path in find_inputs(folder, "text", language):
        for split in split_input(path, "text", _WHOLE_FILE):
            for record in read_text(split, lambda _: None):
                if isinstance(record, Document):
                    yield from (" ".join(line.split()) for line in record.text.split("\n"))


def _count_rows(tokenizer: PreTrainedTokenizerBase) -> int:
    return int(max(tokenizer.get_vocab().values())) + 1


def _has_text(folder: Path, language: str) -> bool:
    try:
        return bool(find_inputs(folder, "text", language))
    except MetaXLMError:
        return False
