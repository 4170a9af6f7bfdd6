"""Word alignment: link the words of sentence pairs, and score links against gold sets, by layer.

The paper's experiment on four gold sets (Section 4.4 and its figure), with six aligners, for any
encoder and any pairs.
"""

from collections.abc import Collection, Sequence
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
from metaxlm.probe.aligners import PAPER, AlignSettings
from metaxlm.probe.embedding import choose_layers
from metaxlm.probe.pair_states import Links, Words, encode_pairs, link_spans, read_spans
from metaxlm.probe.pool import LayerChoice
from metaxlm.progress import say, track

CHUNK_PAIRS = 16_384  # pairs that are tokenized and sorted by length together
NAMED_PAIRS = 8  # largest number of pairs that a message names


@dataclass(frozen=True)
class AlignmentScores:
    """Scores over a corpus (Och and Ney 2003), as fractions in [0, 1]."""

    aer: float  # 1 - (|A∩P| + |A∩S|) / (|A| + |S|) with the links A, the sure S and the possible P
    precision: float  # |A∩P| / |A|
    recall: float  # |A∩S| / |S|
    f1: float  # harmonic mean of precision and recall


@dataclass(frozen=True)
class LayerAlignment:
    """Links of one choice of layers on a gold set, and their scores."""

    choice: LayerChoice
    scores: AlignmentScores
    links: tuple[Links, ...]  # per sentence pair, in the direction of the gold set

    @property
    def layer(self) -> int:
        """The layer, or the last of several."""
        return self.choice.numbers[-1]


@dataclass(frozen=True)
class AlignmentOutcome:
    """The layers on the gold set of one language; layer 0 is the embedding output."""

    language: str
    num_pairs: int
    layers: tuple[LayerAlignment, ...]


@dataclass(frozen=True)
class AlignmentExample:
    """A pair to show, with English as the source."""

    layer: int
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    sure: tuple[Link, ...]
    possible: tuple[Link, ...]
    predicted: tuple[Link, ...]


@dataclass(frozen=True)
class PairScores:
    """Links of one pair in one layer, and the aligner's weights."""

    layer: LayerChoice
    weights: npt.NDArray[np.float64]  # in [0, 1], of each source and target word's best pieces
    links: Links


def count_links(
    sure: Collection[Link], possible: Collection[Link], predicted: Collection[Link]
) -> tuple[int, int, int, int]:
    """Return |A∩S|, |A∩P|, |A| and |S| of one sentence pair."""
    gold, guesses = set(sure), set(predicted)
    return len(guesses & gold), len(guesses & gold.union(possible)), len(guesses), len(gold)


def compute_alignment_scores(
    sure: Sequence[Collection[Link]],
    possible: Sequence[Collection[Link]],
    predicted: Sequence[Collection[Link]],
) -> AlignmentScores:
    """Return the scores over a corpus; sure links are always possible."""
    if not any(sure):
        raise ValueError("alignment scores need at least one sure link")
    counts = (count_links(*sets) for sets in zip(sure, possible, predicted, strict=True))
    in_sure, in_possible, num_predicted, num_sure = map(sum, zip(*counts, strict=True))
    precision = in_possible / num_predicted if num_predicted else 0.0
    recall = in_sure / num_sure
    return AlignmentScores(
        aer=1.0 - (in_possible + in_sure) / (num_predicted + num_sure),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision and recall else 0.0,
    )


def measure_alignment(
    model: AnyEncoder,
    gold: AlignmentSet,
    device: torch.device | None = None,
    *,
    settings: AlignSettings = PAPER,
    layers: Sequence[LayerChoice] | None = None,
    batch_tokens: int = 8_192,
) -> AlignmentOutcome:
    """Align a gold set with each layer (default: all) and score the links."""
    choices = choose_layers(model, layers)
    pairs, title = [(pair.source, pair.target) for pair in gold.pairs], f"alignment {gold.language}"
    links_by_layer = align_words(
        model, pairs, device, settings=settings, layers=choices, batch_tokens=batch_tokens,
        title=title,
    )  # fmt: skip
    sure, possible = [pair.sure for pair in gold.pairs], [pair.possible for pair in gold.pairs]
    scored = tuple(
        LayerAlignment(choice, compute_alignment_scores(sure, possible, links), tuple(links))
        for choice, links in zip(choices, links_by_layer, strict=True)
    )
    return AlignmentOutcome(gold.language, len(gold.pairs), scored)


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
    """Return the links of each choice of layers (default: all) and pair: `[choice][pair]`.

    Pairs too long for the encoder are truncated, with a message that numbers pairs from
    `first_number`. A word without pieces, or a truncated one, has no links.
    """
    device, choices = _open(model, device, layers)
    result: list[list[Links]] = [[frozenset()] * len(pairs) for _ in choices]
    cut, bare = np.zeros((2, len(pairs)), dtype=np.int64)
    with evaluating(model.encoder), track(title, len(pairs), "pairs") as advance:
        for start in range(0, len(pairs), CHUNK_PAIRS):
            chunk = pairs[start : start + CHUNK_PAIRS]
            encoding = encode_pairs(model, chunk, settings)
            cut[start : start + len(chunk)] = encoding.num_cut_P
            bare[start : start + len(chunk)] = encoding.num_bare_P
            spans = link_spans(model, encoding, choices, device, settings, batch_tokens)
            for numbers, links_by_choice in read_spans(spans, encoding):
                for found, links in zip(result, links_by_choice, strict=True):
                    for k, words in zip(numbers, links, strict=True):
                        found[start + k] = words
                advance(len(numbers))
            if unusable := len(chunk) - len(encoding.usable):
                advance(unusable)
    if cut.any():
        what = "are" if settings.encoding == "joint" else "have a side"
        say(
            f"{title}: {np.count_nonzero(cut):,} of {len(pairs):,} pairs {what} longer than "
            f"{model.encoder.config.max_positions} tokens and were cut at the end "
            f"({cut.sum():,} tokens): {_name_pairs(cut, first_number)}"
        )
    if bare.any():
        say(
            f"{title}: {bare.sum():,} words have no piece in this vocabulary and get no links: "
            f"{_name_pairs(bare, first_number)}"
        )
    return result


def _open(
    model: AnyEncoder, device: torch.device | None, layers: Sequence[LayerChoice] | None
) -> tuple[torch.device, tuple[LayerChoice, ...]]:
    """Check the model and the choices, and move the encoder to the device."""
    check_tokenizer(model.tokenizer, model.encoder.config)
    device = device or choose_device("auto")
    model.encoder.to(device)
    return device, choose_layers(model, layers)


def _name_pairs(counts: npt.NDArray[np.int64], first_number: int) -> str:
    numbers = (np.flatnonzero(counts) + first_number).tolist()
    named = ", ".join(map(str, numbers[:NAMED_PAIRS]))
    rest = f" and {len(numbers) - NAMED_PAIRS:,} more" if len(numbers) > NAMED_PAIRS else ""
    return f"{'pair' if len(numbers) == 1 else 'pairs'} {named}{rest}"


def score_words(
    model: AnyEncoder,
    pair: tuple[Words, Words],
    device: torch.device | None = None,
    *,
    settings: AlignSettings = PAPER,
    layers: Sequence[LayerChoice] | None = None,
) -> list[PairScores]:
    """Return the links of `align_words` for one pair, with the aligner's weights, by layers."""
    device, choices = _open(model, device, layers)
    encoding = encode_pairs(model, [pair], settings)
    shape = len(pair[0]), len(pair[1])
    if not len(encoding.usable):
        return [PairScores(choice, np.zeros(shape), frozenset()) for choice in choices]
    with evaluating(model.encoder):
        spans = list(link_spans(model, encoding, choices, device, settings, batch_tokens=1))
        ((_, links_by_choice),) = read_spans(spans, encoding)
    cells = np.ix_(*(units.words_N for units in encoding.units))
    scores = []
    ((_, decisions),) = spans[0]
    for choice, decision, (links,) in zip(choices, decisions, links_by_choice, strict=True):
        weights = np.zeros(shape)
        np.maximum.at(weights, cells, decision.weigh()[0].double().cpu().numpy())
        scores.append(PairScores(choice, weights.clip(0.0, 1.0), links))
    return scores


def draw_examples(
    gold: AlignmentSet, outcome: AlignmentOutcome, layer: int, count: int
) -> list[AlignmentExample]:
    """Return the first pairs that are short enough to show, with English as the source."""
    lengths = [max(len(pair.source), len(pair.target), 12) for pair in gold.pairs]
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    flip = gold.source_language != "en"

    def turn(links: Links) -> tuple[Link, ...]:
        return tuple(sorted((j, i) if flip else (i, j) for i, j in links))

    examples = []
    for k in sorted(by_length[:count]):
        pair = gold.pairs[k]
        words = (pair.target, pair.source) if flip else (pair.source, pair.target)
        links = pair.sure, pair.possible, outcome.layers[layer].links[k]
        examples.append(AlignmentExample(layer, *words, *map(turn, links)))
    return examples
