"""Cleaning of wikitext that nobody would write: random markup, and pages made to be slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaxlm.data.wikitext import Site, clean_page, is_disambiguation, is_redirect
from metaxlm.data.wikitext.inline import MAX_LENGTH, MAX_OPEN, render, render_with_parser

GERMAN = Site("de", {"datei": 6})

PLAIN = st.sampled_from(
    ["a", " ", "Öl", "(b)", ", ", ". ", "x:y", "1", "نص", "漢", "-", "''", "&amp;"]
)
LABEL = st.lists(PLAIN, max_size=4).map("".join)
LINKS = st.one_of(
    PLAIN,
    st.builds("[[{}]]".format, st.sampled_from(["Mill", "A b", "en:X", ":en:X", "wikt:y", "#z"])),
    st.builds("[[{}|{}]]".format, st.sampled_from(["Mill", "A (b)", ":Datei:c"]), LABEL),
    st.builds("[{} {}]".format, st.sampled_from(["http://x.y", "https://x.y/z?a=b"]), LABEL),
)


@given(st.lists(LINKS, max_size=8).map("".join))
def test_plain_links_are_what_the_parser_says(line: str) -> None:
    line = re.sub("''+", "", line)
    parsed = render(render_with_parser(line, GERMAN), GERMAN)
    assert render(line, GERMAN).split() == parsed.split()


def test_a_line_with_too_many_brackets_keeps_its_text() -> None:
    many = "[[Mill|the [old] mill]] " * MAX_OPEN
    bare = many.replace("[[", "").replace("]]", "")
    assert clean_page(many, GERMAN) == clean_page(bare, GERMAN)
    long = "[[Mill|the [old] mill]] " + "and so on " * MAX_LENGTH
    assert clean_page(long, GERMAN)[0].startswith("Mill|the [old] mill and so on")


MARKUP = """
{{ }} {{{ }}} [[ ]] [ ] | = == {| |} |- ' '' ''' ''''' <ref> </ref> <ref/> <b> </b> <br> <p>
<nowiki> </nowiki> <!-- --> <table> </table> <td> <poem> </poem> <math> </math> File: Datei: en:
lang| http://x ( ) , ; : * # . - -{ }- __TOC__ &amp; &lt; a b c
"""
TOKENS = [*MARKUP.split(), " ", "\n", "\n\n", "\u200f", "\ufdd0"]


@settings(max_examples=400)
@given(
    st.lists(st.sampled_from(TOKENS), max_size=60).map("".join), st.sampled_from(["", "zh", "de"])
)
def test_anything_gives_plain_paragraphs(page: str, language: str) -> None:
    for paragraph in clean_page(page, Site(language)):
        assert paragraph == " ".join(paragraph.split()) and any(map(str.isalpha, paragraph))
        assert not re.search("[\ufdd0-\ufdef\u200e\u200f]", paragraph)
        if "nowiki" not in page:
            assert not re.search(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<!--|<ref>", paragraph)


@given(st.text())
def test_any_text_is_survived(page: str) -> None:
    assert all(isinstance(paragraph, str) for paragraph in clean_page(page, Site()))


N = 10_000
SLOW = {
    "open templates": "{{" * N,
    "deep templates": "{{" * N + "a" + "}}" * N,
    "deep templates with text": "{{lang|de|" * N + "a" + "}}" * N,
    "open links": "[[a|b " * N,
    "deep links": "[[a|" * N + "b" + "]]" * N,
    "deep files": "[[File:a|" * N + "]]" * N,
    "crossed": "[[a|{{b|" * N + "]]}}" * N,
    "open web links": "[http://a " * N,
    "open web links in many lines": ("[http://a " * 5 + "\n\n") * (N // 20),
    "unknown tags beside a link": "[[a|b [c] d]]" + "<x>" * 5_000,
    "open references": "a<ref>b\n\n" * N,
    "references and one end": "a<ref>b\n\n" * N + "</ref>",
    "open tags": "<b><div><td>" * N,
    "unfinished tags": "<ref name=" * N,
    "open nowiki": "<nowiki>" * N,
    "open tables": "{|\n| a\n" * N,
    "half open HTML tables": "<table>" * N + "</table>" * (N // 2),
    "comments": "<!--a-->" * N,
    "poems": "<poem>" * N + "</poem>" * N,
    "apostrophes": "'''a ''b " * N,
    "holes": "x" * N + "({{x}}, {{x}})," * N,
    "parentheses around a hole": "(" * N + "{{x}}" + ")" * N,
    "variants": "-{" * N + "}-" * N,
    "headings": "\n== a ==" * N,
    "almost headings": "==a\n" * N,
    "spaces": "a" + " " * 20 * N + "b",
    "underscores": "__A" * N,
    "ampersands": "&#" * N,
}


@pytest.mark.parametrize("case", SLOW)
def test_no_page_is_slow(case: str) -> None:
    """Ten times the length takes about ten times the time, not a hundred; with room for noise."""
    page = SLOW[case]
    start = time.process_time()
    clean_page(page, Site("zh"))
    is_disambiguation(page, Site("en"))
    is_redirect(page)
    assert time.process_time() - start < 0.5 + len(page) / 300_000


def test_huge_page_is_its_paragraphs() -> None:
    paragraph = "The mill is old. [[Mill|It]] {{x|y}} turns.<ref>z</ref>\n\n"
    assert clean_page(paragraph * 20_000, GERMAN) == ["The mill is old. It turns."] * 20_000
