"""claims.yaml is whole: every claim of the paper is there, and every check knows its parameters."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.experiments.claims import Evidence, judge_claims, list_claims
from metaxlm.experiments.claims.claim import Claim, parse_claims
from metaxlm.experiments.claims.judgment import CHECKS, judge
from metaxlm.tasks.registry import TASKS

PAPER = Path(__file__).parents[3] / ".." / "shared" / "paper" / "metaxlm.tex"
VARIANTS = {"xlm", "metaxlm", "metaxlm+dict", "xlm+kd", "freeze", "body", "embeddings"}
VARIANT_KEYS = ("variants", "variant", "first", "second", "seconds", "base", "parts", "whole")
ENTRY = """
- name: one
  statement: a statement
  section: "4"
  paper: its numbers
  test: how
  check: order
  variants: [xlm, metaxlm]
"""


def test_every_claim_calls_its_check_as_it_is() -> None:
    assert {claim.check for claim in list_claims()} == set(CHECKS)
    for claim in list_claims():
        inspect.signature(CHECKS[claim.check]).bind(None, **claim.parameters)
        tasks = claim.parameters.get("tasks", [claim.parameters.get("task")])
        assert set(tasks) <= {*TASKS, "tatoeba", "alignment"}
        named = [claim.parameters.get(key, []) for key in VARIANT_KEYS]
        flat = {name for part in named for name in ([part] if isinstance(part, str) else part)}
        assert flat and flat <= VARIANTS


def test_the_claims_of_the_paper_are_there() -> None:
    names = [claim.name for claim in list_claims()]
    wanted = (
        "average-order", "six-of-seven-tasks", "amazon-every-set", "retrieval-every-layer",
        "alignment-every-layer-but-embedding", "alignment-best-layer", "xlm-lags",
        "metaxlm-does-not-lag", "fifteen-of-sixteen-directions", "distillation-gains-little",
        "freezing-is-worse", "freezing-beats-xlm-on-three", "both-parts-best",
        "one-part-hardly-helps", "amazon-dict", "metaxlm-gap-falls", "xlm-gap-grows",
        "metaxlm-english-stays-high", "similar-languages-transfer-better",
    )  # fmt: skip
    assert set(wanted) <= set(names)


def test_numbers_quoted_from_tables_stand_in_the_paper() -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's source is not here")
    text = PAPER.read_text("utf-8")
    quoted = 0
    for claim in list_claims():
        # Differences (signed) and the mean of six languages are derived, all others are printed.
        derived = {"34.9", "46.9"} if claim.name == "other-languages-gain" else set()
        for number in re.findall(r"(?<![+\d.-])\d+\.\d(?!\d)", claim.paper):
            if number not in derived:
                assert number in text, (claim.name, number)
                quoted += 1
    assert quoted > 60


def test_sections_name_the_papers_own_tables_and_figures() -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's source is not here")
    text = PAPER.read_text("utf-8")
    numbers: dict[str, str] = {}
    for kind in ("figure", "table"):
        blocks = re.findall(rf"\\begin{{{kind}\*?}}.*?\\end{{{kind}\*?}}", text, re.DOTALL)
        labels = [re.findall(r"\\label{([^}]*)}", block)[-1] for block in blocks]
        numbers |= {label: f"{kind.title()} {k}" for k, label in enumerate(labels, start=1)}
    places = {
        "average-order": "table:xtreme", "amazon-every-set": "table:cls", "xlm-lags": "fig:step",
        "retrieval-every-layer": "fig:tat", "alignment-best-layer": "fig:wa",
        "fifteen-of-sixteen-directions": "fig:direction", "freezing-is-worse": "table:freeze",
        "distillation-gains-little": "table:kd", "both-parts-best": "table:init",
    }  # fmt: skip
    sections = {claim.name: claim.section for claim in list_claims()}
    for name, label in places.items():
        assert sections[name].endswith(f", {numbers[label]}"), name
    assert sections["english-gains"] == "4.2, Tables 9 to 15"
    assert (numbers["table:xquad"], numbers["table:wikiann"]) == ("Table 9", "Table 15")


def test_without_results_nothing_can_be_told() -> None:
    verdicts = judge_claims(Evidence([]))
    assert [verdict.claim for verdict in verdicts] == list_claims()
    assert {verdict.outcome for verdict in verdicts} == {"cannot be told"}
    assert all(verdict.reason.startswith("No scores of") for verdict in verdicts)


def test_a_claim_is_parsed() -> None:
    (claim,) = parse_claims(ENTRY, "mine.yaml")
    assert claim == Claim("one", "a statement", "4", "its numbers", "how", "order")
    assert claim.parameters == {"variants": ["xlm", "metaxlm"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY.replace("  test: how\n", ""), "mine.yaml: one: test must be there"),
        (ENTRY.replace('"4"', "4"), "mine.yaml: one: section must be there, and be text"),
        (ENTRY + ENTRY, "mine.yaml: one: there are two claims"),
        ("- 3", "mine.yaml: claim 1: name must be there"),
        ("a: b", "mine.yaml: a list of claims is expected"),
        ("- a\n- [", "mine.yaml:2: not YAML: expected"),
    ],
)
def test_a_broken_entry_is_named(text: str, message: str) -> None:
    with pytest.raises(MetaXLMError, match=message):
        parse_claims(text, "mine.yaml")


def test_an_unknown_check_is_named() -> None:
    (claim,) = parse_claims(ENTRY.replace("order", "ordr"), "mine.yaml")
    with pytest.raises(MetaXLMError, match=r"one: unknown check 'ordr' \(known: order, "):
        judge(claim, Evidence([]))
