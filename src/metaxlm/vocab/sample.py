"""Which sentences train the shared vocabulary: a sample whose languages are rebalanced.

Language i contributes sentences in proportion to p_i = N_i^alpha / sum_j N_j^alpha, where N_i is
its number of sentences, so that small languages get pieces of their own. No sentence is drawn
twice: the sample shrinks until the scarcest language still has enough. The sentences stream past;
every block of them gives its share, so that memory does not grow with the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress, islice

import numpy as np

from metaxlm.languages import rebalance
from metaxlm.randomness import generator

_BLOCK = 1 << 16


def sample_counts(sentences: Mapping[str, int], alpha: float, limit: int) -> dict[str, int]:
    """Return how many sentences of each language to draw without repeating any."""
    shares = rebalance(sentences, alpha)
    enough = [sentences[language] / share for language, share in shares.items() if share]
    largest = min([limit, *enough])
    return {
        language: min(sentences[language], max(1, round(largest * share)))
        for language, share in shares.items()
    }


def sample_sentences(
    texts: Mapping[str, Iterable[str]],
    counts: Mapping[str, int],
    wanted: Mapping[str, int],
    seed: int,
) -> Iterator[str]:
    """Yield `wanted` of each language's `counts` sentences, in the order of the text."""
    for language in sorted(texts):
        random = generator(seed, f"vocabulary-sample-{language}")
        sentences = iter(texts[language])
        for keep in _choose_blocks(counts[language], wanted[language], random):
            yield from compress(islice(sentences, len(keep)), keep)


def _choose_blocks(count: int, wanted: int, random: np.random.Generator) -> Iterator[list[bool]]:
    """Yield which sentences of each block to take: its share of `wanted`, evenly at random."""
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        keep = np.zeros(end - start, bool)
        share = end * wanted // count - start * wanted // count
        keep[random.choice(end - start, share, replace=False)] = True
        yield keep.tolist()
