"""Batches: the same rows for every cut of a step, and held-out blocks that no step shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from tests.trainings import Now
from transformers import PreTrainedTokenizerBase

from metaxlm.config import TrainingRecipe
from metaxlm.data.shards import Shard
from metaxlm.errors import MetaXLMError
from metaxlm.languages import rebalance
from metaxlm.pretraining.batches import BatchSource, Piece, Sample
from metaxlm.pretraining.masking import Masking
from metaxlm.pretraining.sampling import CHUNK

RECIPE = TrainingRecipe(batch_size=8, length=32, held_out=2)


@pytest.fixture
def source(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> BatchSource:
    return BatchSource(shards, multilingual_tokenizer, RECIPE, 1)


def assert_same(first: Piece, second: Piece) -> None:
    assert first.samples == second.samples
    assert torch.equal(first.ids_BL, second.ids_BL)
    assert torch.equal(first.lengths_B, second.lengths_B)
    assert torch.equal(first.rows_B, second.rows_B)
    assert first.dropout_seed == second.dropout_seed
    assert first.num_tokens == second.num_tokens


def test_batches_are_functions_of_seed_and_step(
    source: BatchSource, shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    again = BatchSource(shards, multilingual_tokenizer, RECIPE, 1)
    other = BatchSource(shards, multilingual_tokenizer, RECIPE, 2)
    for step in (5, 0, 300):
        assert_same(source.piece(step), again.piece(step))
        assert source.mask_key(step) == again.mask_key(step) != other.mask_key(step)
        assert source.samples(step) == source.piece(step).samples != other.samples(step)
    assert source.samples(0) != source.samples(1)
    assert source.mask_key(0) != source.mask_key(1)


@pytest.mark.parametrize("count", [2, 4])
def test_the_pieces_of_a_step_make_the_same_step(
    source: BatchSource, multilingual_tokenizer: PreTrainedTokenizerBase, count: int
) -> None:
    masking = Masking(multilingual_tokenizer, RECIPE, torch.device("cpu"))
    for step in (0, 3, 700):
        whole = source.piece(step)
        pieces = [source.piece(step, index, count) for index in range(count)]
        assert [sample for piece in pieces for sample in piece.samples] == whole.samples
        assert torch.equal(torch.cat([piece.ids_BL for piece in pieces]), whole.ids_BL)
        assert torch.equal(torch.cat([piece.lengths_B for piece in pieces]), whole.lengths_B)
        assert torch.cat([piece.rows_B for piece in pieces]).tolist() == list(range(8))
        assert sum(piece.num_tokens for piece in pieces) == whole.num_tokens
        assert len({piece.dropout_seed for piece in [whole, *pieces]}) == count + 1
        masked = [
            masking(p.ids_BL, p.lengths_B, p.rows_B, source.mask_key(step), 0.15)
            for p in [whole, *pieces]
        ]
        assert torch.equal(torch.cat([m.ids_BL for m in masked[1:]]), masked[0].ids_BL)
        assert torch.equal(torch.cat([m.labels_M for m in masked[1:]]), masked[0].labels_M)


def test_a_batch_that_cannot_be_cut_is_refused(source: BatchSource) -> None:
    with pytest.raises(MetaXLMError, match="8 blocks cannot be cut into 3 equal pieces"):
        source.piece(0, 0, 3)


def test_a_piece_restores_the_text_it_was_made_from(
    source: BatchSource, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    piece = source.piece(3)
    assert piece.ids_BL.shape == (8, 32)
    assert piece.ids_BL.dtype == piece.lengths_B.dtype == torch.int32
    assert (piece.ids_BL[:, 0] == multilingual_tokenizer.bos_token_id).all()
    real = piece.ids_BL != multilingual_tokenizer.pad_token_id
    assert torch.equal(real, torch.arange(32) < piece.lengths_B[:, None])
    assert piece.num_tokens == int(real.sum())
    text = multilingual_tokenizer.decode(piece.ids_BL[0][real[0]], skip_special_tokens=True)
    assert text.count(".") == (piece.ids_BL[0] == multilingual_tokenizer.eos_token_id).sum() > 1


def test_a_block_is_masked_anew_each_time(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    recipe = TrainingRecipe(batch_size=1, length=256)
    source = BatchSource({"de": shards["de"]}, multilingual_tokenizer, recipe, 1)
    masking = Masking(multilingual_tokenizer, recipe, torch.device("cpu"))
    masks: dict[tuple[str, int], list[list[int]]] = {}
    for step in range(12):
        piece = source.piece(step)
        masked = masking(piece.ids_BL, piece.lengths_B, piece.rows_B, source.mask_key(step), 0.15)
        masks.setdefault(piece.samples[0], []).append(masked.rows_M.tolist())
    repeated = [rows for rows in masks.values() if len(rows) > 1]
    assert repeated
    assert all(rows[0] != rows[1] for rows in repeated)


def test_held_out_blocks_are_shown_by_no_step(source: BatchSource) -> None:
    held = {
        sample
        for language in source.languages
        for piece in source.held_out(language)
        for sample in piece.samples
    }
    drawn = {sample for step in range(200) for sample in source.samples(step)}
    # 128 English sentences make some 40 blocks; a twentieth of those is 2, of the others' 20 is 1.
    assert {language for language, _ in held} == {"en", "de", "ru"}
    assert len([sample for sample in held if sample[0] == "en"]) == 2
    assert not held & drawn
    for language in source.languages:
        blocks = {block for name, block in held | drawn if name == language}
        assert blocks == set(range(len(blocks)))


def test_held_out_pieces_are_no_larger_than_a_batch(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    recipe = TrainingRecipe(batch_size=2, length=10, held_out=100)
    source = BatchSource(shards, multilingual_tokenizer, recipe, 1)
    pieces = source.held_out("en")
    assert len(pieces) > 1
    assert {len(piece.samples) for piece in pieces[:-1]} == {2}
    rows = [row for piece in pieces for row in piece.rows_B.tolist()]
    assert rows == list(range(len(rows)))
    none = BatchSource(
        shards, multilingual_tokenizer, TrainingRecipe(batch_size=2, length=10, held_out=0), 1
    )
    assert none.held_out("en") == []
    tiny = BatchSource(shards, multilingual_tokenizer, TrainingRecipe(batch_size=2, length=512), 1)
    assert tiny.held_out("de") == []


def test_alpha_may_follow_a_schedule(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    recipe = TrainingRecipe(batch_size=8, length=32, alpha={0: 1.0, 2 * CHUNK: 0.0})
    source = BatchSource(shards, multilingual_tokenizer, recipe, 1)
    sizes = {name: shard.counts.bytes for name, shard in shards.items()}
    assert source.probabilities(0) == source.probabilities(CHUNK - 1) == rebalance(sizes, 1.0)
    assert source.probabilities(CHUNK + 9) == rebalance(sizes, 0.5)
    assert source.probabilities(9 * CHUNK) == pytest.approx(dict.fromkeys(shards, 1 / 3))


def test_what_a_teacher_prepares_travels_with_the_piece(
    shards: dict[str, Shard], multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    def prepare(piece: Piece, samples: Sequence[Sample]) -> object:
        return piece.samples, list(samples)

    source = BatchSource(shards, multilingual_tokenizer, RECIPE, 1, prepare)
    piece = source.piece(4, 1, 2)
    assert piece.extra == (piece.samples, source.samples(4))
    assert source.held_out("en")[0].extra is None


def test_little_is_padding(source: BatchSource) -> None:
    pieces = [source.piece(step) for step in range(60)]
    seen = sum(piece.num_tokens for piece in pieces)
    assert 1 - seen / (60 * 8 * 32) == pytest.approx(source.padding_share, abs=0.02)
    assert source.padding_share < 0.15


def test_pieces_stay_where_they_are_on_the_cpu(source: BatchSource) -> None:
    piece = source.piece(0)
    assert piece.to(torch.device("cpu")) is piece


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_pieces_move_to_the_gpu(source: BatchSource) -> None:
    piece = replace(source.piece(0), extra=Now(torch.ones(3)))
    assert piece.ids_BL.is_pinned()
    moved = piece.to(torch.device("cuda"))
    assert moved.extra is not None
    for tensor in (moved.ids_BL, moved.lengths_B, moved.rows_B, *moved.extra.tensors()):
        assert tensor.is_cuda
    assert torch.equal(moved.ids_BL.cpu(), piece.ids_BL)
