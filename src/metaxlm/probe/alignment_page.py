"""Render word alignments of sentence pairs as one self-contained page (`align --page`).

Each pair has the matrix of weights with its links, by layer as in the paper's figure 4, and the
nearest sentences of the other side, as in its figure 3. A slider selects the layer; without
JavaScript the page shows the chosen layer of every pair. The same views give the same bytes.
"""

import base64
import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from markupsafe import Markup

from metaxlm.analysis.style import (
    TEMPLATES,
    classify_links,
    describe_links,
    make_environment,
    write_css_variables,
)
from metaxlm.finetune.readers.parallel import AlignedPair
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import PairScores, score_words
from metaxlm.probe.alignment_io import SentencePair
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.nearest import find_nearest
from metaxlm.probe.pair_states import Links
from metaxlm.probe.pool import LayerChoice
from metaxlm.progress import track

Direction = Literal["ltr", "rtl"]

_SHADES = 255
NUM_NEIGHBORS = 3
NUM_COLORS = 6  # colors of linked words; further groups repeat them with another line


@dataclass(frozen=True)
class Neighbor:
    """A sentence of the other side, and its cosine."""

    place: int  # its pair among the searched ones, counted from 0
    text: str
    similarity: float
    is_right: bool  # whether it is the translation in the file, or reads the same


Neighbors = dict[str, list[Neighbor]]
"""Target sentences near the source sentence (`of_source`), and `of_target`, nearest first."""


@dataclass(frozen=True)
class PairView:
    """One sentence pair, with its links and neighbors by layer."""

    number: int  # its line in the user's file
    pair: SentencePair
    layers: tuple[PairScores, ...]
    neighbors: tuple[Neighbors, ...]  # one per layer; empty without a search
    gold: AlignedPair | None = None


@dataclass(frozen=True)
class AlignmentPage:
    """The content of a page."""

    name: str  # the user's file
    facts: tuple[tuple[str, str], ...]  # names and values such as the model and the method
    views: tuple[PairView, ...]
    shown: int  # the index of the layer that is shown first
    num_layers: int  # the encoder's depth
    num_pairs: int | None  # pairs in the file, if known
    num_searched: int  # pairs among which neighbors were searched
    layer_notes: tuple[str, ...] = ()  # texts beside the layers' numbers, such as their error rates


def find_direction(words: Iterable[str]) -> Direction:
    """Return the direction of most letters, so that a Latin name does not turn an Arabic text."""
    kinds = [unicodedata.bidirectional(character) for character in "".join(words)]
    return "rtl" if kinds.count("R") + kinds.count("AL") > kinds.count("L") else "ltr"


def find_marks(text: str) -> tuple[str, str]:
    """Return the Unicode isolates that keep right-to-left text from reordering its surroundings."""
    if not {unicodedata.bidirectional(character) for character in text} & {"R", "AL"}:
        return "", ""
    return "\u2066" if find_direction([text]) == "ltr" else "\u2067", "\u2069"


def find_stance(word: str) -> Literal["level", "upright", "turned"]:
    """Return how a word is written above a narrow column; a single character is level."""
    letters = [char for char in word if not unicodedata.category(char).startswith("M")]
    if len(letters) < 2:
        return "level"
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in letters)
    return "upright" if 2 * wide > len(letters) else "turned"


def group_words(
    links: Links, num_source: int, num_target: int
) -> tuple[list[int | None], list[int | None]]:
    """Number the connected components of the links in the order of the source; None is unlinked."""
    partners: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, j in links:
        partners.setdefault((0, i), []).append((1, j))
        partners.setdefault((1, j), []).append((0, i))
    groups: tuple[list[int | None], list[int | None]] = ([None] * num_source, [None] * num_target)
    number = 0
    for start in sorted(partners):
        waiting = [start]
        number += groups[start[0]][start[1]] is None
        while waiting:
            side, place = waiting.pop()
            if groups[side][place] is None:
                groups[side][place] = number - 1
                waiting += partners[side, place]
    return groups


def collect_views(
    model: AnyEncoder,
    pairs: Sequence[SentencePair],
    device: torch.device,
    *,
    settings: AlignSettings,
    layers: Sequence[LayerChoice],
    count: int,
    num_searched: int,
    gold: Sequence[AlignedPair] | None = None,
) -> tuple[PairView, ...]:
    """Compute the views of the first `count` pairs in the given layers.

    Neighbors are searched among the first `num_searched` pairs and the shown ones, if any.
    """
    shown = pairs[:count]
    searched = pairs[: max(num_searched, len(shown))] if num_searched else []
    neighbors = _find_neighbors(model, searched, len(shown), device, layers)
    views = []
    with track("views", len(shown), "pairs") as advance:
        for place, pair in enumerate(shown):
            words = pair.source, pair.target
            scores = score_words(model, words, device, settings=settings, layers=layers)
            near = tuple(layer[place] for layer in neighbors)
            known = None if gold is None else gold[place]
            views.append(PairView(place + 1, pair, tuple(scores), near, known))
            advance()
    return tuple(views)


def _find_neighbors(
    model: AnyEncoder,
    pairs: Sequence[SentencePair],
    count: int,
    device: torch.device,
    layers: Sequence[LayerChoice],
) -> list[list[Neighbors]]:
    """Return the neighbors of the first pairs: `[layer][pair]`."""
    if len(pairs) < 2:
        return []
    sources, targets = [pair.source_text for pair in pairs], [pair.target_text for pair in pairs]
    result = []
    texts = [*sources, *targets]

    def name(number: int) -> str:
        side, place = divmod(number - 1, len(pairs))
        return f"the {('source', 'target')[side]} of pair {place + 1}"

    for vectors_ND in embed_texts(
        model, texts, device, layers=layers, title="neighbors", place=name
    ):
        source_ND, target_ND = vectors_ND.split(len(pairs))
        near: list[Neighbors] = [{} for _ in range(count)]
        for side, queries_ND, keys_ND, texts_N in (
            ("of_source", source_ND, target_ND, targets),
            ("of_target", target_ND, source_ND, sources),
        ):
            nearest = find_nearest(queries_ND[:count], keys_ND, k=NUM_NEIGHBORS)
            found = zip(nearest.indices_Qk.tolist(), nearest.similarities_Qk.tolist(), strict=True)
            for q, row in enumerate(found):
                near[q][side] = [
                    Neighbor(k, texts_N[k], cosine, texts_N[k] == texts_N[q])
                    for k, cosine in zip(*row, strict=True)
                ]
        result.append(near)
    return result


def render_alignment_page(page: AlignmentPage) -> str:
    """Return the page as HTML."""
    environment = make_environment()
    environment.filters["direction"] = lambda text: find_direction([text])
    parts = ("page.css", "alignment.css", "alignment.js")
    css, own_css, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in parts)
    layers = [[_describe_layer(scores, view) for scores in view.layers] for view in page.views]
    both = list(zip(page.views, layers, strict=True))
    return environment.get_template("alignment.html.jinja").render(
        page=page,
        css=Markup(css + write_css_variables() + own_css),
        script=Markup(script),
        data=Markup(_write_data(page, layers)),
        pairs=[_prepare_pair(view, found[page.shown], page.shown) for view, found in both],
        layers=[str(scores.layer) for scores in page.views[0].layers],
        has_gold=any(view.gold is not None for view in page.views),
        num_colors=NUM_COLORS,
    )


def _describe_layer(scores: PairScores, view: PairView) -> dict[str, Any]:
    """Return the weights as integers over their range, and the class of each linked cell."""
    low, high = float(scores.weights.min()), float(scores.weights.max())
    shades = np.rint((scores.weights - low) / (high - low or 1.0) * _SHADES).astype(np.uint8)
    kinds = dict.fromkeys(scores.links, "linked")
    verdict = f"{len(scores.links)} links"
    if view.gold is not None:
        found = classify_links(scores.links, view.gold.sure, view.gold.possible)
        kinds = {link: kind for kind, links in found.items() for link in links}
        kinds |= dict.fromkeys(view.gold.possible - scores.links - view.gold.sure, "unused")
        verdict = describe_links(found)
    groups = group_words(scores.links, *scores.weights.shape)
    ranged = {"low": low, "high": high, "shades": shades}
    return {**ranged, "kinds": kinds, "groups": groups, "verdict": verdict}


def _prepare_pair(view: PairView, layer: dict[str, Any], shown: int) -> dict[str, Any]:
    """Return the content of a pair in the shown layer, for the template."""
    sides = view.pair.source, view.pair.target
    rows = [
        [
            {"shade": shade / _SHADES, "kind": layer["kinds"].get((i, j), "")}
            for j, shade in enumerate(row)
        ]
        for i, row in enumerate(layer["shades"])
    ]
    directions = [find_direction(words) for words in sides]
    words = [list(zip(*both, strict=True)) for both in zip(sides, layer["groups"], strict=True)]
    return {
        **layer,
        "number": view.number,
        "pair": view.pair,
        "sides": list(zip(directions, words, strict=True)),
        "heads": [(word, find_stance(word)) for word in view.pair.target],
        "rows": list(zip(view.pair.source, rows, strict=True)),
        "directions": directions,
        "neighbors": view.neighbors[shown] if view.neighbors else None,
    }


def _write_data(page: AlignmentPage, layers: list[list[dict[str, Any]]]) -> str:
    """Return the script's data of all layers, as JSON that cannot end its element."""
    texts: dict[str, dict[int, tuple[str, str]]] = {"of_source": {}, "of_target": {}}

    def list_near(side: str, nearest: list[Neighbor]) -> list[tuple[int, float, bool]]:
        texts[side] |= {one.place: (one.text, find_direction([one.text])) for one in nearest}
        return [(one.place, round(one.similarity, 3), one.is_right) for one in nearest]

    pairs = [
        {
            "layers": [_write_layer(layer) for layer in found],
            "near": [
                {side: list_near(side, nearest) for side, nearest in layer.items()}
                for layer in view.neighbors
            ],
        }
        for view, found in zip(page.views, layers, strict=True)
    ]
    data = {"notes": page.layer_notes, "texts": texts, "pairs": pairs}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _write_layer(layer: dict[str, Any]) -> dict[str, Any]:
    by_kind: dict[str, list[tuple[int, int]]] = {}
    for link, kind in sorted(layer["kinds"].items()):
        by_kind.setdefault(kind, []).append(link)
    return {
        "low": round(layer["low"], 4),
        "high": round(layer["high"], 4),
        "shades": base64.b64encode(layer["shades"].tobytes()).decode(),
        "kinds": by_kind,
        "groups": layer["groups"],
        "verdict": layer["verdict"],
    }
