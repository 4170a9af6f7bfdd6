from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe import alignment_io
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import align_words
from metaxlm.probe.alignment_io import (
    GoldFormat,
    LinkFormat,
    PairFiles,
    SentencePair,
    align_file,
    align_stream,
    format_links,
    parse_links,
    read_gold,
    read_links,
    split_words,
)
from metaxlm.probe.pool import LayerChoice
from metaxlm.randomness import generator
from tests.finetune.conftest import CPU, TEXT, refuse, write
from tests.probe.conftest import MakeModel

LINES = [f"{a} ||| {b}" for a in TEXT[:3] for b in TEXT[3:6]]
LAYER = LayerChoice((1,))
PAIRS = [
    SentencePair(
        "das ist gut .", "that 's good", ("das", "ist", "gut", "."), ("that", "'s", "good")
    ),
    SentencePair("ja .", "yes", ("ja", "."), ("yes",)),
]


def read(path: Path, *more: Path) -> list[SentencePair]:
    return list(PairFiles(*map(str, (path, *more))))


def test_pairs_with_bars_or_tabs(tmp_path: Path) -> None:
    text = "\ufeffdas  Haus ||| the house\r\nein a|||b ||| a c|||d\n"
    assert read(write(tmp_path / "pairs.txt", text)) == [
        SentencePair("das  Haus", "the house", ("das", "Haus"), ("the", "house")),
        SentencePair("ein a|||b", "a c|||d", ("ein", "a|||b"), ("a", "c|||d")),
    ]
    path = write(tmp_path / "pairs.tsv", "das Haus\tthe house\nja ||| nein\tyes ||| no")
    assert [pair.target for pair in read(path)] == [("the", "house"), ("yes", "|||", "no")]
    # If the first line has both, the name decides.
    line = "ja ||| nein\tyes\n"
    assert read(write(tmp_path / "pairs.tsv", line))[0].target == ("yes",)
    assert read(write(tmp_path / "pairs.txt", line))[0].target == ("nein", "yes")


NO_BARS = (
    "no ||| between two sentences; write `source ||| target` on every line, or put a tab there on "
    "every line"
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a house", NO_BARS),
        ("a |||", "the target side is empty; drop such pairs"),
        (" ", "the line is empty; every line is a pair"),
        ("a ||| b ||| c", "3 columns with ||| between; a pair has two"),
        ("ü ||| u".encode("latin-1"), "not UTF-8 (byte 0xFC); convert it with iconv"),
    ],
)
def test_broken_lines_of_pairs(tmp_path: Path, line: str | bytes, message: str) -> None:
    line = line.encode() if isinstance(line, str) else line
    path = write(tmp_path / "pairs.txt", b"a ||| b\n" + line + b"\na ||| b\n")
    with refuse("{}:2: {}", path, message):
        read(path)
    with refuse("{}:2: {}", path, message):
        PairFiles(str(path)).count()
    path = write(tmp_path / "pairs.tsv", "a\tb\na ||| b\n")
    with pytest.raises(MetaXLMError, match=r"pairs\.tsv:2: no tab between two sentences"):
        read(path)
    with refuse("{}:1: no sentence pair; write one on each line", write(path, "")):
        read(path)


def test_parallel_files(tmp_path: Path) -> None:
    source = write(tmp_path / "a", "das Haus ||| hier\nja\tja\n")
    target = write(tmp_path / "b", "the house\r\nyes\r\n")
    pairs = read(source, target)
    assert [pair.source for pair in pairs] == [("das", "Haus", "|||", "hier"), ("ja", "ja")]
    assert [pair.target_text for pair in pairs] == ["the house", "yes"]
    assert PairFiles(str(source), str(target)).count() == 2
    with refuse("{}: no such file", tmp_path / "c"):
        read(source, tmp_path / "c")


@pytest.mark.parametrize("is_first", [True, False])
def test_broken_parallel_files(tmp_path: Path, is_first: bool) -> None:
    def read_both(path: Path, other: Path) -> list[SentencePair]:
        return read(*((path, other) if is_first else (other, path)))

    long, short = write(tmp_path / "long", "one\n" * 5), write(tmp_path / "short", "eins\n" * 2)
    with refuse("{}:2: has 2 lines, {} has 5; parallel files need equally many", short, long):
        read_both(long, short)
    holed = write(tmp_path / "holed", "yes\n \n")
    with refuse("{}:2: the line is empty; every line is a sentence", holed):
        read_both(short, holed)


def test_standard_input_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        ("カフェで会う", "カ フ ェ で 会 う"),
        ("นี่คือบ้าน", "นี่ คื อ บ้ า น"),
        ("나는 집에 간다", "나는 집에 간다"),
        ("\u0301a", "\u0301a"),
    ],
)
def test_split_at_characters(text: str, words: str) -> None:
    assert split_words(text, "characters") == tuple(words.split())
    assert split_words(text, "spaces") == tuple(text.split())


@pytest.mark.parametrize("layout", ["pharaoh", "talp"])
def test_written_links_are_read_back(layout: LinkFormat) -> None:
    source = generator(3, "links")
    for _ in range(100):
        numbers = source.integers(0, 40, size=(source.integers(0, 30), 2)).tolist()
        links = {(i, j) for i, j in numbers}
        sure = frozenset(link for link in links if sum(link) % 3)
        assert parse_links(format_links(sure, layout, links), layout, "") == (sure, links)


def test_pharaoh_counts_from_0_and_talp_from_1() -> None:
    assert format_links({(10, 2), (0, 0)}, "pharaoh", {(4, 4)}) == "0-0 4p4 10-2"
    assert format_links({(10, 2), (0, 0)}, "talp", {(4, 4)}) == "1-1 5p5 11-3"
    found = parse_links("2-1  0-0\t1?3 4p5 6P7 8s9 0-0", "pharaoh", "")
    assert found.sure == {(0, 0), (2, 1), (8, 9)}
    assert found.possible == found.sure | {(1, 3), (4, 5), (6, 7)}
    assert parse_links("1-1 2p3 2S3", "talp", "") == ({(0, 0), (1, 2)}, {(0, 0), (1, 2)})


@pytest.mark.parametrize("field", ["1", "-1", "1-2-3", "a-b", "1x2", "1-1:0.5", "-99-1", "١-٢"])
def test_broken_links(field: str) -> None:
    message = "gold:3: {!r} is not a link; expected as `1-1`, or `1p1` for a possible one"
    with refuse(message, field):
        parse_links(f"1-1 {field}", "talp", "gold:3")


def test_gold_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "gold.txt", "1-1 4-3 3p3\n\n")
    first, second = read_gold(str(path), "talp", PAIRS, "pairs.txt")
    assert (first.source, first.target) == (PAIRS[0].source, PAIRS[0].target)
    assert (first.sure, first.possible) == ({(0, 0), (3, 2)}, {(0, 0), (3, 2), (2, 2)})
    assert second.possible == frozenset()
    write(path, "7 1 1 S\n7 3 3 P\n9 1 1\n")
    first, second = read_gold(str(path), "naacl", PAIRS, "pairs.txt")
    assert (first.sure, first.possible) == ({(0, 0)}, {(0, 0), (2, 2)})
    assert second.sure == {(0, 0)}


OUTSIDE = (
    "1: link {} is outside the 4 and 3 words of its pair ({} of 4 links are); {} counts from {}, "
    "source words first"
)


@pytest.mark.parametrize(
    ("layout", "text", "message"),
    [
        ("pharaoh", "1-1 3p2 4-0\n1-1\n", OUTSIDE.format("4-0", 2, "Pharaoh", 0)),
        ("talp", "1-1 3p2 1-4\n1-1\n", OUTSIDE.format("1-4", 1, "Talp", 1)),
        ("pharaoh", "0-0\n" * 3, "3: has 3 lines of links, pairs.txt has 2 pairs; a pair without "
         "links has an empty line"),
        ("naacl", "7 1 1 S\n", "1: links for 1 sentences, but pairs.txt has 2 lines; every "
         "sentence needs a link"),
        ("talp", "0-1\n", "1: '0-1', but Talp counts words from 1; a file that counts from 0 is of "
         "the format pharaoh"),
    ],
)  # fmt: skip
def test_broken_gold(tmp_path: Path, layout: GoldFormat, text: str, message: str) -> None:
    path = write(tmp_path / "gold.txt", text)
    with refuse("{}:{}", path, message):
        read_gold(str(path), layout, PAIRS, "pairs.txt")
    with refuse("{}: no sure link in it, and no score without one", write(path, "0p0\n\n")):
        read_gold(str(path), "pharaoh", PAIRS, "pairs.txt")


@pytest.mark.parametrize("layout", ["pharaoh", "talp"])
def test_few_links_out_of_range_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: GoldFormat
) -> None:
    words = tuple("abcdefghij")
    pairs = [SentencePair("", "", words, words)] * 41
    whole = [(i, j) for i in range(10) for j in range(10)]
    lines = [format_links(whole, layout)] * 40
    path = write(tmp_path / "gold.txt", "\n".join([*lines, "10-11 2-9 9-12 9-9"]))
    gold = read_gold(str(path), layout, pairs, "pairs.txt")
    assert gold[-1].possible == ({(2, 9), (9, 9)} if layout == "pharaoh" else {(1, 8), (8, 8)})
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "gold.txt:41: link 9-12 is outside the 10 and 10 words of its pair" in printed
    assert printed.endswith("(2 of 4,004 links are); left out\n")


def test_only_spaces_and_tabs_separate_words(tmp_path: Path) -> None:
    text = "\u3000 本  を\u00a0読む \u3000 。 ||| I read\u00a0it .\n"
    (pair,) = PairFiles(str(write(tmp_path / "pairs.txt", text)))
    assert pair.source == ("\u3000", "本", "を\u00a0読む", "\u3000", "。")
    assert pair.target == ("I", "read\u00a0it", ".")


@pytest.fixture
def model(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> AnyEncoder:
    monkeypatch.setattr(alignment_io, "CHUNK", 2)
    return make_model()


def test_chunks_do_not_change_the_links(model: AnyEncoder, tmp_path: Path) -> None:
    files = PairFiles(str(write(tmp_path / "pairs.txt", "\n".join(LINES))))
    settings = AlignSettings(method="itermax")
    target = str(tmp_path / "links.txt")
    count = align_file(model, files, target, CPU, layer=LAYER, settings=settings, layout="talp")
    assert count == len(LINES)
    pairs = [(pair.source, pair.target) for pair in files]
    (wanted,) = align_words(model, pairs, CPU, settings=settings, layers=[LAYER])
    assert [line.sure for line in read_links(target, "talp")] == wanted
    assert Path(target).read_text().splitlines() == [format_links(one, "talp") for one in wanted]
    assert len(set(wanted)) > 3


def test_an_endless_stream_is_read_by_chunk(model: AnyEncoder) -> None:
    taken = 0

    def flow() -> Iterator[SentencePair]:
        nonlocal taken
        while True:
            taken += 1
            yield SentencePair("the house", "das Haus", ("the", "house"), ("das", "Haus"))

    aligned = align_stream(model, flow(), CPU, layer=LAYER)
    for _ in range(3):
        next(aligned)
    assert taken == 4


@pytest.mark.parametrize("is_file", [True, False])
def test_a_broken_line_leaves_the_older_file(
    model: AnyEncoder,
    tmp_path: Path,
    messages: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    is_file: bool,
) -> None:
    text = "\n".join([*LINES, "broken"])
    name = str(write(tmp_path / "pairs.txt", text)) if is_file else "-"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    target = write(tmp_path / "out" / "links.txt", "older\n")
    with pytest.raises(MetaXLMError, match=r"(pairs\.txt|standard input):10: no \|\|\|"):
        align_file(model, PairFiles(name), str(target), CPU, layer=LAYER)
    assert (messages() == "") == is_file  # a file is checked before any pair is aligned
    assert target.read_text() == "older\n"
    assert [path.name for path in target.parent.iterdir()] == ["links.txt"]
