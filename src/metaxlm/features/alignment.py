"""Word alignment: sentence pairs in words come in, linked words and error rates by layer go out.

The paper's experiment on four gold sets (Section 4.4 and its figure): a pair is encoded jointly as
`<s> source </s> target </s>`, the hidden states of one layer are linked by optimal transport
(`transport.py`), and two words are linked if any of their pieces are. Shapes: B pairs, L length, S
source pieces, T target pieces, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.features.transport import link_pieces
from metaxlm.model.encoder import Encoder, EncoderConfig
from metaxlm.model.foreign import ForeignEncoder
from metaxlm.progress import say, track
from metaxlm.tasks.batches import collate_inputs, evaluating, plan_batches
from metaxlm.tasks.encoding import WordPieces, check_tokenizer, tokenize_words
from metaxlm.tasks.metrics import AlignmentScores, compute_alignment_scores
from metaxlm.tasks.readers import AlignmentSet, Link

Links = frozenset[Link]
"""Linked words (source, target) of one sentence pair, counted from 0."""

NUM_SPECIALS = 3
"""Special tokens around a joint pair."""


@dataclass(frozen=True)
class LayerAlignment:
    """What one layer links on a gold set, and how good that is."""

    layer: int
    scores: AlignmentScores
    links: tuple[Links, ...]
    """Per sentence pair, in the direction of the gold set."""


@dataclass(frozen=True)
class AlignmentOutcome:
    """All layers on one language; layer 0 is the embedding output."""

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
class _JointPair:
    """Pieces of both sides, cut to fit."""

    source: WordPieces
    target: WordPieces

    def __len__(self) -> int:
        return len(self.source) + len(self.target) + NUM_SPECIALS


def measure_alignment(
    encoder: Encoder | ForeignEncoder,
    tokenizer: PreTrainedTokenizerBase,
    gold: AlignmentSet,
    device: torch.device,
    *,
    batch_tokens: int = 8_192,
) -> AlignmentOutcome:
    """Align a gold set with every layer and score each."""
    links_by_layer = align_words(
        encoder,
        tokenizer,
        [(pair.source, pair.target) for pair in gold.pairs],
        device,
        batch_tokens=batch_tokens,
        title=f"alignment {gold.language}",
    )
    sure = [pair.sure for pair in gold.pairs]
    possible = [pair.possible for pair in gold.pairs]
    layers = tuple(
        LayerAlignment(layer, compute_alignment_scores(sure, possible, links), tuple(links))
        for layer, links in enumerate(links_by_layer)
    )
    return AlignmentOutcome(gold.language, len(gold.pairs), layers)


def align_words(
    encoder: Encoder | ForeignEncoder,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    device: torch.device,
    *,
    batch_tokens: int = 8_192,
    title: str = "alignment",
) -> list[list[Links]]:
    """Return the links of every layer and pair: `result[layer][pair]`.

    Pairs too long for the encoder are cut at the end of the longer side, and how many were is said.
    A word without pieces, or one that was cut off, is linked to nothing. The encoder is moved to
    the device.
    """
    check_tokenizer(tokenizer, encoder.config)
    joint = _join_pairs(tokenizer, pairs, encoder.config.max_positions, title)
    result: list[list[Links]] = [
        [frozenset()] * len(pairs) for _ in range(encoder.config.num_layers + 1)
    ]
    usable = [k for k, pair in enumerate(joint) if len(pair.source) and len(pair.target)]
    encoder.to(device)
    with evaluating(encoder), track(title, len(usable), "pairs") as advance:
        for places in plan_batches([len(joint[k]) for k in usable], batch_tokens):
            batch = [usable[place] for place in places]
            batch_links = _align_batch(encoder, tokenizer, [joint[k] for k in batch], device)
            for layer, layer_links in enumerate(batch_links):
                for k, links in zip(batch, layer_links, strict=True):
                    result[layer][k] = links
            advance(len(batch))
    return result


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


def _join_pairs(
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    max_length: int,
    title: str,
) -> list[_JointPair]:
    sources = tokenize_words(tokenizer, [source for source, _ in pairs])
    targets = tokenize_words(tokenizer, [target for _, target in pairs])
    joint: list[_JointPair] = []
    num_cut = 0
    for source, target in zip(sources, targets, strict=True):
        excess = len(source) + len(target) + NUM_SPECIALS - max_length
        if excess > 0:
            num_cut += 1
            source, target = _cut_longer(source, target, max_length - NUM_SPECIALS)
        joint.append(_JointPair(source, target))
    if num_cut:
        say(
            f"{title}: {num_cut:,} of {len(pairs):,} pairs are longer than {max_length} tokens "
            f"and were cut"
        )
    return joint


def _cut_longer(source: WordPieces, target: WordPieces, room: int) -> tuple[WordPieces, WordPieces]:
    """Shorten the longer side until both fit, then both alike."""
    shorter = min(len(source), len(target), room // 2)
    longer = room - shorter
    sizes = (longer, shorter) if len(source) > len(target) else (shorter, longer)
    cut = (
        WordPieces(side.ids[:size], side.words[:size])
        for side, size in zip((source, target), sizes, strict=True)
    )
    return next(cut), next(cut)


def _align_batch(
    encoder: Encoder | ForeignEncoder,
    tokenizer: PreTrainedTokenizerBase,
    batch: Sequence[_JointPair],
    device: torch.device,
) -> list[list[Links]]:
    """Encode pairs jointly once, and link the pieces of every layer."""
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids = [[first, *pair.source.ids, last, *pair.target.ids, last] for pair in batch]
    types = _number_sides(batch, encoder.config)
    inputs = collate_inputs(ids, encoder.config.pad_id, device, types)
    num_source_B = torch.tensor([len(pair.source) for pair in batch], device=device)
    num_target_B = torch.tensor([len(pair.target) for pair in batch], device=device)
    source_S = torch.arange(int(num_source_B.max()), device=device)
    target_T = torch.arange(int(num_target_B.max()), device=device)
    source_mask_BS = source_S < num_source_B[:, None]
    target_mask_BT = target_T < num_target_B[:, None]
    # The target starts after <s>, the source and </s>; padding may point anywhere inside.
    place_BT = (target_T + num_source_B[:, None] + 2).clamp_max(inputs.ids_BL.shape[1] - 1)
    rows_B1 = torch.arange(len(batch), device=device)[:, None]
    links: list[list[Links]] = []
    for state_BLD in encoder.hidden_states(*inputs):
        source_BSD = state_BLD[:, 1 : 1 + len(source_S)]
        target_BTD = state_BLD[rows_B1, place_BT]
        linked_BST = link_pieces(source_BSD, target_BTD, source_mask_BS, target_mask_BT)
        links.append(_gather_words(linked_BST, batch))
    return links


def _number_sides(batch: Sequence[_JointPair], config: EncoderConfig) -> list[list[int]] | None:
    """Return token types, 1 on the target side, for encoders that know them (BERT)."""
    if config.num_token_types < 2:
        return None
    return [[0] * (len(pair.source) + 2) + [1] * (len(pair.target) + 1) for pair in batch]


def _gather_words(linked_BST: Tensor, batch: Sequence[_JointPair]) -> list[Links]:
    """Turn linked pieces into linked words: any linked pieces link their words."""
    links: list[set[Link]] = [set() for _ in batch]
    for k, i, j in linked_BST.nonzero().tolist():
        links[k].add((batch[k].source.words[i], batch[k].target.words[j]))
    return [frozenset(words) for words in links]
