from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.data.frequencies import count_corpus, count_sentences, list_languages, read_corpus
from metaxlm.data.shards import write_shard
from metaxlm.data.text import seal_text
from metaxlm.errors import MetaXLMError
from metaxlm.vocabulary.byte_bpe import train_byte_bpe

TEXTS = {"de": ["die Katze sieht", "der Hund"], "fr": ["le chat", "un chien", "le chat"]}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_byte_bpe(iter([" ".join(line) for line in TEXTS.values()] * 3), 320)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "de.txt").write_text("\n".join(TEXTS["de"]), encoding="utf-8")
    (folder / "fr.txt.xz").write_bytes(lzma.compress("\n\n".join(TEXTS["fr"]).encode()))
    (folder / "README.md").write_text("not a language")
    return folder


@pytest.fixture
def run(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> Path:
    """A run folder with prepared text and shards."""
    root = tmp_path / "run"
    for language, lines in TEXTS.items():
        text = root / "corpus" / "text" / language
        text.mkdir(parents=True)
        (text / "00000.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        seal_text(text)
        write_shard(root / "shards" / "multilingual" / language, lines, tokenizer)
    return root


def _expected(tokenizer: PreTrainedTokenizerBase, lines: list[str]) -> list[int]:
    ids = [row for line in lines for row in tokenizer(line, add_special_tokens=False)["input_ids"]]
    return np.bincount(ids, minlength=len(tokenizer)).tolist()


def test_sentences(tokenizer: PreTrainedTokenizerBase) -> None:
    counts = count_sentences(TEXTS["de"], tokenizer)
    assert counts.tolist() == _expected(tokenizer, TEXTS["de"])
    assert not count_sentences([], tokenizer).any()


@pytest.mark.parametrize("place", ["run", "run/shards", "run/corpus", "run/corpus/text", "raw"])
def test_every_form_of_text_gives_the_same_counts(
    place: str, run: Path, raw: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    counts = count_corpus(run.parent / place, tokenizer)
    assert {name: one.tolist() for name, one in counts.items()} == {
        name: _expected(tokenizer, lines) for name, lines in TEXTS.items()
    }
    assert run.exists() == raw.exists()


def test_languages_and_limit(raw: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    counts = count_corpus(raw, tokenizer, ["fr"], limit=1)
    assert list(counts) == ["fr"]
    assert counts["fr"].tolist() == _expected(tokenizer, TEXTS["fr"][:1])
    assert list_languages(raw) == ["de", "fr"]
    assert list(read_corpus(raw, "fr")) == TEXTS["fr"]


def test_shards_of_another_tokenizer(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = train_byte_bpe(iter(["quite another text"] * 3), 290)
    counts = count_corpus(run, other)
    assert counts["de"].tolist() == _expected(other, TEXTS["de"])
    assert "shards were made with another tokenizer; counting its text" in capsys.readouterr().out
    with pytest.raises(MetaXLMError, match="made with another tokenizer, and there is no text"):
        count_corpus(run / "shards", other)


def test_folder_without_text(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(MetaXLMError, match="no text in it; name a run"):
        count_corpus(tmp_path, tokenizer)
    with pytest.raises(MetaXLMError, match="no text in it; name a run"):
        count_corpus(tmp_path / "nowhere", tokenizer)


def test_language_that_is_not_there(raw: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(MetaXLMError, match="no file for language 'sw'"):
        count_corpus(raw, tokenizer, ["sw"])
