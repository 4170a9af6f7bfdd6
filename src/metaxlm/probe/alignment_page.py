"""Render word alignments of sentence pairs as one self-contained page (`align --page`).

Each pair has the matrix of weights with the links marked, by layer as in the paper's figure 4, and
the nearest sentences of the other side, as in its figure 3. A slider selects the layer; without
JavaScript the page shows the chosen layer of every pair. The same views give the same bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from metaxlm.analysis.style import (
    TEMPLATES,
    classify_links,
    describe_links,
    make_environment,
    write_css_variables,
)
from metaxlm.probe.alignment import PairScores
from metaxlm.probe.directions import find_direction, find_stance
from metaxlm.probe.pair_views import LayerNeighbors, Neighbor, PairView, group_words

_SHADES = 255
NUM_COLORS = 6
"""Colors of linked words; then the same with another line."""


@dataclass(frozen=True)
class AlignmentPage:
    """All that a page shows."""

    name: str
    """The user's file."""
    facts: tuple[tuple[str, str], ...]
    """What was done with what, such as the model and the method."""
    views: tuple[PairView, ...]
    shown: int
    """The layer that is shown first, by its place among the views' layers."""
    num_layers: int
    """The encoder's depth."""
    num_pairs: int | None
    """In the file; None where that is not known."""
    num_searched: int
    """Pairs among which neighbors were looked for."""
    layer_notes: tuple[str, ...] = ()
    """What stands beside each layer's number, such as its error rate; or nothing."""


def render_alignment_page(page: AlignmentPage) -> str:
    """Return the page as HTML."""
    environment = make_environment()
    environment.filters["direction"] = lambda text: find_direction([text])
    parts = ("page.css", "alignment.css", "alignment.js")
    css, own_css, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in parts)
    return environment.get_template("alignment.html.jinja").render(
        page=page,
        css=Markup(css + write_css_variables() + own_css),
        script=Markup(script),
        data=Markup(_write_data(page)),
        pairs=[_prepare_pair(view, page.shown) for view in page.views],
        layers=[str(scores.layer) for scores in page.views[0].layers],
        has_gold=any(view.gold is not None for view in page.views),
        num_colors=NUM_COLORS,
    )


def _prepare_pair(view: PairView, shown: int) -> dict[str, Any]:
    """Return what the template needs to draw the shown layer of a pair."""
    scores = view.layers[shown]
    source, target = view.pair.source, view.pair.target
    groups = group_words(scores.links, len(source), len(target))
    low, high, shades = _shade(scores)
    judged = _judge_cells(scores, view)
    rows = [
        [
            {"shade": shades[i, j] / _SHADES, "kind": judged.get((i, j), "")}
            for j in range(len(target))
        ]
        for i in range(len(source))
    ]
    directions = find_direction(source), find_direction(target)
    return {
        "number": view.number,
        "pair": view.pair,
        "sides": [
            {"name": name, "direction": direction, "words": list(zip(words, numbers, strict=True))}
            for name, direction, words, numbers in zip(
                ("source", "target"), directions, (source, target), groups, strict=True
            )
        ],
        "heads": [(word, find_stance(word)) for word in target],
        "rows": list(zip(source, rows, strict=True)),
        "directions": directions,
        "verdict": _describe(scores, view),
        "low": low,
        "high": high,
        "neighbors": view.neighbors[shown] if view.neighbors else None,
    }


def _judge_cells(scores: PairScores, view: PairView) -> dict[tuple[int, int], str]:
    """Return the class of each cell that is linked, by the method or in the gold set."""
    if view.gold is None:
        return dict.fromkeys(scores.links, "linked")
    judged = classify_links(scores.links, view.gold.sure, view.gold.possible)
    kinds = {link: kind for kind, links in judged.items() for link in links}
    unused = view.gold.possible - scores.links - view.gold.sure
    return kinds | dict.fromkeys(unused, "unused")


def _describe(scores: PairScores, view: PairView) -> str:
    if view.gold is None:
        return f"{len(scores.links)} links"
    return describe_links(classify_links(scores.links, view.gold.sure, view.gold.possible))


def _shade(scores: PairScores) -> tuple[float, float, npt.NDArray[np.uint8]]:
    """Return smallest and largest weight, and every weight between them as a whole number.

    Cosines of one pair differ by little; shades over their own range keep them apart.
    """
    low, high = float(scores.weights.min()), float(scores.weights.max())
    room = high - low or 1.0
    return low, high, np.rint((scores.weights - low) / room * _SHADES).astype(np.uint8)


def _write_data(page: AlignmentPage) -> str:
    """Return what the script needs of all layers, as JSON that cannot end its element."""
    texts: dict[str, dict[int, tuple[str, str]]] = {"of_source": {}, "of_target": {}}
    for layer in (layer for view in page.views for layer in view.neighbors):
        for side, found in (("of_source", layer.of_source), ("of_target", layer.of_target)):
            for near in found:
                texts[side][near.place] = near.text, find_direction([near.text])
    data = {
        "notes": page.layer_notes,
        "texts": texts,
        "pairs": [_write_pair(view) for view in page.views],
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _write_pair(view: PairView) -> dict[str, Any]:
    return {
        "layers": [_write_layer(scores, view) for scores in view.layers],
        "near": [_write_neighbors(layer) for layer in view.neighbors],
    }


def _write_layer(scores: PairScores, view: PairView) -> dict[str, Any]:
    low, high, shades = _shade(scores)
    groups = group_words(scores.links, *scores.weights.shape)
    kinds: dict[str, list[tuple[int, int]]] = {}
    for link, kind in sorted(_judge_cells(scores, view).items()):
        kinds.setdefault(kind, []).append(link)
    return {
        "low": round(low, 4),
        "high": round(high, 4),
        "shades": base64.b64encode(shades.tobytes()).decode(),
        "kinds": kinds,
        "groups": groups,
        "verdict": _describe(scores, view),
    }


def _write_neighbors(layer: LayerNeighbors) -> dict[str, list[tuple[int, float, bool]]]:
    return {"of_source": _write_side(layer.of_source), "of_target": _write_side(layer.of_target)}


def _write_side(found: Sequence[Neighbor]) -> list[tuple[int, float, bool]]:
    return [(near.place, round(near.similarity, 3), near.is_right) for near in found]
