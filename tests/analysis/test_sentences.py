from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from metaxlm.analysis.run_folder import read_run
from metaxlm.analysis.sentences import (
    collect_drawings,
    collect_queries,
    describe_links,
    draw_links,
    judge_links,
    measure_word,
)
from tests.analysis.fake_run import BEST_LAYER, LANGUAGES, VARIANTS


def places(svg: str, language: str) -> dict[str, float]:
    """Return the middle of every word of a row."""
    found = re.findall(rf'<text x="([\d.]+)" [^>]*lang="{language}">([^<]*)</text>', svg)
    return {word: float(x) for x, word in found}


def example(language: str, words: list[str], layer: int, predicted: list[Any]) -> dict[str, Any]:
    return {
        "language": language, "layer": layer, "source_words": ["one", "two"],
        "target_words": words, "sure": [[0, 0]], "possible": [], "predicted": predicted,
    }  # fmt: skip


def test_links_are_judged() -> None:
    links = judge_links(
        predicted=[(0, 0), (1, 1), (2, 2)], sure=[(0, 0), (3, 3)], possible=[(1, 1), (4, 4)]
    )
    assert links == {
        "sure": [(0, 0)],
        "possible": [(1, 1)],
        "wrong": [(2, 2)],
        "missed": [(3, 3)],
    }
    assert describe_links(links) == "2 right, 1 wrong, 1 missed"


def test_each_link_is_drawn_between_its_words() -> None:
    links = judge_links(predicted=[(0, 1)], sure=[(1, 0)], possible=[])
    svg = draw_links(["one", "two"], ["eins", "zwei"], "de", links, "verdict")
    english, german = places(svg, "en"), places(svg, "de")
    assert english["one"] < english["two"] and german["eins"] < german["zwei"]
    (wrong,) = re.findall(r'class="wrong" d="M([\d.]+) \S+ [^"]*? ([\d.]+) [\d.]+" ', svg)
    assert [float(x) for x in wrong] == [english["one"], german["zwei"]]
    (missed,) = re.findall(r'class="missed" d="M([\d.]+) \S+ [^"]*? ([\d.]+) [\d.]+" ', svg)
    assert [float(x) for x in missed] == [english["two"], german["eins"]]


def test_kinds_differ_without_color() -> None:
    links = judge_links(
        predicted=[(0, 0), (1, 1), (2, 2)], sure=[(0, 0), (3, 3)], possible=[(1, 1)]
    )
    words = ["a", "b", "c", "d"]
    svg = draw_links(words, words, "de", links, "")
    dashes = re.findall(r'<path class="(\w+)"[^>]*?(?:stroke-dasharray="([^"]+)")?/>', svg)
    assert len({dash for _, dash in dashes}) == len(dashes) == 4


def test_right_to_left_languages_run_right_to_left() -> None:
    links = judge_links(predicted=[], sure=[], possible=[])
    svg = draw_links(["one", "two"], ["واحد", "اثنان"], "ar", links, "")
    arabic = places(svg, "ar")
    assert arabic["واحد"] > arabic["اثنان"]
    english = places(svg, "en")
    assert english["one"] < english["two"]


def test_words_stay_inside_and_do_not_overlap() -> None:
    words = ["Donaudampfschifffahrt", "i", "WWW", "漢字仮名", "."]
    svg = draw_links(["x"], words, "de", judge_links([], [], []), "")
    width = float(re.findall(r'width="(\d+)"', svg)[0])
    right = 0.0
    for word, middle in places(svg, "de").items():
        assert middle - measure_word(word) / 2 > right
        right = middle + measure_word(word) / 2
    assert right <= width


def test_words_are_escaped() -> None:
    svg = draw_links(["<script>"], ['"&'], "de", judge_links([], [], []), '"')
    assert "<script>" not in svg and "&lt;script&gt;" in svg and "&quot;&amp;" in svg


def test_same_sentence_of_all_variants_stands_together(run_dir: Path) -> None:
    run = read_run(run_dir)
    drawn = collect_drawings(run.examples, {}, run.variants, 2)
    assert [sentence.language for sentence in drawn] == list(LANGUAGES)
    for sentence in drawn:
        assert [drawing.variant for drawing in sentence.drawings] == list(VARIANTS)
        assert {drawing.layer for drawing in sentence.drawings} == {BEST_LAYER}
    assert drawn[0].drawings[2].verdict == "7 right, 0 wrong, 0 missed"
    assert drawn[0].drawings[0].verdict == "3 right, 4 wrong, 4 missed"
    queries = collect_queries(run.examples, {}, run.variants, 2)
    assert [answer.is_right for answer in queries[0].answers] == [False, True, True]


def test_only_the_first_sentences_of_a_language_at_the_best_layer() -> None:
    words = [["eins"], ["zwei"], ["drei"]]
    stored = [example("de", w, layer, [[0, layer - 1]]) for layer in (1, 2) for w in words]
    examples = {"xlm": {"alignment": stored}}
    drawn = collect_drawings(examples, {"xlm": 2}, ["xlm"], 2)
    assert [d.drawings[0].layer for d in drawn] == [2, 2]
    assert "zwei" in drawn[1].drawings[0].svg
    assert [d.drawings[0].layer for d in collect_drawings(examples, {}, ["xlm"], 3)] == [1, 1, 1]


def test_a_sentence_asks_for_the_width_of_its_drawing() -> None:
    stored = [example("de", ["Wort"] * count, 1, []) for count in (3, 30)]
    for sentence in collect_drawings({"xlm": {"alignment": stored}}, {}, ["xlm"], 2):
        drawn = float(re.findall(r'width="(\d+)"', sentence.drawings[0].svg)[0])
        assert drawn <= sentence.width <= drawn + 1
