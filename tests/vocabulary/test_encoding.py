"""The fast way to ids gives the tokenizer's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import PARTS, sentences
from tests.vocabulary.languages import SENTENCES
from tokenizers import normalizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.vocabulary.encoding import make_encoder, rebuild_model
from metaxlm.vocabulary.sentencepiece_training import train_model
from metaxlm.vocabulary.unigram import fast_tokenizer

LINES = [
    *(line for lines in SENTENCES.values() for line in lines),
    *(line for language in PARTS for line in sentences(language)[:5]),
    "",
    "  ",
]


def _check(tokenizer: PreTrainedTokenizerBase) -> None:
    ids, lengths = make_encoder(tokenizer)(LINES)
    expected = tokenizer(LINES, add_special_tokens=False)["input_ids"]
    assert ids.tolist() == [i for row in expected for i in row]
    assert lengths.tolist() == [len(row) for row in expected]


@pytest.mark.parametrize("name", ["multilingual_tokenizer", "monolingual_tokenizer"])
def test_both_vocabularies_encode_as_their_tokenizers(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    tokenizer: PreTrainedTokenizerBase = request.getfixturevalue(name)
    _check(tokenizer)
    tokenizer.save_pretrained(tmp_path)
    _check(AutoTokenizer.from_pretrained(tmp_path))
    assert make_encoder(tokenizer)([])[0].size == 0


def test_special_tokens_in_text_are_text(
    multilingual_tokenizer: PreTrainedTokenizerBase, monolingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    for tokenizer in (multilingual_tokenizer, monolingual_tokenizer):
        ids, _ = make_encoder(tokenizer)(["the cat <s> <mask> <pad>"])
        assert not set(ids.tolist()) & {0, 1, 2, tokenizer.mask_token_id}
        assert tokenizer("<mask>")["input_ids"][1] == tokenizer.mask_token_id


def test_the_model_comes_back_from_its_tokenizer() -> None:
    tokenizer = fast_tokenizer(train_model(LINES, 600, None, "test"))
    model = rebuild_model(tokenizer.backend_tokenizer)
    assert model is not None
    again = fast_tokenizer(model)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_a_tokenizer_that_is_not_ours_encodes_for_itself(
    multilingual_tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    multilingual_tokenizer.save_pretrained(tmp_path)
    other: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(tmp_path)
    steps = [other.backend_tokenizer.normalizer, normalizers.Lowercase()]
    other.backend_tokenizer.normalizer = normalizers.Sequence(steps)
    assert rebuild_model(other.backend_tokenizer) is None
    _check(other)
