"""Tables of results that a person wrote say what the published rows say."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from metaxlm.analysis.claims import PRIMARY, make_primary_tests
from metaxlm.analysis.contrast import (
    Measure,
    average_measures,
    contrast_strata,
    write_points,
)
from metaxlm.analysis.paper import AVERAGED, MAIN_VARIANTS, TABLES, make_paper_table
from metaxlm.analysis.results import display_name, load_results, read_rows
from metaxlm.analysis.run_folder import read_run
from metaxlm.analysis.score_tables import summarize
from metaxlm.analysis.scores import Results, Section
from metaxlm.analysis.tables import format_cell, section_cell, seed_cell
from metaxlm.files import read_json
from metaxlm.recipe.recipe_file import load_recipe

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
WHAT = {
    "held-out loss": "loss", "POS": "udpos", "NER": "panx", "XQuAD": "xquad", "MLQA": "mlqa",
    "TyDiQA": "tydiqa", "XNLI": "xnli", "PAWS-X": "pawsx", "average of": "average",
    "seven XTREME": "average",
    "Amazon": "amazon", "Tatoeba": "tatoeba", "alignment error": "alignment", "AER": "alignment",
}  # fmt: skip
"""How a row or a column begins, and what it shows."""
ABLATIONS = {
    "XLM (none)": "xlm", "XLM, distillation": "xlm+kd", "body only": "body",
    "embeddings only": "embeddings", "both (MetaXLM)": "metaxlm", "both, body frozen": "freeze",
}  # fmt: skip
TRAINED = load_recipe(ROOT / "recipes/twin/base.yaml").languages
IDEAS = {"+Dict": "metaxlm+dict", "dict+use": "dict+use", "dict+switch": "dict+switch"}
SECOND = {
    "XLM": "xlm-2", "MetaXLM": "metaxlm-2", "+Dict": "metaxlm+dict-2", "dict+use": "dict+use-2",
    "dict+use, switched words": "dict+use-2+switched-0.3",
}  # fmt: skip
SWITCHED = {
    "+Dict": "metaxlm+dict", "dict+use": "dict+use",
    "dict+use, switched words": "dict+use+switched-0.3",
    "merged dictionaries": "dict+use+merged",
    "merged dictionaries, switched words": "dict+use+merged+switched-0.3",
}  # fmt: skip
FIRST_THREE = {"XLM": "xlm", "MetaXLM": "metaxlm", "+Dict": "metaxlm+dict"}
FOUR = {**FIRST_THREE, "dict+use": "dict+use"}
COUNTS = {1: "a collapsed seed", 2: "two collapsed seeds"}
SHOWN = (*MAIN_VARIANTS, "dict+use")


read_scores = cache(lambda name: load_results(RESULTS / name))


@cache
def read_published(name: str) -> Results:
    return read_run(RESULTS / name).results


@cache
def find_sections(name: str, shown: tuple[str, ...], both: bool) -> dict[str, Section]:
    results = read_published(name)
    return results.sections(results.tasks, shown, both=both)


def read_table(path: Path, after: str) -> list[list[str]]:
    """Return the cells of the first table behind a text, without bold."""
    text = path.read_text(encoding="utf-8").partition(after)[2]
    assert text, f"{path.name}: no {after!r}"
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    rows = [line.strip("|").split("|") for line in table.group().splitlines()]
    return [[cell.replace("**", "").strip() for cell in row] for row in rows]


def name_what(label: str) -> str:
    return WHAT[max((start for start in WHAT if label.startswith(start)), key=len)]


def find_number(
    name: str, variant: str, what: str, *, only_first: bool = False, label: str = ""
) -> str:
    """Write a number of a published run as its own report does.

    A row's label may choose languages (of the text, or others) or the layer.
    """
    found = read_published(name)
    if what == "loss":
        log = read_rows(RESULTS / name / "variants" / variant / "log.jsonl")
        held_out = [row["held_out"] for row in log if "held_out" in row]
        return f"{statistics.fmean(held_out[-1].values()):.2f}"
    if what == "amazon":
        lines = make_paper_table(found, TABLES[1]).groups[0].lines
        shown = {line.variant: format_cell(line.cells[-1]) for line in lines}
        return shown.get(variant, "–")
    chosen = re.search(r"(\d*) ?(languages of the text|other languages?)|layer (\d+)", label)
    number, languages, layer = chosen.groups() if chosen else ("", None, None)
    in_text = None if languages is None else languages.endswith("text")
    if what == "average":
        return format_cell(seed_cell(summarize(found, in_text=in_text)[variant]["average"]))
    variants = MAIN_VARIANTS if variant in MAIN_VARIANTS else ("xlm", "metaxlm", variant)
    section = find_sections(name, variants, not only_first)[what]
    if layer is not None:
        section = replace(section, layers=dict.fromkeys(variants, int(layer)))
    pairs = section.shared if in_text is None else section.by_text(in_text)
    assert not number or int(number) == len(pairs), label
    return format_cell(section_cell(section, variant, pairs))


@cache
def find_dev(
    name: str, variant: str, task: str, is_english: bool = False, seed: int | None = None
) -> str:
    """Write the mean over dev sets of English, or of the other languages of the text, and seeds."""
    rows = read_scores(name)
    rows = rows[(rows.task == task) & (rows.split == "dev") & (rows.variant == variant)]
    rows = rows[(rows.step == rows.step.max()) & rows.metric.isin(["f1", "accuracy"])]
    rows = rows if seed is None else rows[rows.seed == seed]
    languages = ["en"] if is_english else [code for code in TRAINED if code != "en"]
    return f"{100 * rows[rows.language.isin(languages)].value.mean():.1f}"


def find_others(name: str, variant: str, what: str) -> str:
    """Write the mean without collapsed finetunings, where there are any."""
    for each in read_published(name).list_collapsed([variant], [what]):
        return f" ({100 * each.others:.1f} without {COUNTS[len(each.seeds)]})"
    return ""


@pytest.mark.parametrize(
    ("name", "page", "after", "variants"),
    [
        ("twin", "twin.md", "## What came out", FIRST_THREE),
        ("twin_minilm", "twin.md", "## With a ready English encoder", FOUR),
        ("second_minilm", "second.md", "## What came out", FOUR),
        ("third_minilm", "third.md", "## What came out", FOUR),
        ("third_minilm", "third.md", "### Second pretrainings", SECOND),
        ("third_minilm", "third.md", "### Dictionaries used twice", SWITCHED),
        ("twin", "twin.md", "## Beyond the paper's +Dict", IDEAS),
    ],
)
def test_the_main_tables(name: str, page: str, after: str, variants: dict[str, str]) -> None:
    head, _, *rows = read_table(RESULTS / page, after)
    assert head[1:] == list(variants)
    assert len(rows) >= 5
    for label, *numbers in rows:
        what = name_what(label)
        expected = [
            find_number(name, variant, what, label=label)
            + ("" if "languages of" in label else find_others(name, variant, what))
            for variant in variants.values()
        ]
        assert numbers == expected, label


@pytest.mark.parametrize(
    ("name", "after", "variants"),
    [
        ("twin", "## Which parts are initialized", ABLATIONS),
        ("twin_minilm", "### Which parts, freezing, distillation", ABLATIONS),
        ("third_minilm", "### Freezing and distillation", ABLATIONS),
    ],
)
def test_other_models(name: str, after: str, variants: dict[str, str]) -> None:
    page = "third.md" if name == "third_minilm" else "twin.md"
    head, _, *rows = read_table(RESULTS / page, after)
    measured = set(read_scores(name).variant)
    assert [row[0] for row in rows] == [row for row, one in variants.items() if one in measured]
    for label, *numbers in rows:
        expected = [
            find_number(name, variants[label], name_what(column), only_first=True, label=column)
            + find_others(name, variants[label], name_what(column))
            for column in head[1:]
        ]
        assert numbers == expected, label


def test_the_readmes_table() -> None:
    head, _, *rows = read_table(ROOT / "README.md", "## Results")
    shown = (*FIRST_THREE.values(), *list(SWITCHED.values())[1:])
    for (label, *numbers), variant in zip(rows, shown, strict=True):
        expected = [
            find_number(
                "third_minilm", variant, name_what(column), only_first=True, label=column
            ).split(" ")[0]
            for column in head[1:]
        ]
        assert numbers == expected, label


def test_the_announced_tests() -> None:
    names = {"XLM": "xlm", "MetaXLM": "metaxlm", **SWITCHED}
    _, _, *rows = read_table(RESULTS / "third.md", "### Announced tests")
    table = make_primary_tests(read_published("third_minilm"))
    assert table is not None
    lines = table.groups[0].lines
    found = [[line.label, *(cell.text for cell in line.cells)] for line in lines]
    for row, (label, value, half, p_value, _, pretrainings) in zip(rows, found, strict=True):
        first, second = (display_name(names[part]) for part in row[0].split(" − "))
        assert label == f"{first} − {second}"
        probability = p_value.removeprefix("p ").removeprefix("= ")
        assert row[1:] == [value, f"± {half}", probability, pretrainings], label


def test_differences_of_single_pretrainings() -> None:
    alone = replace(read_published("third_minilm"), repeated={})
    text = (RESULTS / "third.md").read_text(encoding="utf-8")

    def subtract(first: str, second: str) -> str:
        return write_points(contrast_strata(alone, first, second)[0].value)

    assert (
        "alone the differences are {}, {}, {}, {} and {},".format(
            *(subtract(*pair) for pair in PRIMARY)
        )
        in text
    )
    gains = subtract("metaxlm-2", "xlm-2"), subtract("metaxlm+dict-2", "metaxlm-2")
    assert (
        "MetaXLM is {} points above XLM here, and +Dict {} above MetaXLM.".format(
            *(gain.removeprefix("+") for gain in gains)
        )
        in text
    )


def test_averages_without_paws_x() -> None:
    results = read_published("third_minilm")
    measures = {t: Measure(t, metrics=results.info(t).metrics) for t in AVERAGED if t != "pawsx"}

    def average(variant: str) -> float:
        means = average_measures(results, [variant], [*measures.values()])[variant][1]
        return 100 * statistics.fmean(
            statistics.fmean(statistics.fmean(s.values()) for s in one.values()) for one in means
        )

    text = (RESULTS / "third.md").read_text(encoding="utf-8")
    names = ("dict+use-2", "dict+use-2+switched-0.3", "dict+use", "dict+use+switched-0.3")
    second, its, first, other = map(average, names)
    gains = second - average("metaxlm+dict-2"), first - average("metaxlm+dict")
    assert (
        f"six other tasks dict+use has {second:.1f} here, {gains[0]:.1f} above +Dict, and {its:.1f}"
        f" with switched words (first pretraining: {first:.1f}, {gains[1]:.1f} above, and "
        f"{other:.1f})"
    ) in text


@pytest.mark.parametrize(
    ("name", "pages"),
    [("second_minilm", ["docs/results/second.md"]),
     ("third_minilm", ["docs/results/third.md", "README.md"])],
)  # fmt: skip
def test_how_much_of_the_gain_is_on_tasks_with_labels(name: str, pages: list[str]) -> None:
    """All-MiniLM-L6-v2 was trained with labels of four of the seven tasks."""
    results = read_published(name)
    gains = {}
    for task in AVERAGED:
        section = results.section(task, "transfer", MAIN_VARIANTS)
        assert section is not None
        mean = {v: statistics.fmean(section.average(v).values()) for v in ("xlm", "metaxlm")}
        gains[task] = mean["metaxlm"] - mean["xlm"]
    share = sum(gains[task] for task in ("xquad", "mlqa", "xnli", "pawsx")) / sum(gains.values())
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert f"{100 * share:.0f} %" in text.partition("labels")[2][:700]


def count_verdicts(name: str) -> tuple[str, ...]:
    report = (RESULTS / name / "report/report.md").read_text(encoding="utf-8")
    counted = re.search(r"paper: (\d+) holds, (\d+) fails, (\d+) undecided", report)
    assert counted is not None
    return counted.groups()


@pytest.mark.parametrize(
    ("name", "page", "start"),
    [
        ("twin", "twin.md", "paper's 35 claims, "),
        ("twin_minilm", "twin.md", "the ready encoder "),
        ("second_minilm", "second.md", "Claims of the paper: "),
        ("third_minilm", "third.md", "Claims of the paper: "),
    ],
)
def test_the_number_of_verdicts(name: str, page: str, start: str) -> None:
    text = " ".join((RESULTS / page).read_text(encoding="utf-8").split())
    found = re.search(start + r"(\d+) hold, (\d+) fails?,? (?:and )?(\d+) are undecided", text)
    assert found is not None
    assert found.groups() == count_verdicts(name)
    assert sum(map(int, found.groups())) == 35


def test_how_far_the_reviews_finetunings_came() -> None:
    text = " ".join((RESULTS / "twin.md").read_text(encoding="utf-8").split())
    last: dict[bool, list[float]] = {True: [], False: []}
    for cell in read_json(RESULTS / "twin_minilm" / "provenance.json")["cells"]:
        if cell["task"].startswith("amazon"):
            last[cell["model"] == "xlm"].append(cell["losses"][-1])
    mine, theirs = last[True], last[False]
    assert (
        f"XLM's training loss is {statistics.fmean(mine):.2f}, theirs "
        f"{statistics.fmean(theirs):.2f}, and {sum(loss > 0.4 for loss in theirs)} of their "
        f"{len(theirs)} finetunings are still above 0.4, none of XLM's {len(mine)}"
    ) in text
    assert max(mine) < 0.4


def test_dev_sets_before_and_after() -> None:
    head, _, *rows = read_table(RESULTS / "second.md", "## Other languages, before and after")
    assert head[1:] == ["XLM", "MetaXLM", "+Dict", "dict+use"]
    assert len(rows) == 4
    for label, *cells in rows:
        for variant, cell in zip(SHOWN, cells, strict=True):
            task, is_english = name_what(label), "English" in label
            rounds = [
                find_dev(n, variant, task, is_english) for n in ("twin_minilm", "second_minilm")
            ]
            assert cell == " / ".join(rounds), f"{label}, {variant}"


def test_dev_sets_that_chose_the_rate() -> None:
    _, _, *rows = read_table(RESULTS / "third.md", "## Rates")
    names = {"MetaXLM": "metaxlm", "+Dict": "metaxlm+dict", "XLM": "xlm"}
    chosen = {("MetaXLM", "3e-4"), ("+Dict", "3e-4"), ("XLM", "1e-3")}
    checked = 0
    for variant, rate, _, pos, xnli, *_ in rows:
        is_earlier = rate == "1e-4 (second round)"
        if is_earlier or (variant, rate) in chosen:
            name = "second_minilm" if is_earlier else "third_minilm"
            found = [find_dev(name, names[variant], task, seed=0) for task in ("udpos", "xnli")]
            assert [pos, xnli] == found, f"{variant}, {rate}"
            checked += 1
    assert checked == 5
