"""Prepare the training pairs of a sentence encoder from English text, dictionaries, parallel text.

All input is read and checked here, before anything is computed or written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from metaxlm.data.sentences import split_sentences
from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries, load_dictionaries
from metaxlm.progress import say
from metaxlm.randomness import generator
from metaxlm.reading import MAX_TEXT_BYTES, decode_line, read_lines
from metaxlm.recipe.sentences_schema import SentencesRecipe
from metaxlm.sentences.pairs import MixedPairs, PairSource
from metaxlm.sentences.parallel_files import load_parallel
from metaxlm.sentences.rewriting import DictionaryPairs, Rewriting, check_coverage
from metaxlm.sentences.translations import count_words
from metaxlm.streams import open_stream

_FEWEST, _MOST = 3, 64  # words of a sentence that is used
_READ_TIMES = 4
_LETTER = re.compile(r"[^\W\d_]")


def read_text(path: Path, language: str) -> Iterator[str]:
    """Yield the sentences of a UTF-8 file, plain or compressed, with any text per line."""
    for line in _read_file(path):
        yield from split_sentences(line, language)


def _read_file(path: Path) -> Iterator[str]:
    with open_stream(path) as stream:
        for number, line in read_lines(stream, str(path), MAX_TEXT_BYTES):
            yield decode_line(number, line, str(path))


def choose_sentences(
    sentences: Iterable[str], most: int, seed: int, where: str = "the text"
) -> list[str]:
    """Return at most this many distinct sentences of 3 to 64 words.

    They are chosen at random from the first ones, four times as many at most.
    """
    usable = filter(_is_usable, map(str.strip, sentences))
    kept = list(dict.fromkeys(islice(usable, _READ_TIMES * most)))
    if not kept:
        raise MetaXLMError(
            f"{where}: no sentence of {_FEWEST} to {_MOST} words; use English text, one sentence "
            "or paragraph per line"
        )
    if len(kept) > most:
        rows = generator(seed, "sentences").choice(len(kept), most, replace=False)
        kept = [kept[row] for row in np.sort(rows).tolist()]
    return kept


def _is_usable(sentence: str) -> bool:
    words = sentence.count(" ") + 1
    return _FEWEST <= words <= _MOST and _LETTER.search(sentence) is not None


@dataclass(frozen=True)
class PreparedPairs:
    """The pairs of a training run, and what they are made of."""

    pairs: PairSource
    data: dict[str, str]  # rows of the model card


def prepare_pairs(
    settings: SentencesRecipe,
    seed: int,
    *,
    read_sentences: Callable[[], Iterable[str]],
    dictionaries: Sequence[Path],
    languages: Sequence[str] | None = None,
    source_language: str = "en",
    count: Callable[[str, Dictionaries], Counter[str] | None] | None = None,
    where: str = "the text",
) -> PreparedPairs:
    """Make the pairs of a recipe; `read_sentences` yields the text to rewrite.

    `count` returns the word counts of a language's text, which rank translations.
    """
    sources: list[tuple[PairSource, float]] = []
    data: dict[str, str] = {}
    if dictionaries and settings.weights.dictionaries > 0:
        found = load_dictionaries(list(dictionaries), languages, source_language)
        sentences = choose_sentences(read_sentences(), settings.max_sentences, seed, where)
        shares = check_coverage(sentences, found)
        shown = ", ".join(f"{code} {share:.0%}" for code, share in sorted(shares.items()))
        say(f"{len(sentences):,} sentences; words with a translation: {shown}")
        counts: Mapping[str, Mapping[str, int]] | None = None
        if count is not None:
            by_language = {code: count(code, found) for code in found.by_language}
            counts = {code: words for code, words in by_language.items() if words}
        rewriting = Rewriting(**settings.rewriting.model_dump())
        rewritten = DictionaryPairs(sentences, found, seed, rewriting, counts)
        sources.append((rewritten, settings.weights.dictionaries))
        names = ", ".join(dict.fromkeys(path.name for path in dictionaries))
        data["rewritten text"] = f"{len(sentences):,} {source_language} sentences, {names}"
    if settings.weights.parallel > 0:
        for path in settings.parallel:
            parallel = load_parallel(path, source_language, languages, seed)
            # All files together have the weight of parallel text.
            weight = settings.weights.parallel / len(settings.parallel)
            sources.append((parallel, weight))
            rows = sum(parallel.count_rows().values())
            data[f"parallel text {path.name}"] = f"{rows:,} pairs"
    if not sources:
        raise MetaXLMError(
            "sentences: no source of pairs; name a dictionary (--dictionary) or parallel text "
            "(--parallel)"
        )
    pairs = sources[0][0] if len(sources) == 1 else MixedPairs(sources, seed)
    return PreparedPairs(pairs, data)


def count_folder(folder: Path) -> Callable[[str, Dictionaries], Counter[str] | None]:
    """Return a function that counts the words of `XX.txt` in a folder, plain or compressed."""

    def count(language: str, dictionaries: Dictionaries) -> Counter[str] | None:
        paths = sorted(folder.glob(f"{language}.txt*"))
        if not paths:
            say(f"{folder}: no {language}.txt; translations into {language} are not ranked by it")
            return None
        return count_words(paths[0], language, dictionaries.by_language[language])

    return count
