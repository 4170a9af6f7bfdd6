from __future__ import annotations

import dataclasses

import pytest
import torch

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig, draw_factors
from metaxlm.model.heads import ClassificationHead
from metaxlm.model.masked_lm import MaskedLM

CONFIG = EncoderConfig(
    vocab_size=60, hidden_size=24, num_layers=2, num_heads=3, ffn_size=40, max_positions=16
)


def make_model(config: EncoderConfig = CONFIG, seed: int = 0) -> MaskedLM:
    torch.manual_seed(seed)
    return MaskedLM(config).eval()


def draw_ids(num_rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(4, 60, (num_rows, length), generator=torch.Generator().manual_seed(seed))


def test_parameter_names_and_shapes_are_the_contract() -> None:
    shapes = {name: tuple(value.shape) for name, value in make_model().state_dict().items()}
    layer = {
        "attention.qkv.weight": (72, 24), "attention.qkv.bias": (72,),
        "attention.output.weight": (24, 24), "attention.output.bias": (24,),
        "attention_norm.weight": (24,), "attention_norm.bias": (24,),
        "ffn_in.weight": (40, 24), "ffn_in.bias": (40,),
        "ffn_out.weight": (24, 40), "ffn_out.bias": (24,),
        "ffn_norm.weight": (24,), "ffn_norm.bias": (24,),
    }  # fmt: skip
    embeddings = {
        "words.weight": (60, 24), "positions.weight": (18, 24), "token_types.weight": (1, 24),
        "norm.weight": (24,), "norm.bias": (24,),
    }  # fmt: skip
    head = {"dense.weight": (24, 24), "norm.weight": (24,), "bias": (60,)}
    head |= {"dense.bias": (24,), "norm.bias": (24,)}
    assert shapes == {
        **{f"encoder.embeddings.{name}": shape for name, shape in embeddings.items()},
        **{f"encoder.layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()},
        **{f"head.{name}": shape for name, shape in head.items()},
    }


def test_initial_values() -> None:
    state = make_model(
        dataclasses.replace(CONFIG, vocab_size=2000, hidden_size=96, ffn_size=200)
    ).state_dict()
    for name, value in state.items():
        if "norm.weight" in name:
            assert value.eq(1).all(), name
        elif name.endswith("bias"):
            assert value.eq(0).all(), name
        elif value.numel() > 5_000:
            assert value.std().item() == pytest.approx(0.02, rel=0.05), name
    assert state["encoder.embeddings.words.weight"][1].eq(0).all()
    assert state["encoder.embeddings.positions.weight"][1].eq(0).all()
    assert state["encoder.embeddings.positions.weight"][2].ne(0).all()


def test_position_rows_count_real_tokens_from_the_offset() -> None:
    embeddings = make_model().encoder.embeddings
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]).bool()
    ids = torch.zeros(2, 5, dtype=torch.long)
    assert embeddings.number_positions(ids, mask).tolist() == [[2, 3, 4, 1, 1], [1, 1, 2, 3, 4]]
    assert embeddings.number_positions(ids, None).tolist() == [[2, 3, 4, 5, 6]]
    bert = dataclasses.replace(CONFIG, pad_id=0, position_offset=0)
    rows = make_model(bert).encoder.embeddings.number_positions(ids, mask)
    assert rows.tolist() == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("left", [False, True], ids=["padding on the right", "on the left"])
def test_padding_changes_nothing(left: bool) -> None:
    model = make_model()
    ids = draw_ids(1, 6)
    alone = model.encoder.hidden_states(ids)
    padding = torch.ones(1, 5, dtype=torch.long)
    real, empty = torch.ones(1, 6).bool(), torch.zeros(1, 5).bool()
    pair = (padding, ids) if left else (ids, padding)
    mask = torch.cat((empty, real) if left else (real, empty), dim=1)
    padded = model.encoder.hidden_states(torch.cat(pair, dim=1), mask)
    for layer, (expected, found) in enumerate(zip(alone, padded, strict=True)):
        torch.testing.assert_close(found[mask], expected[0], atol=1e-6, rtol=0, msg=f"{layer}")


def test_head_rows_are_rows_of_all_logits() -> None:
    model, ids = make_model(), draw_ids(3, 7)
    mask = torch.ones(3, 7).bool()
    mask[1, 4:] = False
    rows = torch.tensor([0, 20, 8, 8, 13])
    chosen = model(ids, mask, rows)
    assert chosen.shape == (5, 60)
    torch.testing.assert_close(chosen, model.logits(ids, mask).flatten(0, 1)[rows])
    assert model(ids, mask, rows[:0]).shape == (0, 60)


def test_dropout_acts_in_training_only() -> None:
    model, ids = make_model(), draw_ids(2, 7)
    assert torch.equal(model.encoder(ids), model.encoder(ids))
    model.train()
    assert not torch.equal(model.encoder(ids), model.encoder(ids))
    still = make_model(dataclasses.replace(CONFIG, dropout=0.0)).train()
    assert not torch.equal(still.encoder(ids), still.encoder(ids)), "attention dropout"
    none = make_model(dataclasses.replace(CONFIG, dropout=0.0, attention_dropout=0.0)).train()
    assert torch.equal(none.encoder(ids), none.encoder(ids))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_one_graph_holds_the_whole_model() -> None:
    model, ids = make_model(), draw_ids(2, 7)
    mask = torch.ones(2, 7).bool()
    mask[1, 4:] = False
    rows = torch.tensor([1, 8])
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(ids, mask, rows), model(ids, mask, rows))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 25}, "hidden_size 25 is not a multiple of num_heads 3"),
        ({"num_layers": 0}, "num_layers is 0"),
        ({"pad_id": 60}, "pad_id 60 is outside"),
        ({"position_offset": 1}, "position_offset is 1"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_impossible_sizes_are_rejected(change: dict[str, float], message: str) -> None:
    with pytest.raises(MetaXLMError, match=message):
        dataclasses.replace(CONFIG, **change)  # type: ignore[arg-type]


def test_a_sequence_that_is_too_long_is_rejected() -> None:
    model = make_model()
    assert model.encoder(draw_ids(1, 16)).shape == (1, 16, 24)
    with pytest.raises(MetaXLMError, match="17 tokens does not fit its 16 positions"):
        model.encoder(draw_ids(1, 17))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_is_independent_and_has_the_given_rate(p: float) -> None:
    torch.manual_seed(3)
    factors = draw_factors(torch.empty(1000, 401), p)
    assert factors.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    kept = (factors > 0).double()
    spread = (p * (1 - p)) ** 0.5
    assert float(kept.mean()) == pytest.approx(1 - p, abs=5 * spread / kept.numel() ** 0.5 + 1e-5)
    # Neighbors share a draw of the generator: four of them, and across rows.
    flat = (kept.flatten() - (1 - p)) / spread
    for distance in (1, 2, 3, 4, 401):
        correlation = float((flat[:-distance] * flat[distance:]).mean())
        assert abs(correlation) < 5 / len(flat) ** 0.5, distance


def test_dropout_of_the_classification_head_is_before_and_after_its_dense_layer() -> None:
    torch.manual_seed(0)
    head = ClassificationHead(EncoderConfig(60, 64, 1, 4, 32, 16, dropout=0.5), 3)
    assert head.dense.weight.std().item() == pytest.approx(0.02, rel=0.25)
    assert not head.dense.bias.any()
    seen: dict[str, torch.Tensor] = {}
    for name in ("dense", "output"):
        module = head.get_submodule(name)
        module.register_forward_pre_hook(lambda _, args, name=name: seen.update({name: args[0]}))
    head(torch.randn(2, 9, 64))
    assert all(0.3 < seen[name].eq(0).float().mean().item() < 0.7 for name in ("dense", "output"))
