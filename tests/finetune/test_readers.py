"""The readers of task files: what they read, and one line for everything that is wrong."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_files import find_language
from metaxlm.finetune.data_sets import NLI_LABELS, UPOS
from metaxlm.finetune.readers.conll import (
    TaggedSentence,
    convert_to_bio,
    read_conll,
    read_tagged_sentences,
)
from metaxlm.finetune.readers.input_lines import read_lines
from metaxlm.finetune.readers.parallel import (
    list_tatoeba,
    list_word_alignment,
    read_tatoeba,
    read_word_alignment,
)
from metaxlm.finetune.readers.texts import (
    LabeledText,
    Row,
    read_labeled_pairs,
    read_reviews,
    read_rows,
)
from metaxlm.languages import task_languages
from tests.finetune.conftest import Messages, Published, refuse, write

read_pairs = partial(read_labeled_pairs, labels=NLI_LABELS)
read_tagged = partial(read_tagged_sentences, tags=UPOS)
read_table = partial(read_rows, columns=["body", "team"], num_needed=2)

NEUTRAL = LabeledText("a", "b", "neutral")
EXPECTED = [(("Ada", "sleeps"), ("B-PER", "O")), (("in", "Rome"), ("O", "B-LOC"))]
REST = "\t_" * 6
ITEM = "<item><summary>Good\n</summary><rating>{}</rating><text>{}</text></item>"


def reviews(*items: str) -> str:
    return "<items>" + "\n".join(items) + "\n</items>\n"


BROKEN: list[tuple[Callable[[Path], Any], str, str | bytes, str]] = [
    (read_lines, "a", "", ":1: the file is empty; restore it"),
    (read_lines, "a", "version https://git-lfs.github.com\n", ":1: a Git LFS pointer, not the"),
    (read_lines, "a", "eins\nfünf\n".encode("latin-1"), ":2: not UTF-8 (byte 0xFC); convert it"),
    (read_lines, "a", "one\ntwo\n".encode("utf-16"), ":1: NUL characters, as in UTF-16; convert"),
    (read_pairs, "a", "a\tb\tneutral\na\tb\n", ":2: found 2 columns, the first row has 3; "),
    (read_pairs, "a", "a\tb\tneutral\na\t \tneutral\n", ":2: a text is empty; fill it or delete"),
    (read_pairs, "a", "a\tb\tmaybe\n", ":1: unknown label 'maybe'; known: entailment, neutral, "),
    (read_pairs, "a", "one column\n", ":1: found 1 columns, expected two texts and a label"),
    (read_pairs, "a", "premise\thypothesis\tlabel\n", ":1: a header and no line; restore the file"),
    (
        read_pairs, "a", "gold_label\tparse\tsentence1\tsentence2\tlabel1\nneutral\tx\ta\n",
        ":2: found 3 columns, the header has 5; ",
    ),
    (read_tagged, "a", "a\tX\nb\tX\tX\n", ":2: found 3 columns, expected a word, a tab and a tag"),
    (read_tagged, "a", "a\tX\n\tX\n", ":2: the word is empty; restore it"),
    (read_tagged, "a", "a\tX\nb\tNP\n", ":2: unknown label 'NP'; known: ADJ, ADP, "),
    (read_tagged, "a", "a\tX\n\nb\tX\nc\n", ":4: the word 'c' has no tag, but others in its"),
    (read_tagged, "a", "\n\n", ":1: the file has blank lines and nothing else; restore it"),
    (read_conll, "a", "a\tO\nb\n", ":2: found 1 columns, expected 2 as in the lines before"),
    (read_conll, "a", "\n\n", ":1: no words in it"),
    (partial(read_conll, word=5), "a", "1 Ada x y\n", ":1: no column 5 for the word; found 4"),
    (read_reviews, "a", "great:1 book:2\n", ":1: no <item> in it; a Webis-CLS-10 file of reviews"),
    (read_reviews, "a", reviews(ITEM.format(5, "x"), ITEM.format("3.0", "x")), ":3: item 2 has the "
     "rating '3.0'; expected 1 or 2 (negative), 4 or 5 (positive)"),
    (read_reviews, "a", reviews("<item><rating>5</rating></item>"), ":1: item 1 has neither"),
    (read_reviews, "a", "<items><item><text>a</text></item>\n<item>", ":2: 2 reviews begin and 1 "),
    (read_reviews, "a", "<item><text>a</text></item>\n", ":1: 1 reviews begin and 1 end, and the "),
    (read_reviews, "a", "<items><item><item></item></items>", ":1: item 1 has no </item>; restore"),
    (read_table, "a.csv", 'body,team\none,x\n"two,y\n', ":3: not valid CSV"),
    (read_table, "a.tsv", "body\tbody\tteam\na\tb\tx\n", ":1: the header has 'body' twice; "),
    (read_table, "a.tsv", "body\tteam\n", ":1: a header and nothing else; "),
    (read_table, "a.tsv", "body\tid\na\t1\n", ":1: no column 'team'; found: body, id"),
    (read_table, "a.jsonl", '{"body": "a", "team": "x"}\n{"body"\n', ":2: not valid JSON ("),
    (read_table, "a.jsonl", '["a", "x"]\n', ":1: found a list, expected one object per line"),
    (read_table, "a.jsonl", '{"body": "a"}\n', ":1: no key 'team'; found: body"),
    (read_table, "a.jsonl", '{"body": "a", "team": ["x"]}\n', ":1: 'team' is a list, expected"),
    (partial(read_rows, columns=[4, 1], num_needed=2), "a.tsv", "x\t7\ta b\n", ":1: no column 4; "),
]  # fmt: skip


@pytest.mark.parametrize(("read", "name", "text", "message"), BROKEN)
def test_broken_file(
    tmp_path: Path, read: Callable[[Path], Any], name: str, text: str | bytes, message: str
) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(MetaXLMError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


def test_lines_end_with_lf_or_crlf_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "\ufeffone\r\ntwo\u2028still \x85two\n\nlast".encode())
    assert read_lines(path) == ["one", "two\u2028still \x85two", "", "last"]
    with refuse(f"{tmp_path / 'b'}: no such file"):
        read_lines(tmp_path / "b")
    with refuse(f"{tmp_path}: a folder; give a file"):
        read_lines(tmp_path)


class TestPairs:
    @pytest.mark.parametrize(
        "text",
        [
            "a\tb\tneutral\r\n",
            "label\tpremise\thypothesis\tsource\nneut\ta\tb\tx\n",
            "premise\thypo\tlabel\na\tb\tneutral\n",  # XNLI-MT 1.0
            "id\tsentence1\tsentence2\tlabel\n7\ta\tb\tneutral\n",  # PAWS-X
            "id\tone\tother\tlabel\n7\ta\tb\tneutral\n",
            # MultiNLI 1.0 has many columns and leaves out empty ones at the end.
            "gold_label\tparse\tsentence1\tsentence2\tlabel1\tlabel2\nneutral\tx\ta\tb\tneutral\n",
        ],
    )
    def test_with_and_without_header(self, tmp_path: Path, text: str) -> None:
        path = write(tmp_path / "a.tsv", text)
        assert read_pairs(path, synonyms={"neut": "neutral"}).items == [NEUTRAL]

    @pytest.mark.parametrize(
        "text",
        [
            "a\tb\r\nc\td\r\n",  # as XTREME's script leaves XNLI and PAWS-X
            "a\tb\t\nc\td\t \n",
            "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t\n2\tc\td\t\n",
            "id\tsentence1\tsentence2\n1\ta\tb\n2\tc\td\n",
        ],
    )
    def test_blanked_labels(self, tmp_path: Path, text: str) -> None:
        found = read_pairs(write(tmp_path / "a.tsv", text)).items
        assert found == [LabeledText("a", "b", None), LabeledText("c", "d", None)]
        assert not any(pair.is_labeled for pair in found)

    def test_several_languages_and_notices(self, tmp_path: Path) -> None:
        lines = "-\tx\ty\nneutral\ta\tb\n-\tx\ty\nneutral\tNS\tb\n"
        quoted = 'neutral\t"He said ""no"" to it"\tc\n'
        header = "gold_label\tsentence1\tsentence2\n"
        path = write(tmp_path / "a.tsv", header + lines + quoted)
        found = read_pairs(path)
        assert len(found.items) == 3
        assert found.notices == (
            f"{path}: 2 pairs without an agreed label; left out",
            f"{path}: 1 pairs with `NS` instead of a text, a known fault of the release",
            f"{path}: 1 pairs in CSV quotes, which are kept",
        )
        header = "language\tgold_label\tsentence1\tsentence2\n"
        path = write(tmp_path / "b.tsv", f"{header}de\tneutral\tx\ty\nzh\tneutral\ta\tb\n")
        assert read_pairs(path, language="zh").items == [NEUTRAL]
        assert read_pairs(path).languages == ("de", "zh")
        with refuse(f"{path}:1: a header and no line of 'fr'; restore the file"):
            read_pairs(path, language="fr")
        plain = '"No" and ""yes" or "no"\t"" is empty\tneutral\n'
        assert read_pairs(write(tmp_path / "a.tsv", plain)).notices == ()


class TestReviews:
    def test_headline_text_and_sentiment(self, tmp_path: Path) -> None:
        items = [ITEM.format(rating, "Fine.") for rating in ("1.0", "2.0", "4.0", "5", "")]
        found = read_reviews(write(tmp_path / "a.review", reviews(*items))).items
        labels = ["negative", "negative", "positive", "positive", None]
        assert found == [LabeledText("Good Fine.", None, label) for label in labels]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("two\n  lines\t &lt;3 ", "two lines <3"),
            ("&amp;quot;Q&amp;quot; &amp;amp; A", '"Q" & A'),  # escaped twice, as in the release
            ("AT&T &nbsp;& co; &#8212;", "AT&T & co; —"),  # not XML, but it does occur on the web
        ],
    )
    def test_entities_and_white_space(self, tmp_path: Path, text: str, expected: str) -> None:
        path = write(tmp_path / "a.review", reviews(ITEM.format(5, text)))
        assert read_reviews(path).items[0].first == f"Good {expected}"

    def test_published(self, published: Published) -> None:
        """Of the 24 files, two equal an XML parser's result."""
        folder = published("cls") / "cls"
        assert len(list(folder.glob("*/*/*.review"))) == 24
        for path in (folder / "jp/books/test.review", folder / "en/dvd/train.review"):
            found = read_reviews(path).items
            assert Counter(item.label for item in found) == {"negative": 1_000, "positive": 1_000}
            for item, ours in zip(ElementTree.parse(path).getroot(), found, strict=True):
                text = f"{item.findtext('summary') or ''} {item.findtext('text') or ''}"
                assert "&" in text or ours.first == " ".join(text.split())


class TestTables:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("a.tsv", 'id\tteam\tbody\r\n1\tx\tsay "hi"\r\n2\ty\tb, c'),
            ("a.txt", '\ufeffbody\tteam\nsay "hi"\tx\nb, c\ty\n'),
            ("a.csv", 'body,team\n"say ""hi""",x\n"b, c",y\n'),
            ("a.jsonl", '{"body": "say \\"hi\\"", "team": "x"}\n{"team": "y", "body": "b, c"}\n'),
        ],
    )
    def test_formats_give_the_same_cells(self, tmp_path: Path, name: str, text: str) -> None:
        rows = read_table(write(tmp_path / name, text))
        first = 1 if name.endswith("jsonl") else 2
        assert rows == [Row(first, ('say "hi"', "x")), Row(first + 1, ("b, c", "y"))]

    def test_line_ends_in_csv_quotes_and_column_numbers(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", 'body,team\r\n"one\r\ntwo",x\r\n\r\nthree,y\r\n')
        assert read_table(path) == [Row(2, ("one\ntwo", "x")), Row(5, ("three", "y"))]
        path = write(tmp_path / "a.tsv", "x\t7\ta b\ny\t8\tc\n")
        assert read_rows(path, [-1, 1], 2) == [Row(1, ("a b", "x")), Row(2, ("c", "y"))]

    def test_optional_column(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "body\tid\na\t1\n")
        assert read_table(path, num_needed=1) == [Row(2, ("a", None))]
        lines = ['{"body": "a", "team": 3}', '{"body": "b", "team": true}', '{"body": "c"}']
        path = write(tmp_path / "a.jsonl", "\n".join([*lines, '{"body": "d", "team": null}']))
        cells = [row.cells[1] for row in read_table(path, num_needed=1)]
        assert cells == ["3", "true", None, None]


class TestTagged:
    def test_words_that_look_like_markup(self, tmp_path: Path) -> None:
        """WikiAnn has a byte order mark as a word, and `#` is a word, not a comment."""
        text = "\ufeff\nen:a:b\tX\n\ufeff\tX\nen:en:\tX\n\n#\tX\r\n\r\n\r\nb\tINTJ"
        found = read_tagged(write(tmp_path / "a.tsv", text), prefix="en:").items
        assert found == [
            TaggedSentence(("a:b", "\ufeff", "en:"), ("X", "X", "X")),
            TaggedSentence(("#",), ("X",)),
            TaggedSentence(("b",), ("INTJ",)),
        ]
        assert [sentence.lines for sentence in found] == [(2, 3, 4), (6,), (9,)]

    @pytest.mark.parametrize("text", ["I\nsee\n\nNo\n", "I\t\nsee\t\n\nNo\t\n"])
    def test_blanked_tags(self, tmp_path: Path, text: str) -> None:
        """As XTREME's script leaves UD POS and PAN-X: words alone."""
        path = write(tmp_path / "a.tsv", f"{text}\nyes\tINTJ\n")
        found = read_tagged(path).items
        assert [sentence.tags for sentence in found] == [None, None, ("INTJ",)]
        assert found[0].words == ("I", "see") and not found[0].is_labeled


def read_columns(path: Path, word: int | None = None, tag: int | None = None) -> list[object]:
    return [(sentence.words, sentence.tags) for sentence in read_conll(path, word, tag)]


class TestConll:
    @pytest.mark.parametrize(
        "text",
        [
            "Ada\tB-PER\nsleeps\tO\n\nin\tO\nRome\tB-LOC\n",
            "Ada NNP B-PER\r\nsleeps VBZ O\r\n\r\nin IN O\r\nRome  NNP  B-LOC\r\n",
            "-DOCSTART- O\n\nAda B-PER\nsleeps O\n\n-DOCSTART- O\n\nin O\nRome B-LOC\n",
            "#\n# a comment\nAda B-PER\nsleeps O\n \n# short\nin O\nRome B-LOC\n",
        ],
    )
    def test_usual_forms_give_the_same_sentences(self, tmp_path: Path, text: str) -> None:
        assert read_columns(write(tmp_path / "a.conll", text)) == EXPECTED

    def test_columns_comments_and_empty_nodes(self, tmp_path: Path) -> None:
        text = "1 Ada B-PER x\n2 sleeps O y\n\n1 in O x\n2 Rome B-LOC y\n"
        path = write(tmp_path / "a.conll", text)
        assert read_columns(path, 2, 3) == read_columns(path, -3, -2) == EXPECTED
        # A word that looks like a comment stays.
        path = write(tmp_path / "a.conll", "# O\n1 O\nin O\n\n#hi O\n# O\n")
        assert [s.words for s in read_conll(path)] == [("#", "1", "in"), ("#hi", "#")]
        text = (
            f"# text = im Haus\n1-2\tim\t_\t_{REST}\n1\tin\tin\tADP{REST}\n2\tdem\tder\tDET{REST}\n"
            f"2.1\tgroßen\tgroß\tADJ{REST}\n3\tHaus\tHaus\tNOUN{REST}\n\n"
        )
        path = write(tmp_path / "a.conllu", text)
        assert read_columns(path) == [(("in", "dem", "Haus"), ("ADP", "DET", "NOUN"))]
        assert read_conll(path)[0].lines == (3, 4, 6)

    def test_untagged_sentences(self, tmp_path: Path) -> None:
        words = [(("Ada", "sleeps"), None), (("in",), None)]
        assert read_columns(write(tmp_path / "a.conll", "Ada\nsleeps\n\nin\n")) == words
        path = write(tmp_path / "a.conll", "Ada\t_\nsleeps\t_\n\nin\tO\n")
        assert read_columns(path) == [(("Ada", "sleeps"), None), (("in",), ("O",))]
        path = write(tmp_path / "a.conll", "Ada x\nis y\n")
        assert read_columns(path, 1, 3) == [(("Ada", "is"), None)]


def convert(*tags: str) -> list[str]:
    sentence = TaggedSentence(("w",) * len(tags), tags, tuple(range(1, len(tags) + 1)))
    return list(convert_to_bio(sentence, Path("f")).tags or ())


def test_conversion_keeps_the_spans_of_seqeval() -> None:
    get_entities = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    draw = random.Random(0)
    choices = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("X", "Y"))]
    for _ in range(500):
        tags = draw.choices(choices, k=draw.randrange(1, 9))
        assert get_entities(convert(*tags)) == get_entities(tags)


def test_schemes_become_bio() -> None:
    for tags, expected in (
        ("B-A L-A U-A U-A O E-B", "B-A I-A B-A B-A O B-B"),
        ("B-A M-A E-A I-A O S-x-y", "B-A I-A I-A B-A O B-x-y"),
    ):
        assert convert(*tags.split()) == expected.split()
    for tag in ("NOUN", "B-", "X-PER", "b-PER"):
        with pytest.raises(MetaXLMError, match=f"^f:2: the tag '{tag}' is neither O nor"):
            convert("O", tag)


RELEASE = """
afr amh ang ara arq arz ast awa aze bel ben ber bos bre bul cat cbk ceb ces cha cmn cor csb cym
dan deu dsb dtp ell epo est eus fao fin fra fry gla gle glg gsw heb hin hrv hsb hun hye ido ile
ina ind isl ita jav jpn kab kat kaz khm kor kur kzj lat lfn lit lvs mal mar max mhr mkd mon nds
nld nno nob nov oci orv pam pes pms pol por ron rus slk slv spa sqi srp swe swg swh tam tat tel
tgl tha tuk tur tzl uig ukr urd uzb vie war wuu xho yid yue zsm
"""


def write_tatoeba(folder: Path, code: str, foreign: str, english: str = "hello\n") -> Path:
    write(folder / f"tatoeba/tatoeba.{code}-eng.eng", english)
    return write(folder / f"tatoeba/tatoeba.{code}-eng.{code}", foreign)


class TestTatoeba:
    def test_all_112_languages_of_the_release(self, tmp_path: Path) -> None:
        codes = RELEASE.split()
        for code in [*codes, "qqq"]:
            write_tatoeba(tmp_path, code, f"{code}\n")
        languages = list_tatoeba(tmp_path)
        assert len(codes) == len(set(languages)) == 112
        assert languages.index("de") < languages.index("nds")
        assert {read_tatoeba(tmp_path, code).foreign for code in languages} == {
            (code,) for code in codes
        }
        assert read_tatoeba(tmp_path, "zh").english == ("hello",)
        assert set(task_languages("tatoeba")) < set(languages)

    @pytest.mark.parametrize(
        ("code", "language"), [("swa", "sw"), ("zho", "zh"), ("msa", "ms"), ("nor", "no")]
    )
    def test_codes_of_macrolanguages(self, tmp_path: Path, code: str, language: str) -> None:
        write_tatoeba(tmp_path, code, "a\n")
        assert list_tatoeba(tmp_path) == [language]
        assert read_tatoeba(tmp_path, language).foreign == ("a",)
        assert find_language(code) == language

    def test_missing_and_broken_files(self, tmp_path: Path) -> None:
        folder = tmp_path / "tatoeba"
        with refuse(f"{folder}: no such folder; unpack the task's data there"):
            read_tatoeba(tmp_path, "de")
        write_tatoeba(tmp_path, "cmn", "你好\n")
        with refuse(f"{folder / 'tatoeba.deu-eng.deu'}: no such file; found here: zh"):
            read_tatoeba(tmp_path, "de")
        path = write_tatoeba(tmp_path, "deu", "eins\nzwei\n", "one\n")
        english = path.with_suffix(".eng")
        with refuse(
            f"{path}:2: has 2 lines, {english.name} has 1; parallel files need equally many"
        ):
            read_tatoeba(tmp_path, "de")
        write_tatoeba(tmp_path, "deu", "eins\nzwei\n", "one\n \n")
        with refuse(f"{english}:2: the line is empty; every line is a sentence"):
            read_tatoeba(tmp_path, "de")
        for language, message in (
            ("xx", "unknown language 'xx'; known: af am ar"),
            ("en", "'en' is the other side of every pair"),
            ("Kantonese", r"unknown language 'Kantonese'; did you mean 'yue'\?$"),
        ):
            with pytest.raises(MetaXLMError, match=f"^tatoeba: {message}"):
                read_tatoeba(tmp_path, language)


def write_alignment(root: Path, links: str, name: str = "de-en") -> Path:
    first, second = name.split("-")
    write(root / "wordalign" / name / f"test.{first}", "das ist gut .\r\nja .\r\n")
    write(root / "wordalign" / name / f"test.{second}", "that 's  good .\nyes .\n")
    return write(root / "wordalign" / name / "alignv2.txt", links)


class TestWordAlignment:
    def test_sure_and_possible_links(self, tmp_path: Path) -> None:
        # Sentence ids may start anywhere and have holes; no letter means sure.
        links = "26 1 1 S\r\n26 2 2 P\r\n26 3 3\r\n29 2 2 S\r\n29 2 2 S\r\n"
        write_alignment(tmp_path, links)
        gold = read_word_alignment(tmp_path, "de")
        assert (gold.source_language, gold.target_language, gold.language) == ("de", "en", "de")
        assert gold.pairs[0].source == ("das", "ist", "gut", ".")
        assert gold.pairs[0].target == ("that", "'s", "good", ".")
        assert gold.pairs[0].sure == {(0, 0), (2, 2)}
        assert gold.pairs[0].possible == {(0, 0), (1, 1), (2, 2)}
        assert gold.pairs[1].sure == gold.pairs[1].possible == {(1, 1)}

    def test_direction_is_kept_and_one_bad_link_of_thousands_left_out(
        self, tmp_path: Path, messages: Messages
    ) -> None:
        write_alignment(tmp_path, "1 4 3 S\n2 1 1 S\n", "en-fr")
        gold = read_word_alignment(tmp_path, "fr")
        assert (gold.source_language, gold.target_language, gold.language) == ("en", "fr", "fr")
        assert gold.pairs[0].sure == {(3, 2)}
        path = write_alignment(tmp_path, "1 2 2 S\n" * 1_000 + "1 2 -99 S\n2 1 1 S\n")
        assert read_word_alignment(tmp_path, "de").pairs[0].sure == {(1, 1)}
        outside = "link 2 -99 of sentence 1 is outside its 4 and 4 words (1 of 1,002 links are)"
        assert messages() == f"{path}:1001: {outside}; left out\n"

    def test_a_wide_space_is_a_word_and_other_folders_no_languages(self, tmp_path: Path) -> None:
        write_alignment(tmp_path, "1 5 4 S\n2 1 1 S\n")
        (tmp_path / "wordalign/de-en/test.de").write_text("das ist \u3000 gut .\nja .\n", "utf-8")
        assert read_word_alignment(tmp_path, "de").pairs[0].source[2] == "\u3000"
        for name in ("awesome-align", "fr-de", "a-b-en"):
            (tmp_path / "wordalign" / name).mkdir()
        assert list_word_alignment(tmp_path) == ["de"]

    @pytest.mark.parametrize(
        ("links", "message"),
        [
            ("1 1 1 S\n1 1\n", "2: found 2 columns, expected `sentence source target [S|P]`"),
            ("1 1 1 S\n1 1 -99 S\n2 1 1 S\n", "2: link 1 -99 of sentence 1 is outside its"),
            ("1 1-1 1\n", "1: '1 1-1 1' are not three whole numbers"),
            ("1 1 1 Q\n", "1: unknown link type 'Q'; known: S (sure), P (possible)"),
            ("1 1 1\n2 1 1\n3 1 1\n", "3: sentence 3 is number 3, but test.de has 2 lines; use the "
             "files of one release"),
            ("1 1 1\n", "1: links for 1 sentences, but test.de has 2 lines; every sentence needs a "
             "link"),
        ],
    )  # fmt: skip
    def test_broken_links(self, tmp_path: Path, links: str, message: str) -> None:
        path = write_alignment(tmp_path, links)
        with pytest.raises(MetaXLMError, match=re.escape(f"{path}:{message}")):
            read_word_alignment(tmp_path, "de")
        with refuse(f"{tmp_path / 'wordalign' / 'hi-en'}: no such file; found here: de-en"):
            read_word_alignment(tmp_path, "hi")

    def test_published(self, published: Published, messages: Messages) -> None:
        folder = published("wordalign")
        counts = {}
        for language in ("de", "fr", "hi", "ro"):
            gold = read_word_alignment(folder, language)
            sure = sum(len(pair.sure) for pair in gold.pairs)
            possible = sum(len(pair.possible) for pair in gold.pairs)
            counts[language] = (len(gold.pairs), sure, possible - sure)
        assert counts == {
            "de": (508, 9_612, 921), "fr": (447, 4_038, 13_400), "hi": (90, 1_408, 0),
            "ro": (199, 5_033, 0),
        }  # fmt: skip
        first, second = messages().splitlines()
        assert "de-en/alignv2.txt:3728: link 22 -99" in first
        assert "en-hi/alignv2.txt:678: link 33 34" in second
