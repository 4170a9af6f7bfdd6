"""A dictionary from sentence pairs: words that a trained model links often, in both directions.

The pairs are parallel text, or mined from two texts by the same model. A pair of words is kept if
it was linked often enough, and if its links are a large enough share of the links of each word.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from metaxlm.dictionary.entries import Entries, Entry
from metaxlm.dictionary.vectors import Splitter
from metaxlm.errors import MetaXLMError
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import align_words
from metaxlm.probe.embedding import MEAN, embed_texts
from metaxlm.probe.pool import LayerChoice, choose_middle
from metaxlm.probe.retrieval import mine_pairs
from metaxlm.probe.retrieval_io import find_own_vectors
from metaxlm.progress import say

MARGIN = 1.06  # of mined pairs: Artetxe and Schwenk (2019) choose 1.04 to 1.07 for such pairs
FEWEST_LINKS = 2
SMALLEST_SHARE = 0.2  # of the links of either word
_LONGEST = 100  # words of a sentence that is mined
# The lowest error rate of all aligners and encodings (docs/results/features.md).
_SETTINGS = AlignSettings(method="sinkhorn", encoding="separate")
_CHUNK = 16_384

SentencePairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class LinkCounts:
    """How often two words were linked, and each of them to any word."""

    pairs: Counter[tuple[str, str]]
    sources: Counter[str]
    targets: Counter[str]

    def make_entries(
        self, name: str, languages: tuple[str, str], fewest: int = FEWEST_LINKS,
        share: float = SMALLEST_SHARE,
    ) -> Entries:  # fmt: skip
        """Return the pairs of many links; the weight is the share of the source's links."""
        dropped: Counter[str] = Counter()
        entries = []
        for (source, target), count in self.pairs.items():
            shares = count / self.sources[source], count / self.targets[target]
            if count < fewest:
                dropped[f"fewer than {fewest} links"] += 1
            elif min(shares) < share:
                dropped["few of the links of a word"] += 1
            else:
                entries.append(Entry(source, target, shares[0]))
        return Entries(name, *languages, entries, dropped)


def align_pairs(
    model: AnyEncoder,
    pairs: SentencePairs,
    splits: Sequence[Splitter],
    *,
    layer: LayerChoice,
    device: torch.device | None = None,
) -> LinkCounts:
    """Link the words of sentence pairs, and count the links; `splits` has one per side."""
    counts = LinkCounts(Counter(), Counter(), Counter())
    for chunk in _split_pairs(pairs, splits):
        (found,) = align_words(
            model, chunk, device, settings=_SETTINGS, layers=[layer], title="align words"
        )
        for (source, target), links in zip(chunk, found, strict=True):
            for i, j in links:
                counts.pairs[source[i], target[j]] += 1
                counts.sources[source[i]] += 1
                counts.targets[target[j]] += 1
    if not counts.pairs:
        raise MetaXLMError("the model links no words of the sentence pairs; use another layer")
    return counts


def _split_pairs(
    pairs: SentencePairs, splits: Sequence[Splitter]
) -> Iterator[list[tuple[list[str], list[str]]]]:
    for start in range(0, len(pairs), _CHUNK):
        split = ((splits[0](a), splits[1](b)) for a, b in pairs[start : start + _CHUNK])
        yield [pair for pair in split if all(pair)]


@dataclass(frozen=True)
class EmbeddedText:
    """The different sentences of a text, and their vectors."""

    sentences: Sequence[str]
    vectors_SD: torch.Tensor


def embed_lines(
    model: AnyEncoder,
    lines: Iterable[str],
    *,
    layer: LayerChoice | None = None,
    device: torch.device | None = None,
    title: str = "embed",
) -> EmbeddedText:
    """Embed the sentences of a text; each is a line.

    If `layer` is None, a sentence-transformers folder gives its own vectors, and another model
    those of the layer at two thirds of its depth.
    """
    sentences = _choose_lines(lines)
    modules = find_own_vectors(model) if layer is None else None
    depth = model.encoder.config.num_layers
    chosen = layer or (choose_middle(depth) if modules is None else LayerChoice((depth,)))
    [vectors_SD] = embed_texts(
        model, sentences, device, layers=[chosen], modules=modules or MEAN, title=title
    )
    return EmbeddedText(sentences, vectors_SD)


def mine_sentences(
    source: EmbeddedText,
    target: EmbeddedText,
    *,
    device: torch.device | None = None,
    margin: float = MARGIN,
) -> list[tuple[str, str]]:
    """Find translations in two texts."""
    sides = source.sentences, target.sentences
    vectors = source.vectors_SD, target.vectors_SD
    mined = mine_pairs(*vectors, threshold=margin, device=device, title="mine")
    if not len(mined):
        raise MetaXLMError(
            f"no sentence of {len(sides[0]):,} has a translation among {len(sides[1]):,}; the "
            "texts may share no content, or the model may not know the language"
        )
    say(f"{len(mined):,} sentence pairs of {len(sides[0]):,} and {len(sides[1]):,} sentences")
    return [(sides[0][a], sides[1][b]) for a, b in mined.list_rows()]


def _choose_lines(lines: Iterable[str]) -> list[str]:
    stripped = (line.strip() for line in lines)
    kept = list(dict.fromkeys(line for line in stripped if 0 < len(line.split()) <= _LONGEST))
    if len(kept) < 2:
        raise MetaXLMError(f"{len(kept)} different sentences; a text to mine needs at least 2")
    return kept
