"""Initialize an encoder for another vocabulary, from folders to folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries
from metaxlm.init.ledger import load_ledger
from metaxlm.init.match_plan import Plan, make_plan
from metaxlm.init.start import Parts, Preset, initialize, match
from metaxlm.init.vocabulary import list_vocabulary
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import load_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
POSITIONS_OF = {"Roberta": 42, "Camembert": 42, "XLMRoberta": 42, "Bert": 40, "DistilBert": 40}
POSITIONS_OF["ModernBert"] = 40


def _write(folder: Path, family: str, tokenizer: PreTrainedTokenizerBase) -> Path:
    """Save a model of random weights, far from their initial values, and its tokenizer."""
    sizes = SIZES | {"intermediate_size": 32, "max_position_embeddings": POSITIONS_OF[family]}
    model_class = getattr(transformers, f"{family}ForMaskedLM")
    own = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    model = model_class(model_class.config_class(**sizes, **own))
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def bert(tmp_path: Path, wordpiece: PreTrainedTokenizerBase) -> Path:
    return _write(tmp_path / "bert", "Bert", wordpiece)


@pytest.mark.parametrize("family", POSITIONS_OF)
def test_the_own_vocabulary_gives_the_same_logits(
    request: pytest.FixtureRequest, tmp_path: Path, family: str
) -> None:
    names = {"Roberta": "byte_bpe", "Bert": "wordpiece", "DistilBert": "wordpiece"}
    tokenizer = request.getfixturevalue(names.get(family, "pieces"))
    source = _write(tmp_path / family, family, tokenizer)
    match(source, tokenizer).save(tmp_path / "start")
    ids = tokenizer("Haus дом cat London", return_tensors="pt")["input_ids"]
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


def test_sizes_settings_and_counts(bert: Path, pieces: PreTrainedTokenizerBase) -> None:
    counts = np.zeros(len(pieces), np.int64)
    counts[pieces.convert_tokens_to_ids(["▁London", "ш"])] = (3, 1)
    recipe = MatchingRecipe(rules=["direct", "lower"], filler="normal")
    start = match(bert, pieces, matching=recipe, token_counts={"de": counts})
    assert start.plan.recipe == recipe
    assert start.coverage["by_language"]["de"]["matched"] == 0.75
    config = start.model.config
    assert config.norm_eps == 1e-12
    assert (config.family, config.num_token_types) == ("bert", 2)
    assert (config.hidden_size, config.num_layers, config.max_positions) == (16, 2, 40)
    assert (config.pad_id, config.position_offset) == (pieces.pad_token_id, 0)


SEED = 7
WORDS = "encoder.embeddings.words.weight"
POSITIONS = "encoder.embeddings.positions.weight"
TYPES = "encoder.embeddings.token_types.weight"
BIAS = "head.bias"

PREFIXES = {
    "words": (WORDS,),
    "positions": (POSITIONS, TYPES),
    "embedding_norm": ("encoder.embeddings.norm.",),
    "layers": ("encoder.layers.",),
    "head": ("head.",),
}


def _config(vocab_size: int) -> EncoderConfig:
    return EncoderConfig(vocab_size, 16, 2, 2, 32, max_positions=12)


def _make_source(config: EncoderConfig) -> MaskedLM:
    """A model in which no parameter has its initial value."""
    torch.manual_seed(99)
    model = MaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return model


@pytest.fixture
def source(byte_bpe: PreTrainedTokenizerBase) -> MaskedLM:
    return _make_source(_config(len(byte_bpe)))


@pytest.mark.parametrize("part", list(PREFIXES))
def test_each_switch_copies_its_part_and_nothing_else(
    plan: Plan, source: MaskedLM, part: str
) -> None:
    config = _config(len(plan))
    fresh = initialize(config, None, None, Parts(), SEED).state_dict()
    found = initialize(config, source, plan, Parts(**{part: True}), SEED).state_dict()
    changed = {key for key in fresh if not torch.equal(found[key], fresh[key])}
    assert changed == {key for key in fresh if key.startswith(PREFIXES[part])}


def test_body_embeddings_and_remainder_are_both(plan: Plan, source: MaskedLM) -> None:
    """Every tensor that `both` copies is copied by exactly one of the three."""
    config = _config(len(plan))
    fresh = initialize(config, None, None, Parts(), SEED).state_dict()
    states = {
        name: initialize(config, source, plan, Parts.preset(name), SEED).state_dict()
        for name in get_args(Preset)
    }
    for key, value in states["both"].items():
        copied = [n for n in ("body", "embeddings", "remainder")
                  if not torch.equal(states[n][key], fresh[key])]  # fmt: skip
        assert len(copied) == 1, key
        assert torch.equal(states[copied[0]][key], value)
    assert all(torch.equal(states["none"][key], value) for key, value in fresh.items())


def test_random_values_depend_on_the_seed_alone(plan: Plan, source: MaskedLM) -> None:
    # A model may have more embeddings than its tokenizer has tokens.
    config = _config(len(plan) + 5)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    fresh = initialize(config, None, None, Parts(), SEED).state_dict()
    assert torch.equal(torch.rand(3), expected)
    filled = initialize(config, source, plan, Parts.preset("both"), SEED).state_dict()
    fillers = torch.cat([torch.from_numpy(~plan.is_matched), torch.ones(5, dtype=torch.bool)])
    assert torch.equal(filled[WORDS][fillers], fresh[WORDS][fillers])
    assert torch.equal(filled[BIAS][fillers], fresh[BIAS][fillers])
    other = initialize(config, None, None, Parts(), SEED + 1).state_dict()
    assert not torch.equal(other[WORDS], fresh[WORDS])


def test_embeddings_are_the_weighted_means_of_the_plan(plan: Plan, source: MaskedLM) -> None:
    result = initialize(_config(len(plan)), source, plan, Parts.preset("both"), SEED)
    source_words = source.encoder.embeddings.words.weight
    several = 0
    for row in range(len(plan)):
        origin = plan.origin(row)
        if origin.rule == "filler":
            continue
        rows, weights = list(origin.source_rows), torch.tensor(origin.weights)
        several += len(rows) > 1
        expected = (weights[:, None] * source_words[rows]).sum(0)
        torch.testing.assert_close(result.encoder.embeddings.words.weight[row], expected)
        torch.testing.assert_close(result.head.bias[row], (weights * source.head.bias[rows]).sum())
    assert several


def test_filler_with_the_mean_and_deviation_of_the_source(source: MaskedLM) -> None:
    target = list_vocabulary([f"▁{chr(0x4E00 + i)}" for i in range(4_000)], Kind.SENTENCEPIECE)
    english = list_vocabulary(["Ġcat"] * source.config.vocab_size, Kind.BYTE_BPE)
    recipe = MatchingRecipe(filler="normal", multi_token=False)
    config = _config(len(target))
    with torch.no_grad():
        source.encoder.embeddings.words.weight += torch.arange(16.0)
        source.encoder.embeddings.words.weight[:, 3] *= 10
    plan = make_plan(target, english, recipe)
    found = initialize(config, source, plan, Parts(words=True), SEED)
    rows = torch.arange(len(target)) != config.pad_id
    words = found.encoder.embeddings.words.weight[rows]
    source_words = source.encoder.embeddings.words.weight
    error = source_words.std(0) / 4_000**0.5
    assert ((words.mean(0) - source_words.mean(0)).abs() < 4 * error).all()
    torch.testing.assert_close(words.std(0), source_words.std(0), rtol=0.05, atol=0)
    assert not found.encoder.embeddings.words.weight[config.pad_id].any()


@pytest.mark.parametrize(
    ("source_change", "target_change", "target_rows", "source_rows"),
    [
        # RoBERTa's table into a longer one: both start at row 2.
        ({}, {"max_positions": 20}, slice(0, 14), slice(0, 14)),
        # BERT's first position is row 0, RoBERTa's row 2.
        ({"position_offset": 0, "pad_id": 0}, {}, slice(2, 14), slice(0, 12)),
        ({}, {"position_offset": 0, "pad_id": 0}, slice(0, 12), slice(2, 14)),
        ({"position_offset": 0, "pad_id": 0, "max_positions": 5}, {}, slice(2, 7), slice(0, 5)),
    ],
)
def test_positions_are_aligned_at_the_first_real_one(
    source_change: dict[str, int],
    target_change: dict[str, int],
    target_rows: slice,
    source_rows: slice,
) -> None:
    source = _make_source(replace(_config(20), **source_change))
    config = replace(_config(30), **target_change)
    fresh = initialize(config, None, None, Parts(), SEED).encoder.embeddings.positions.weight
    found = initialize(config, source, None, Parts(positions=True), SEED)
    positions = found.encoder.embeddings.positions.weight
    original = source.encoder.embeddings.positions.weight
    assert torch.equal(positions[target_rows], original[source_rows])
    others = torch.ones(len(positions), dtype=torch.bool)
    others[target_rows] = False
    assert torch.equal(positions[others], fresh[others])


def test_sources_of_the_same_shape_are_required(plan: Plan, source: MaskedLM) -> None:
    config = replace(_config(len(plan)), num_layers=3)
    with pytest.raises(MetaXLMError, match="source model has layers 2, the target 3"):
        initialize(config, source, plan, Parts.preset("both"), SEED)
    with pytest.raises(MetaXLMError, match="nothing to copy layers from"):
        initialize(_config(len(plan)), None, plan, Parts.preset("body"), SEED)
