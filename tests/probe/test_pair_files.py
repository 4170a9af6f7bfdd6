from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.probe.alignment_io import PairFiles, SentencePair, split_words
from tests.finetune.readers.files import refuse, write


def read(path: Path, *more: Path) -> list[SentencePair]:
    return list(PairFiles(*map(str, (path, *more))))


class TestOneFile:
    def test_bars(self, tmp_path: Path) -> None:
        text = "\ufeffdas  Haus |||the house\r\nein a|||b ||| a c|||d\n"
        path = write(tmp_path / "pairs.txt", text.replace("|||the", "||| the"))
        assert read(path) == [
            SentencePair("das  Haus", "the house", ("das", "Haus"), ("the", "house")),
            SentencePair("ein a|||b", "a c|||d", ("ein", "a|||b"), ("a", "c|||d")),
        ]

    def test_tabs(self, tmp_path: Path) -> None:
        path = write(tmp_path / "pairs.tsv", "das Haus\tthe house\nja ||| nein\tyes ||| no")
        assert [pair.target for pair in read(path)] == [("the", "house"), ("yes", "|||", "no")]

    def test_the_name_tells_where_the_first_line_has_both(self, tmp_path: Path) -> None:
        line = "ja ||| nein\tyes\n"
        assert read(write(tmp_path / "pairs.tsv", line))[0].target == ("yes",)
        assert read(write(tmp_path / "pairs.txt", line))[0].target == ("nein", "yes")

    @pytest.mark.parametrize(
        "line", ["a house", "a|||b", "||| b", "a |||", "", " ", "a ||| b ||| c"]
    )
    def test_broken_line(self, tmp_path: Path, line: str) -> None:
        path = write(tmp_path / "pairs.txt", f"a ||| b\n{line}\na ||| b\n")
        complaints = {
            "||| b": "the source side is empty; drop such pairs",
            "a |||": "the target side is empty; drop such pairs",
            "a ||| b ||| c": "3 columns with ||| between; a pair has two",
        }
        none = (
            "no ||| between two sentences; write `source ||| target` on every line, or put a tab "
            "there on every line"
        )
        empty = "the line is empty; every line is a pair"
        complaint = complaints.get(line, none if line.strip() else empty)
        with refuse("{}:2: {}", path, complaint):
            read(path)

    def test_broken_table(self, tmp_path: Path) -> None:
        path = write(tmp_path / "pairs.tsv", "a\tb\n1\ta\tb\n")
        with refuse("{}:2: 3 columns with tab between; a pair has two", path):
            read(path)
        path = write(tmp_path / "pairs.tsv", "a\tb\na ||| b\n")
        with pytest.raises(MetaXLMError, match=r"pairs\.tsv:2: no tab between two sentences"):
            read(path)

    def test_no_pair_at_all(self, tmp_path: Path) -> None:
        path = write(tmp_path / "pairs.txt", "")
        with refuse("{}:1: no sentence pair; one stands on each line", path):
            read(path)

    def test_other_encodings(self, tmp_path: Path) -> None:
        path = write(tmp_path / "pairs.txt", b"a ||| b\n" + "ü ||| u\n".encode("latin-1"))
        with refuse("{}:2: not UTF-8 (byte 0xFC); convert it with iconv", path):
            read(path)


class TestTwoFiles:
    def test_parallel(self, tmp_path: Path) -> None:
        source = write(tmp_path / "a", "das Haus ||| hier\nja\tja\n")
        target = write(tmp_path / "b", "the house\r\nyes\r\n")
        pairs = read(source, target)
        assert [pair.source for pair in pairs] == [("das", "Haus", "|||", "hier"), ("ja", "ja")]
        assert [pair.target_text for pair in pairs] == ["the house", "yes"]

    @pytest.mark.parametrize("is_source_longer", [True, False])
    def test_different_lengths(self, tmp_path: Path, is_source_longer: bool) -> None:
        long = write(tmp_path / "long", "one\n" * 5)
        short = write(tmp_path / "short", "eins\n" * 2)
        with refuse("{}:2: has 2 lines, {} has 5; parallel files need equally many", short, long):
            read(*((long, short) if is_source_longer else (short, long)))

    def test_empty_line_of_either_side(self, tmp_path: Path) -> None:
        whole = write(tmp_path / "a", "ja\nnein\n")
        holed = write(tmp_path / "b", "yes\n \n")
        for order in ((whole, holed), (holed, whole)):
            with refuse("{}:2: the line is empty; every line is a sentence", holed):
                read(*order)

    def test_missing_file(self, tmp_path: Path) -> None:
        whole = write(tmp_path / "a", "ja\n")
        with refuse("{}: no such file", tmp_path / "b"):
            read(whole, tmp_path / "b")


class TestStreaming:
    def test_chunks_are_read_as_they_are_needed(self, tmp_path: Path) -> None:
        path = write(tmp_path / "pairs.txt", "a ||| b\n" * 7 + "broken\n")
        chunks = PairFiles(str(path)).chunks(3)
        assert [len(next(chunks)), len(next(chunks))] == [3, 3]
        with pytest.raises(MetaXLMError, match=r"pairs\.txt:8"):
            next(chunks)

    def test_count_checks_every_line(self, tmp_path: Path) -> None:
        path = write(tmp_path / "pairs.txt", "a ||| b\n" * 7)
        assert PairFiles(str(path)).count() == 7
        write(path, "a ||| b\n" * 7 + "broken\n")
        with pytest.raises(MetaXLMError, match=r"pairs\.txt:8"):
            PairFiles(str(path)).count()

    def test_standard_input_is_not_used_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ja ||| yes\nnein\n")))
        files = PairFiles("-")
        assert files.count() is None
        pairs = iter(files)
        assert next(pairs).target == ("yes",)
        with pytest.raises(MetaXLMError, match=r"^standard input:2: no \|\|\|"):
            next(pairs)
        with pytest.raises(MetaXLMError, match="only one of them can be standard input"):
            PairFiles("-", "-")
        assert PairFiles("-", str(tmp_path / "b")).name == f"standard input and {tmp_path / 'b'}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("我喜欢GPU，真的。", "我 喜 欢 GPU ， 真 的 。"),
        ("我 喜欢 3D 电影!", "我 喜 欢 3D 电 影 !"),
        ("カフェで会う", "カ フ ェ で 会 う"),
        ("นี่คือบ้าน", "นี่ คื อ บ้ า น"),
        ("the naïve café — non", "the naïve café — non"),
        ("나는 집에 간다", "나는 집에 간다"),
        ("सरकार का प्रस्ताव", "सरकार का प्रस्ताव"),
    ],
)
def test_split_at_characters(text: str, words: str) -> None:
    assert split_words(text, "characters") == tuple(words.split())
    assert split_words(text, "spaces") == tuple(text.split())
    assert "".join(split_words(text, "characters")) == "".join(text.split())
