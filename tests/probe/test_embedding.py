from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.probe import embedding
from metaxlm.probe.embedding import compare_vectors, embed_stream, embed_texts
from metaxlm.probe.pool import (
    Frame,
    LayerChoice,
    parse_layers,
    pool_mean,
    tokenize_texts,
)
from tests.finetune.conftest import CPU, TEXT
from tests.model.encoder_kinds import ALL, SENTENCES, write_folder
from tests.probe.conftest import MakeModel


def embed_one(model: AnyEncoder, text: str, *, specials: bool = True) -> torch.Tensor:
    """The definition: all tokens, no batch, no padding; every layer."""
    ids = torch.tensor([model.tokenizer(text)["input_ids"]])
    states = model.encoder.eval().hidden_states(ids)
    inner = slice(None) if specials else slice(1, -1)
    return torch.stack([state[0, inner].mean(dim=0).detach() for state in states])


@pytest.mark.parametrize(
    ("kind", "specials"),
    [("unigram", True), ("byte_bpe", False), ("xlmr", True), ("roberta", False), ("bert", False)],
)
def test_batching_does_not_change_the_vectors(
    make_model: MakeModel, kind: str, specials: bool
) -> None:
    model = make_model(kind, max_positions=256)
    alone = torch.stack([embed_one(model, text, specials=specials) for text in TEXT], dim=1)
    assert alone.shape == (3, len(TEXT), 32)
    for batch_tokens in (1, 150, 100_000):
        vectors = embed_texts(model, TEXT, CPU, specials=specials, batch_tokens=batch_tokens)
        assert vectors.dtype == torch.float32
        torch.testing.assert_close(vectors, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["modernbert", "mpnet", "distilbert"])
def test_encoders_of_other_origin(tmp_path: Path, family: str) -> None:
    model = load_encoder(write_folder(ALL[family], tmp_path / family))
    vectors = embed_texts(model, SENTENCES)
    alone = torch.stack([embed_one(model, text) for text in SENTENCES], dim=1)
    torch.testing.assert_close(vectors, alone, atol=1e-5, rtol=0)


def test_chosen_layers_and_means_of_layers(make_model: MakeModel) -> None:
    model = make_model(max_positions=256)
    model.encoder.train()  # dropout is off all the same
    every = embed_texts(model, TEXT, CPU)
    assert model.encoder.training
    assert embed_texts(model, [], CPU).shape == (3, 0, 32)
    chosen = embed_texts(model, TEXT, CPU, layers=parse_layers("1,0+2,0..2", 2))
    expected = torch.stack([every[1], (every[0] + every[2]) / 2, every.mean(dim=0)])
    torch.testing.assert_close(chosen, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1", [(12,)]),
        ("-13", [(0,)]),
        ("-2..-1", [(11, 12)]),
        ("12+1", [(1, 12)]),
        ("0, 4..5 ,8", [(0,), (4, 5), (8,)]),
        ("all", [(k,) for k in range(13)]),
        ("13", "the encoder has 12 layers; name one from 0"),
        ("last", "cannot be read; write 8, -1"),
        ("", "cannot be read"),
        ("8..6", "write 6..8"),
        ("6..8+7", "a layer is listed twice"),
        ("8,-5", "one of them is listed twice"),
    ],
)
def test_choices_are_parsed(text: str, expected: list[tuple[int, ...]] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(MetaXLMError, match=expected):
            parse_layers(text, 12)
    else:
        assert [choice.numbers for choice in parse_layers(text, 12)] == expected


def test_layers_after_the_deepest_are_not_computed(make_model: MakeModel) -> None:
    model = make_model(max_positions=256)
    computed: list[int] = []
    for layer in model.encoder.layers:
        layer.register_forward_pre_hook(lambda layer, _: computed.append(layer.number))
    embed_texts(model, TEXT, CPU, layers=parse_layers("0,1", 2))
    assert set(computed) == {0}
    embed_texts(model, TEXT, CPU, layers=parse_layers("-1", 2))
    assert set(computed) == {0, 1}


def test_sums_are_in_float32(make_model: MakeModel) -> None:
    # In bfloat16 a sum of 300 ones stops at 256.
    ones = torch.ones(1, 300, 1, dtype=torch.bfloat16)
    mask = torch.ones(1, 300, dtype=torch.bool)
    for pooled in (pool_mean(ones, None), pool_mean(ones, mask)):
        assert pooled.dtype == torch.float32
        assert pooled.item() == pytest.approx(1.0)
    model = make_model(max_positions=256)
    exact = embed_texts(model, TEXT, CPU)
    for precision in ("bfloat16", "float16"):
        rounded = embed_texts(model, TEXT, CPU, precision=precision)  # type: ignore[arg-type]
        assert 0 < (exact - rounded).abs().max() < 0.1
        assert torch._C._get_mkldnn_enabled()  # torch switches it off on some CPUs
    with pytest.raises(MetaXLMError, match="'float64': use one of auto, float32"):
        embed_texts(model, TEXT, CPU, precision="float64")  # type: ignore[arg-type]


def test_long_texts_are_cut_and_named(make_model: MakeModel, messages: Callable[[], str]) -> None:
    model = make_model(max_positions=16)
    long = " ".join(TEXT)
    texts = [long, "the hill", *[long] * 3]
    vectors = embed_texts(model, texts, CPU, title="demo")
    kept = model.tokenizer(long, truncation=True, max_length=16)["input_ids"]
    states = model.encoder.eval().hidden_states(torch.tensor([kept]))
    torch.testing.assert_close(vectors[2, 0], states[2][0].mean(dim=0), atol=1e-5, rtol=0)
    assert messages().endswith(
        "demo: 4 of 5 texts are longer than 16 tokens and were cut: text 1, text 3, text 4, ...\n"
    )


def test_an_earlier_truncation_is_forgotten(any_tokenizer: PreTrainedTokenizerBase) -> None:
    expected = any_tokenizer(TEXT)["input_ids"]
    any_tokenizer(TEXT, truncation=True, padding="max_length", max_length=5)
    ids, _ = tokenize_texts(any_tokenizer, TEXT, Frame(1, 1), 256)
    assert [row.tolist() for row in ids] == expected


def test_texts_without_a_token(make_model: MakeModel) -> None:
    model = make_model()
    texts = ["the hill", " "]
    torch.testing.assert_close(
        embed_texts(model, texts, CPU)[:, 1], embed_one(model, " "), atol=1e-5, rtol=0
    )
    with pytest.raises(MetaXLMError, match=r"^text 2 is empty; a vector needs a text$"):
        embed_texts(model, texts, CPU, specials=False)
    with pytest.raises(MetaXLMError, match=r"^a.txt:2 is empty"):
        list(embed_stream(model, texts, CPU, needs_tokens=True, place="a.txt:{}".format))


def test_any_number_of_texts_in_bounded_memory(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, messages: Callable[[], str]
) -> None:
    model = make_model(max_positions=20)
    everything = embed_texts(model, TEXT * 3, CPU)
    monkeypatch.setattr(embedding, "_MOST_BYTES", 4 * 3 * 32 * 7)
    taken = []

    def read() -> Iterator[str]:
        for text in TEXT * 3:
            taken.append(text)
            yield text

    sizes, parts = [], []
    for part in embed_stream(model, read(), CPU):
        assert len(taken) - sum(sizes) <= 14  # one chunk ahead
        assert part.texts == taken[sum(sizes) : sum(sizes) + len(part.texts)]
        sizes.append(len(part.texts))
        parts.append(part.vectors_YCD)
    assert sizes == [7, 7, 7, 7, 2]
    torch.testing.assert_close(torch.cat(parts, dim=1), everything, atol=1e-5, rtol=0)
    torch.testing.assert_close(embed_texts(model, TEXT * 3, CPU), everything, atol=1e-5, rtol=0)
    lines = [line for line in messages().splitlines() if "longer" in line]
    assert len(lines) == 3
    assert len(set(lines)) == 1
    # The same texts are named, whatever the chunks.
    assert "of 30 texts are longer than 20 tokens and were cut: text " in lines[0]


def test_mistakes(make_model: MakeModel) -> None:
    with pytest.raises(MetaXLMError, match="load both from one model folder"):
        embed_texts(make_model(vocab_size=50), TEXT, CPU)
    with pytest.raises(MetaXLMError, match="layer 3: a model has 2 layers; name one from 0 to 2"):
        embed_texts(make_model(), TEXT, CPU, layers=[LayerChoice((3,))])


def test_how_alike_two_models_are(make_model: MakeModel) -> None:
    first, second = make_model(max_positions=256), make_model(max_positions=256, scale=9.0)
    assert compare_vectors(first, first, TEXT, CPU) == pytest.approx(1.0)
    expected = torch.cosine_similarity(
        embed_texts(first, TEXT, CPU)[-1], embed_texts(second, TEXT, CPU)[-1], dim=-1
    )
    found = compare_vectors(first, second, TEXT, CPU)
    assert found == pytest.approx(float(expected.mean()), abs=1e-5)
