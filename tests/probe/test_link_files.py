from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metaxlm.finetune.readers import read_word_alignment
from metaxlm.probe.alignment_io import LinkFormat, format_links, parse_links, read_gold, read_links
from metaxlm.probe.alignment_io import SentencePair
from metaxlm.randomness import generator
from tests.finetune.readers.files import Published, refuse, write

PAIRS = [
    SentencePair(
        "das ist gut .", "that 's good", ("das", "ist", "gut", "."), ("that", "'s", "good")
    ),
    SentencePair("ja .", "yes", ("ja", "."), ("yes",)),
]


class TestLines:
    def test_pharaoh_counts_from_0(self) -> None:
        assert format_links({(10, 2), (0, 0), (2, 1)}) == "0-0 2-1 10-2"
        assert format_links({(0, 0)}, possible={(0, 0), (1, 3)}) == "0-0 1p3"
        found = parse_links("2-1  0-0\t1?3 4p5 6P7 8s9 0-0", "pharaoh", "")
        assert found.sure == {(0, 0), (2, 1), (8, 9)}
        assert found.possible == found.sure | {(1, 3), (4, 5), (6, 7)}

    def test_talp_counts_from_1(self) -> None:
        assert format_links({(10, 2), (0, 0)}, "talp", {(4, 4)}) == "1-1 5p5 11-3"
        found = parse_links("1-1 2p3 2S3", "talp", "")
        assert found.sure == {(0, 0), (1, 2)}
        assert found.possible == {(0, 0), (1, 2)}

    def test_no_links(self) -> None:
        assert format_links(()) == ""
        assert parse_links(" ", "talp", "").possible == frozenset()

    @pytest.mark.parametrize("layout", ["pharaoh", "talp"])
    def test_what_is_written_is_read_back(self, layout: LinkFormat) -> None:
        source = generator(3, "links")
        for _ in range(100):
            numbers = source.integers(0, 40, size=(source.integers(0, 30), 2)).tolist()
            links = {(i, j) for i, j in numbers}
            sure = frozenset(link for link in links if sum(link) % 3)
            found = parse_links(format_links(sure, layout, links), layout, "")
            assert (found.sure, found.possible) == (sure, links)

    @pytest.mark.parametrize(
        "field", ["1", "1-", "-1", "1-2-3", "a-b", "1x2", "1:2", "1-1:0.5", "-99-1", "١-٢"]
    )
    def test_no_link(self, field: str) -> None:
        with refuse(
            "gold:3: {!r} is no link; expected as `1-1`, or `1p1` for a possible one", field
        ):
            parse_links(f"1-1 {field}", "talp", "gold:3")

    def test_talp_has_no_word_0(self) -> None:
        with refuse(
            "gold:3: '0-1', but Talp counts words from 1; a file that counts from 0 is of the "
            "format pharaoh"
        ):
            parse_links("1-1 0-1", "talp", "gold:3")


class TestGold:
    def test_lines(self, tmp_path: Path) -> None:
        path = write(tmp_path / "gold.txt", "1-1 2-2 3p3\n\n")
        first, second = read_gold(str(path), "talp", PAIRS, "pairs.txt")
        assert (first.source, first.target) == (PAIRS[0].source, PAIRS[0].target)
        assert first.sure == {(0, 0), (1, 1)}
        assert first.possible == {(0, 0), (1, 1), (2, 2)}
        assert second.possible == frozenset()

    def test_the_papers_format(self, tmp_path: Path) -> None:
        path = write(tmp_path / "gold.txt", "7 1 1 S\n7 3 3 P\n9 1 1\n")
        first, second = read_gold(str(path), "naacl", PAIRS, "pairs.txt")
        assert (first.sure, first.possible) == ({(0, 0)}, {(0, 0), (2, 2)})
        assert second.sure == {(0, 0)}
        write(path, "7 1 1 S\n")
        with refuse(
            "{}:1: links for 1 sentences, but pairs.txt has 2 lines; every sentence needs a link",
            path,
        ):
            read_gold(str(path), "naacl", PAIRS, "pairs.txt")

    @pytest.mark.parametrize(
        ("layout", "link"),
        [("pharaoh", "4-0"), ("pharaoh", "0-3"), ("talp", "5-1"), ("talp", "1-4")],
    )
    def test_out_of_range(self, tmp_path: Path, layout: LinkFormat, link: str) -> None:
        path = write(tmp_path / "gold.txt", f"1-1 3p2 {link}\n1-1\n")
        with refuse(
            "{}:1: link {} lies outside the 4 and 3 words of its pair; {} counts from {}, source "
            "words first",
            path,
            link,
            layout.capitalize(),
            int(layout == "talp"),
        ):
            read_gold(str(path), layout, PAIRS, "pairs.txt")
        write(path, "4-3\n1-1\n")
        assert read_gold(str(path), "talp", PAIRS, "pairs.txt")[0].sure == {(3, 2)}

    @pytest.mark.parametrize("num_lines", [1, 3, 5])
    def test_other_number_of_lines(self, tmp_path: Path, num_lines: int) -> None:
        path = write(tmp_path / "gold.txt", "0-0\n" * num_lines)
        with refuse(
            "{}:{}: has {} lines of links, pairs.txt has 2 pairs; a pair without links has an "
            "empty line",
            path,
            num_lines,
            num_lines,
        ):
            read_gold(str(path), "pharaoh", PAIRS, "pairs.txt")

    def test_no_sure_link(self, tmp_path: Path) -> None:
        path = write(tmp_path / "gold.txt", "0p0\n\n")
        with refuse("{}: no sure link in it, and no score without one", path):
            read_gold(str(path), "pharaoh", PAIRS, "pairs.txt")


def test_published_gold_survives_both_formats(
    published: Published, tmp_path: Path, messages: Callable[[], str]
) -> None:
    pairs = read_word_alignment(published("wordalign"), "fr").pairs
    assert not messages()
    layouts: tuple[LinkFormat, ...] = ("pharaoh", "talp")
    for layout in layouts:
        lines = [format_links(pair.sure, layout, pair.possible) for pair in pairs]
        path = write(tmp_path / layout, "\n".join(lines) + "\n")
        back = list(read_links(str(path), layout))
        assert [line.sure for line in back] == [pair.sure for pair in pairs]
        assert [line.possible for line in back] == [pair.possible for pair in pairs]
