"""Which sentences train the shared vocabulary: a sample whose languages are rebalanced.

Language i contributes sentences in proportion to p_i = N_i^alpha / sum_j N_j^alpha, where N_i is
its number of sentences, so that small languages get pieces of their own. No sentence is drawn
twice: the sample shrinks until the scarcest language still has enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress

import numpy as np

from metaxlm.languages import rebalance
from metaxlm.randomness import generator


def sample_counts(sentences: Mapping[str, int], alpha: float, limit: int) -> dict[str, int]:
    """Return how many sentences of each language to draw without repeating any."""
    shares = rebalance(sentences, alpha)
    largest = min([limit, *(sentences[language] / share for language, share in shares.items())])
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
        keep = np.zeros(counts[language], bool)
        keep[random.choice(counts[language], wanted[language], replace=False)] = True
        yield from compress(texts[language], keep)
