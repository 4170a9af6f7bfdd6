"""The report as a whole: complete, self-contained, the same bytes again."""

from __future__ import annotations

import csv
import json
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from metaxlm.analysis.report import find_headline, list_limits, write_report
from metaxlm.analysis.results import read_rows
from metaxlm.analysis.run_folder import read_run
from metaxlm.errors import MetaXLMError
from tests.analysis.fake_run import RECIPE, make_row, make_run, write_lines
from tests.analysis.pages import parse
from tests.analysis.paper_rows import FINAL, make_folder, make_layer_rows, make_paper_rows, printed
from tests.analysis.paper_rows import make_row as make_paper_row
from tests.analysis.rows import make_comparison


@pytest.fixture(scope="module")
def paper_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run with the paper's own numbers on everything."""
    return write_report(make_folder(tmp_path_factory.mktemp("runs") / "tiny")).parent


@pytest.fixture(params=["run", "paper"])
def report(request: pytest.FixtureRequest, finished_report: Path, paper_report: Path) -> Path:
    return finished_report if request.param == "run" else paper_report


def test_the_page_is_well_formed_and_loads_nothing(report: Path) -> None:
    page = parse(report)
    assert len(page.ids) == len(set(page.ids))
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    steps = zip(page.headings, page.headings[1:], strict=False)
    assert all(below - above <= 1 for above, below in steps)
    assert "script" not in page.tags
    text = (report / "index.html").read_text(encoding="utf-8")
    assert "http://" not in text and "https://" not in text and "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)'\"]+)", text))
    assert "@media (prefers-color-scheme: dark)" in text and "@media print" in text
    assert text.count("<table>") + text.count('class="drawing"') + text.count('class="links"') == (
        text.count('<div class="scroll"')
    )


def test_links_exist_and_offer_every_file(report: Path) -> None:
    page = parse(report)
    files = {link for link in page.links if not link.startswith("#")}
    for link in page.links:
        assert (report / link).is_file() if link in files else link[1:] in page.ids, link
    assert {p.relative_to(report).as_posix() for p in report.glob("*/*")} <= files
    markdown = (report / "report.md").read_text("utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", markdown):
        assert (report / link).is_file(), link


def test_sections_appear_if_their_data_exist(finished_report: Path, paper_report: Path) -> None:
    every = ["summary", "tables", "figures", "claims", "ideas", "languages", "sentences", "start",
             "cost", "data", "trace"]  # fmt: skip
    for report, missing in (
        (finished_report, {"tables", "claims", "ideas", "data"}),
        (paper_report, {"sentences"}),
    ):
        ids = [name for name in parse(report).ids if name in every]
        assert ids == [name for name in every if name not in missing]
    heads = re.findall(r"^## (.*)", (paper_report / "report.md").read_text("utf-8"), re.MULTILINE)
    assert "By language" in heads and "The paper's claims on these results" in heads


def test_the_main_result_is_first(finished_report: Path, paper_report: Path) -> None:
    words = " ".join(" ".join(parse(finished_report).text).split())
    opening = words[: words.index("What the comparison is based on")]
    assert "MetaXLM+Dict finds the right translation for 69.0 of 100" in opening
    assert re.search(r"19\.0 XLM ± 1\.0 over seeds 44\.0 MetaXLM", opening)
    assert "XLM, which is initialized at random, reaches 19.0" in opening
    assert "not complete" not in words
    words = " ".join(" ".join(parse(paper_report).text).split())
    assert "MetaXLM scores 6.5 points above XLM, and MetaXLM+Dict scores 3.6" in words
    assert "paper: 55.7" in words
    counts = re.search(
        r"(\d+) claims? hold.*?(\d+) claims? fail.*?(\d+) claims? are undecided", words
    )
    assert counts is not None and sum(map(int, counts.groups())) == 35


def test_tables_show_the_papers_numbers_twice(paper_report: Path) -> None:
    """The rows are the paper's, so that ours and the paper's number agree in every cell."""
    checked = 0
    for path in (paper_report / "tables").glob("*.csv"):
        if path.stem.startswith("languages-") or path.stem in ("table-1-xtreme", "table-2-amazon"):
            for row in csv.DictReader(path.read_text("utf-8").splitlines()):
                if row["paper"] and row["value"]:
                    assert float(row["value"]) == pytest.approx(float(row["paper"]), abs=0.0011)
                    checked += 1
    assert checked > 600
    assert printed("xnli", "metaxlm", "accuracy") == pytest.approx(0.646)


def test_a_number_can_be_traced(paper_report: Path) -> None:
    with (paper_report / "tables/table-1-xtreme.csv").open(encoding="utf-8") as lines:
        found = [r for r in csv.DictReader(lines) if (r["row"], r["column"]) == ("MetaXLM", "MLQA")]
    rows = list(read_rows(paper_report.parent / "results.jsonl"))
    assert [row["metric"] for row in found] == ["f1", "em"] * 3  # all, of the text, and others
    for traced in found:
        same = [
            row["value"] for row in rows
            if (row["variant"], row["task"], row["metric"], row["step"])
            == (traced["variant"], traced["task"], traced["metric"], int(traced["step"]))
            and row["origin"] in traced["origin"].split() and row["split"] == traced["split"]
            and row["language"] in traced["language"].split()
        ]  # fmt: skip
        assert statistics.fmean(same) == pytest.approx(float(traced["value"]))


def test_foreign_text_is_marked_and_escaped(finished_report: Path, paper_report: Path) -> None:
    assert {"en", "de", "ru", "zh", "ar"} <= parse(finished_report).languages
    text = (finished_report / "index.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; gone." in text
    assert '<span lang="zh" dir="auto">公共汽车今天是空的。</span>' in text
    assert RECIPE in "".join(parse(finished_report).text)
    text = (paper_report / "index.html").read_text(encoding="utf-8")
    assert "mine &lt;b&gt;" in text and "mine <b>" not in text


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes_without_torch(
    tmp_path: Path, finished_report: Path, paper_report: Path
) -> None:
    reports = (finished_report, paper_report)
    folders = [tmp_path / "run", tmp_path / "paper"]
    for report, folder in zip(reports, folders, strict=True):
        shutil.copytree(report.parent, folder, ignore=shutil.ignore_patterns("report"))
    code = "import sys; from pathlib import Path; from metaxlm.analysis.report import write_report;"
    code += "[*map(write_report, map(Path, sys.argv[1:]))]; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, *folders], check=True)
    for report, folder in zip(reports, folders, strict=True):
        first, second = (
            {path.relative_to(home): path.read_bytes() for path in home.rglob("*.*")}
            for home in (report, folder / "report")
        )
        assert first.keys() == second.keys()
        assert not [name for name in first if first[name] != second[name]]


def test_a_failure_leaves_the_older_report(
    small_run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = write_report(small_run_dir)
    (page.parent / "tables" / "mine.md").write_text("mine")
    before = write_report(small_run_dir).read_bytes()
    assert (page.parent / "tables" / "mine.md").read_text() == "mine"
    (small_run_dir / "results.jsonl").write_text("{broken\n")
    with pytest.raises(MetaXLMError, match=r"results\.jsonl:1"):
        write_report(small_run_dir)
    # The disk fills up while the tables are already written.
    write_lines(small_run_dir / "results.jsonl", [make_row("xlm", "x", "y", "de", 0.5)])

    def fail(*_: object) -> str:
        raise OSError("no space left")

    monkeypatch.setattr("metaxlm.analysis.report._render_page", fail)
    with pytest.raises(OSError, match="no space"):
        write_report(small_run_dir)
    assert page.read_bytes() == before
    assert not list(small_run_dir.glob(".tmp-*"))


def test_a_partial_run_shows_what_is_there(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "fake", transfer=False, alignment=False)
    shutil.rmtree(folder / "variants" / "metaxlm+dict")
    path = folder / "results.jsonl"
    kept = [line for line in path.read_text().splitlines() if '"metaxlm+dict"' not in line]
    path.write_text("\n".join(kept) + "\n")
    report = write_report(folder).parent
    words = " ".join(" ".join(parse(report).text).split())
    assert "This report is not complete:" in words and "MetaXLM+Dict has not run." in words
    assert "MetaXLM finds the right translation for 43.0" in words
    assert sorted(p.name for p in (report / "figures").glob("*.svg")) == [
        "coverage.svg", "loss.svg", "retrieval.svg"
    ]  # fmt: skip


def test_the_barest_run_makes_a_page(tmp_path: Path) -> None:
    row = make_row("mine", "cls", "accuracy", "de", 0.5, scenario="supervised")
    write_lines(tmp_path / "results.jsonl", [row])
    assert "has been measured yet" in " ".join(parse(write_report(tmp_path).parent).text)
    write_lines(tmp_path / "results.jsonl", [row | {"scenario": "transfer"}])
    assert "mine scores 50.0 in the languages" in find_headline(read_run(tmp_path)).sentence


def test_variants_without_a_second_pretraining_are_named(tmp_path: Path) -> None:
    variants = {"xlm": {}, "xlm-2": {"seed": 2}, "metaxlm": {"initialize": "both"}}
    (tmp_path / "recipe.yaml").write_text(json.dumps({"name": "test", "variants": variants}))
    rows = [make_row(v, "tatoeba", "accuracy", "de", 0.5, layer=1) for v in ("xlm", "metaxlm")]
    write_lines(tmp_path / "results.jsonl", rows)
    assert "with one seed: XLM, MetaXLM. Their" in " ".join(list_limits(read_run(tmp_path)))
    rows.append(make_row("xlm-2", "tatoeba", "accuracy", "de", 0.5, layer=1))
    write_lines(tmp_path / "results.jsonl", rows)
    assert "with one seed: MetaXLM. Their" in " ".join(list_limits(read_run(tmp_path)))


def test_when_nothing_beats_the_baseline_that_is_the_headline(tmp_path: Path) -> None:
    rows = [
        make_row(variant, "tatoeba", "accuracy", "de", value, layer=1)
        for variant, value in (("xlm", 0.5), ("metaxlm", 0.4), ("metaxlm+dict", 0.45))
    ]
    write_lines(tmp_path / "results.jsonl", rows)
    sentence = find_headline(read_run(tmp_path)).sentence
    assert sentence.startswith("No variant beats XLM here: it finds")
    assert "the nearest, MetaXLM+Dict, reaches 45.0" in sentence


def test_scores_at_the_majority_label_are_named(tmp_path: Path) -> None:
    limits = " ".join(list_limits(read_run(make_run(tmp_path / "fake"))))
    assert "XNLI: XLM is not clearly above the majority label in German, Russian" in limits
    assert "built-in phrasebook" in limits and "bilingual dictionaries" in limits
    assert "With 200 test sentences" in limits


def test_headlines_of_a_grid_name_their_tests(tmp_path: Path) -> None:
    rows = make_paper_rows(tasks=["xnli", "pawsx"]) + make_layer_rows()
    folder = make_folder(tmp_path / "part", rows)
    units = {("en", row["language"]): 0.06 for row in rows if row["task"] == "xnli"}
    test = make_comparison("xnli", ("metaxlm", "xlm"), units)
    (folder / "comparisons.json").write_text(json.dumps({"0": asdict(test)}))
    run = read_run(folder)
    found = find_headline(run)
    assert found.sentence.startswith("On 2 of seven tasks, MetaXLM scores 6.0 points above XLM")
    assert "MetaXLM against XLM: +6.0 (p" in found.support and "over examples" in found.support
    assert any("average over the seven tasks needs all" in text for text in run.missing)
    assert found.measure.endswith("; 3 seeds")
    fewer = [row for row in rows if row["task"] != "pawsx" or row["seed"] != 2]
    write_lines(folder / "results.jsonl", fewer)
    assert find_headline(read_run(folder)).measure.endswith("; 2 to 3 seeds")
    one = [row for row in rows if row["variant"] == "xlm"]
    write_lines(folder / "results.jsonl", one)
    assert "Only XLM has been measured" in find_headline(read_run(folder)).sentence
    early = [{**row, "step": FINAL // 2} if row["variant"] else row for row in one]
    write_lines(folder / "results.jsonl", early)
    assert any("step is 10,000 of 20,000" in text for text in read_run(folder).missing)
    write_lines(folder / "results.jsonl", [make_paper_row("xlm", "tatoeba", "accuracy", "de", 0.5)])
    assert "No finetuned task" in find_headline(read_run(folder)).sentence
