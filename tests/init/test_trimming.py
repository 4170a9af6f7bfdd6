from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.init.start import trim
from tests.conftest import sentences


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    for language in ("de", "ru"):
        lines = "\n".join(sentences(language))
        (folder / f"{language}.txt").write_text(lines, encoding="utf-8")
    return folder


def test_only_what_the_text_uses_stays(
    text: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    trimmed = trim(multilingual_tokenizer, text, ["de"])
    tokens = trimmed.tokenizer.get_vocab()
    assert len(tokens) == len(trimmed.rows) < len(multilingual_tokenizer)
    assert "▁Katze" in tokens
    assert not any("а" <= char <= "я" for token in tokens for char in token)
    both = trim(multilingual_tokenizer, text)
    assert set(tokens) < set(both.tokenizer.get_vocab())
    assert list(both.losses) == ["de", "ru"]


def test_every_twentieth_sentence_measures_and_is_not_counted(
    text: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    lines = sentences("de")
    # Only the twentieth line has English words: it is measured, not counted.
    lines[19] = "the old man sees the river at night."
    (text / "de.txt").write_text("\n".join(lines), encoding="utf-8")
    trimmed = trim(multilingual_tokenizer, text, ["de"])
    assert trimmed.held_out["de"] == lines[19::20]
    loss = trimmed.losses["de"]
    assert loss.sentences == len(lines) // 20
    assert loss.same == loss.sentences - 1


def test_every_other_sentence_is_counted(
    text: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    for place in (0, 20, 62):
        lines = sentences("de")
        lines[place] = "the old man sees the river at night."
        (text / "de.txt").write_text("\n".join(lines), encoding="utf-8")
        kept = trim(multilingual_tokenizer, text, ["de"]).tokenizer.get_vocab()
        assert set(multilingual_tokenizer.tokenize(lines[place])) <= set(kept)


def test_a_rarer_piece_goes_with_a_higher_count(
    text: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    sizes = [len(trim(multilingual_tokenizer, text, min_count=n).rows) for n in (1, 20, 60)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    assert len(trim(multilingual_tokenizer, text, size=sizes[-1]).rows) == sizes[-1]


def test_a_folder_without_text(
    tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises(MetaXLMError, match="no text in it; name a run"):
        trim(multilingual_tokenizer, tmp_path)
