"""Trim vocabularies by text, and models by matching their own vocabulary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.init.match_plan import make_plan
from metaxlm.init.start import Parts, initialize, trim
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.trim import choose_pieces, trim_tokenizer
from tests.conftest import sentences
from tests.vocab.kinds import LINES, count_pieces, make_tokenizer

COUNTED = LINES[::3]
OTHERS = LINES[1::9]


def _make_model(tokenizer: PreTrainedTokenizerBase) -> MaskedLM:
    """A model with the tokenizer's rows in which no parameter has its initial value."""
    config = EncoderConfig(len(tokenizer), 32, 2, 4, 64, max_positions=160)
    if tokenizer.pad_token_id == 0:
        config = replace(config, pad_id=0, position_offset=0, num_token_types=2)
    torch.manual_seed(3)
    model = MaskedLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
            parameter.view(-1)[::50] = -0.0
    return model


class _Trimmed:
    """A tokenizer and its model, before and after."""

    def __init__(self, kind: str) -> None:
        self.old = make_tokenizer(kind)
        self.old_model = _make_model(self.old)
        counts = count_pieces(self.old, COUNTED)
        self.rows: NDArray[np.int64] = choose_pieces(counts, self.old, min_count=2)
        self.new = trim_tokenizer(self.old, self.rows)
        self.plan = make_plan(self.new, self.old, MatchingRecipe())
        config = replace(self.old_model.config, vocab_size=len(self.new))
        parts = Parts.preset("both")
        self.new_model = initialize(config, self.old_model, self.plan, parts, seed=1).eval()


@pytest.fixture(scope="module", params=["unigram", "byte_bpe", "bert", "roberta", "byte_fallback"])
def trimmed(request: pytest.FixtureRequest) -> _Trimmed:
    return _Trimmed(request.param)


def _encode(tokenizer: PreTrainedTokenizerBase, line: str) -> Tensor:
    return torch.tensor([tokenizer(line)["input_ids"]])


def test_sentences_with_the_same_tokens_have_the_same_vectors_and_logits(trimmed: _Trimmed) -> None:
    rows = torch.from_numpy(trimmed.rows)
    alike = 0
    for line in OTHERS:
        before, after = _encode(trimmed.old, line), _encode(trimmed.new, line)
        if not torch.equal(rows[after], before):
            continue
        alike += 1
        with torch.no_grad():
            hidden = trimmed.old_model.encoder.hidden_states(before)
            again = trimmed.new_model.encoder.hidden_states(after)
            assert all(torch.equal(old, new) for old, new in zip(hidden, again, strict=True))
            old, new = trimmed.old_model.logits(before), trimmed.new_model.logits(after)
        # Products of matrices of another size may round differently.
        torch.testing.assert_close(new, old[..., rows], rtol=1e-5, atol=1e-5)
    assert len(OTHERS) / 2 < alike < len(OTHERS)


def test_rows_and_biases_are_copied_exactly(trimmed: _Trimmed) -> None:
    assert trimmed.plan.sources.tolist() == trimmed.rows.tolist()
    rows = torch.from_numpy(trimmed.rows)
    old, new = trimmed.old_model.state_dict(), trimmed.new_model.state_dict()
    by_row = {name for name in old if old[name].shape != new[name].shape}
    assert by_row == {"encoder.embeddings.words.weight", "head.bias"}
    for name, value in old.items():
        expected = value[rows] if name in by_row else value
        assert torch.equal(expected.view(torch.int32), new[name].view(torch.int32)), name


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    for language in ("de", "ru"):
        lines = "\n".join(sentences(language))
        (folder / f"{language}.txt").write_text(lines, encoding="utf-8")
    return folder


def test_only_tokens_of_the_text_are_kept(
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


def test_every_twentieth_sentence_is_held_out(
    text: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    english = "the old man sees the river at night."
    for place in (20, 19):
        lines = sentences("de")
        lines[place] = english
        (text / "de.txt").write_text("\n".join(lines), encoding="utf-8")
        trimmed = trim(multilingual_tokenizer, text, ["de"])
        kept = set(trimmed.tokenizer.get_vocab())
        assert (set(multilingual_tokenizer.tokenize(english)) <= kept) == (place != 19)
    assert trimmed.held_out["de"] == lines[19::20]
    loss = trimmed.losses["de"]
    assert loss.sentences == len(lines) // 20
    assert loss.same == loss.sentences - 1
