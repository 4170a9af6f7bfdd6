"""Extend a vocabulary by whole words, and leave the rest of it as it is.

    extension = extend_tokenizer(tokenizer, read_words(Path("words.txt")))
    start = match("bert-base-cased", extend=extension)

New words become added tokens: the tokenizer finds them before it splits other text. Old tokens keep
their ids, and text without a new word keeps its tokens. In scripts with spaces, a new word is found
only between spaces and punctuation, so that longer words with the same letters do not change.
"""

from __future__ import annotations

import copy
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import AddedToken

from metaxlm.data.statistics import list_languages, read_corpus
from metaxlm.errors import MetaXLMError
from metaxlm.files import read_text
from metaxlm.init.vocabulary import read_vocabulary
from metaxlm.languages import language_name
from metaxlm.scripts import UNSPACED, find_script
from metaxlm.vocab.tokens import SENTENCEPIECE_SPACE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DEFAULT_SIZE = 10_000
_LEAST_COUNT = 2
_COUNTED = 2_000_000  # sentences of a language


@dataclass(frozen=True)
class Extension:
    """A tokenizer with new words, which have the ids after all old ones."""

    tokenizer: PreTrainedTokenizerBase
    words: tuple[str, ...]  # as the tokenizer finds them, in the order of their ids
    num_known: int  # words that the vocabulary already had


def read_words(path: Path) -> list[str]:
    """Read a file with one word per line; blank lines are ignored."""
    lines = [line.strip() for line in read_text(path).splitlines()]
    for number, line in enumerate(lines, 1):
        if len(line.split()) > 1:
            raise MetaXLMError(f"{path}:{number}: {line!r} is several words; write one per line")
    words = [line for line in lines if line]
    if not words:
        raise MetaXLMError(f"{path}: has no words; write one per line")
    return words


def require_text(folder: Path, languages: Sequence[str]) -> None:
    """Raise if a folder has no text of one of the languages."""
    found = list_languages(folder)
    for language in (code for code in languages if code not in found):
        raise MetaXLMError(
            f"{folder}: no text of {language}; found: {' '.join(found) or 'no language'}; add a "
            f"file such as {language}.txt"
        )


def choose_words(
    tokenizer: PreTrainedTokenizerBase, folder: Path, language: str, size: int = DEFAULT_SIZE
) -> list[str]:
    """Return the words of a language's text that save the most tokens, at most `size`.

    `folder` is a run, or has prepared text or files such as de.txt.
    """
    require_text(folder, [language])
    counts: Counter[str] = Counter()
    for sentence in islice(read_corpus(folder, language), _COUNTED):
        counts.update(filter(None, map(_strip_punctuation, sentence.split())))
    spaced = [word for word in counts if find_script(word) not in UNSPACED]
    if 2 * len(spaced) < len(counts):
        raise MetaXLMError(
            f"{folder}: {language_name(language)} is written without spaces, so that its words are "
            "not known; give a file with one word per line"
        )
    spaced = [word for word in spaced if counts[word] >= _LEAST_COUNT and not word.isdecimal()]
    cuts = read_vocabulary(tokenizer).cut_all(spaced, True)
    # A word with unknown characters is one unknown token, but needs about one token per character.
    saved = {
        word: counts[word] * ((len(cut) or len(word)) - 1)
        for word, cut in zip(spaced, cuts, strict=True)
    }
    chosen = sorted((word for word in saved if saved[word]), key=lambda word: (-saved[word], word))
    if not chosen:
        name = language_name(language)
        raise MetaXLMError(
            f"{folder}: no word of {name} between spaces that occurs twice and has several tokens; "
            "give more text, or a file with one word per line"
        )
    return chosen[:size]


def extend_tokenizer(tokenizer: PreTrainedTokenizerBase, words: Iterable[str]) -> Extension:
    """Return a copy of a tokenizer that finds the words; skip those that are one token already."""
    listed = list(dict.fromkeys(words))
    spelled = dict.fromkeys(_normalize(tokenizer, word) for word in listed)
    vocabulary = tokenizer.get_vocab()
    cuts = read_vocabulary(tokenizer).cut_all(list(spelled), True)
    new = [
        word
        for word, cut in zip(spelled, cuts, strict=True)
        if word and len(cut) != 1 and word not in vocabulary
    ]
    if not new:
        raise MetaXLMError(f"extend: the vocabulary already has all {len(listed)} words")
    extended = copy.deepcopy(tokenizer)
    extended.add_tokens(
        [
            AddedToken(
                word, single_word=find_script(word) not in UNSPACED, lstrip=True, normalized=True
            )
            for word in new
        ]
    )
    _check(tokenizer, extended, new)
    return Extension(extended, tuple(new), len(listed) - len(new))


def _normalize(tokenizer: PreTrainedTokenizerBase, word: str) -> str:
    """Return a word as it is in a normalized text, such as in lower case."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is None:
        return word
    found: str = normalizer.normalize_str(word).strip(f" {SENTENCEPIECE_SPACE}")
    return word if " " in found else found  # BERT separates Chinese characters


def _check(
    tokenizer: PreTrainedTokenizerBase, extended: PreTrainedTokenizerBase, words: Sequence[str]
) -> None:
    """Raise if old ids changed, or if the tokenizer does not find the new words."""
    old, new = tokenizer.get_vocab(), extended.get_vocab()
    first = max(old.values()) + 1
    encodings = extended([f"{word} {word}" for word in words], add_special_tokens=False)
    for number, (word, ids) in enumerate(zip(words, encodings["input_ids"], strict=True)):
        if ids != [first + number] * 2:
            raise MetaXLMError(
                f"extend: the tokenizer does not find {word!r} in a text; leave it out of the words"
            )
    assert new.items() >= old.items()


def _strip_punctuation(word: str) -> str:
    start, end = 0, len(word)
    while start < end and unicodedata.category(word[start])[0] not in "LMN":
        start += 1
    while start < end and unicodedata.category(word[end - 1])[0] not in "LMN":
        end -= 1
    return word[start:end]
