from __future__ import annotations

import io

import pytest
from rich.console import Console

from metaxlm.cli.align import choose_style, color_pair, list_pair, print_pair

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


def test_a_list_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert print_to(Console(file=io.StringIO(), width=20)) == PLAIN
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    assert print_to(terminal) == PLAIN
    monkeypatch.delenv("NO_COLOR")
    dumb = Console(file=io.StringIO(), force_terminal=True, color_system=None)
    assert print_to(dumb) == PLAIN
    assert list_pair(3, SOURCE, TARGET, frozenset()) == "3: no links"


def test_lines_break_by_cells() -> None:
    links = frozenset({(0, 0)})
    lines = color_pair(1, ("我喜欢", "小房子", "河"), ("house", "of", "mine", "x"), links, 15)
    # Two cells a Chinese character: 6 + 1 + 6 fit into 13, the next word does not.
    assert [line.plain for line in lines] == ["1 我喜欢 小房子", "  河", "  house of mine", "  x"]
    assert all(line.cell_len <= 15 for line in lines)
    narrow = color_pair(10, ("wonderful",), ("x",), links, 6)
    assert [line.plain for line in narrow] == ["10 wonderful", "   x"]


def test_every_line_of_a_right_to_left_sentence_has_its_marks() -> None:
    # The second line has more Latin letters, but it belongs to a Hebrew sentence.
    words = ("קניתי", "חדש", "מעולה", "Aviv", "GPU", "ו")
    lines = color_pair(1, ("x",), words, frozenset(), 18)
    assert [line.plain for line in lines] == [
        "1 x",
        "  \u2067קניתי חדש מעולה\u2069",
        "  \u2067Aviv GPU ו\u2069",
    ]


def test_eighteen_looks_differ() -> None:
    looks = [choose_style(group) for group in range(18)]
    assert len(set(looks)) == 18
    assert choose_style(18) == looks[0]
    assert choose_style(None) not in looks
