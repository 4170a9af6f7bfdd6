"""Cleaning of wikitext: each kind of markup, whole and broken, and pages that are not articles."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metaxlm.data.wikitext import clean_page
from metaxlm.data.wikitext.plain_text import (
    MAX_LENGTH,
    MAX_OPEN,
    MIN_SENTENCE_WORDS,
    MIN_WORDS,
    is_prose,
    render,
    render_with_parser,
)
from metaxlm.data.wikitext.removal import show_template
from metaxlm.data.wikitext.site import Site, Target, is_disambiguation, is_redirect, read_site

HEAD = """<!DOCTYPE x [<!ENTITY a "b">]>
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo><sitename>Wikipedia</sitename><namespaces>
    <namespace key="-2" case="first-letter">Medium</namespace>
    <namespace key="0" case="first-letter" />
    <namespace key="4" case="first-letter">Wikipedia</namespace>
    <namespace key="6" case="first-letter">Datei</namespace>
    <namespace key="14" case="first-letter">Kategorie</namespace>
    <namespace key="100" case="first-letter">Portal</namespace>
  </namespaces></siteinfo>
"""
GERMAN = read_site(HEAD.encode())


def clean(wikitext: str, site: Site = GERMAN) -> str:
    """The paragraphs of a page, separated by slashes."""
    return " / ".join(clean_page(wikitext, site))


CASES = {
    # paragraphs and lines
    "lines join": ("One line\nand the next.\n\nSecond.", "One line and the next. / Second."),
    "Chinese lines join without a space": ("河水\n很清。", "河水很清。"),
    "CRLF": ("One\r\ntwo.\r\n\r\nThree.", "One two. / Three."),
    "headings": ("== A ==\nText.\n===B=== \nMore.\n= C =\nEnd.", "Text. / More. / End."),
    "no heading": ("=5 is\nthe sum.", "=5 is the sum."),
    "bold line is a heading": ("'''History'''\n\nIt is old.", "It is old."),
    "rule": ("One.\n----\nTwo.\n-----Three.", "One. / Two. / Three."),
    "nothing but signs": ("123 – (4).\n\nText.", "Text."),
    # lists
    "links in a list": ("* [[Foo]]\n* [[Bar|two words]]", ""),
    "sentence in a list": ("Text:\n* The wheel turns left.", "Text: / The wheel turns left."),
    "clause in a list": ("# the first team pushes the cart;", "the first team pushes the cart;"),
    "definition": ("; Mill : It is a house with a wheel.", "It is a house with a wheel."),
    "book in a list": ("* Ann Ash: ''The Mill and its Wheel''. Pell 1999, ISBN 1-2345-6789-X.", ""),
    "indented line": (" for i in range(10):\nText.", "Text."),
    # templates
    "nested": ("A {{x|{{y|{{z}}|[[q|r]]}}}} b.", "A b."),
    "alone on a line": ("One.\n{{x}}\nTwo.", "One. / Two."),
    "argument": ("A {{{1|b}}} c.", "A c."),
    "five braces": ("A {{{{{1}}}}} b.", "A b."),
    "parser function": ("A {{#if: x | [[y]] | z }} b.", "A b."),
    "link left open in a template": ("A {{x|[[y}} b [[c]].", "A b c."),
    "unclosed at the end": ("Text.\n\n{{Box|a\n| b = c", "Text."),
    "unclosed box": ("{{Box\n| a = 1\n| b = 2\n\nText [[a]].", "Text a."),
    "unclosed inside": ("{{Box\n| a = {{x|1\n| b = 2\n}}\nText.", "Text."),
    "unclosed before a heading": (
        "{{Box\n| a\n\nA.\n\n== B ==\nB {{x}} b.}}\n\nC.",
        "A. / B b. / C.",
    ),
    "quotation in a line": ("A:{{quote|All is well.}}B.", "A: / All is well. / B."),
    "quotation": ("{{quote|All is [[well|good]].|Ann}}", "All is good."),
    "table by templates": ("{{{!}}\n{{!}} a\n{{!}}}\nText.", "Text."),
    # tables
    "table": ('One.\n{| class="x"\n! a !! b\n|-\n| c || d\n|}\nTwo.', "One. / Two."),
    "table in a table": ("{|\n| a\n{|\n| b\n|}\n| c\n|}\nText.", "Text."),
    "table in a template": ("{{x|\n{|\n| a\n|}\n}}\nText.", "Text."),
    "template in a table": ("{|\n| {{x|a=\n|}}\n| b\n|}\nText.", "Text."),
    "paragraphs in a table": ("{|\n| a\n\nb c\n== d ==\n|}\nText.", "Text."),
    "unclosed table": ("One.\n{|\n| a\n| b\n\nTwo.\n== C ==\nThree.", "One. / Two. / Three."),
    "unclosed table after a closed one": ("{|\n| a\n|}\nOne.\n{|\n| b\n\nTwo.", "One. / Two."),
    "rows without a table": ("|-\n| a || b\n|}\nText.", "Text."),
    "HTML table": ("<table><tr><td>a<table><tr><td>b</table></td></table>Text.", "Text."),
    "unclosed HTML table": ("<table><tr><td>a<td>b\n\nText.", "Text."),
    # elements
    "reference": ('A.<ref name="x">[[B]] {{c}}</ref> D.<ref name=x />', "A. D."),
    "unbalanced reference": ("A<ref>{{b</ref> c [[d]].", "A c d."),
    "unclosed reference": ("A.<ref>b\n\nC.<ref>d</ref> E.", "A. / C. E."),
    "stray end": ("A.</ref> B.", "A. B."),
    "references": ("A.\n<references>\n<ref name=a>b</ref>\n</references>", "A."),
    "comment": ("A<!-- <ref> {{ -->b.", "Ab."),
    "comment on its own line": ("One\n<!-- x -->\ntwo.", "One two."),
    "unclosed comment": ("A. <!-- b", "A."),
    "nowiki": (
        "<nowiki>[[b]] ''c'' {{d}} &lt; <!----></nowiki>.",
        "[[b]] ''c'' {{d}} &lt; <!---->.",
    ),
    "nowiki keeps apostrophes apart": ("'''A''' ''Mill''<nowiki />'s.", "A Mill's."),
    "unclosed nowiki": ("A <nowiki>[[b]].", "A b."),
    "math": ("The sum <math>a < b</math> is (<math>c</math>) small.", "The sum is small."),
    "gallery": ("A.\n<gallery>\nFile:x.jpg|The mill\n</gallery>\nB.", "A. / B."),
    "code": ("A.\n<syntaxhighlight lang=c>\nint x;\n</syntaxhighlight>\n<pre>x</pre>B.", "A. / B."),
    "formatting": ("H<sub>2</sub>O is <b class='x'>very</b> <SPAN>wet</SPAN>.", "H2O is very wet."),
    "break": ("One<br>two<br />three.", "One two three."),
    "two breaks": ("One.<br><br/>Two.", "One. / Two."),
    "blocks": ("<div>One.</div><p>Two.<blockquote>Three.</blockquote>", "One. / Two. / Three."),
    "HTML list": ("<ul><li>a</li><li>The wheel turns left.</li></ul>", "The wheel turns left."),
    "poem": ("<poem>\n:The lamp\n burns ''low''\n</poem>", "The lamp burns low"),
    "ruby": ("<ruby>漢字<rp>(</rp><rt>かんじ</rt><rp>)</rp></ruby>です。", "漢字です。"),
    "no tag": ("If a <b, and c> d, then x <y> z.", "If a <b, and c> d, then x <y> z."),
    "HTML heading": ("<h2>History</h2>Text.", "Text."),
    # links
    "link": ("The [[mill]] and [[Mill (house)|its wheel]].", "The mill and its wheel."),
    "trail": ("[[house]]s and pre[[fix|fixed]]ly.", "houses and prefixedly."),
    "pipe trick": ("[[Pell (Carrow)|]] and [[Wikipedia:Help|]].", "Pell and Help."),
    "section": ("[[#Top]] and [[Mill#Wheel|wheel]].", "Top and wheel."),
    "underscores": ("[[Old_mill]] turns.", "Old mill turns."),
    "label with brackets": ("[[Mill|the [old] mill]].", "the [old] mill."),
    "label over lines": ("[[Mill|the\nmill]].", "the mill."),
    "link in a label": ("[[Mill|the [[old]] mill]].", "the old mill."),
    "unclosed link": ("The [[mill is old.\n\nAnd [[so]] on.", "The mill is old. / And so on."),
    "stray end of link": ("The mill]] is old.", "The mill is old."),
    "file": ("[[Datei:a.jpg|mini|The [[mill]] and [http://x its] {{y}} wheel]]Text.", "Text."),
    "names of files": ("[[Bild:a.jpg]][[ file : b.jpg|mini]][[image:c.png]]Text.", "Text."),
    "file over paragraphs": ("[[Datei:a.jpg|mini|One.\n\nTwo.]]\nText.", "Text."),
    "file in a caption": ("[[Datei:a.jpg|mini|A [[Datei:b.jpg|10px]] b]] Text.", "Text."),
    "file with three brackets": ("[[Datei:a.jpg|mini|A [http://x map]]] Text.", "Text."),
    "unclosed file": ("[[Datei:a.jpg|mini|A [[b]] c\nText.", "Text."),
    "unclosed file before a heading": ("[[Datei:a|b\n\nOne.\n\n== C ==\nTwo]].", "One. / Two."),
    "category": ("Text.\n[[Kategorie:Mill|*]]\n[[Category:Mill]]", "Text."),
    "link to a category": ("[[:Kategorie:Mill]] and [[:Datei:a]].", "Kategorie:Mill and Datei:a."),
    "other languages": ("Text.\n[[en:Mill]]\n[[zh-min-nan:Mill]]", "Text."),
    "other projects": ("The [[wikt:mill|mill]] and [[s:wheel]].", "The mill and wheel."),
    "colon in a title": (
        "[[Film 2: The Day]] and [[Portal:Mill]].",
        "Film 2: The Day and Portal:Mill.",
    ),
    "web link": ("See [http://x.org the site] and [https://y.org].", "See the site and."),
    "no scheme": ("See [//x.org the site] or [mailto:a@b.c us].", "See the site or us."),
    "brackets": ("He said [sic] it.", "He said [sic] it."),
    # apostrophes
    "bold and italic": ("'''''A''' b'' ''c'' '''d'''.", "A b c d."),
    "apostrophe before bold": ("L''''eau''' est.", "L'eau est."),
    "apostrophe before italic": ("L'''Odissea'' di.", "L'Odissea di."),
    "apostrophe after one letter": ("'''A''' e l'''Odissea''.", "A e l'Odissea."),
    "apostrophe of a longer word": ("Dell'''Odissea'' and '''b''' c.", "Dell'Odissea and b c."),
    "six": ("A ''''''b'''''.", "A 'b."),
    # entities and characters
    "entities": ("A &amp; b&nbsp;c &lt;ref&gt; &#x20AC;&#8364; &hellip;", "A & b c <ref> €€ …"),
    "no entity": ("A &unknown; &copy b AT&T.", "A &unknown; &copy b AT&T."),
    "entity without markup": ("&#91;&#91;a&#93;&#93; &#39;&#39;b", "[[a]] ''b"),
    "entity once": ("a &amp;lt; b", "a &lt; b"),
    "direction marks": ("A\u200eb\u202bc\u202c \u2066d\u2069 &lrm;e&rlm; &רלמ;f.", "Abc d e f."),
    "joiners stay": ("می‌خواهم &zwnj; क्‍ष", "می‌خواهم \u200c क्‍ष"),
    "soft hyphen and mark of byte order": ("Wasser&shy;mühle\ufeff \xadx.", "Wassermühle x."),
    "zero-width space": ("a\u200bb ខ្មែរ\u200bភាសា", "ab ខ្មែរ\u200bភាសា"),
    "spaces": ("A\u00a0\u2009 b\t\u3000c.", "A b c."),
    "noncharacters": ("A \ufdd0, b (\ufdd0) \ufdd9c.", "A , b () c."),
    "switches": ("__NOTOC__\n__KEIN_INHALT__\nA __FILE__ or __init__.", "A __FILE__ or __init__."),
    # what removed markup leaves behind
    "empty parentheses": ("Pell ({{x}}) is ({{x}}, {{y}}; ) old.", "Pell is old."),
    "parentheses of a program": ("Call main() and f ( ).", "Call main() and f ( )."),
    "start of parentheses": ("Pell ({{x}}; {{y}}, born 1871) is.", "Pell (born 1871) is."),
    "end of parentheses": ("Pell (born 1871, {{x}}) is.", "Pell (born 1871) is."),
    "full-width parentheses": ("银沙河（{{x}}）是。", "银沙河是。"),
    "commas": ("One, {{x}}, two, {{x}}; three, {{x}}.", "One, two; three."),
    "space before a period": ("One {{x}} . Two {{x}}, three.", "One. Two, three."),
    "French space": ("Il vaut {{x}} ; alors {{x}} : oui.", "Il vaut ; alors : oui."),
    "start": ("{{x}}, the mill.", "the mill."),
    "inside a word": ("One{{x}}two.", "Onetwo."),
}


@pytest.mark.parametrize("case", CASES)
def test_markup(case: str) -> None:
    wikitext, expected = CASES[case]
    assert clean(wikitext) == expected


TEMPLATES = {
    "lang|fr|Bâle": "Bâle", "Lang-fr|[[Bâle|la ville]]": "[[Bâle|la ville]]", "lang|fr": "",
    "nowrap|a = b|class=x": "", "nowrap|1=a b": "a b", "convert|3|km|mi|abbr=on": "3 km",
    "convert|3|km2": "3 km²", "formatnum:1234": "1234", "formatnum: 1234 | R": "1234",
    "USS|Pell|AB-1": "USS Pell", "ill|Ann Ash|de|lt=Ash": "Ash", "ill|Ann Ash|de": "Ann Ash",
    '"|Ja': "„Ja“", "!": "|", "as of|2001": "As of 2001", "infobox|a|b": "", "#if:a|b|c": "",
    "x:a|b": "", "": "",
}  # fmt: skip


@pytest.mark.parametrize("content", TEMPLATES)
def test_templates_with_text(content: str) -> None:
    assert show_template(content) == TEMPLATES[content]


def test_template_text_is_part_of_its_sentence() -> None:
    page = "{{lang|fr|''Bâle''}} liegt {{convert|{{formatnum:3}}|km}} vom {{nowrap|[[Rhein]]}}."
    assert clean(page) == "Bâle liegt 3 km vom Rhein."
    assert clean("A {{quote|" + "x " * 3_000 + "}} b.") == "A b."


def test_variants_of_a_language() -> None:
    page = "用-{zh-hans:计算机;zh-hant:電腦}-和-{zh-tw:程式;zh-cn:程序;}-，"
    assert clean(page, Site("zh")) == "用计算机和程序，"
    assert clean("甲-{H|zh-cn:乙;zh-tw:丁}-和-{丙}-。", Site("zh")) == "甲和丙。"
    assert clean("-{A|zh-hans:甲;zh-hant:乙}-", Site("zh")) == "甲"
    assert clean("-{[[甲]]}-乙-{zh-hans:[[丙|丁]]}-", Site("zh")) == "甲乙丁"
    assert clean("A -{b}- c.", Site("en")) == "A -{b}- c."


def test_site_is_read_from_the_head() -> None:
    assert GERMAN.language == "de"
    assert GERMAN.namespaces["datei"] == 6 and GERMAN.namespace("Portal:Mühle") == 100
    assert GERMAN.namespace("Mühle: Das Buch") == 0 and GERMAN.namespace("Mühle") == 0
    assert read_site(b"<mediawiki>") == Site()
    assert read_site(b"<mediawiki><siteinfo><broken></siteinfo>") == Site()
    assert read_site(b'<siteinfo><namespace key="x">A</namespace></siteinfo>').namespaces == {}


TARGETS = {
    Target.FILE: ["Datei:a", "\u200fתמונה:a", "FILE :a", "Hình:a"],
    Target.CATEGORY: ["Thể_loại:a", "KATEGORİ:a"],
    Target.PAGE: [":Datei:a", "de:a", "Wikipedia:a", "Mill", "Mill: a"],
    Target.LANGUAGE: ["fr:a"],
    Target.SISTER: ["wikt:a"],
}


@pytest.mark.parametrize("kind", TARGETS)
def test_targets_of_links(kind: Target) -> None:
    assert {GERMAN.classify(target) for target in TARGETS[kind]} == {kind}


def test_a_namespace_goes_before_a_language() -> None:
    assert Site("en").classify("Mi:a") is Target.LANGUAGE
    assert Site("en", {"mi": 100}).classify("Mi:a") is Target.PAGE


REDIRECTS = [
    "#REDIRECT [[A]]", "#redirect: [[A]]\n{{R from move}}", "\n# Weiterleitung[[A]]",
    "#перенаправление [[A#b]]", "#تغییر_مسیر [[A]]", "#YÖNLENDİRME [[A]]", "#重定向[[A]]",
]  # fmt: skip
OTHERS = ["# [[A]]", "#Hash [[A]]", "#REDIRECT A", "See #REDIRECT [[A]]"]


@pytest.mark.parametrize("text", REDIRECTS + OTHERS)
def test_redirects(text: str) -> None:
    assert is_redirect(text) == (text in REDIRECTS)


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("de", "'''A''':\n* [[B]]\n{{Begriffsklärung}}", True),
        ("de", "{{Disambiguation}}", True),
        ("de", "__DISAMBIG__", True),
        ("en", "{{ hndis |Ash, Ann}}", True),
        ("en", "{{Template:Dab}}", True),
        ("en", "{{Airport_disambiguation}}", True),
        ("nl", "{{dp}}", True),
        ("", "{{неоднозначность\n|тип=2}}", True),
        ("de", "{{dp}}", False),
        ("de", "{{Begriffsklärungshinweis|Mühle}}", False),
        ("en", "The mill{{disambiguation needed|date=May 2020}}", False),
        ("en", "disambiguation {{x|disambiguation}}", False),
    ],
)
def test_disambiguation(language: str, text: str, expected: bool) -> None:
    assert is_disambiguation(text, Site(language)) == expected


def test_prose() -> None:
    words = "one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
    assert is_prose(" ".join(words[:MIN_SENTENCE_WORDS]) + ".")
    assert not is_prose(" ".join(words[: MIN_SENTENCE_WORDS - 1]) + ".")
    assert is_prose(" ".join(words[:MIN_WORDS])) and not is_prose(" ".join(words[: MIN_WORDS - 1]))
    assert is_prose('He said: "It is good."') and is_prose("नदी पहाड़ों से निकलती है।")
    assert is_prose("河水在夏天也很清凉。") and not is_prose("北方的河流")
    # Vowel signs do not separate words.
    assert not is_prose("1 2 3 4 5.") and not is_prose("पहाड़ों की नदी")


PLAIN = st.sampled_from(["a", " ", "Öl", "(b)", ", ", ". ", "x:y", "نص", "漢", "-", "''", "&amp;"])
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
@example("}}}\u200f}}}a", "")
@given(
    st.lists(st.sampled_from(TOKENS), max_size=60).map("".join), st.sampled_from(["", "zh", "de"])
)
def test_anything_gives_plain_paragraphs(page: str, language: str) -> None:
    for paragraph in clean_page(page, Site(language)):
        assert paragraph == " ".join(paragraph.split()) and any(map(str.isalpha, paragraph))
        assert not re.search("[\ufdd0-\ufdef\u200e\u200f]", paragraph)
        if "nowiki" not in page:
            assert not re.search(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<!--|<ref>", paragraph)


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
