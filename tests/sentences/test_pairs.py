from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.sentences.pairs import MixedPairs, Pairs, PairSource, ParallelPairs, choose, uniform
from metaxlm.sentences.parallel_files import load_parallel

GERMAN = ParallelPairs(["eins", "zwei", "drei"], ["one", "two", "three"], ["de"] * 3, seed=1)
SWAHILI = ParallelPairs(["moja"], ["one"], ["sw"], seed=1)


def rows(pairs: Pairs, source: PairSource) -> list[tuple[str, str, str]]:
    anchors = [source.anchors[number] for number in pairs.anchors]
    return list(zip(anchors, pairs.texts, pairs.languages, strict=True))


def test_random_numbers_are_uniform_and_independent() -> None:
    numbers = np.arange(100_000)
    first, second = uniform(5, numbers, 0), uniform(5, numbers, 1)
    for values in (first, second, uniform(6, numbers, 0)):
        assert values.min() >= 0 and values.max() < 1
        counts = np.histogram(values, 20, (0, 1))[0]
        assert np.abs(counts - 5_000).max() < 350  # five standard deviations
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(first, uniform(6, numbers, 0))[0, 1]) < 0.02


def test_choices_follow_their_weights() -> None:
    drawn = choose([1, 0, 3], uniform(1, np.arange(10_000)))
    shares = np.bincount(drawn, minlength=3) / 10_000
    np.testing.assert_allclose(shares, [0.25, 0, 0.75], atol=0.03)


def test_rows_of_parallel_text_keep_their_translations() -> None:
    texts, anchors = ["eins", "zwei", "moja", "ein"], ["one", "two", "one", "one"]
    source = ParallelPairs(texts, anchors, ["de", "de", "sw", "de"], seed=3)
    assert list(source.anchors) == ["one", "two"]  # equal sentences share an index
    assert source.languages == ("de", "sw")
    assert source.count_rows() == {"de": 3, "sw": 1}
    drawn = Counter(rows(source.draw(np.arange(6_000)), source))
    expected = set(zip(anchors, texts, ["de", "de", "sw", "de"], strict=True))
    assert drawn.keys() == expected
    # Languages are drawn equally often.
    assert abs(drawn["one", "moja", "sw"] - 3_000) < 250


def _mix(seed: int = 1) -> MixedPairs:
    return MixedPairs([(GERMAN, 3.0), (SWAHILI, 1.0)], seed)


@pytest.mark.parametrize("source", [GERMAN, _mix()])
def test_a_pair_depends_on_its_number_only(source: PairSource) -> None:
    whole = rows(source.draw(np.arange(50, 90)), source)
    parts = [
        row for n in range(50, 90, 8) for row in rows(source.draw(np.arange(n, n + 8)), source)
    ]
    assert parts == whole
    assert rows(source.draw(np.array([70, 51])), source) == [whole[20], whole[1]]


def test_sources_are_mixed_by_weight_with_their_own_anchors() -> None:
    mixed = _mix()
    assert list(mixed.anchors) == ["one", "two", "three", "one"]
    assert mixed.languages == ("de", "sw")
    drawn = mixed.draw(np.arange(8_000))
    counts = Counter(rows(drawn, mixed))
    assert abs(counts["one", "moja", "sw"] - 2_000) < 200
    swahili = [place for place, language in enumerate(drawn.languages) if language == "sw"]
    assert set(drawn.anchors[swahili].tolist()) == {3}
    german = {("one", "eins", "de"), ("two", "zwei", "de"), ("three", "drei", "de")}
    assert counts.keys() == german | {("one", "moja", "sw")}
    assert rows(_mix(2).draw(np.arange(99)), mixed) != rows(mixed.draw(np.arange(99)), mixed)


def test_a_mapping_of_sources_is_a_mixture() -> None:
    mixed = MixedPairs({GERMAN: 0.0, SWAHILI: 1.0}, 1)
    assert set(mixed.draw(np.arange(100)).texts) == {"moja"}


Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_files(files: dict[str, str]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return tmp_path

    return write_files


PAIRS = {("one", "eins", "de"), ("two", "zwei", "de")}


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"en-de.tsv": "one\teins\ntwo\tzwei\n"}, "en-de.tsv"),
        ({"de-en.tsv": "eins\tone\nzwei\ttwo\n"}, "de-en.tsv"),
        ({"talks.deu-eng.tsv": "eins\tone\nzwei\ttwo\n"}, "talks.deu-eng.tsv"),
        ({"all.tsv": "one\teins\tde\ntwo\tzwei\tdeu\n"}, "all.tsv"),
        ({"en-de.tsv": "1.250000\tone\teins\n1.1\ttwo\tzwei\n"}, "en-de.tsv"),
        ({"de-en.tsv": "1.25\tx-1\ty-1\teins\tone\n1.1\tx-2\ty-2\tzwei\ttwo\n"}, "de-en.tsv"),
        ({"a.en": "one\ntwo\n", "a.de": "eins\nzwei\n"}, "a.de"),
        ({"a.en": "one\ntwo\n", "a.de": "eins\nzwei\n"}, "a.en"),
        ({"a.en": "one\ntwo\n", "a.de": "eins\nzwei\n"}, "a"),
        ({"a.en": "one\ntwo\n", "a.de": "eins\nzwei\n", "a.log": "?"}, "."),
        ({"en-de.tsv": "one\teins\ntwo\tzwei\n", "en-te.tsv": ""}, "."),  # nothing was mined
        (
            {"tatoeba.deu-eng.deu": "eins\nzwei\n", "tatoeba.deu-eng.eng": "one\ntwo\n"},
            "tatoeba.deu-eng.deu",
        ),
        ({"x/en-de.tsv": "one\teins\r\n", "y/a.en": "two\n", "y/a.de": "zwei\n"}, "."),
    ],
)
def test_layouts_of_parallel_text(write: Write, files: dict[str, str], path: str) -> None:
    source = load_parallel(write(files) / path)
    assert set(rows(source.draw(np.arange(100)), source)) == PAIRS


def test_languages_can_be_chosen(write: Write) -> None:
    folder = write({"en-de.tsv": "one\teins\n", "all.tsv": "one\tmoja\tsw\none\tun\tfr\n"})
    assert load_parallel(folder).languages == ("de", "fr", "sw")
    assert load_parallel(folder, languages=["sw", "de"]).languages == ("de", "sw")
    with pytest.raises(MetaXLMError, match="has pairs in de fr sw, but none in ja"):
        load_parallel(folder, languages=["ja"])
    # A code outside our table is known if the caller names it.
    folder = write({"own/en-xyz.tsv": "one\tbir\n"}) / "own"
    assert load_parallel(folder, languages=["xyz"]).languages == ("xyz",)


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        ({"a.en": "one\ntwo\n", "a.de": "eins\n"}, "a", "a.de:1: has 1 lines, a.en has 2"),
        ({"a.en": "one\n\n", "a.de": "eins\nzwei\n"}, "a", "a.en:2: the line is empty"),
        ({"a.en": "one\n"}, "a.en", "a.en: no translation beside it"),
        ({"a.de": "eins\n"}, "a.de", "a.de: a.en is not beside it"),
        ({"en-de.tsv": ""}, "en-de.tsv", "en-de.tsv:1: the file is empty"),
        ({"en-de.tsv": "one\n"}, "en-de.tsv", "en-de.tsv:1: 1 columns"),
        ({"en-de.tsv": "one\teins\ntwo\n"}, "en-de.tsv", "en-de.tsv:2: 1 columns, but the first"),
        ({"en-de.tsv": "one\teins\ntwo\t\n"}, "en-de.tsv", "en-de.tsv:2: one side is empty"),
        ({"pairs.tsv": "one\teins\n"}, "pairs.tsv", "pairs.tsv: the name does not tell"),
        ({"en-qq.tsv": "one\teins\n"}, "en-qq.tsv", "unknown language 'qq'"),
        ({"en-jp.tsv": "one\teins\n"}, "en-jp.tsv", "unknown language 'jp'; did you mean 'ja'"),
        ({"a.tsv": "one\teins\tde\ntwo\ta\tqq\n"}, "a.tsv", "a.tsv:2: unknown language 'qq'"),
        ({"a.txt": "text\n"}, ".", "no parallel text; parallel text is en-de.tsv"),
        ({"a.txt": "text\n"}, "b", "b: no such file or folder"),
    ],
)
def test_bad_parallel_text_is_one_line(
    write: Write, files: dict[str, str], path: str, message: str
) -> None:
    with pytest.raises(MetaXLMError) as caught:
        load_parallel(write(files) / path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_undecodable_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "en-de.tsv").write_bytes(b"one\teins\ntwo\tz\xe4hlen\n")
    with pytest.raises(MetaXLMError, match=r"en-de\.tsv:2: not UTF-8"):
        load_parallel(tmp_path)
