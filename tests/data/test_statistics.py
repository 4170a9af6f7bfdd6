"""The corpus in numbers: from shards or from text, with the paper's distribution."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import sentences
from transformers import PreTrainedTokenizerBase

from metaxlm.data.shards import write_shard
from metaxlm.data.statistics import collect_losses, collect_statistics
from metaxlm.data.text import CorpusCounts, TextCounts, seal_text, write_lines
from metaxlm.errors import MetaXLMError


@pytest.fixture
def run_dir(tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase) -> Path:
    """Shards of three languages, and prepared text of one of them."""
    shards = tmp_path / "shards" / "multilingual"
    for language, lines in (("en", sentences("en") * 4), ("de", sentences("de")), ("zh", ["ψψ a"])):
        write_shard(shards / language, lines, multilingual_tokenizer)
    text = tmp_path / "corpus" / "text" / "de"
    text.mkdir(parents=True)
    write_lines(text / "00000.txt", [sentences("de")])
    counts = TextCounts(1, 64, 384, 100, 100)
    seal_text(text, CorpusCounts(counts, 70, {"nul": 5, "redirect": 1}, {"duplicate": 3}, {}))
    return tmp_path


def test_rows_are_the_shards_counts(run_dir: Path) -> None:
    rows = collect_statistics(run_dir, 0.5, "bytes")
    assert [row.language for row in rows] == ["en", "de", "zh"]
    english, german, chinese = rows
    assert english.sentences == 256
    assert english.words == sum(len(line.split()) for line in sentences("en")) * 4
    weights = [row.bytes**0.5 for row in rows]
    assert english.probability == pytest.approx(weights[0] / sum(weights))
    assert german.tokens_per_word == pytest.approx((german.tokens or 0) / german.words)
    assert chinese.tokens_per_word is None  # written without spaces
    assert chinese.unknown_rate == pytest.approx((chinese.unknown or 0) / (chinese.tokens or 1))
    assert (chinese.unknown or 0) > 0
    by_tokens = collect_statistics(run_dir / "shards" / "multilingual", 1.0, "tokens")
    tokens = [row.tokens or 0 for row in by_tokens]
    assert by_tokens[0].probability == pytest.approx(tokens[0] / sum(tokens))


def test_text_that_was_not_tokenized_yet(run_dir: Path) -> None:
    (row,) = collect_statistics(run_dir / "corpus", 0.7, "bytes")
    assert (row.tokens, row.unknown_rate, row.tokens_per_word) == (None, None, None)
    assert (row.sentences, row.probability) == (64, 1.0)
    with pytest.raises(MetaXLMError, match="was not tokenized yet"):
        collect_statistics(run_dir / "corpus", 0.7, "tokens")


def test_losses_come_from_the_text(run_dir: Path) -> None:
    losses = collect_losses(run_dir)
    assert losses is not None
    assert losses.records == 70
    assert losses.rejected == {"nul": 5, "redirect": 1}
    assert losses.dropped == {"duplicate": 3}
    assert collect_losses(run_dir / "shards") is None


def test_a_folder_without_either_is_named(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="neither shards nor prepared text"):
        collect_statistics(tmp_path, 0.7, "bytes")
