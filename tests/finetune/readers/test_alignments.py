from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metaxlm.finetune.readers.alignments import read_word_alignment
from tests.finetune.readers.files import Published, refuse, write


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
            "count from 1, and the source's number comes first (in a folder de-en, German is the "
            "source)",
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
