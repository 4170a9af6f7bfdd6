"""The whole way: a folder of an encoder comes in, a folder with another vocabulary goes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    CamembertConfig,
    CamembertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaForMaskedLM,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries
from metaxlm.init.ledger import load_ledger
from metaxlm.init.start import Parts, match
from metaxlm.model.huggingface import load_pretrained
from metaxlm.recipe import MatchingRecipe

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def _write(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Save a model of random weights, far from their initial values, and its tokenizer."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _bert(tokenizer: PreTrainedTokenizerBase, **changes: int) -> BertConfig:
    settings = SIZES | {"max_position_embeddings": 40} | changes
    return BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **settings)


@pytest.fixture
def bert(tmp_path: Path, wordpiece: PreTrainedTokenizerBase) -> Path:
    return _write(tmp_path / "bert", BertForMaskedLM(_bert(wordpiece)), wordpiece)


STARTS = {
    "roberta": (RobertaConfig, RobertaForMaskedLM, "byte_bpe", 42),
    "camembert": (CamembertConfig, CamembertForMaskedLM, "pieces", 42),
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaForMaskedLM, "pieces", 42),
    "bert": (BertConfig, BertForMaskedLM, "wordpiece", 40),
    "distilbert": (DistilBertConfig, DistilBertForMaskedLM, "wordpiece", 40),
}


@pytest.mark.parametrize("family", STARTS)
def test_any_start_with_its_own_vocabulary_gives_its_own_vectors(
    request: pytest.FixtureRequest, tmp_path: Path, family: str
) -> None:
    make_config, make_model, fixture, positions = STARTS[family]
    tokenizer = request.getfixturevalue(fixture)
    config = make_config(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        max_position_embeddings=positions,
        **SIZES,
    )
    source = _write(tmp_path / family, make_model(config), tokenizer)
    match(source, tokenizer).save(tmp_path / "start")
    words = ["Haus", "дом", "cat", "London"]
    ids = tokenizer(" ".join(words), return_tensors="pt")["input_ids"]
    with torch.no_grad():
        before = AutoModelForMaskedLM.from_pretrained(source).eval()(ids).logits
        after = AutoModelForMaskedLM.from_pretrained(tmp_path / "start").eval()(ids).logits
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


def test_the_folder_loads_in_transformers_with_the_new_tokenizer(
    bert: Path, pieces: PreTrainedTokenizerBase, dictionaries: Dictionaries, tmp_path: Path
) -> None:
    start = match(bert, pieces, dictionaries=dictionaries)
    start.save(tmp_path / "start")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "start")
    assert tokenizer.get_vocab() == pieces.get_vocab()
    model, loading = AutoModelForMaskedLM.from_pretrained(
        tmp_path / "start", output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    words = model.get_input_embeddings().weight
    source = load_pretrained(bert).model.encoder.embeddings.words.weight
    row = start.plan.tokens.index("▁Katze")
    [english] = start.plan.origin(row).source_rows
    assert torch.equal(words[row], source[english])
    assert torch.equal(model.get_output_embeddings().weight[row], source[english])
    assert load_ledger(tmp_path / "start" / "ledger.parquet") == start.plan
    card = (tmp_path / "start" / "README.md").read_text(encoding="utf-8")
    assert f"| dictionary | {start.plan.count_rules()['dictionary']:,} |" in card
    assert str(tmp_path) not in card


def test_a_bare_encoder_gets_a_head_and_says_so(
    tmp_path: Path, wordpiece: PreTrainedTokenizerBase, pieces: PreTrainedTokenizerBase
) -> None:
    source = _write(tmp_path / "bare", BertModel(_bert(wordpiece)), wordpiece)
    start = match(source, pieces)
    assert "BertModel without a masked language modeling head" in start.remarks[0]
    start.save(tmp_path / "start")
    AutoModelForMaskedLM.from_pretrained(tmp_path / "start")
    assert "without a masked language modeling head" in (tmp_path / "start/README.md").read_text()
    again = match(source, pieces)
    assert torch.equal(start.model.head.dense.weight, again.model.head.dense.weight)


@pytest.mark.parametrize(
    ("length", "remark"),
    [
        (60, "positions 41 to 60 are new to the source, fresh"),
        (20, "the source's positions after 20 of 40 are left out"),
        (None, "one token type is kept, the first; pairs of sentences share it"),
    ],
)
def test_another_length(
    bert: Path, pieces: PreTrainedTokenizerBase, tmp_path: Path, length: int | None, remark: str
) -> None:
    start = match(bert, pieces, max_positions=length)
    assert start.remarks[0] == remark
    start.save(tmp_path / "start")
    model = AutoModel.from_pretrained(tmp_path / "start").eval()
    ids = torch.full((1, length or 40), pieces.convert_tokens_to_ids("▁Haus"))
    assert model(ids).last_hidden_state.shape[1] == (length or 40)


def test_parts_and_seed(bert: Path, pieces: PreTrainedTokenizerBase) -> None:
    body = match(bert, pieces, parts=Parts.preset("body"), seed=3)
    assert body.remarks[0] == "freshly drawn by choice: words, positions, embedding_norm, head"
    source = load_pretrained(bert).model.state_dict()
    for name, value in body.model.state_dict().items():
        assert torch.equal(value, source[name]) == name.startswith("encoder.layers."), name
    other = match(bert, pieces, parts=Parts.preset("body"), seed=4).model
    fresh = body.model.encoder.embeddings.words.weight
    assert not torch.equal(other.encoder.embeddings.words.weight, fresh)


def test_epsilon_and_sizes_are_the_sources(bert: Path, pieces: PreTrainedTokenizerBase) -> None:
    config = match(bert, pieces).model.config
    assert config.norm_eps == 1e-12
    assert config.num_token_types == 1
    assert (config.hidden_size, config.num_layers, config.max_positions) == (16, 2, 40)
    assert (config.pad_id, config.position_offset) == (pieces.pad_token_id, pieces.pad_token_id + 1)


def test_coverage_of_the_users_text(bert: Path, pieces: PreTrainedTokenizerBase) -> None:
    counts = np.zeros(len(pieces), np.int64)
    counts[pieces.convert_tokens_to_ids(["▁London", "ш"])] = (3, 1)
    start = match(bert, pieces, token_counts={"de": counts})
    assert start.coverage["by_language"]["de"]["matched"] == 0.75


def test_choices_reach_the_plan(bert: Path, pieces: PreTrainedTokenizerBase) -> None:
    recipe = MatchingRecipe(rules=["direct"], filler="normal")
    assert match(bert, pieces, matching=recipe).plan.recipe == recipe


def test_nothing_is_overwritten(
    bert: Path, pieces: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    start = match(bert, pieces)
    folder = tmp_path / "start"
    folder.mkdir()
    start.save(folder)
    before = sorted(folder.iterdir())
    with pytest.raises(MetaXLMError, match="start: is there already; remove it or choose another"):
        start.save(folder)
    assert sorted(folder.iterdir()) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_tokenizer_without_a_mask(bert: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordPiece
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(
        WordPiece({"[UNK]": 0, "[PAD]": 1, "a": 2, "b": 3, "c": 4}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(tmp_path / "maskless")
    with pytest.raises(MetaXLMError, match=r"maskless: the tokenizer has no token for mask"):
        match(bert, tmp_path / "maskless")
