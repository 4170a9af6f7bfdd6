from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.report import write_report

from .fake_run import RECIPE, make_row, make_run, write_lines

VOID = frozenset({"meta", "br", "hr", "img", "link", "input", "col", "wbr"})


class Page(HTMLParser):
    """Parse a page, check that tags balance, and keep what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.languages: set[str] = set()
        self.headings: list[int] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.append(values["id"])
        self.links += [values[name] for name in ("href", "src", "srcset") if name in values]
        self.languages.add(values.get("lang", ""))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parse(report: Path) -> Page:
    return Page((report / "index.html").read_text(encoding="utf-8"))


def test_page_is_well_formed(finished_report: Path) -> None:
    page = parse(finished_report)
    assert len(page.ids) == len(set(page.ids))
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    steps = zip(page.headings, page.headings[1:], strict=False)
    assert all(below - above <= 1 for above, below in steps)
    assert "script" not in page.tags


def test_nothing_is_loaded_from_elsewhere(finished_report: Path) -> None:
    text = (finished_report / "index.html").read_text(encoding="utf-8")
    assert "http://" not in text and "https://" not in text
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)'\"]+)", text))


def test_links_lead_somewhere(finished_report: Path) -> None:
    page = parse(finished_report)
    files = [link for link in page.links if not link.startswith("#")]
    assert len(files) > 20
    for link in files:
        assert (finished_report / link).is_file(), link
    for link in page.links:
        assert not link.startswith("#") or link[1:] in page.ids, link
    written = {p.relative_to(finished_report).as_posix() for p in finished_report.glob("*/*")}
    assert written <= set(files), "a file that the page does not offer"


def test_main_result_comes_first(finished_report: Path) -> None:
    words = " ".join(" ".join(parse(finished_report).text).split())
    start = words.index("Report of the run")
    opening = words[start : words.index("What it shows", start)]
    assert "MetaXLM+Dict finds the right translation for 69.0 of 100" in opening
    assert re.search(r"19\.0 XLM 44\.0 MetaXLM 69\.0 MetaXLM\+Dict", opening)
    assert words.index("Report of the run") < words.index("The five headline numbers")
    assert "not complete" not in words


def test_sections_stand_in_order(finished_report: Path) -> None:
    wanted = ["summary", "meaning", "figures", "languages", "sentences", "start", "making", "files"]
    ids = parse(finished_report).ids
    assert [name for name in ids if name in wanted] == wanted


def test_foreign_text_is_marked_and_escaped(finished_report: Path) -> None:
    page = parse(finished_report)
    assert {"en", "de", "ru", "zh", "ar"} <= page.languages
    text = (finished_report / "index.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; gone." in text
    assert '<span lang="zh" dir="auto">公共汽车今天是空的。</span>' in text


def test_page_suits_phones_dark_mode_and_print(finished_report: Path) -> None:
    text = (finished_report / "index.html").read_text(encoding="utf-8")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert re.search(r"\.scroll \{[^}]*overflow-x: auto;[^}]*max-width: 100%", text)
    assert "@media (max-width: 30rem)" in text
    assert "@media (prefers-color-scheme: dark)" in text and "@media print" in text
    # Every table, figure and drawing sits in a container of its own that scrolls.
    tables, plates, drawn = (text.count(x) for x in ("<table>", 'class="plate"', 'class="drawn"'))
    assert text.count('<div class="scroll"') == tables + plates + drawn
    assert tables == 8 and plates == 5 and drawn == 12


def test_recipe_and_making_are_shown(finished_report: Path) -> None:
    words = "".join(parse(finished_report).text)
    assert RECIPE in words
    assert "metaxlm 0.0.0" in words and "1 min 30 s" in words
    assert "In the paper: Figure 3." in words and "In the paper: Figure 4." in words


def test_same_run_gives_same_bytes(tmp_path: Path, finished_report: Path) -> None:
    first, second = finished_report, write_report(make_run(tmp_path / "other", seeds=3)).parent
    names = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(second) for p in second.rglob("*") if p.is_file())
    assert len(names) == 2 + 2 * 8 + 2 * 5  # the page, its manifest, tables, figures
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_older_report_is_replaced_whole(small_run_dir: Path) -> None:
    report = write_report(small_run_dir).parent
    (report / "tables" / "stale.md").write_text("old")
    assert write_report(small_run_dir) == report / "index.html"
    assert not (report / "tables" / "stale.md").exists()
    assert not list(small_run_dir.glob(".tmp-*"))


def test_failure_leaves_the_older_report(
    small_run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = write_report(small_run_dir)
    before = page.read_bytes()
    (small_run_dir / "results.jsonl").write_text("{broken\n")
    with pytest.raises(MetaXLMError, match=r"results\.jsonl:1"):
        write_report(small_run_dir)
    assert page.read_bytes() == before
    # The disk fills up while the tables are already written.
    write_lines(small_run_dir / "results.jsonl", [make_row("xlm", "x", "y", "de", 0.5)])

    def fail(*_: object) -> str:
        raise OSError("no space left")

    monkeypatch.setattr("metaxlm.report.page.render_page", fail)
    with pytest.raises(OSError, match="no space"):
        write_report(small_run_dir)
    assert page.read_bytes() == before
    assert not list(small_run_dir.glob(".tmp-*"))


def test_partial_run_shows_what_is_there(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "fake", transfer=False, alignment=False)
    shutil.rmtree(folder / "variants" / "metaxlm+dict")
    path = folder / "results.jsonl"
    kept = [line for line in path.read_text().splitlines() if '"metaxlm+dict"' not in line]
    path.write_text("\n".join(kept) + "\n")
    report = write_report(folder).parent
    page = parse(report)
    words = " ".join(" ".join(page.text).split())
    assert "This report is not complete:" in words
    assert "MetaXLM+Dict has not run." in words
    assert "no word-alignment results" in words and "no cross-lingual transfer results" in words
    assert "MetaXLM finds the right translation for 43.0" in words
    assert sorted(p.name for p in (report / "figures").glob("*.svg")) == [
        "coverage.svg", "loss.svg", "retrieval.svg"
    ]  # fmt: skip
    assert not (report / "tables" / "alignment.md").exists()
    assert "figure-alignment" not in page.ids


def test_barest_run_still_makes_a_page(tmp_path: Path) -> None:
    row = make_row("mine", "cls", "accuracy", "de", 0.5, scenario="supervised")
    write_lines(tmp_path / "results.jsonl", [row])
    page = parse(write_report(tmp_path).parent)
    assert "has been measured yet" in " ".join(page.text)
    assert "svg" not in page.tags
