from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from metaxlm.errors import MetaXLMError
from metaxlm.model.sentence_modules import SentenceModules
from metaxlm.probe.calibration import calibrate
from metaxlm.probe.sentence_evaluation import (
    SentenceEncoder,
    compare_with_teacher,
    measure_directions,
    measure_mining,
    read_sentence_data,
    score_sentences,
)
from tests.finetune.conftest import CPU, TEXT, write
from tests.probe.conftest import MakeModel

RANDOM = np.random.default_rng(5)


def make_vectors(count: int, width: int = 6) -> torch.Tensor:
    vectors = torch.from_numpy(RANDOM.normal(size=(count, width)).astype(np.float32))
    return torch.nn.functional.normalize(vectors, dim=1)


def correlate(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's correlation by its definition."""
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


@pytest.mark.parametrize(("lines", "rows"), [("all", (0, 1)), ("even", (0, 2)), ("odd", (1, 2))])
def test_half_of_the_lines_are_queries_among_all(lines: Any, rows: tuple[int, int]) -> None:
    foreign = make_vectors(31)
    english = foreign + 0.4 * make_vectors(31)
    cosines = (foreign @ torch.nn.functional.normalize(english, dim=1).T).numpy()
    queries = slice(rows[0] if lines != "all" else 0, None, rows[1])
    found = measure_directions(foreign, english, lines)
    expected = [
        np.mean((table.argmax(axis=1) == np.arange(31))[queries]) for table in (cosines, cosines.T)
    ]
    assert [found["to_en"], found["from_en"]] == pytest.approx(expected)
    assert found["mean"] == pytest.approx(np.mean(expected))


def test_mining_uses_the_chosen_lines_only() -> None:
    foreign = make_vectors(200)
    english = foreign + 0.3 * make_vectors(200)
    found = measure_mining(foreign, english, "odd")
    expected = calibrate(foreign[1::2], english[1::2], margin="distance")
    assert found["f1"] == expected.scores.f1 > 0
    assert found["threshold"] == expected.threshold
    english[::2] = 0  # other lines play no part
    assert measure_mining(foreign, english, "odd") == found
    assert measure_mining(foreign[:100], english[:100], "odd") == {}


def test_what_is_kept_of_the_teacher() -> None:
    ours, theirs, wide = make_vectors(20), make_vectors(20), make_vectors(20, 9)
    above = np.triu_indices(20, k=1)
    found = compare_with_teacher(ours, theirs)
    similarities = [(side @ side.T).numpy()[above] for side in (ours, theirs, wide)]
    assert found["spearman"] == pytest.approx(correlate(*similarities[:2]))
    assert found["cosine"] == pytest.approx(float((ours * theirs).sum(dim=1).mean()), abs=1e-6)
    assert compare_with_teacher(ours, ours) == pytest.approx({"cosine": 1.0, "spearman": 1.0})
    other = compare_with_teacher(ours, wide)
    assert other == pytest.approx({"spearman": correlate(similarities[0], similarities[2])})


def test_correlation_with_scores_of_a_file(make_model: MakeModel, tmp_path: Path) -> None:
    pairs = list(zip(TEXT[:5], TEXT[5:], [0.5, 4, 3.5, 1, 2], strict=True))
    path = write(tmp_path / "sts.tsv", "".join(f"{a}\t{b}\t{score}\n" for a, b, score in pairs))
    english = write(tmp_path / "en.txt", "\n".join(TEXT) + "\n")
    data = read_sentence_data(None, sts=[path], english=english)
    modules = SentenceModules(pooling="cls", max_length=4)
    model = make_model(max_positions=64)
    encoder = SentenceEncoder("a", model, modules, CPU)
    scores, vectors = score_sentences(encoder, data)
    assert set(scores) == {"english", "sts"}
    assert scores["english"] == pytest.approx({"cosine": 1.0, "spearman": 1.0})
    # The first token of the first four, text by text.
    expected = []
    for text in TEXT:
        ids = model.tokenizer(text, truncation=True, max_length=4)["input_ids"]
        states = model.encoder.eval().hidden_states(torch.tensor([ids]))[-1]
        expected.append(torch.nn.functional.normalize(states[0, 0].detach(), dim=0))
    assert vectors is not None
    torch.testing.assert_close(vectors, torch.stack(expected), atol=1e-5, rtol=0)
    cosines = [float(expected[k] @ expected[k + 5]) for k in range(5)]
    wanted = correlate(np.array(cosines), np.array([score for *_, score in pairs]))
    assert scores["sts"]["sts"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\tb\n", "sts.tsv:1: cannot be read; write text TAB text TAB score"),
        ("a\tb\t1\na\tb\tgood\n", "sts.tsv:2: cannot be read"),
        ("a\tb\t1\n \tb\t2\n", "sts.tsv:2: needs two texts and a finite score"),
        ("a\tb\t1\na\tb\tnan\n", "sts.tsv:2: needs two texts and a finite score"),
        ("a\tb\t1\na\tc\t1\n", "sts.tsv: all scores are equal"),
    ],
)
def test_broken_files_of_scores(tmp_path: Path, content: str, expected: str) -> None:
    path = write(tmp_path / "sts.tsv", content)
    with pytest.raises(MetaXLMError, match=expected):
        read_sentence_data(None, sts=[path])


def test_files_of_scores_need_different_names(tmp_path: Path) -> None:
    paths = [write(tmp_path / name / "sts.tsv", "a\tb\t1\na\tc\t2\n") for name in ("one", "two")]
    with pytest.raises(MetaXLMError, match="two files have the same name"):
        read_sentence_data(None, sts=paths)


def test_missing_data_sets_are_named(tmp_path: Path, messages: Callable[[], str]) -> None:
    with pytest.raises(MetaXLMError, match="nothing to score; name --data, --english or --sts"):
        read_sentence_data(tmp_path)
    told = messages()
    for name in ("tatoeba", "xnli", "reviews", "English"):
        assert f"{name}: skipped, " in told
    with pytest.raises(MetaXLMError, match=r"--data .*: no such folder"):
        read_sentence_data(tmp_path / "missing")
