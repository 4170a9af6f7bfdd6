"""Gold word alignments, known because both sentences say the same meaning.

In: two realizations of one `Meaning`. Out: links between their words, sure or possible, as in the
hand-aligned sets of the paper's word-alignment analysis. Content words of one role are surely
linked; words that only mark the role (articles, adpositions, auxiliaries) are possibly linked.
"""

from __future__ import annotations

from typing import NamedTuple

from metaxlm.phrasebook.meaning import CONTENT_TAGS, Sentence, Word


class Link(NamedTuple):
    """Word `source` of one sentence goes with word `target` of the other, counted from 0."""

    source: int
    target: int
    sure: bool


def align(source: Sentence, target: Sentence) -> list[Link]:
    """Link the words of two realizations of one meaning."""
    source_content, target_content = _content_roles(source), _content_roles(target)
    links = []
    for i, left in enumerate(source.items):
        for j, right in enumerate(target.items):
            if not left.roles or not right.roles or not set(left.roles) & set(right.roles):
                continue
            role = left.roles[0]
            same = role == right.roles[0] and role != "comma"
            # A role nobody expresses by a content word (negation, copula, `because`) is carried
            # by its function words, so they are what corresponds.
            bare = role not in source_content and role not in target_content
            sure = same and (bare or (_is_content(left) and _is_content(right)))
            links.append(Link(i, j, sure))
    return links


def _is_content(word: Word) -> bool:
    return word.upos in CONTENT_TAGS


def _content_roles(sentence: Sentence) -> set[str]:
    return {word.roles[0] for word in sentence.items if word.roles and _is_content(word)}
