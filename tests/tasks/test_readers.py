from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.languages import LANGUAGES
from metaxlm.tasks.readers import (
    find_split,
    list_split,
    read_labeled_pairs,
    read_lines,
    read_tagged_sentences,
    read_tatoeba,
    read_word_alignment,
)
from metaxlm.tasks.udpos import TAGS
from metaxlm.tasks.xnli import LABELS, SYNONYMS

Published = Callable[[str], Path]
BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG")


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refuse(message: str, *parts: object) -> pytest.RaisesExc[MetaXLMError]:
    return pytest.raises(MetaXLMError, match="^" + re.escape(message.format(*parts)) + "$")


class TestLines:
    def test_both_line_ends_and_no_other(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a", "\ufeffone\r\ntwo\u2028still \x85two\n\nlast".encode())
        assert read_lines(path) == ["one", "two\u2028still \x85two", "", "last"]

    def test_missing(self, tmp_path: Path) -> None:
        with refuse("{}: no such file", tmp_path / "a"):
            read_lines(tmp_path / "a")

    def test_folder(self, tmp_path: Path) -> None:
        with refuse("{}: cannot be read (Is a directory)", tmp_path):
            read_lines(tmp_path)

    def test_empty(self, tmp_path: Path) -> None:
        with refuse("{}:1: the file is empty; restore it", tmp_path / "a"):
            read_lines(write(tmp_path / "a", ""))

    def test_other_encoding(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a", "eins\nfünf\n".encode("latin-1"))
        with refuse("{}:2: not UTF-8 (byte 0xFC); convert it with iconv", path):
            read_lines(path)


class TestTatoeba:
    def test_reads_iso_names(self, tmp_path: Path) -> None:
        write(tmp_path / "tatoeba/tatoeba.cmn-eng.cmn", "你好\n再见\n")
        write(tmp_path / "tatoeba/tatoeba.cmn-eng.eng", "hello\ngoodbye\n")
        sentences = read_tatoeba(tmp_path, "zh")
        assert sentences.language == "zh"
        assert sentences.foreign == ("你好", "再见")
        assert sentences.english == ("hello", "goodbye")

    def test_unknown_language(self, tmp_path: Path) -> None:
        with pytest.raises(MetaXLMError, match=r"^tatoeba: unknown language 'xx'; known: af am ar"):
            read_tatoeba(tmp_path, "xx")
        with pytest.raises(MetaXLMError, match="unknown language 'en'"):
            read_tatoeba(tmp_path, "en")

    def test_missing_language_names_what_is_there(self, tmp_path: Path) -> None:
        path = tmp_path / "tatoeba" / "tatoeba.deu-eng.deu"
        with refuse("{}: no such folder; unpack the task's data there", path.parent):
            read_tatoeba(tmp_path, "de")
        write(tmp_path / "tatoeba/tatoeba.cmn-eng.cmn", "你好\n")
        write(tmp_path / "tatoeba/tatoeba.afr-eng.eng", "hello\n")
        with refuse("{}: no such file; found here: af zh", path):
            read_tatoeba(tmp_path, "de")

    def test_missing_side(self, tmp_path: Path) -> None:
        write(tmp_path / "tatoeba/tatoeba.deu-eng.deu", "hallo\n")
        with refuse("{}: no such file", tmp_path / "tatoeba" / "tatoeba.deu-eng.eng"):
            read_tatoeba(tmp_path, "de")

    def test_sides_of_different_length(self, tmp_path: Path) -> None:
        path = write(tmp_path / "tatoeba/tatoeba.deu-eng.deu", "eins\nzwei\n")
        write(tmp_path / "tatoeba/tatoeba.deu-eng.eng", "one\n")
        with refuse(
            "{}:2: has 2 lines, tatoeba.deu-eng.eng has 1; parallel files need equally many", path
        ):
            read_tatoeba(tmp_path, "de")

    def test_empty_line(self, tmp_path: Path) -> None:
        write(tmp_path / "tatoeba/tatoeba.deu-eng.deu", "eins\nzwei\n")
        path = write(tmp_path / "tatoeba/tatoeba.deu-eng.eng", "one\n \n")
        with refuse("{}:2: the line is empty; every line is a sentence", path):
            read_tatoeba(tmp_path, "de")

    def test_published(self, published: Published) -> None:
        folder = published("tatoeba")
        codes = {path.name.split(".")[1][:3] for path in (folder / "tatoeba").iterdir()}
        languages = [code for code, entry in LANGUAGES.items() if entry.iso3 in codes]
        sizes = {code: len(read_tatoeba(folder, code).foreign) for code in languages}
        assert len(sizes) == 36
        small = {"jv": 205, "te": 234, "ta": 307, "sw": 390, "th": 548, "kk": 575, "ml": 687}
        assert {k: n for k, n in sizes.items() if n < 1_000} == {**small, "ka": 746}
        german = read_tatoeba(folder, "de")
        assert len(german.english) == 1_000


class TestWordAlignment:
    def write_set(self, root: Path, links: str, name: str = "de-en") -> Path:
        first, second = name.split("-")
        write(root / "wordalign" / name / f"test.{first}", "das ist gut .\r\nja .\r\n")
        write(root / "wordalign" / name / f"test.{second}", "that 's  good .\nyes .\n")
        return write(root / "wordalign" / name / "alignv2.txt", links)

    def test_reads_sure_and_possible(self, tmp_path: Path) -> None:
        # Sentence ids may start anywhere and have holes; no letter means sure.
        self.write_set(tmp_path, "26 1 1 S\r\n26 2 2 P\r\n26 3 3\r\n29 2 2 S\r\n29 2 2 S\r\n")
        gold = read_word_alignment(tmp_path, "de")
        assert (gold.source_language, gold.target_language, gold.language) == ("de", "en", "de")
        assert gold.pairs[0].source == ("das", "ist", "gut", ".")
        assert gold.pairs[0].target == ("that", "'s", "good", ".")
        assert gold.pairs[0].sure == {(0, 0), (2, 2)}
        assert gold.pairs[0].possible == {(0, 0), (1, 1), (2, 2)}
        assert gold.pairs[1].sure == gold.pairs[1].possible == {(1, 1)}

    def test_keeps_the_direction(self, tmp_path: Path) -> None:
        self.write_set(tmp_path, "1 4 3 S\n2 1 1 S\n", "en-fr")
        gold = read_word_alignment(tmp_path, "fr")
        assert (gold.source_language, gold.target_language, gold.language) == ("en", "fr", "fr")
        assert gold.pairs[0].sure == {(3, 2)}

    @pytest.mark.parametrize("link", ["0 1", "5 1", "1 0", "1 5", "1 -99"])
    def test_link_out_of_range(self, tmp_path: Path, link: str) -> None:
        path = self.write_set(tmp_path, f"1 1 1 S\n1 {link} S\n2 1 1 S\n")
        with refuse(
            "{}:2: link {} of sentence 1 lies outside its 4 and 4 words (1 of 3 links do); words "
            "count from 1, and the language named first in the folder comes first",
            path,
            link,
        ):
            read_word_alignment(tmp_path, "de")

    def test_a_single_bad_link_of_thousands_is_left_out_and_said(
        self, tmp_path: Path, messages: Callable[[], str]
    ) -> None:
        path = self.write_set(tmp_path, "1 2 2 S\n" * 1_000 + "1 2 -99 S\n2 1 1 S\n")
        gold = read_word_alignment(tmp_path, "de")
        assert gold.pairs[0].sure == {(1, 1)}
        assert messages() == (
            f"{path}:1001: link 2 -99 of sentence 1 lies outside its 4 and 4 words; left out\n"
        )

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("1 1", "found 2 columns, expected `sentence source target [S|P]`"),
            ("1 1 1 S 1", "found 5 columns, expected `sentence source target [S|P]`"),
            ("1 1-1 1", "'1 1-1 1' are not three whole numbers"),
            ("1 1 1 Q", "unknown link type 'Q'; known: S (sure), P (possible)"),
            ("", "found 0 columns, expected `sentence source target [S|P]`"),
        ],
    )
    def test_broken_line(self, tmp_path: Path, line: str, complaint: str) -> None:
        path = self.write_set(tmp_path, f"1 1 1 S\n{line}\n2 1 1 S\n")
        with refuse("{}:2: {}", path, complaint):
            read_word_alignment(tmp_path, "de")

    def test_too_many_and_too_few_sentences(self, tmp_path: Path) -> None:
        path = self.write_set(tmp_path, "1 1 1 S\n2 1 1 S\n3 1 1 S\n")
        with refuse(
            "{}:3: sentence 3 is number 3, but test.de has 2 lines; use the files of one release",
            path,
        ):
            read_word_alignment(tmp_path, "de")
        self.write_set(tmp_path, "1 1 1 S\n")
        with refuse(
            "{}:1: links for 1 sentences, but test.de has 2 lines; every sentence needs a link",
            path,
        ):
            read_word_alignment(tmp_path, "de")

    def test_missing_pair(self, tmp_path: Path) -> None:
        self.write_set(tmp_path, "1 1 1 S\n2 1 1 S\n")
        with refuse("{}: no such file; found here: de-en", tmp_path / "wordalign" / "hi-en"):
            read_word_alignment(tmp_path, "hi")

    def test_published(self, published: Published, messages: Callable[[], str]) -> None:
        folder = published("wordalign")
        counts = {}
        for language in ("de", "fr", "hi", "ro"):
            gold = read_word_alignment(folder, language)
            sure = sum(len(pair.sure) for pair in gold.pairs)
            possible = sum(len(pair.possible) for pair in gold.pairs)
            counts[language] = (len(gold.pairs), sure, possible - sure)
        assert counts == {
            "de": (508, 9_612, 921),
            "fr": (447, 4_038, 13_400),
            "hi": (90, 1_408, 0),
            "ro": (199, 5_033, 0),
        }
        said = messages().splitlines()
        assert len(said) == 2
        assert "de-en/alignv2.txt:3728: link 22 -99" in said[0]
        assert "en-hi/alignv2.txt:678: link 33 34" in said[1]


class TestLabeledPairs:
    def test_plain(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", 'a "b\tc\tneutral\nd\te\tcontradictory\n')
        pairs = read_labeled_pairs(path, LABELS, SYNONYMS)
        assert [(p.first, p.second, p.label) for p in pairs] == [
            ('a "b', "c", "neutral"),
            ("d", "e", "contradiction"),
        ]

    def test_header_names_columns(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "label\tpremise\thypothesis\tsource\nneutral\ta\tb\tx\n")
        (pair,) = read_labeled_pairs(path, LABELS)
        assert (pair.first, pair.second, pair.label) == ("a", "b", "neutral")

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("a\tb", "found 2 columns, expected 3 between tabs"),
            ("a\tb\tneutral\tc", "found 4 columns, expected 3 between tabs"),
            ("", "found 1 columns, expected 3 between tabs"),
            ("a\t \tneutral", "a text is empty; fill it or delete the line"),
            ("a\tb\tmaybe", "unknown label 'maybe'; known: entailment, neutral, contradiction"),
            (
                "a\tb\t",
                "the label is blank, as in unlabeled releases; known: entailment, neutral, "
                "contradiction",
            ),
        ],
    )
    def test_broken_line(self, tmp_path: Path, line: str, complaint: str) -> None:
        path = write(tmp_path / "a.tsv", f"a\tb\tneutral\n{line}\nc\td\tneutral\n")
        with refuse("{}:2: {}", path, complaint):
            read_labeled_pairs(path, LABELS)

    def test_only_a_header(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "premise\thypothesis\tlabel\n")
        with refuse("{}:1: a header and nothing else; restore the file", path):
            read_labeled_pairs(path, LABELS)

    def test_published(self, published: Published) -> None:
        folder = published("xnli")
        assert len(list_split(folder, "xnli", "test")) == 15
        for language in ("el", "zh"):  # Greek has U+2028-like characters inside sentences
            for split, size in (("dev", 2_490), ("test", 5_010)):
                pairs = read_labeled_pairs(find_split(folder, "xnli", split, language), LABELS)
                assert len(pairs) == size
                assert sum(pair.label == "neutral" for pair in pairs) == size // 3


class TestTaggedSentences:
    def test_plain(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "\nfine\tADJ\r\n.\tPUNCT\r\n\r\n\r\nyes\tINTJ")
        sentences = read_tagged_sentences(path, TAGS)
        assert [s.words for s in sentences] == [("fine", "."), ("yes",)]
        assert [s.tags for s in sentences] == [("ADJ", "PUNCT"), ("INTJ",)]

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("word", "found 1 columns, expected a word, a tab and a tag"),
            ("word\tX\tX", "found 3 columns, expected a word, a tab and a tag"),
            ("\tX", "the word is empty; restore it"),
            ("word\tNP", f"unknown label 'NP'; known: {', '.join(TAGS)}"),
            ("word\t", f"the label is blank, as in unlabeled releases; known: {', '.join(TAGS)}"),
        ],
    )
    def test_broken_line(self, tmp_path: Path, line: str, complaint: str) -> None:
        path = write(tmp_path / "a.tsv", f"fine\tADJ\n{line}\n")
        with refuse("{}:2: {}", path, complaint):
            read_tagged_sentences(path, TAGS)

    def test_only_blank_lines(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.tsv", "\n\n")
        with refuse("{}:1: the file has blank lines and nothing else; restore it", path):
            read_tagged_sentences(path, TAGS)

    def test_published_pos(self, published: Published) -> None:
        folder = published("udpos")
        sizes = {
            name: len(read_tagged_sentences(folder / "udpos" / f"{name}.tsv", TAGS))
            for name in ("test-de", "test-yo", "dev-zh")
        }
        assert sizes == {"test-de": 3_899, "test-yo": 100, "dev-zh": 1_000}
        assert len(list_split(folder, "udpos", "test")) == 33

    def test_published_names(self, published: Published) -> None:
        folder = published("panx")
        sentences = read_tagged_sentences(folder / "panx" / "dev-yo.tsv", BIO)
        assert len(sentences) == 100
        assert sum(len(sentence.words) for sentence in sentences) == 489


def test_missing_split_names_what_is_there(tmp_path: Path) -> None:
    with refuse("{}: no such folder; unpack the task's data there", tmp_path / "xnli"):
        find_split(tmp_path, "xnli", "dev", "de")
    write(tmp_path / "xnli/dev-fr.tsv", "x")
    write(tmp_path / "xnli/test-de.tsv", "x")
    with refuse("{}: no such file; found here: fr", tmp_path / "xnli" / "dev-de.tsv"):
        find_split(tmp_path, "xnli", "dev", "de")
    with refuse("{}: no such file; found here: nothing", tmp_path / "xnli" / "train-de.tsv"):
        find_split(tmp_path, "xnli", "train", "de")
