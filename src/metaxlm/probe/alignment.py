"""Word alignment: sentence pairs in words come in, linked words and error rates by layer go out.

The paper's experiment on four gold sets (Section 4.4 and its figure), and the same with other
methods and for anyone's pairs: pairs are encoded (`pair_encoding.py`), the hidden states of a layer
are linked (`align_methods.py`), and links of pieces become links of words (`link_spans.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from metaxlm.finetune.batches import evaluating
from metaxlm.finetune.encoding import check_tokenizer
from metaxlm.finetune.readers import Link
from metaxlm.finetune.readers.parallel import AlignmentSet
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.pretrain.distributed import choose_device
from metaxlm.probe.align_methods import PAPER, AlignSettings, Encoding
from metaxlm.probe.alignment_scores import AlignmentScores, compute_alignment_scores
from metaxlm.probe.layers import LayerChoice, every_layer
from metaxlm.probe.link_spans import Links, link_spans, read_spans
from metaxlm.probe.pair_encoding import (
    PairEncoding,
    Words,
    encode_pairs,
    find_usable,
    make_units,
)
from metaxlm.progress import say, track

__all__ = [
    "PAPER",
    "AlignSettings",
    "AlignmentExample",
    "AlignmentOutcome",
    "LayerAlignment",
    "Links",
    "PairScores",
    "align_words",
    "draw_examples",
    "measure_alignment",
    "score_words",
]

CHUNK_PAIRS = 16_384
"""Pairs that are tokenized and sorted by length together."""

NAMED_PAIRS = 8
"""So many pairs are named when something is said about several."""


@dataclass(frozen=True)
class LayerAlignment:
    """What one choice of layers links on a gold set, and how good that is."""

    choice: LayerChoice
    scores: AlignmentScores
    links: tuple[Links, ...]
    """Per sentence pair, in the direction of the gold set."""

    @property
    def layer(self) -> int:
        """The layer, or the last of several."""
        return self.choice.numbers[-1]


@dataclass(frozen=True)
class AlignmentOutcome:
    """All asked layers on one language; layer 0 is the embedding output."""

    language: str
    num_pairs: int
    layers: tuple[LayerAlignment, ...]


@dataclass(frozen=True)
class AlignmentExample:
    """One pair to look at, English first whichever way the gold set goes."""

    layer: int
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    sure: tuple[Link, ...]
    possible: tuple[Link, ...]
    predicted: tuple[Link, ...]


@dataclass(frozen=True)
class PairScores:
    """One pair in one layer: what the method decides by, and what it decides."""

    layer: LayerChoice
    weights: npt.NDArray[np.float64]
    """For each source and target word a number in [0, 1], of their best pieces."""
    links: Links


def measure_alignment(
    model: AnyEncoder,
    gold: AlignmentSet,
    device: torch.device | None = None,
    *,
    settings: AlignSettings = PAPER,
    layers: Sequence[LayerChoice] | None = None,
    batch_tokens: int = 8_192,
) -> AlignmentOutcome:
    """Align a gold set with every layer, or the asked ones, and score each."""
    choices = layers or every_layer(model.encoder.config.num_layers)
    links_by_layer = align_words(
        model,
        [(pair.source, pair.target) for pair in gold.pairs],
        device,
        settings=settings,
        layers=choices,
        batch_tokens=batch_tokens,
        title=f"alignment {gold.language}",
    )
    sure = [pair.sure for pair in gold.pairs]
    possible = [pair.possible for pair in gold.pairs]
    found = tuple(
        LayerAlignment(choice, compute_alignment_scores(sure, possible, links), tuple(links))
        for choice, links in zip(choices, links_by_layer, strict=True)
    )
    return AlignmentOutcome(gold.language, len(gold.pairs), found)


def align_words(
    model: AnyEncoder,
    pairs: Sequence[tuple[Words, Words]],
    device: torch.device | None = None,
    *,
    settings: AlignSettings = PAPER,
    layers: Sequence[LayerChoice] | None = None,
    batch_tokens: int = 8_192,
    title: str = "alignment",
    first_number: int = 1,
) -> list[list[Links]]:
    """Return the links of every choice of layers (all, unless asked) and pair: `[choice][pair]`.

    Pairs too long for the encoder are cut at the end (of a joint pair the longer side first), and
    which were is said. A word without pieces, or one that was cut off, is linked to nothing. Pairs
    are named by numbers that start with `first_number`. The encoder is moved to the device.
    """
    device = choose_device("auto") if device is None else device
    choices = layers or every_layer(model.encoder.config.num_layers)
    check_tokenizer(model.tokenizer, model.encoder.config)
    result: list[list[Links]] = [[frozenset()] * len(pairs) for _ in choices]
    flaws = _Flaws({}, {})
    model.encoder.to(device)
    with evaluating(model.encoder), track(title, len(pairs), "pairs") as advance:
        for start in range(0, len(pairs), CHUNK_PAIRS):
            chunk = pairs[start : start + CHUNK_PAIRS]
            encoding = encode_pairs(model, chunk, settings.encoding)
            flaws.note(encoding, start + first_number)
            spans = link_spans(model, encoding, choices, device, settings, batch_tokens)
            for numbers, links_by_choice in read_spans(spans, encoding, settings):
                for found, links in zip(result, links_by_choice, strict=True):
                    for k, words in zip(numbers, links, strict=True):
                        found[start + k] = words
                advance(len(numbers))
            if num_bare := len(chunk) - len(find_usable(encoding)):
                advance(num_bare)
    flaws.tell(title, len(pairs), model.encoder.config.max_positions, settings.encoding)
    return result


def score_words(
    model: AnyEncoder,
    pair: tuple[Words, Words],
    device: torch.device | None = None,
    *,
    settings: AlignSettings = PAPER,
    layers: Sequence[LayerChoice] | None = None,
    title: str = "alignment",
    number: int = 1,
) -> list[PairScores]:
    """Return links of one pair with the numbers that decided on them, for each choice of layers.

    The links are those of `align_words`; so is what is said, where the pair is called `number`.
    """
    device = choose_device("auto") if device is None else device
    choices = layers or every_layer(model.encoder.config.num_layers)
    check_tokenizer(model.tokenizer, model.encoder.config)
    model.encoder.to(device)
    encoding = encode_pairs(model, [pair], settings.encoding)
    flaws = _Flaws({}, {})
    flaws.note(encoding, number)
    flaws.tell(title, 1, model.encoder.config.max_positions, settings.encoding)
    shape = len(pair[0]), len(pair[1])
    if not len(find_usable(encoding)):
        return [PairScores(choice, np.zeros(shape), frozenset()) for choice in choices]
    with evaluating(model.encoder):
        spans = list(link_spans(model, encoding, choices, device, settings, batch_tokens=1))
        ((_, links_by_choice),) = read_spans(spans, encoding, settings)
    cells = np.ix_(*(make_units(side, settings.words).words_N for side in encoding.sides))
    scores = []
    for choice, decision, (links,) in zip(
        choices, spans[0][0].decisions, links_by_choice, strict=True
    ):
        weights = np.zeros(shape)
        np.maximum.at(weights, cells, decision.weigh()[0].double().cpu().numpy())
        scores.append(PairScores(choice, weights.clip(0.0, 1.0), links))
    return scores


def draw_examples(
    gold: AlignmentSet, outcome: AlignmentOutcome, layer: int, count: int
) -> list[AlignmentExample]:
    """Pick the first pairs that are short enough to look at, and turn them English first."""
    by_length = sorted(
        range(len(gold.pairs)),
        key=lambda k: max(len(gold.pairs[k].source), len(gold.pairs[k].target), 12),
    )
    flip = gold.source_language != "en"

    def turn(links: Links) -> tuple[Link, ...]:
        return tuple(sorted((j, i) if flip else (i, j) for i, j in links))

    examples = []
    for k in sorted(by_length[:count]):
        pair = gold.pairs[k]
        english, foreign = (pair.target, pair.source) if flip else (pair.source, pair.target)
        examples.append(
            AlignmentExample(
                layer,
                english,
                foreign,
                turn(pair.sure),
                turn(pair.possible),
                turn(outcome.layers[layer].links[k]),
            )
        )
    return examples


@dataclass(frozen=True)
class _Flaws:
    """Pairs that lose something, by their numbers, and how many tokens or words that are."""

    cut: dict[int, int]
    bare: dict[int, int]

    def note(self, encoding: PairEncoding, first_number: int) -> None:
        for noted, counts_P in ((self.cut, encoding.num_cut_P), (self.bare, encoding.num_bare_P)):
            for k in counts_P.nonzero()[0].tolist():
                noted[first_number + k] = int(counts_P[k])

    def tell(self, title: str, num_pairs: int, positions: int, encoding: Encoding) -> None:
        """Say which pairs were cut, and which have words that no piece stands for."""
        if self.cut:
            what = "are" if encoding == "joint" else "have a side"
            say(
                f"{title}: {len(self.cut):,} of {num_pairs:,} pairs {what} longer than {positions} "
                f"tokens and were cut at the end ({sum(self.cut.values()):,} tokens): "
                f"{_name_pairs(list(self.cut))}"
            )
        if self.bare:
            say(
                f"{title}: {sum(self.bare.values()):,} words become no piece in this vocabulary "
                f"and are linked to nothing: {_name_pairs(list(self.bare))}"
            )


def _name_pairs(numbers: Sequence[int]) -> str:
    named = ", ".join(str(number) for number in numbers[:NAMED_PAIRS])
    more = len(numbers) - NAMED_PAIRS
    rest = f" and {more:,} more" if more > 0 else ""
    return f"{'pair' if len(numbers) == 1 else 'pairs'} {named}{rest}"
