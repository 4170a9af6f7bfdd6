from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from metaxlm.cli.align import color_pair, list_pair, print_pair
from metaxlm.finetune.readers.parallel import AlignmentSet, read_word_alignment
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.model.huggingface import load_pretrained, save_pretrained
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import align_words, measure_alignment
from metaxlm.probe.alignment_io import format_links
from metaxlm.probe.pool import LayerChoice, every_layer
from tests.commands import Command
from tests.finetune.conftest import CPU, write

LAST = LayerChoice((1,))


@pytest.fixture
def gold(data: Path) -> AlignmentSet:
    return read_word_alignment(data, "de")


@pytest.fixture
def sides(data: Path) -> list[str | Path]:
    folder = data / "wordalign" / "de-en"
    return ["--source", folder / "test.de", "--target", folder / "test.en", "--device", "cpu"]


@pytest.fixture(scope="session")
def strong(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers link different words, unlike random initialization."""
    folder = tmp_path_factory.mktemp("strong") / "model"
    pretrained = load_pretrained(models / "one")
    with torch.no_grad():
        for parameter in pretrained.model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(10)
    save_pretrained(pretrained.model, pretrained.tokenizer, folder, "# test\n")
    return folder


@pytest.fixture
def model(strong: Path) -> AnyEncoder:
    return load_encoder(strong)


def list_links(model: AnyEncoder, gold: AlignmentSet, settings: AlignSettings) -> list[str]:
    pairs = [(pair.source, pair.target) for pair in gold.pairs]
    (found,) = align_words(model, pairs, CPU, settings=settings, layers=[LAST])
    return [format_links(links) for links in found]


def test_links_are_written(
    metaxlm: Command, strong: Path, model: AnyEncoder, sides: list[str], gold: AlignmentSet
) -> None:
    arguments = ["align", "--model", strong, *sides, "--layer", "-1"]
    code, printed, _ = metaxlm(*arguments, "--output", "links.txt")
    assert code == 0
    written = (metaxlm.folder / "links.txt").read_text().splitlines()
    assert written == list_links(model, gold, AlignSettings())
    assert "8 pairs: links.txt" in printed
    assert not re.search("^1: ", printed, re.MULTILINE)

    options = ["--method", "softmax", "--encoding", "separate", "--words", "mean"]
    settings = AlignSettings("softmax", "separate", "mean", threshold=0.2)
    expected = list_links(model, gold, settings)
    assert expected not in (written, list_links(model, gold, AlignSettings("softmax")))
    metaxlm.capsys.readouterr()
    code, printed, errors = metaxlm(
        *arguments, *options, "--set", "threshold=0.2", "--output", "-", "--show", "1"
    )
    assert code == 0
    assert printed.splitlines() == expected
    numbers = [link.split("-") for link in expected[0].split()]
    links = frozenset((int(i), int(j)) for i, j in numbers)
    assert list_pair(1, gold.pairs[0].source, gold.pairs[0].target, links) in errors.splitlines()
    assert "\n2: " not in errors


def test_standard_input(metaxlm: Command, strong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.TextIOWrapper(io.BytesIO("das Haus ||| the house\n我喜欢 ||| I like\n".encode()))
    monkeypatch.setattr(sys, "stdin", text)
    options = ("--layer", "0", "--split", "characters", "--page", "page.html")
    code, printed, _ = metaxlm("align", "--model", strong, "--input", "-", *options)
    assert code == 0
    assert re.search("^2: ", printed, re.MULTILINE)
    page = (metaxlm.folder / "page.html").read_text("utf-8")
    assert "<h1>standard input</h1>" in page
    assert ">喜</bdi>" in page


def test_long_pairs_are_named_once(metaxlm: Command, strong: Path) -> None:
    long = " ".join(["Haus"] * 80)
    lines = ["das Haus ||| the house", f"{long} ||| {long}", "ja ||| yes", f"{long} ||| the"]
    path = write(metaxlm.folder / "pairs", "\n".join(lines) + "\n")
    code, printed, _ = metaxlm("align", "--model", strong, "--input", path, "--page", "page.html")
    assert code == 0
    links, neighbors = [line for line in printed.splitlines() if "longer than" in line]
    assert links.startswith("align: 2 of 4 pairs")
    assert links.endswith(": pairs 2, 4")
    cut = "the source of pair 2, the source of pair 4, the target of pair 2"
    assert neighbors.startswith("neighbors: 3 of 8 texts")
    assert neighbors.endswith(f" and were cut: {cut}")


def test_scores_by_layer(
    metaxlm: Command, strong: Path, model: AnyEncoder, sides: list[str], gold: AlignmentSet
) -> None:
    lines = [format_links(pair.sure, "talp", pair.possible) for pair in gold.pairs]
    path = write(metaxlm.folder / "gold", "\n".join(lines) + "\n")
    options = ("--layer", "all", "--gold", path, "--gold-format", "talp")
    code, printed, errors = metaxlm("align", "--model", strong, *sides, *options)
    assert (code, errors) == (0, "")
    outcome = measure_alignment(model, gold, CPU)
    rows = [line.split() for line in printed.splitlines() if re.match(r"\s+\d ", line)]
    expected = [
        (found.scores.aer, found.scores.precision, found.scores.recall, found.scores.f1)
        for found in outcome.layers
    ]
    assert rows == [
        [str(layer), *(f"{100 * value:.1f}" for value in expected[layer])] for layer in (0, 1)
    ]


def test_the_page(
    metaxlm: Command, strong: Path, data: Path, model: AnyEncoder, sides: list[str],
    gold: AlignmentSet,
) -> None:  # fmt: skip
    path = data / "wordalign" / "de-en" / "alignv2.txt"
    code, printed, _ = metaxlm(
        "align", "--model", strong, *sides, "--layer", "0+1", "--output", "links.txt",
        "--gold", path, "--gold-format", "naacl",
        "--page", "out/page.html", "--page-pairs", "3", "--neighbors", "5",
    )  # fmt: skip
    assert code == 0
    assert "page of 3 pairs: out/page.html" in printed
    page = (metaxlm.folder / "out/page.html").read_text("utf-8")
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    found = json.loads(text)
    layers = (*every_layer(1), LayerChoice((0, 1)))
    outcome = measure_alignment(model, gold, CPU, layers=layers)
    assert found["notes"] == [f"AER {100 * layer.scores.aer:.1f}" for layer in outcome.layers]
    assert [len(pair["layers"]) for pair in found["pairs"]] == [3] * 3
    assert {int(place) for place in found["texts"]["of_source"]} <= set(range(5))
    assert len({layer.links for layer in outcome.layers}) == 3
    # The written links are those of --layer.
    written = (metaxlm.folder / "links.txt").read_text().splitlines()
    assert written == [format_links(links) for links in outcome.layers[2].links]
    kinds = found["pairs"][0]["layers"][2]["kinds"]
    linked = [link for kind in ("sure", "possible", "wrong") for link in kinds.get(kind, [])]
    assert format_links({(i, j) for i, j in linked}) == written[0]


PAIRS = "das Haus ||| the house\nja ||| yes\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "align: needs either --input, or --source and --target"),
        (("--input", "broken"), "broken:3: no ||| between two sentences"),
        (("--source", "pairs", "--target", "broken"), "pairs:2: has 2 lines, broken has 3;"),
        (("--input", "pairs", "--output", "./pairs"), "pairs: is also an input"),
        (("--input", "pairs", "--gold", "far"), "far:2: link 0-1 is outside the 1 and 1 words"),
        (("--input", "pairs", "--gold", "broken"), "broken:1: 'das' is not a link"),
        (("--input", "pairs", "--layer", "2"), "layer 2: the encoder has 1 layers"),
        (("--input", "pairs", "--layer", "all"), "several layers are for a table with --gold"),
        (("--input", "pairs", "--method", "best"), "method is 'best'; known: transport, sinkhorn"),
        (("--input", "pairs", "--set", "passes"), "--set passes: write NAME=VALUE; names: iter"),
        (("--input", "pairs", "--set", "passes=1.5"), "passes=1.5: '1.5' is not a whole number"),
    ],
)  # fmt: skip
def test_mistakes(
    metaxlm: Command, strong: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    for name, text in (("pairs", PAIRS), ("broken", PAIRS + "broken\n"), ("far", "0-0\n0-1\n")):
        write(metaxlm.folder / name, text)
    before = sorted(path.name for path in metaxlm.folder.iterdir())
    assert complaint in metaxlm.complaint("align", "--model", strong, *arguments)
    assert sorted(path.name for path in metaxlm.folder.iterdir()) == before
    assert (metaxlm.folder / "pairs").read_text() == PAIRS


SOURCE = ("the", "old", "house")
TARGET = ("الدار", "GPU", "القديمة")
LINKS = frozenset({(0, 0), (2, 0), (1, 2)})


def print_to(console: Console) -> str:
    print_pair(console, 7, SOURCE, TARGET, LINKS)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_colors_on_a_terminal() -> None:
    printed = print_to(
        Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=80)
    )
    cyan, magenta = "\x1b[36m", "\x1b[35m"
    assert printed == (
        f"7 {cyan}the\x1b[0m {magenta}old\x1b[0m {cyan}house\x1b[0m\n"
        f"  \u2067{cyan}الدار\x1b[0m \x1b[2mGPU\x1b[0m {magenta}القديمة\x1b[0m\u2069\n"
    )


PLAIN = "7: the–\u2067الدار\u2069 old–\u2067القديمة\u2069 house–\u2067الدار\u2069\n"


def test_a_list_without_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert print_to(Console(file=io.StringIO(), width=20)) == PLAIN
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    assert print_to(terminal) == PLAIN
    assert list_pair(3, SOURCE, TARGET, frozenset()) == "3: no links"


def test_lines_break_by_cells() -> None:
    links = frozenset({(0, 0)})
    lines = color_pair(1, ("我喜欢", "小房子", "河"), ("house", "of", "mine", "x"), links, 15)
    # Two cells a Chinese character: 6 + 1 + 6 fit into 13, the next word does not.
    assert [line.plain for line in lines] == ["1 我喜欢 小房子", "  河", "  house of mine", "  x"]
    assert all(line.cell_len <= 15 for line in lines)
    narrow = color_pair(10, ("wonderful",), ("x",), links, 6)
    assert [line.plain for line in narrow] == ["10 wonderful", "   x"]
    # The second line has more Latin letters, but is part of a Hebrew sentence.
    words = ("קניתי", "חדש", "מעולה", "Aviv", "GPU", "ו")
    _, *lines = color_pair(1, ("x",), words, frozenset(), 18)
    marked = ["  \u2067קניתי חדש מעולה\u2069", "  \u2067Aviv GPU ו\u2069"]
    assert [line.plain for line in lines] == marked
