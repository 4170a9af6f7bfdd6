from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metaxlm.finetune.readers.parallel import AlignedPair
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import PairScores, score_words
from metaxlm.probe.alignment_io import SentencePair
from metaxlm.probe.alignment_page import (
    AlignmentPage,
    Direction,
    Neighbor,
    PairView,
    collect_views,
    find_direction,
    find_marks,
    group_words,
    render_alignment_page,
)
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.pool import LayerChoice, every_layer
from metaxlm.randomness import generator
from tests.analysis.pages import Page
from tests.finetune.conftest import CPU, TEXT
from tests.probe.conftest import MakeModel

TEXTS = [("I like tea </script> <b>&", "أنا أحب الشاي <i> ."), ("I like tea", "我 喜欢 茶 。")]
SHOWN = 1
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)


def make_view(place: int, with_gold: bool = False) -> PairView:
    texts = TEXTS[place]
    pair = SentencePair(*texts, tuple(texts[0].split()), tuple(texts[1].split()))
    shape = len(pair.source), len(pair.target)
    layers, neighbors = [], []
    for layer in range(3):
        weights = generator(1, "weights", place, layer).uniform(0.2, 0.7, size=shape)
        links = {(0, 0), (1, 2)} if layer == 0 else {(0, layer), (0, 0), (2, 2)}
        layers.append(PairScores(LayerChoice((layer,)), weights, frozenset(links)))
        order = (0, 1) if layer == 0 else (1, 0)
        similar = list(zip(order, (0.9, 0.65), strict=True))
        neighbors.append(
            {
                name: [Neighbor(k, TEXTS[k][side], cosine, k == place) for k, cosine in similar]
                for name, side in (("of_source", 1), ("of_target", 0))
            }
        )
    sure, possible = frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (0, 1), (1, 3)})
    gold = AlignedPair(pair.source, pair.target, sure, possible) if with_gold else None
    return PairView(place + 1, pair, tuple(layers), tuple(neighbors), gold)


def make_page(with_gold: bool = False) -> AlignmentPage:
    views = tuple(make_view(place, with_gold) for place in range(2))
    facts = (("Model", "a/model"),)
    notes = ("AER 50.0", "AER 25.0", "AER 30.0") if with_gold else ()
    return AlignmentPage("pairs.txt", facts, views, SHOWN, 2, 9, 2, notes)


class Matrices:
    """The content of the matrices and lists of a page."""

    def __init__(self, text: str) -> None:
        self.tables = [
            {
                "dir": table[:3],
                "heads": find_all(r'col" class="(\w+)"><span dir="auto">(.*?)<', table),
                "cells": find_all(r'<td(?: class="(\w+)")? style="--shade:(.*?)">(.*?)<', table),
                "names": [name for (name,) in find_all(r'<bdi dir="auto">(.*?)<', table)],
            }
            for table in text.split('<table class="matrix" dir="')[1:]
        ]
        sentences = find_all(r'<p class="sentence" data-side="\d" dir="(\w+)">(.*?)</p>', text, str)
        self.sentences = [
            (direction, find_all(r'<span class="(.*?)">(.*?)<', words))
            for direction, words in sentences
        ]
        lists = find_all(r'<ol data-near="(\w+)">(.*?)</ol>', text, str)
        near = r'<li class="(\w+)">.*?class="found".*?>(.*?)<'
        self.near = [find_all(near, content) for _, content in lists]


def find_all(pattern: str, text: str, change: Callable[[str], str] = unescape) -> list[Any]:
    """Return the groups of all matches."""
    found = re.finditer(pattern, text, re.DOTALL)
    return [tuple(change(group or "") for group in match.groups()) for match in found]


def parse(page: AlignmentPage) -> tuple[Matrices, dict[str, Any]]:
    text = render_alignment_page(page)
    ((data,),) = find_all(r'id="data">(.*?)</script>', text, str)
    return Matrices(text), json.loads(data)


def test_the_page_is_complete_and_self_contained() -> None:
    text = render_alignment_page(make_page(with_gold=True))
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert not re.search(r"https?:|@import|url\(", text)
    assert text == render_alignment_page(make_page(with_gold=True))
    assert "first 2 pairs of 9" in text
    whole = Page(render_alignment_page(replace(make_page(), num_pairs=2)))
    assert not any("Shown:" in part for part in whole.text)


def test_the_shown_layer_is_rendered_without_the_script() -> None:
    page = make_page()
    found, _ = parse(page)
    for view, table in zip(page.views, found.tables, strict=True):
        scores = view.layers[SHOWN]
        assert table["names"] == list(view.pair.source)
        assert [word for _, word in table["heads"]] == list(view.pair.target)
        weights = scores.weights.ravel()
        wanted = (weights - weights.min()) / (weights.max() - weights.min())
        assert np.abs([float(shade) for _, shade, _ in table["cells"]] - wanted).max() < 0.01
        width = scores.weights.shape[1]
        marks = {divmod(k, width): (kind, mark) for k, (kind, _, mark) in enumerate(table["cells"])}
        marked = {link for link, found in marks.items() if found != ("", "")}
        assert marked == scores.links
        assert {marks[link] for link in marked} == {("linked", "●")}


def test_the_data_of_the_script_has_every_layer() -> None:
    page = make_page()
    _, data = parse(page)
    for view, pair in zip(page.views, data["pairs"], strict=True):
        for scores, layer in zip(view.layers, pair["layers"], strict=True):
            shades = np.frombuffer(base64.b64decode(layer["shades"]), np.uint8)
            weights = layer["low"] + shades / 255 * (layer["high"] - layer["low"])
            assert np.abs(weights.reshape(scores.weights.shape) - scores.weights).max() < 2e-3
            assert {tuple(link) for link in layer["kinds"]["linked"]} == scores.links
            groups = group_words(scores.links, *scores.weights.shape)
            assert layer["groups"] == list(map(list, groups))
        for neighbors, near in zip(view.neighbors, pair["near"], strict=True):
            for side, found in neighbors.items():
                listed = [(data["texts"][side][str(k)][0], *more) for k, *more in near[side]]
                assert listed == [(one.text, one.similarity, one.is_right) for one in found]


def test_gold_links_have_classes() -> None:
    page = make_page(with_gold=True)
    found, data = parse(page)
    cells, width = found.tables[0]["cells"], len(page.views[0].pair.target)
    kinds = {divmod(k, width): (kind, mark) for k, (kind, _, mark) in enumerate(cells) if kind}
    assert kinds == {
        (0, 0): ("sure", "●"),
        (0, 1): ("possible", "●"),
        (2, 2): ("wrong", "✕"),
        (1, 1): ("missed", ""),
        (1, 3): ("unused", ""),
    }
    layers = data["pairs"][0]["layers"]
    assert [layer["verdict"] for layer in layers] == [
        "1 right, 1 wrong, 1 missed",
        "2 right, 1 wrong, 1 missed",
        "1 right, 2 wrong, 1 missed",
    ]
    assert "1 of 2 · AER 25.0" in render_alignment_page(page)


def test_directions_and_colors() -> None:
    found, data = parse(make_page())
    assert [table["dir"] for table in found.tables] == ["rtl", "ltr"]
    assert [direction for direction, _ in found.sentences] == ["ltr", "rtl", "ltr", "ltr"]
    assert [stance for stance, _ in found.tables[0]["heads"]] == ["turned"] * 4 + ["level"]
    stances = [stance for stance, _ in found.tables[1]["heads"]]
    assert stances == ["level", "upright", "level", "level"]
    assert data["texts"]["of_source"]["0"] == [TEXTS[0][1], "rtl"]
    assert data["texts"]["of_target"]["0"] == [TEXTS[0][0], "ltr"]
    # The words of the links (0, 0), (0, 1) and (2, 2) share a color.
    source, target = ([kind for kind, _ in words] for _, words in found.sentences[:2])
    assert source == ["word c0 s0", "alone", "word c1 s0", "alone", "alone"]
    assert target == ["word c0 s0", "word c0 s0", "word c1 s0", "alone", "alone"]


def test_neighbors_of_the_shown_layer() -> None:
    found, _ = parse(make_page())
    # In layer 1 the other pair is the nearest in both directions.
    assert found.near[:2] == [
        [("wrong", TEXTS[1][1]), ("right", TEXTS[0][1])],
        [("wrong", TEXTS[1][0]), ("right", TEXTS[0][0])],
    ]
    views = tuple(replace(view, neighbors=()) for view in make_page().views)
    assert "nearest to the" not in render_alignment_page(replace(make_page(), views=views))


@pytest.mark.parametrize(
    ("text", "direction", "marked"),
    [
        ("בית 12", "rtl", "\u2067בית 12\u2069"),
        ("GPU קניתי חדש", "rtl", "\u2067GPU קניתי חדש\u2069"),
        ("the word בית", "ltr", "\u2066the word בית\u2069"),
        ("123 . !", "ltr", "123 . !"),
    ],
)
def test_direction_of_most_letters(text: str, direction: Direction, marked: str) -> None:
    assert find_direction(text.split()) == direction
    assert text.join(find_marks(text)) == marked


def test_groups_are_connected_components() -> None:
    links = frozenset({(3, 0), (0, 2), (0, 3), (1, 3), (4, 4)})
    assert group_words(links, 6, 5) == ([0, 0, None, 1, 2, None], [1, None, 0, 0, 2])
    assert group_words(frozenset(), 1, 2) == ([None], [None, None])
    ladder = frozenset({(2, 0), (2, 1), (1, 1), (1, 2), (0, 2)})
    assert group_words(ladder, 3, 3) == ([0, 0, 0], [0, 0, 0])


def make_pairs() -> list[SentencePair]:
    both = [*zip(TEXT[:3], TEXT[3:6], strict=True), (TEXT[1], TEXT[3]), (TEXT[6], TEXT[8])]
    return [SentencePair(a, b, tuple(a.split()), tuple(b.split())) for a, b in both]


def test_views_equal_the_probes(make_model: MakeModel) -> None:
    model = make_model()
    pairs = make_pairs()
    layers = (*every_layer(2), LayerChoice((1, 2)))
    settings = AlignSettings(method="argmax", encoding="separate")
    nothing: frozenset[tuple[int, int]] = frozenset()
    gold = [AlignedPair(pair.source, pair.target, nothing, nothing) for pair in pairs]
    views = collect_views(
        model, pairs, CPU, settings=settings, layers=layers, count=3, num_searched=99, gold=gold
    )
    assert [view.number for view in views] == [1, 2, 3]
    sources = embed_texts(model, [pair.source_text for pair in pairs], CPU, layers=layers)
    targets = embed_texts(model, [pair.target_text for pair in pairs], CPU, layers=layers)
    for place, view in enumerate(views):
        assert (view.pair, view.gold) == (pairs[place], gold[place])
        words = view.pair.source, view.pair.target
        expected = score_words(model, words, CPU, settings=settings, layers=layers)
        for scores, wanted in zip(view.layers, expected, strict=True):
            assert (scores.layer, scores.links) == (wanted.layer, wanted.links)
            assert np.array_equal(scores.weights, wanted.weights)
        for layer, neighbors in enumerate(view.neighbors):
            cosines = torch.cosine_similarity(sources[layer, place], targets[layer], dim=-1)
            back = torch.cosine_similarity(targets[layer, place], sources[layer], dim=-1)
            for found, wanted_row in zip(neighbors.values(), (cosines, back), strict=True):
                values = [near.similarity for near in found]
                assert np.allclose(values, wanted_row.sort(descending=True).values[:3], atol=1e-5)
                assert np.allclose(values, [wanted_row[near.place] for near in found], atol=1e-5)
        for near in (near for layer in view.neighbors for near in layer["of_source"]):
            assert near.text == pairs[near.place].target_text
            # The targets of pairs 1 and 4 are equal.
            assert near.is_right == (near.place == place or {near.place, place} == {0, 3})


@pytest.mark.parametrize(
    ("count", "num_searched", "places"),
    [(1, 3, {0, 1, 2}), (2, 1, {0, 1}), (2, 0, set()), (1, 1, set())],
)
def test_neighbors_are_among_the_searched_pairs(
    make_model: MakeModel, count: int, num_searched: int, places: set[int]
) -> None:
    options = {"settings": AlignSettings(), "layers": every_layer(2), "count": count}
    views = collect_views(make_model(), make_pairs(), CPU, num_searched=num_searched, **options)
    assert len(views) == count
    layers = [layer for view in views for layer in view.neighbors]
    found = {near.place for layer in layers for side in layer.values() for near in side}
    assert found == places


PROBE = """
<script>
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const slider = document.getElementById("layer");
  const press = (key) => {
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  };
  const look = (name) => {
    const pair = document.querySelector(".pair.chosen");
    const shade = (cell) => cell.style.getPropertyValue("--shade");
    const state = {
      visible: all(".pair").filter((pair) => pair.offsetParent).map((pair) => pair.id),
      current: all("[aria-current]").map((link) => link.hash),
      label: document.getElementById("layer-shown").textContent,
      cells: all("tbody td", pair).map((c) => [c.className, c.textContent, shade(c)]),
      words: all(".sentence span", pair).map((word) => word.className),
      near: all(".found", pair).map((found) => [found.textContent, found.dir]),
      low: pair.querySelector("[data-low]").textContent,
      readout: pair.querySelector("[data-readout]").textContent,
    };
    document.body.setAttribute(`data-${name}`, JSON.stringify(state));
  };
  look("first");
  slider.value = 2;
  slider.dispatchEvent(new Event("input"));
  look("slid");
  press("ArrowLeft");
  press("ArrowLeft");
  look("pressed");
  all("tbody td")[0].dispatchEvent(new Event("pointerover", { bubbles: true }));
  look("pointed");
  press("n");
  look("next");
  press("n");
  press("p");
  look("previous");
  all(".list a")[1].click();
  look("clicked");
})();
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to run the page's script")
def test_the_script_in_a_browser(tmp_path: Path) -> None:
    page = make_page(with_gold=True)
    path = tmp_path / "page.html"
    path.write_text(render_alignment_page(page).replace("</body>", PROBE + "</body>"), "utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    dumped = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.decode()
    seen = {name: json.loads(value) for name, value in find_all(r'data-(\w+)="(\{.*?)"', dumped)}
    wanted = {
        "first": (0, 1), "slid": (0, 2), "pressed": (0, 0), "next": (1, 0), "previous": (0, 0),
        "clicked": (1, 0),
    }  # fmt: skip
    for step, (place, layer) in wanted.items():
        # The script draws what a page that starts with that layer contains.
        still, _ = parse(replace(page, shown=layer))
        state = seen[step]
        assert state["visible"] == [f"pair-{place + 1}"], step
        assert state["current"] == [f"#pair-{place + 1}"], step
        assert state["label"] == f"{layer} of 2 · {page.layer_notes[layer]}"
        cells, drawn = state["cells"], still.tables[place]["cells"]
        assert [cell[:2] for cell in cells] == [[kind, mark] for kind, _, mark in drawn]
        shades = [float(shade) for *_, shade in cells]
        assert np.allclose(shades, [float(shade) for _, shade, _ in drawn], atol=0.011)
        words = [kind for _, side in still.sentences[2 * place : 2 * place + 2] for kind, _ in side]
        assert state["words"] == words
        near = [text for found in still.near[2 * place : 2 * place + 2] for _, text in found]
        assert [text for text, _ in state["near"]] == near
        low = page.views[place].layers[layer].weights.min()
        assert float(state["low"]) == pytest.approx(low, abs=0.006)
    assert [direction for _, direction in seen["slid"]["near"]] == ["ltr", "rtl", "ltr", "ltr"]
    pointed = seen["pointed"]
    assert [kind for kind, _, _ in pointed["cells"]].index("sure at") == 0
    assert [k for k, word in enumerate(pointed["words"]) if word.endswith(" lit")] == [0, 5]
    weight = page.views[0].layers[0].weights[0, 0]
    assert seen["pointed"]["readout"] == f"I – أنا {weight:.2f}"
    assert seen["next"]["readout"] == ""
