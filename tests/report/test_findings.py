from __future__ import annotations

from pathlib import Path
from typing import Any

from metaxlm.report.findings import Headline, find_headline, list_limits, list_strengths
from metaxlm.report.run_folder import Run, read_run
from metaxlm.report.scores import summarize

from .fake_run import RECIPE, VARIANTS, make_row, make_run, write_lines


def headline(run: Run) -> Headline | None:
    return find_headline(run, summarize(run.rows, run.variants))


def run_of(folder: Path, rows: list[dict[str, Any]]) -> Run:
    write_lines(folder / "results.jsonl", rows)
    (folder / "recipe.yaml").write_text(RECIPE)
    return read_run(folder)


def test_headline_names_best_and_baseline(run_dir: Path) -> None:
    found = headline(read_run(run_dir))
    assert found is not None
    assert found.sentence == (
        "MetaXLM+Dict finds the right translation for 68.0 of 100 test sentences; "
        "XLM, which starts from random values, reaches 18.0."
    )
    assert [(v, round(n, 1)) for v, n in found.numbers] == [
        ("xlm", 18.0), ("metaxlm", 43.0), ("metaxlm+dict", 68.0)
    ]  # fmt: skip


def test_headline_admits_that_the_baseline_wins(tmp_path: Path) -> None:
    values = {"xlm": 0.5, "metaxlm": 0.3, "metaxlm+dict": 0.4}
    rows = [make_row(v, "tatoeba", "accuracy", "de", x, layer=0) for v, x in values.items()]
    found = headline(run_of(tmp_path, rows))
    assert found is not None
    assert found.sentence.startswith("No variant beats XLM here")
    assert "MetaXLM+Dict, reaches 40.0" in found.sentence


def test_headline_falls_back_to_alignment_then_transfer(tmp_path: Path) -> None:
    errors = {"xlm": 0.5, "metaxlm": 0.3}
    rows = [make_row(v, "alignment", "aer", "de", x, layer=0) for v, x in errors.items()]
    found = headline(run_of(tmp_path, rows))
    assert found is not None and "lower is better" in found.measure
    assert found.sentence.startswith("MetaXLM aligns words with an error rate of 30.0 percent")
    rows = [
        make_row(v, "xnli", "accuracy", language, x, scenario="transfer")
        for v, x in errors.items()
        for language in ("en", "de")
    ]
    found = headline(run_of(tmp_path, rows))
    assert found is not None and found.sentence.startswith("XLM scores 50.0") is False
    assert "No variant beats XLM" in found.sentence
    rows = [make_row("xlm", "cls", "accuracy", "de", 0.5, scenario="supervised")]
    assert headline(run_of(tmp_path, rows)) is None


def test_headline_keeps_the_baseline_and_the_best_three(tmp_path: Path) -> None:
    values = dict.fromkeys(VARIANTS, 0.1) | {"body": 0.3, "freeze": 0.2, "embeddings": 0.4}
    rows = [make_row(v, "tatoeba", "accuracy", "de", x, layer=0) for v, x in values.items()]
    found = headline(run_of(tmp_path, rows))
    assert found is not None
    assert [variant for variant, _ in found.numbers] == ["xlm", "body", "freeze", "embeddings"]


def test_limits_name_the_synthetic_corpus_only_where_it_is_used(run_dir: Path) -> None:
    assert any("phrasebook" in limit for limit in list_limits(read_run(run_dir)))
    natural = RECIPE.replace("source: phrasebook", "source: text")
    (run_dir / "recipe.yaml").write_text(natural)
    assert not any("phrasebook" in limit for limit in list_limits(read_run(run_dir)))


def test_limits_tell_noise_seeds_and_dictionaries(run_dir: Path, tmp_path: Path) -> None:
    limits = " ".join(list_limits(read_run(run_dir)))
    # 1.96 * sqrt(2 * 0.25 / 200) = 9.8 points
    assert "With 200 test sentences, retrieval differences below about 10 points" in limits
    assert "one seed" in limits
    assert "dictionaries" in limits
    several = read_run(make_run(tmp_path / "several", seeds=2))
    assert "one seed" not in " ".join(list_limits(several))


def test_limits_name_scores_at_the_majority_level(run_dir: Path) -> None:
    # Two standard errors of 1/3 over 200 examples are 6.7 points: XLM's 34-37 are within.
    limits = [limit for limit in list_limits(read_run(run_dir)) if limit.startswith("XNLI")]
    assert limits == [
        "XNLI: XLM is not clearly above the majority label in German, Russian, Chinese, Arabic."
    ]


def test_strengths_give_the_level_of_guessing(run_dir: Path) -> None:
    assert any("guessing would give 0.5 percent" in s for s in list_strengths(read_run(run_dir)))
