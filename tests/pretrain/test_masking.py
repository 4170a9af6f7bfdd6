"""Masking: fairseq's counts and shares, the same on every device and for every cut of a step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoTokenizer
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.pretrain.batches.masking import (
    _WORD_BITS,
    IGNORED,
    Masked,
    Masking,
    choose_words,
    cut_bits,
    draw,
    find_words,
    open_streams,
    starts_words,
)
from metaxlm.recipe import TrainingRecipe
from metaxlm.vocab.unigram import train_unigram

CPU = torch.device("cpu")
LENGTH = 40
ROWS = 4_000
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def make_rows(tokenizer: Tokenizer, rows: int = ROWS) -> tuple[Tensor, ...]:
    """Return ids, lengths and row numbers of rows that begin and end with special tokens."""
    random = np.random.default_rng(1)
    ids = torch.from_numpy(random.integers(5, len(tokenizer) - 1, (rows, LENGTH))).int()
    lengths = torch.from_numpy(random.integers(5, LENGTH + 1, rows)).int()
    columns = torch.arange(LENGTH)
    ids[:, 0] = tokenizer.bos_token_id
    ids[columns == lengths[:, None] - 1] = tokenizer.eos_token_id
    ids[columns >= lengths[:, None]] = tokenizer.pad_token_id
    return ids, lengths, torch.arange(rows)


def make_masking(tokenizer: Tokenizer, device: torch.device = CPU, **settings: object) -> Masking:
    recipe = TrainingRecipe(length=LENGTH, **settings)  # type: ignore[arg-type]
    return Masking(tokenizer, recipe, device)


def mark_specials(tokenizer: Tokenizer) -> Tensor:
    is_special = torch.zeros(len(tokenizer), dtype=torch.bool)
    is_special[tokenizer.all_special_ids] = True
    return is_special


def find_chosen(masked: Masked) -> Tensor:
    chosen = torch.zeros(masked.ids_BL.numel(), dtype=torch.bool)
    chosen[masked.positions_M[masked.labels_M != IGNORED]] = True
    return chosen.view_as(masked.ids_BL)


def assert_same(first: Masked, second: Masked) -> None:
    assert torch.equal(first.ids_BL.cpu(), second.ids_BL.cpu())
    assert torch.equal(first.positions_M.cpu(), second.positions_M.cpu())
    assert torch.equal(first.labels_M.cpu(), second.labels_M.cpu())


def test_masking_chooses_and_hides_as_fairseq_does(tokenizer: Tokenizer) -> None:
    ids, lengths, rows = make_rows(tokenizer)
    masked = make_masking(tokenizer)(ids, lengths, rows, 7, 0.15)
    chosen = find_chosen(masked)
    counts = chosen.sum(1)
    assert not (chosen & (torch.arange(LENGTH) >= lengths[:, None])).any()
    least = torch.tensor([int(0.15 * length) for length in lengths.tolist()])
    assert ((counts == least) | (counts == least + 1)).all()
    assert set((counts - least).tolist()) == {0, 1}
    assert counts.sum() / lengths.sum() == pytest.approx(0.15, abs=0.002)
    for column in range(30):  # every position is equally likely
        assert chosen[lengths > column, column].float().mean() == pytest.approx(0.15, abs=0.05)
    # With 20 candidates p L is whole, and adds no chance for one more.
    assert set(counts[lengths == 20].tolist()) == {3}

    used = masked.labels_M != IGNORED
    labels = masked.labels_M[used]
    assert torch.equal(labels, ids.flatten()[masked.positions_M[used]].long())
    now = masked.ids_BL.flatten()[masked.positions_M[used]]
    assert (now == tokenizer.mask_token_id).float().mean() == pytest.approx(0.8, abs=0.01)
    assert (now == labels).float().mean() == pytest.approx(0.1, abs=0.01)
    replaced = now[(now != labels) & (now != tokenizer.mask_token_id)]
    ordinary = set(range(len(tokenizer))) - set(tokenizer.all_special_ids)
    assert set(replaced.tolist()) == ordinary
    assert torch.equal(masked.ids_BL[~chosen], ids[~chosen].long())


def test_shapes_are_fixed_and_unused_slots_are_harmless(tokenizer: Tokenizer) -> None:
    ids, lengths, rows = make_rows(tokenizer, 50)
    for choice in ({}, {"whole_words": True}):
        masking = make_masking(tokenizer, mask_probability={0: 0.1, 9: 0.3}, **choice)
        for probability in (0.0, 0.15, 0.3):
            masked = masking(ids, lengths, rows, 7, probability)
            assert masked.positions_M.shape == masked.labels_M.shape == (50 * 13,)
            rows_M = masked.positions_M.div(LENGTH, rounding_mode="floor")
            assert torch.equal(rows_M, torch.arange(50).repeat_interleave(13))
            share = (masked.labels_M != IGNORED).sum() / lengths.sum()
            assert share == pytest.approx(probability, abs=0.02)
            restored = masked.ids_BL.flatten().clone()
            used = masked.labels_M != IGNORED
            restored[masked.positions_M[used]] = masked.labels_M[used]
            assert torch.equal(restored.view_as(ids), ids.long())


@pytest.mark.parametrize("whole_words", [False, True])
def test_masks_do_not_depend_on_micro_batches(tokenizer: Tokenizer, whole_words: bool) -> None:
    ids, lengths, rows = make_rows(tokenizer, 64)
    masking = make_masking(tokenizer, whole_words=whole_words)
    whole = masking(ids, lengths, rows, 7, 0.15)
    pieces = [
        masking(ids[i : i + 16], lengths[i : i + 16], rows[i : i + 16], 7, 0.15)
        for i in range(0, 64, 16)
    ]
    assert torch.equal(torch.cat([piece.ids_BL for piece in pieces]), whole.ids_BL)
    assert torch.equal(torch.cat([piece.labels_M for piece in pieces]), whole.labels_M)
    shifted = [piece.positions_M + i * 16 * LENGTH for i, piece in enumerate(pieces)]
    assert torch.equal(torch.cat(shifted), whole.positions_M)
    assert not torch.equal(masking(ids, lengths, rows, 8, 0.15).ids_BL, whole.ids_BL)
    # Rows with the same text are masked differently.
    same = masking(ids[:1].expand(64, -1), lengths[:1].expand(64), rows, 7, 0.15)
    assert len({tuple(row) for row in same.ids_BL.tolist()}) > 32


@pytest.mark.parametrize("whole_words", [False, True])
def test_special_tokens_can_be_left_out(tokenizer: Tokenizer, whole_words: bool) -> None:
    ids, lengths, rows = make_rows(tokenizer, 500)
    specials = set(tokenizer.all_special_ids)
    for exclude in (False, True):
        masking = make_masking(tokenizer, exclude_special=exclude, whole_words=whole_words)
        labels = set(masking(ids, lengths, rows, 7, 0.15).labels_M.tolist()) - {IGNORED}
        assert bool(labels & specials) is not exclude
        # Padding is special too, and never chosen.
        assert tokenizer.pad_token_id not in labels


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**20), st.integers(0, 2**16), st.integers(1, 62))
def test_random_numbers_are_those_of_splitmix64(key: int, row: int, column: int, bits: int) -> None:
    def mix(x: int) -> int:
        x %= 1 << 64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % (1 << 64)
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    stream = mix(mix(row * golden + key) + 2)
    expected = mix(stream + column * golden) >> (64 - bits)
    streams = open_streams(key, torch.tensor([5, row]), 3)
    assert streams.shape == (2, 3)
    assert cut_bits(streams[1, 2], bits) == stream >> (64 - bits)
    assert draw(streams[1, 2], torch.tensor([column]), bits).tolist() == [expected]


def list_words(tokenizer: Tokenizer, text: str) -> list[list[str]]:
    """Cut a text into tokens, and these into words as masking sees them."""
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    starts = torch.from_numpy(starts_words(tokenizer))
    first = find_words(ids, starts, mark_specials(tokenizer))[0].tolist()
    words: dict[int, list[str]] = {}
    for token, begin in zip(tokenizer.convert_ids_to_tokens(ids[0]), first, strict=True):
        words.setdefault(begin, []).append(token)
    return list(words.values())


def test_words_of_each_kind_of_tokenizer(
    tokenizer: Tokenizer, monolingual_tokenizer: Tokenizer, encoder: object
) -> None:
    bert = AutoTokenizer.from_pretrained(encoder)
    assert list_words(bert, "the cats see") == [
        ["[CLS]"], ["t", "##h", "##e"], ["cat", "##s"], ["s", "##e", "##e"], ["[SEP]"],
    ]  # fmt: skip
    for each, space in ((tokenizer, "▁"), (monolingual_tokenizer, "Ġ")):
        specials = each.all_special_tokens
        words = list_words(each, "zebras like the river")
        texts = ["".join(word).replace(space, "") for word in words]
        assert [text for text in texts if text not in specials] == [
            "zebras", "like", "the", "river",
        ]  # fmt: skip
        assert max(map(len, words)) > 2
    # Scripts without spaces: every token is a word.
    texts = ["我们喜欢红色的书", "เราชอบหนังสือสีแดง", "we like books"]
    unspaced = train_unigram(iter(texts * 9), 37)
    for text in ("我们喜欢书", "เราชอบหนังสือ"):
        words = [word for word in list_words(unspaced, text) if word != ["▁"]]
        assert len(words) > 4 and all(len(word) <= 2 for word in words)


def test_a_word_begins_after_a_special_token_without_a_mark_of_its_own() -> None:
    starts = torch.tensor([True, False, True])
    is_special = torch.tensor([True, False, False])
    ids = torch.tensor([[0, 1, 1, 2, 1, 0, 1, 1], [1, 1, 2, 2, 1, 1, 1, 0]])
    assert find_words(ids, starts, is_special).tolist() == [
        [0, 1, 1, 3, 3, 5, 6, 6],
        [0, 0, 2, 3, 3, 3, 3, 7],
    ]


def test_whole_words_are_never_split(tokenizer: Tokenizer) -> None:
    ids, lengths, rows = make_rows(tokenizer, 2_000)
    masking = make_masking(tokenizer, whole_words=True)
    chosen = find_chosen(masking(ids, lengths, rows, 7, 0.15))
    starts = torch.from_numpy(starts_words(tokenizer))
    first = find_words(ids.long(), starts, mark_specials(tokenizer))
    assert (first != torch.arange(LENGTH)).any()
    assert torch.equal(chosen, chosen.gather(1, first))
    counts = chosen.sum(1)
    assert counts.max() <= masking.most_chosen(LENGTH) == 7
    # A rate above the recipe's largest finds no room, and splits no word either.
    too_many = find_chosen(masking(ids, lengths, rows, 7, 0.5))
    assert torch.equal(too_many, too_many.gather(1, first))
    assert counts.sum() / lengths.sum() == pytest.approx(0.15, abs=0.005)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.integers(0, 12),
    st.integers(0, 4),
    st.integers(0, 1_000),
)
def test_words_fill_the_budget(sizes: list[int], budget: int, slack: int, key: int) -> None:
    starts = np.cumsum([0, *sizes[:-1]])
    first = torch.from_numpy(np.repeat(starts, sizes))[None]
    total = sum(sizes)
    budget = min(budget, total)
    most = max(1, min(budget + slack, total))
    random = draw(open_streams(key, torch.tensor([0]), 1), first, _WORD_BITS)
    candidates = torch.ones(1, total, dtype=torch.bool)
    columns, used = choose_words(first, candidates, random, torch.tensor([budget]), most)

    order = sorted(range(len(sizes)), key=lambda word: -int(random[0, starts[word]]))
    chosen: set[int] = set()
    for _ in range(3):
        room = budget - sum(sizes[word] for word in chosen)
        fitting = [word for word in order if word not in chosen and sizes[word] <= room]
        ends = np.cumsum([sizes[word] for word in fitting])
        chosen |= {word for word, end in zip(fitting, ends, strict=True) if end <= room}
    positions = {int(p) for w in chosen for p in range(starts[w], starts[w] + sizes[w])}
    assert set(columns[0, : int(used)].tolist()) == positions
    assert len(set(columns[0].tolist())) == most


@pytest.mark.parametrize("whole_words", [False, True])
def test_shapes_do_not_depend_on_values(tokenizer: Tokenizer, whole_words: bool) -> None:
    masking = make_masking(tokenizer, whole_words=whole_words, exclude_special=True)
    # Fake tensors have shapes and no values: reading one, or a shape that needs one, is an error.
    with FakeTensorMode(allow_non_fake_inputs=True):
        ids = torch.zeros(6, LENGTH, dtype=torch.int32)
        rows = torch.arange(6)
        rate = torch.zeros((), dtype=torch.float64)
        masked = masking(ids, rows.int(), rows, torch.zeros((), dtype=torch.int64), rate)
    assert masked.labels_M.shape == masked.positions_M.shape == (6 * 7,)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("whole_words", [False, True])
def test_a_gpu_gives_the_same_masks(tokenizer: Tokenizer, whole_words: bool) -> None:
    ids, lengths, rows = make_rows(tokenizer, 256)
    cuda = torch.device("cuda")
    on_cpu, on_gpu = (make_masking(tokenizer, d, whole_words=whole_words) for d in (CPU, cuda))
    moved = [tensor.to(cuda) for tensor in (ids, lengths, rows)]
    assert_same(on_gpu(*moved, 7, 0.15), on_cpu(ids, lengths, rows, 7, 0.15))

    key = torch.tensor(7, device=cuda)
    rate = torch.tensor(0.15, dtype=torch.float64, device=cuda)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        on_gpu(*moved, key, rate)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        masked = on_gpu(*moved, key, rate)
    for number, probability in ((7, 0.15), (2**63 - 9, 0.05), (12, 0.0)):
        key.fill_(number)
        rate.fill_(probability)
        graph.replay()
        assert_same(masked, on_cpu(ids, lengths, rows, number, probability))
