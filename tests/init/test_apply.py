from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.init.plan import Plan, make_plan
from metaxlm.init.start import Parts, initialize
from metaxlm.init.vocabulary import list_vocabulary
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind

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
    """A model in which no parameter has its initial value, and some are negative zeros."""
    torch.manual_seed(99)
    model = MaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
            parameter.view(-1)[::5] = -0.0
    return model


@pytest.fixture
def source(byte_bpe: PreTrainedTokenizerBase) -> MaskedLM:
    return _make_source(_config(len(byte_bpe)))


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


@pytest.mark.parametrize("name", ["byte_bpe", "pieces", "wordpiece"])
def test_own_vocabulary_gives_the_source_bit_for_bit(
    request: pytest.FixtureRequest, name: str
) -> None:
    tokenizer = request.getfixturevalue(name)
    config = _config(len(tokenizer))
    if name == "wordpiece":
        config = replace(config, pad_id=0, position_offset=0, num_token_types=2)
    source = _make_source(config)
    plan = make_plan(tokenizer, tokenizer, MatchingRecipe())
    result = initialize(config, source, plan, Parts.preset("both"), SEED)
    expected = source.state_dict()
    found = result.state_dict()
    assert found.keys() == expected.keys()
    for key in expected:
        assert _same_bits(found[key], expected[key]), key


@pytest.mark.parametrize("part", list(PREFIXES))
def test_each_switch_copies_its_part_and_nothing_else(
    plan: Plan, source: MaskedLM, part: str
) -> None:
    config = _config(len(plan))
    fresh = initialize(config, None, None, Parts(), SEED).state_dict()
    found = initialize(config, source, plan, Parts(**{part: True}), SEED).state_dict()
    changed = {key for key in fresh if not torch.equal(found[key], fresh[key])}
    assert changed == {key for key in fresh if key.startswith(PREFIXES[part])}


def test_fresh_values_are_the_seeds_alone(plan: Plan, source: MaskedLM) -> None:
    config = _config(len(plan))
    fresh = initialize(config, None, None, Parts(), SEED).state_dict()
    filled = initialize(config, source, plan, Parts.preset("both"), SEED).state_dict()
    fillers = torch.from_numpy(~plan.is_matched)
    assert fillers.any()
    assert torch.equal(filled[WORDS][fillers], fresh[WORDS][fillers])
    assert torch.equal(filled[BIAS][fillers], fresh[BIAS][fillers])
    other = initialize(config, None, None, Parts(), SEED + 1).state_dict()
    assert not torch.equal(other[WORDS], fresh[WORDS])


def test_the_callers_random_numbers_are_left_alone(plan: Plan) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    initialize(_config(len(plan)), None, None, Parts(), SEED)
    assert torch.equal(torch.rand(3), expected)


def test_rows_are_the_weighted_means_of_the_plan(plan: Plan, source: MaskedLM) -> None:
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


def test_unmatched_rows_with_the_sources_mean_and_deviation(source: MaskedLM) -> None:
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
    ("preset", "parts"),
    [
        ("none", []),
        ("body", ["layers"]),
        ("embeddings", ["words"]),
        ("both", ["words", "positions", "embedding_norm", "layers", "head"]),
    ],
)
def test_presets(preset: str, parts: list[str]) -> None:
    assert Parts.preset(preset).list_names() == parts


def test_unknown_preset() -> None:
    with pytest.raises(MetaXLMError, match="no preset 'all'; choose none, body"):
        Parts.preset("all")


@pytest.mark.parametrize(
    ("source_change", "target_change", "target_rows", "source_rows"),
    [
        # RoBERTa's table into a shorter and into a longer one: both start at row 2.
        ({}, {"max_positions": 8}, slice(0, 10), slice(0, 10)),
        ({}, {"max_positions": 20}, slice(0, 14), slice(0, 14)),
        # BERT's first position is row 0, RoBERTa's row 2.
        ({"position_offset": 0, "pad_id": 0}, {}, slice(2, 14), slice(0, 12)),
        ({}, {"position_offset": 0, "pad_id": 0}, slice(0, 12), slice(2, 14)),
        ({"position_offset": 0, "pad_id": 0, "max_positions": 5}, {}, slice(2, 7), slice(0, 5)),
    ],
)
def test_positions_meet_at_the_first_real_one(
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


def test_first_token_type_goes_with_the_positions() -> None:
    source = _make_source(replace(_config(20), num_token_types=2))
    found = initialize(_config(30), source, None, Parts(positions=True), SEED)
    original = source.encoder.embeddings.token_types.weight
    assert torch.equal(found.encoder.embeddings.token_types.weight[0], original[0])


def test_the_source_is_not_changed(plan: Plan, source: MaskedLM) -> None:
    before = {key: value.clone() for key, value in source.state_dict().items()}
    found = initialize(_config(len(plan)), source, plan, Parts.preset("both"), SEED)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.zero_()
    for key, value in source.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_a_model_may_have_more_rows_than_its_tokenizer(plan: Plan, source: MaskedLM) -> None:
    config = _config(len(plan) + 5)
    fresh = initialize(config, None, None, Parts(), SEED).state_dict()
    found = initialize(config, source, plan, Parts.preset("both"), SEED).state_dict()
    assert torch.equal(found[WORDS][len(plan) :], fresh[WORDS][len(plan) :])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 32}, "source model has hidden size 16, the target 32"),
        ({"num_layers": 3}, "source model has layers 2, the target 3"),
        ({"num_heads": 4}, "source model has attention heads 2, the target 4"),
        ({"ffn_size": 64}, "source model has ffn size 32, the target 64"),
    ],
)
def test_other_shapes_are_refused(
    plan: Plan, source: MaskedLM, change: dict[str, int], message: str
) -> None:
    config = replace(_config(len(plan)), **change)
    with pytest.raises(MetaXLMError, match=message):
        initialize(config, source, plan, Parts.preset("both"), SEED)


def test_another_depth_is_no_obstacle_for_word_rows(plan: Plan, source: MaskedLM) -> None:
    config = replace(_config(len(plan)), num_layers=3)
    found = initialize(config, source, plan, Parts.preset("embeddings"), SEED)
    row = plan.tokens.index("▁London")
    [source_row] = plan.origin(row).source_rows
    words = source.encoder.embeddings.words.weight
    assert torch.equal(found.encoder.embeddings.words.weight[row], words[source_row])


@pytest.mark.parametrize("parts", [Parts(words=True), Parts(head=True)])
def test_words_and_head_need_a_plan(source: MaskedLM, parts: Parts) -> None:
    with pytest.raises(MetaXLMError, match="need a plan"):
        initialize(_config(30), source, None, parts, SEED)


def test_nothing_can_be_copied_without_a_source(plan: Plan) -> None:
    with pytest.raises(MetaXLMError, match="nothing to copy layers from"):
        initialize(_config(len(plan)), None, plan, Parts.preset("body"), SEED)


@pytest.mark.parametrize(
    "shrink", [lambda t, s: (t - 1, s), lambda t, s: (t, s - 1)], ids=["target", "source"]
)
def test_plan_of_other_vocabularies_is_refused(
    plan: Plan, shrink: Callable[[int, int], tuple[int, int]]
) -> None:
    rows, source_rows = shrink(len(plan), plan.source_size)
    source = _make_source(_config(source_rows))
    with pytest.raises(MetaXLMError, match=f"models have {rows} and {source_rows}; make the plan"):
        initialize(_config(rows), source, plan, Parts(words=True), SEED)
