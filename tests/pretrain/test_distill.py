"""Distillation against direct computations, one block and one token at a time."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from tests.pretrain.distill_cases import (
    BLOCKS,
    CPU,
    ENGLISH,
    LENGTH,
    TEACHERS,
    compare_means_directly,
    compare_tokens_directly,
    encode_alone,
    encode_masked,
    lay_out,
    make,
    make_model,
    make_piece,
    mask,
    teach,
    value_of,
)
from tests.vocabulary.kinds import make_tokenizer

from metaxlm.config import DistillationRecipe, ExecutionRecipe, TrainingRecipe
from metaxlm.errors import MetaXLMError
from metaxlm.model.hugging_face import Pretrained
from metaxlm.pretrain.batches.masking import IGNORED, Masked, Masking
from metaxlm.pretrain.batches.source import Piece
from metaxlm.pretrain.checkpoint import TrainingState
from metaxlm.pretrain.distill import Distillation, Lesson, fill_up, make_teacher
from metaxlm.pretrain.distributed import World
from metaxlm.pretrain.engine import Engine
from metaxlm.pretrain.objective import Objective


@pytest.mark.parametrize("kind", TEACHERS)
def test_both_terms_equal_the_direct_computation(kind: str) -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer(kind)
    student, teacher = make_model(ours, 1), make_model(theirs, 2)
    blocks = [(language, [line.lower() for line in lines]) for language, lines in BLOCKS]
    piece = make_piece(ours, blocks)
    masked = mask(piece, ours, num=9)
    means, divergences, counted = [], [], 0
    for index in (0, 2, 3):
        length = int(piece.lengths_B[index])
        ids = masked.ids_BL[index, :length].tolist()
        chosen = [int(c) % LENGTH for c in masked.rows_M.view(4, -1)[index, :-1]]
        lines = blocks[index][1]
        means.append(value_of(compare_means_directly(student, teacher, theirs, lines, ids)))
        value, number = compare_tokens_directly(
            (student, ours), (teacher, theirs), lines, ids, chosen, temperature=2.0
        )
        divergences.append(value)
        counted += number
    assert counted >= 5
    assert min(means) > 0.01
    assert max(divergences) > 0.01

    pooled = make(teacher, theirs, ours, pooled=0.7, tokens=0.0)
    assert value_of(teach(pooled, student, piece, masked)) == pytest.approx(
        0.7 * sum(means) / 3, rel=1e-4
    )
    tokens = make(teacher, theirs, ours, pooled=0.0, tokens=1.3, temperature=2.0)
    assert value_of(teach(tokens, student, piece, masked)) == pytest.approx(
        1.3 * sum(divergences) / 3, rel=1e-4
    )
    both = make(teacher, theirs, ours, pooled=0.7, tokens=1.3, temperature=2.0)
    assert value_of(teach(both, student, piece, masked)) == pytest.approx(
        (0.7 * sum(means) + 1.3 * sum(divergences)) / 3, rel=1e-4
    )


@pytest.mark.parametrize("kind", ["unigram", "byte_bpe", "bert"])
def test_a_student_that_is_the_teacher_has_nothing_to_learn(kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    model = make_model(tokenizer, 3)
    piece = make_piece(tokenizer, [("en", [line.lower() for line in b[1]]) for b in BLOCKS], 60)
    tokens = make(model, tokenizer, tokenizer, pooled=0.0, tokens=1.0)
    lesson = tokens.prepare(piece, piece.samples)
    assert lesson is not None
    # Tokens without characters, such as `</s>`, are not hidden from the teacher.
    masked = mask(piece, tokenizer, num=5, allowed=(lesson.partners_RL >= 0).numpy())
    assert value_of(teach(tokens, model, piece, masked)) == pytest.approx(0.0, abs=1e-5)
    other = make_model(tokenizer, 4)
    assert value_of(teach(tokens, other, piece, masked)) > 0.1

    whole = Masked(piece.ids_BL.long(), masked.rows_M, torch.full_like(masked.labels_M, IGNORED))
    pooled = make(model, tokenizer, tokenizer, pooled=1.0, tokens=1.0)
    assert value_of(teach(pooled, model, piece, whole)) == pytest.approx(0.0, abs=1e-9)
    assert value_of(teach(pooled, model, piece, masked)) > 1e-3


@pytest.mark.parametrize("limit", [5, 6, 8, 10, 11])
def test_a_block_that_is_too_long_for_the_teacher_is_cut_in_both(limit: int) -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    student, teacher = make_model(ours, 1), make_model(theirs, 2, positions=limit)
    lines = [line.lower() for line in BLOCKS[0][1]]
    piece = make_piece(ours, [("en", lines), ("en", ["a dog"])])
    whole = [token[0] for token in lay_out(theirs, lines)]
    assert len(whole) > limit
    masked = mask(piece, ours, num=9)
    distillation = make(teacher, theirs, ours, pooled=1.0)
    lesson = distillation.prepare(piece, piece.samples)
    assert lesson is not None
    assert lesson.ids_RT[0].tolist() == [*whole[: limit - 1], theirs.sep_token_id]
    read = frozenset().union(*(token[2] for token in lay_out(theirs, lines)[: limit - 1]))
    our_tokens = lay_out(ours, lines)
    unread = min(place for place, token in enumerate(our_tokens) if token[2] - read)
    # A space that is a token of its own goes with the word after it.
    unread -= our_tokens[unread - 1][1] == ("", True)
    assert lesson.covered_RL[0].tolist() == [place < unread for place in range(LENGTH)]
    assert (lesson.partners_RL[0, unread:] == -1).all()
    assert lesson.covered_RL[1].sum() == piece.lengths_B[1]

    hidden = encode_masked(student, piece, masked)
    first = hidden[0, :unread].mean(0) - encode_alone(teacher, lesson.ids_RT[0].tolist()).mean(0)
    dog = [token[0] for token in lay_out(theirs, ["a dog"])]
    second = hidden[1, : piece.lengths_B[1]].mean(0) - encode_alone(teacher, dog).mean(0)
    expected = (first.square().mean() + second.square().mean()) / 2
    assert value_of(teach(distillation, student, piece, masked)) == pytest.approx(
        value_of(expected)
    )


def test_only_blocks_in_the_source_language_matter() -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    student, teacher = make_model(ours, 1), make_model(theirs, 2)
    distillation = make(teacher, theirs, ours, pooled=1.0, tokens=1.0)
    piece = make_piece(ours, BLOCKS)
    masked = mask(piece, ours, num=9)
    lesson = distillation.prepare(piece, piece.samples)
    assert lesson is not None
    hidden = encode_masked(student, piece, masked).detach().requires_grad_()
    loss = distillation.loss(student, hidden, masked, lesson)
    loss.backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert hidden.grad[1].abs().sum() == 0
    assert all(hidden.grad[row].abs().sum() > 0 for row in (0, 2, 3))
    # What stands at padding may be anything, even not a number.
    spoiled = hidden.detach().clone()
    spoiled[1] = torch.nan
    for row, length in enumerate(piece.lengths_B.tolist()):
        spoiled[row, length:] = torch.nan
    assert torch.equal(distillation.loss(student, spoiled, masked, lesson), loss)
    german = make_piece(ours, [BLOCKS[1]])
    assert distillation.prepare(german, piece.samples) is None


def test_gradients_reach_the_student_and_never_the_teacher() -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    student = make_model(ours, 1)
    source = Pretrained(make_model(theirs, 2).train(), theirs, "RobertaForMaskedLM", ())
    recipe = DistillationRecipe(pooled=1.0, tokens=1.0)
    distillation = make_teacher(source, ours, student.config, recipe, "en", CPU)
    before = copy.deepcopy(source.model.state_dict())
    objective = Objective(student, distillation).train()
    assert {id(p) for p in objective.parameters()} == {id(p) for p in student.parameters()}
    piece = make_piece(ours, BLOCKS)
    masked = mask(piece, ours, num=9)
    lesson = distillation.prepare(piece, piece.samples)
    state = torch.get_rng_state()
    loss, term = objective(masked, piece.lengths_B, lesson)
    assert not source.model.training
    assert loss.requires_grad
    term.backward()
    for name, parameter in student.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all()
    assert student.encoder.layers[0].ffn_in.weight.grad.abs().sum() > 0
    assert student.head.dense.weight.grad.abs().sum() > 0
    assert all(p.grad is None and not p.requires_grad for p in source.model.parameters())
    assert all(torch.equal(before[k], v) for k, v in source.model.state_dict().items())
    # The teacher draws no random numbers: the student's dropout is what it is without one.
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    Objective(student).train()(masked, piece.lengths_B)
    assert torch.equal(torch.get_rng_state(), after)


def test_the_pieces_of_a_step_add_up_to_the_whole() -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    student, teacher = make_model(ours, 1), make_model(theirs, 2)
    distillation = make(teacher, theirs, ours, pooled=1.0, tokens=0.5)
    blocks = [*BLOCKS, BLOCKS[1], ("en", [ENGLISH[7]])]
    whole = make_piece(ours, blocks)
    masked = mask(whole, ours, num=7)
    total = teach(distillation, student, whole, masked)
    parts = []
    for first, last in ((0, 1), (1, 2), (2, 6)):
        piece = make_piece(ours, blocks[first:last])
        slots = slice(first * 8, last * 8)
        part = Masked(
            masked.ids_BL[first:last], masked.rows_M[slots] - first * LENGTH, masked.labels_M[slots]
        )
        lesson = distillation.prepare(piece, whole.samples)
        if lesson is not None:
            hidden = encode_masked(student, piece, part)
            parts.append(distillation.loss(student, hidden, part, lesson))
    assert len(parts) == 2
    assert value_of(sum(parts)) == pytest.approx(value_of(total), rel=1e-5)


def test_preparing_is_pure_and_may_run_in_many_threads() -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    distillation = make(make_model(theirs, 2), theirs, ours)
    pieces = [make_piece(ours, [("en", [line]), BLOCKS[1]]) for line in ENGLISH]
    copies = [piece.ids_BL.clone() for piece in pieces]

    def prepare(piece: Piece) -> Lesson:
        lesson = distillation.prepare(piece, piece.samples)
        assert lesson is not None
        return lesson

    alone = [prepare(piece) for piece in pieces]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(prepare, pieces * 3))
    for index, found in enumerate(together):
        wanted = alone[index % len(pieces)]
        for field in fields(Lesson):
            assert np.array_equal(getattr(found, field.name), getattr(wanted, field.name))
    assert all(torch.equal(c, p.ids_BL) for c, p in zip(copies, pieces, strict=True))


@pytest.mark.parametrize("weights", [{"pooled": 1.0}, {"pooled": 0.0, "tokens": 1.0}])
def test_training_on_a_term_lowers_it(weights: dict[str, float]) -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    student, teacher = make_model(ours, 1), make_model(theirs, 2)
    distillation = make(teacher, theirs, ours, **weights)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
    piece = make_piece(ours, [("en", [line]) for line in ENGLISH[:16]])
    losses = []
    for step in range(60):
        masked = mask(piece, ours, num=3, seed=step % 5)
        loss = teach(distillation, student, piece, masked)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(value_of(loss))
    assert np.mean(losses[-5:]) < 0.4 * np.mean(losses[:5])


def test_what_cannot_be_taught_is_said() -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    student, teacher = make_model(ours, 1), make_model(theirs, 2, hidden=32)

    def attempt(recipe: DistillationRecipe, missing: tuple[str, ...] = ()) -> Distillation:
        source = Pretrained(copy.deepcopy(teacher), theirs, "RobertaModel", missing)
        return make_teacher(source, ours, student.config, recipe, "en", CPU)

    with pytest.raises(MetaXLMError, match=r"32 dimensions, the student's 16; .*distill.tokens"):
        attempt(DistillationRecipe(pooled=1.0))
    tokens = DistillationRecipe(pooled=0.0, tokens=1.0)
    with pytest.raises(MetaXLMError, match=r"the teacher lacks head.bias, .*distill.pooled alone"):
        attempt(tokens, ("head.bias",))
    # Sizes may differ where only predictions are compared.
    piece = make_piece(ours, BLOCKS)
    assert value_of(teach(attempt(tokens), student, piece, mask(piece, ours, num=9))) > 0


@pytest.mark.parametrize("room", [1, 100])
def test_shapes_that_are_filled_up_teach_the_same(room: int) -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    student, teacher = make_model(ours, 1), make_model(theirs, 2, positions=200)
    distillation = make(teacher, theirs, ours, pooled=1.0, tokens=1.0)
    piece = make_piece(ours, BLOCKS)
    masked = mask(piece, ours, num=9)
    lesson = distillation.prepare(piece, piece.samples)
    assert lesson is not None
    names = [field.name for field in fields(Lesson) if not field.name.startswith("num")]
    most_columns = lesson.ids_RT.shape[1] + room  # the teacher has no more positions
    filled = fill_up({name: getattr(lesson, name).numpy() for name in names}, most_columns)
    padded = replace(lesson, **{name: torch.from_numpy(array) for name, array in filled.items()})
    assert len(padded.rows_R) == 8
    assert padded.ids_RT.shape[1] == min(64, most_columns)
    gradients = []
    for version in (lesson, padded):
        student.zero_grad()
        loss = distillation.loss(student, encode_masked(student, piece, masked), masked, version)
        loss.backward()
        gradients.append([value_of(loss), student.encoder.embeddings.words.weight.grad.clone()])
    assert gradients[1][0] == pytest.approx(gradients[0][0], rel=1e-6)
    torch.testing.assert_close(gradients[1][1], gradients[0][1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_fused_steps_learn_from_a_teacher_as_plain_ones_do() -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    recipe = TrainingRecipe(batch_size=4, length=LENGTH, learning_rate=1e-3)
    world, curves = World.alone(torch.device("cuda")), []
    for kernels in ("plain", "auto"):
        student, teacher = make_model(ours, 1, hidden=32), make_model(theirs, 2, hidden=32)
        student.train()
        for module in student.modules():  # dropout's random numbers differ between the two
            if hasattr(module, "dropout"):
                module.dropout = torch.nn.Dropout(0.0) if module.dropout != 0.1 else 0.0
        source = Pretrained(teacher, theirs, "RobertaForMaskedLM", ())
        weights = DistillationRecipe(pooled=1.0, tokens=1.0)
        distillation = make_teacher(source, ours, student.config, weights, "en", world.device)
        masking = Masking(ours, recipe, world.device)
        execution = ExecutionRecipe(kernels="plain" if kernels == "plain" else "auto")
        engine = Engine(student, masking, recipe, execution, world, distillation)
        losses = []
        for step in range(12):
            blocks = BLOCKS if step % 3 else [BLOCKS[1]] * 4  # every third teaches nothing
            piece = make_piece(ours, blocks)
            piece = replace(piece, extra=distillation.prepare(piece, piece.samples))
            engine.take_step([piece], 1e-3, 0.3, step)
            state = TrainingState()
            engine.read(state)
            losses.append(state.loss_sum)
        curves.append(losses)
    assert curves[1] == pytest.approx(curves[0], rel=0.01)
