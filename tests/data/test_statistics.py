"""Sizes and sampling probabilities from shards or text, and token counts of any text."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import sentences
from transformers import PreTrainedTokenizerBase as TokenizerBase

from metaxlm.data.shards import write_shard
from metaxlm.data.statistics import (
    collect_statistics,
    count_corpus,
    describe_losses,
    list_languages,
    read_corpus,
)
from metaxlm.data.text import CorpusCounts, TextCounts, seal_text, write_lines
from metaxlm.errors import MetaXLMError
from metaxlm.vocab.tokenizer import train_byte_bpe

TEXTS = {"de": ["die Katze sieht", "der Hund"], "fr": ["le chat", "un chien", "le chat"]}


@pytest.fixture(scope="module")
def tokenizer() -> TokenizerBase:
    return train_byte_bpe(iter([" ".join(line) for line in TEXTS.values()] * 3), 320)


@pytest.fixture
def run(tmp_path: Path, tokenizer: TokenizerBase) -> Path:
    """A run folder with prepared text and shards."""
    root = tmp_path / "run"
    for language, lines in TEXTS.items():
        text = root / "corpus" / "text" / language
        text.mkdir(parents=True)
        write_lines(text / "00000.txt", [lines])
        counts = TextCounts(1, len(lines), 384, 100, 100)
        seal_text(text, CorpusCounts(counts, 35, {"nul": 5, "redirect": 1}, {"duplicate": 3}, {}))
        write_shard(root / "shards" / "multilingual" / language, lines, tokenizer)
    return root


def test_rows_are_the_shards_counts(tmp_path: Path, multilingual_tokenizer: TokenizerBase) -> None:
    for language, lines in (("en", sentences("en") * 4), ("de", sentences("de")), ("zh", ["ψψ a"])):
        write_shard(tmp_path / "shards" / "multilingual" / language, lines, multilingual_tokenizer)
    rows = collect_statistics(tmp_path, 0.5, "bytes")
    assert [row.language for row in rows] == ["en", "de", "zh"]
    english, german, chinese = rows
    assert english.sentences == 256
    assert english.words == sum(len(line.split()) for line in sentences("en")) * 4
    weights = [row.bytes**0.5 for row in rows]
    assert english.probability == pytest.approx(weights[0] / sum(weights))
    assert german.tokens_per_word == pytest.approx((german.tokens or 0) / german.words)
    assert chinese.tokens_per_word is None  # written without spaces
    assert chinese.unknown and chinese.tokens
    assert chinese.unknown_rate == pytest.approx(chinese.unknown / chinese.tokens)
    by_tokens = collect_statistics(tmp_path / "shards" / "multilingual", 1.0, "tokens")
    tokens = [row.tokens or 0 for row in by_tokens]
    assert by_tokens[0].probability == pytest.approx(tokens[0] / sum(tokens))


def test_text_that_was_not_tokenized_yet(run: Path) -> None:
    row = collect_statistics(run / "corpus", 0.7, "bytes")[0]
    assert (row.tokens, row.unknown_rate, row.tokens_per_word) == (None, None, None)
    assert (row.sentences, row.probability) == (2, 0.5)
    with pytest.raises(MetaXLMError, match="is not tokenized yet"):
        collect_statistics(run / "corpus", 0.7, "tokens")


def test_losses_are_read_from_the_text(run: Path) -> None:
    lines = ["rejected of 70 records: 10 nul, 2 redirect", "dropped paragraphs: 6 duplicate"]
    assert describe_losses(run) == lines
    assert describe_losses(run / "shards") == []


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "de.txt").write_text("\n".join(TEXTS["de"]), encoding="utf-8")
    (folder / "fr.txt.xz").write_bytes(lzma.compress("\n\n".join(TEXTS["fr"]).encode()))
    (folder / "README.md").write_text("not a language")
    return folder


def _expected(tokenizer: TokenizerBase, lines: list[str]) -> list[int]:
    ids = [row for line in lines for row in tokenizer(line, add_special_tokens=False)["input_ids"]]
    return np.bincount(ids, minlength=len(tokenizer)).tolist()


@pytest.mark.parametrize("place", ["run", "run/shards", "run/corpus", "run/corpus/text", "raw"])
def test_counts_of_every_form_of_text(
    place: str, run: Path, raw: Path, tokenizer: TokenizerBase
) -> None:
    counts = count_corpus(run.parent / place, tokenizer)
    assert {name: one.tolist() for name, one in counts.items()} == {
        name: _expected(tokenizer, lines) for name, lines in TEXTS.items()
    }
    assert run.exists() == raw.exists()


def test_languages_and_limit(raw: Path, tokenizer: TokenizerBase) -> None:
    counts = count_corpus(raw, tokenizer, ["fr"], limit=1)
    assert list(counts) == ["fr"]
    assert counts["fr"].tolist() == _expected(tokenizer, TEXTS["fr"][:1])
    assert list_languages(raw) == ["de", "fr"]
    assert list(read_corpus(raw, "fr")) == TEXTS["fr"]


def test_other_tokenizer(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = train_byte_bpe(iter(["quite another text"] * 3), 290)
    counts = count_corpus(run, other)
    assert counts["de"].tolist() == _expected(other, TEXTS["de"])
    assert "shards were made with another tokenizer; counting its text" in capsys.readouterr().out
    with pytest.raises(MetaXLMError, match="made with another tokenizer, and it has no text"):
        count_corpus(run / "shards", other)


def test_folder_without_text(tmp_path: Path, tokenizer: TokenizerBase) -> None:
    with pytest.raises(MetaXLMError, match="no shards or prepared text"):
        collect_statistics(tmp_path, 0.7, "bytes")
    with pytest.raises(MetaXLMError, match="no text in it; name a run"):
        count_corpus(tmp_path, tokenizer)
