"""Tagged sentences: a file with a word a line comes in, sentences with their tags go out.

The layouts of UD POS and WikiAnn (the paper's Section 4.2): XTREME's `word TAB tag`, blanked test
sets with the word alone, and mmner's `xx:word TAB tag`. A blank line ends a sentence.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.readers.lines import read_lines, tell_unknown, tell_unlabeled
from metaxlm.finetune.task import Examples


@dataclass(frozen=True)
class TaggedSentence:
    """Words and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    """None where they are not known."""


def read_tagged_sentences(
    path: Path, tags: Collection[str], prefix: str = ""
) -> Examples[TaggedSentence]:
    """Read sentences; one without any tag has None, in a sentence all words or none have one.

    `prefix` is cut off each word that has it (mmner's `en:`).
    """
    known = frozenset(tags)
    sentences: list[TaggedSentence] = []
    unlabeled: list[int] = []
    words: list[str] = []
    word_tags: list[str] = []

    def finish(start: int) -> None:
        if len(word_tags) not in (0, len(words)):
            raise MetaXLMError(
                f"{path}:{start}: {len(words) - len(word_tags)} of the {len(words)} words of this "
                f"sentence have no tag; expected a word, a tab and a tag in each line"
            )
        if words and not word_tags:
            unlabeled.append(start)
        if words:
            sentences.append(TaggedSentence(tuple(words), tuple(word_tags) or None))
        words.clear()
        word_tags.clear()

    begin = 1
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            finish(begin)
            begin = number + 1
            continue
        word, *rest = line.split("\t")
        if len(rest) > 1:
            raise MetaXLMError(
                f"{path}:{number}: found {len(rest) + 1} columns, expected a word, a tab and a tag"
            )
        word = word.removeprefix(prefix)
        if not word:
            raise MetaXLMError(f"{path}:{number}: the word is empty; restore it")
        words.append(word)
        if rest and rest[0].strip():
            if rest[0] not in known:
                raise MetaXLMError(tell_unknown(rest[0], tags, f"{path}:{number}"))
            word_tags.append(rest[0])
    finish(begin)
    if not sentences:
        raise MetaXLMError(f"{path}:1: the file has blank lines and nothing else; restore it")
    return Examples(sentences, tell_unlabeled(path, unlabeled, len(sentences), "sentences"))
