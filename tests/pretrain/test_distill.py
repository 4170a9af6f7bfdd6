"""Distillation against a direct computation, one block at a time."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tests.conftest import sentences
from tests.vocab.kinds import LINES, make_tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import Pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.batches.masking import IGNORED, Masked, Masking
from metaxlm.pretrain.batches.source import MicroBatch
from metaxlm.pretrain.checkpoint import TrainingState
from metaxlm.pretrain.distill import (
    Distillation,
    Retokenizer,
    TeacherBatch,
    make_teacher,
    pad_shapes,
)
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.pretrain.step import Objective, PretrainStep
from metaxlm.recipe import DistillationRecipe, ExecutionRecipe, TrainingRecipe

CPU = torch.device("cpu")
LENGTH = 40
ENGLISH = [*sentences("en"), "Where's my book?", "The cat sees the old house."]
TEACHERS = ("byte_bpe", "roberta", "bert", "xlmr", "unigram")
Block = tuple[str, list[str]]
Pair = tuple[Tokenizer, Tokenizer, MaskedLM, MaskedLM]
BLOCKS: list[Block] = [
    ("en", ENGLISH[:2]),
    ("de", ["die Katze sieht ein Haus.", "der alte Mann mag etwas Brot."]),
    ("en", [ENGLISH[-1]]),
    ("en", [ENGLISH[30], ENGLISH[-2]]),
]


def make_model(tokenizer: Tokenizer, seed: int, hidden: int = 16, positions: int = 80) -> MaskedLM:
    torch.manual_seed(seed)
    pad_id, vocab_size = tokenizer.pad_token_id, max(tokenizer.get_vocab().values()) + 1
    offset = 0 if tokenizer.cls_token == "[CLS]" else pad_id + 1
    sizes = (vocab_size, hidden, 2, 2, 32, positions)
    config = EncoderConfig(*sizes, pad_id=pad_id, position_offset=offset)
    model = MaskedLM(config).eval()
    # With larger weights, hidden states depend more on tokens and positions.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
    return model


def make(
    teacher: MaskedLM, tokenizer: Tokenizer, student_tokenizer: Tokenizer, pooled: float = 1.0
) -> Distillation:
    source = Pretrained(copy.deepcopy(teacher), tokenizer, "RobertaForMaskedLM", ())
    recipe = DistillationRecipe(pooled=pooled)
    return make_teacher(source, student_tokenizer, teacher.config, recipe, "en", CPU)


def make_batch(tokenizer: Tokenizer, blocks: list[Block], length: int = LENGTH) -> MicroBatch:
    rows = [encode_block(tokenizer, lines) for _, lines in blocks]
    ids = torch.full((len(rows), length), tokenizer.pad_token_id, dtype=torch.int32)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int32)
    samples = [(language, number) for number, (language, _) in enumerate(blocks)]
    return MicroBatch(ids, lengths, torch.arange(len(rows)), 0, samples, int(lengths.sum()))


def encode_block(tokenizer: Tokenizer, lines: list[str]) -> list[int]:
    """Tokenize sentences one by one, as the tokenizer itself does."""
    spaced = "Ġ" in "".join(tokenizer.get_vocab())
    ids = [tokenizer.cls_token_id]
    for line in lines:
        text = f" {line}" if spaced else line
        encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += [*encoded, tokenizer.sep_token_id]
    return ids


def mask(batch: MicroBatch, tokenizer: Tokenizer, num: int = 9) -> Masked:
    """Mask some positions of each row."""
    random = np.random.default_rng(0)
    ids = batch.ids_BL.long().clone()
    positions, labels = [], []
    for index, length in enumerate(batch.lengths_B.tolist()):
        chosen = random.permutation(length)[:num]
        positions += [index * ids.shape[1] + int(c) for c in [*chosen, chosen[0]]]
        labels += [*ids[index, chosen].tolist(), IGNORED]
        ids[index, chosen] = tokenizer.mask_token_id
    return Masked(ids, torch.tensor(positions), torch.tensor(labels))


def encode_masked(model: MaskedLM, batch: MicroBatch, masked: Masked) -> Tensor:
    real = torch.arange(masked.ids_BL.shape[1]) < batch.lengths_B[:, None]
    hidden: Tensor = model.encoder(masked.ids_BL, real)
    return hidden


def teach(
    distillation: Distillation, student: MaskedLM, batch: MicroBatch, masked: Masked
) -> Tensor:
    extra = distillation.prepare(batch, batch.samples)
    assert extra is not None
    return distillation.loss(encode_masked(student, batch, masked), extra)


def pool_alone(model: MaskedLM, ids: list[int]) -> Tensor:
    """Return the mean hidden state of one unpadded row."""
    hidden: Tensor = model.encoder(torch.tensor([ids]))[0].mean(0)
    return hidden


@pytest.fixture(scope="module")
def pair() -> Pair:
    """The tokenizers and the models of a student and its teacher."""
    ours, theirs = make_tokenizer("unigram"), make_tokenizer("byte_bpe")
    return ours, theirs, make_model(ours, 1), make_model(theirs, 2)


@pytest.mark.parametrize("kind", TEACHERS)
def test_the_loss_equals_the_direct_computation(kind: str) -> None:
    ours, theirs = make_tokenizer("unigram"), make_tokenizer(kind)
    student, teacher = make_model(ours, 1), make_model(theirs, 2)
    blocks = [(language, [line.lower() for line in lines]) for language, lines in BLOCKS]
    batch = make_batch(ours, blocks)
    masked = mask(batch, ours)
    distances = []
    for index in (0, 2, 3):
        ids = masked.ids_BL[index, : batch.lengths_B[index]].tolist()
        their_ids = encode_block(theirs, blocks[index][1])
        difference = pool_alone(student, ids) - pool_alone(teacher, their_ids)
        distances.append(difference.square().mean().item())
    assert min(distances) > 0.01
    found = teach(make(teacher, theirs, ours, pooled=0.7), student, batch, masked)
    assert found.item() == pytest.approx(0.7 * sum(distances) / 3, rel=1e-4)


@pytest.mark.parametrize("limit", [5, 8, 11])
def test_a_block_too_long_for_the_teacher_is_truncated_in_both_models(
    pair: Pair, limit: int
) -> None:
    ours, theirs, student, _ = pair
    teacher = make_model(theirs, 2, positions=limit)
    lines = [line.lower() for line in BLOCKS[0][1]]
    batch = make_batch(ours, [("en", lines), ("en", ["a dog"])])
    whole = encode_block(theirs, lines)
    assert len(whole) > limit
    distillation = make(teacher, theirs, ours)
    found = distillation.prepare(batch, batch.samples)
    assert found is not None
    assert found.ids_RT[0].tolist() == [*whole[: limit - 1], theirs.sep_token_id]
    # The covered tokens spell a prefix of the text that the teacher reads, and not one token less.
    read = theirs.decode(whole[1 : limit - 1], skip_special_tokens=True).replace(" ", "")
    num_covered = int(found.covered_RL[0].sum())
    assert found.covered_RL[0].tolist() == [place < num_covered for place in range(LENGTH)]
    spelled = [
        ours.decode(batch.ids_BL[0, :end].tolist(), skip_special_tokens=True).replace(" ", "")
        for end in (num_covered, num_covered + 1)
    ]
    assert read.startswith(spelled[0])
    assert not read.startswith(spelled[1]) or spelled[0] == spelled[1]
    assert found.covered_RL[1].sum() == batch.lengths_B[1]

    masked = mask(batch, ours)
    hidden = encode_masked(student, batch, masked)
    theirs_mean = pool_alone(teacher, found.ids_RT[0].tolist())
    first = hidden[0, :num_covered].mean(0) - theirs_mean
    dog = pool_alone(teacher, encode_block(theirs, ["a dog"]))
    second = hidden[1, : batch.lengths_B[1]].mean(0) - dog
    expected = (first.square().mean() + second.square().mean()) / 2
    loss = teach(distillation, student, batch, masked)
    assert loss.item() == pytest.approx(expected.item())


def test_only_blocks_in_the_source_language_count(pair: Pair) -> None:
    ours, theirs, student, teacher = pair
    distillation = make(teacher, theirs, ours)
    batch = make_batch(ours, BLOCKS)
    masked = mask(batch, ours)
    extra = distillation.prepare(batch, batch.samples)
    assert extra is not None
    hidden = encode_masked(student, batch, masked).detach().requires_grad_()
    loss = distillation.loss(hidden, extra)
    loss.backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert hidden.grad[1].abs().sum() == 0
    assert all(hidden.grad[row].abs().sum() > 0 for row in (0, 2, 3))
    # Hidden states at padding may be NaN.
    spoiled = hidden.detach().clone()
    spoiled[1] = torch.nan
    for row, length in enumerate(batch.lengths_B.tolist()):
        spoiled[row, length:] = torch.nan
    assert torch.equal(distillation.loss(spoiled, extra), loss)
    assert distillation.prepare(make_batch(ours, [BLOCKS[1]]), batch.samples) is None


def test_gradients_reach_the_student_and_not_the_teacher(pair: Pair) -> None:
    ours, theirs = pair[:2]
    student = make_model(ours, 1)
    source = Pretrained(make_model(theirs, 2).train(), theirs, "RobertaForMaskedLM", ())
    distillation = make_teacher(source, ours, student.config, DistillationRecipe(), "en", CPU)
    before = copy.deepcopy(source.model.state_dict())
    objective = Objective(student, distillation).train()
    assert {id(p) for p in objective.parameters()} == {id(p) for p in student.parameters()}
    batch = make_batch(ours, BLOCKS)
    masked = mask(batch, ours)
    state = torch.get_rng_state()
    loss, term = objective(masked, batch.lengths_B, distillation.prepare(batch, batch.samples))
    assert not source.model.training
    assert loss.requires_grad
    term.backward()
    for name, parameter in student.encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert student.encoder.layers[0].ffn_in.weight.grad.abs().sum() > 0
    assert all(p.grad is None and not p.requires_grad for p in source.model.parameters())
    assert all(torch.equal(before[k], v) for k, v in source.model.state_dict().items())
    # The teacher draws no random numbers, so the student's dropout does not change.
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    Objective(student).train()(masked, batch.lengths_B)
    assert torch.equal(torch.get_rng_state(), after)


def test_the_micro_batches_of_a_step_add_up_to_the_whole(pair: Pair) -> None:
    ours, theirs, student, teacher = pair
    distillation = make(teacher, theirs, ours)
    blocks = [*BLOCKS, BLOCKS[1], ("en", [ENGLISH[7]])]
    whole = make_batch(ours, blocks)
    masked = mask(whole, ours, num=7)
    total = teach(distillation, student, whole, masked)
    parts = []
    for first, last in ((0, 1), (1, 2), (2, 6)):
        batch = make_batch(ours, blocks[first:last])
        part = Masked(masked.ids_BL[first:last], masked.positions_M, masked.labels_M)
        extra = distillation.prepare(batch, whole.samples)
        if extra is not None:
            parts.append(distillation.loss(encode_masked(student, batch, part), extra).item())
    assert len(parts) == 2
    assert sum(parts) == pytest.approx(total.item(), rel=1e-5)


def test_preparing_is_pure_and_thread_safe(pair: Pair) -> None:
    ours, theirs, _, teacher = pair
    distillation = make(teacher, theirs, ours)
    batches = [make_batch(ours, [("en", [line]), BLOCKS[1]]) for line in ENGLISH]
    copies = [batch.ids_BL.clone() for batch in batches]

    def prepare(batch: MicroBatch) -> list[np.ndarray]:
        extra = distillation.prepare(batch, batch.samples)
        return [np.asarray(getattr(extra, field.name)) for field in fields(TeacherBatch)]

    alone = [prepare(batch) for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(prepare, batches * 3))
    for found, wanted in zip(together, alone * 3, strict=True):
        assert all(map(np.array_equal, found, wanted))
    assert all(torch.equal(c, b.ids_BL) for c, b in zip(copies, batches, strict=True))


def test_unusable_teachers_and_recipes_are_rejected(pair: Pair) -> None:
    ours, theirs, student, _ = pair
    source = Pretrained(make_model(theirs, 2, hidden=32), theirs, "RobertaModel", ())
    with pytest.raises(MetaXLMError, match="32 dimensions, the student's 16; use models of the"):
        make_teacher(source, ours, student.config, DistillationRecipe(), "en", CPU)
    # Recipes saved by earlier versions have the keys of a removed loss.
    old = {"pooled": 0.5, "tokens": 0.0, "temperature": 2.0}
    assert DistillationRecipe(**old) == DistillationRecipe(pooled=0.5)
    for wrong in ({"tokens": 1.0}, {"pooled": 0.0}):
        with pytest.raises(ValidationError):
            DistillationRecipe(**wrong)


@pytest.mark.parametrize("room", [1, 100])
def test_padded_shapes_give_the_same_loss(pair: Pair, room: int) -> None:
    ours, theirs, student, _ = pair
    teacher = make_model(theirs, 2, positions=200)
    distillation = make(teacher, theirs, ours)
    batch = make_batch(ours, BLOCKS)
    masked = mask(batch, ours)
    extra = distillation.prepare(batch, batch.samples)
    assert extra is not None
    names = [field.name for field in fields(TeacherBatch) if not field.name.startswith("num")]
    most_columns = extra.ids_RT.shape[1] + room  # the teacher's number of positions
    arrays = pad_shapes({name: getattr(extra, name).numpy() for name in names}, most_columns)
    padded = replace(extra, **{name: torch.from_numpy(array) for name, array in arrays.items()})
    assert len(padded.rows_R) == 8
    assert padded.ids_RT.shape[1] == min(64, most_columns)
    found = []
    for version in (extra, padded):
        student.zero_grad()
        loss = distillation.loss(encode_masked(student, batch, masked), version)
        loss.backward()
        found.append((loss.item(), student.encoder.embeddings.words.weight.grad.clone()))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-6)
    torch.testing.assert_close(found[1][1], found[0][1])


@pytest.mark.parametrize("kind", ["unigram", "xlmr", "byte_bpe", "roberta"])
def test_retokenizing_with_the_same_tokenizer_restores_the_tokens(kind: str) -> None:
    # Includes characters of several tokens; the student's text is what its tokens spell.
    tokenizer = make_tokenizer(kind)
    lines = [line for line in LINES if tokenizer.unk_token_id not in tokenizer(line)["input_ids"]]
    lines = lines[::2]
    assert len(lines) > 25
    batch = make_batch(tokenizer, [("en", [line]) for line in lines], 300)
    ids, lengths = batch.ids_BL.numpy(), batch.lengths_B.numpy()
    found = Retokenizer(tokenizer, tokenizer, 512).read(ids, lengths)
    assert found.covered_RL.sum(axis=1).tolist() == lengths.tolist()
    same = [
        found.ids_RT[row, : found.lengths_R[row]].tolist() == ids[row, :length].tolist()
        for row, length in enumerate(lengths.tolist())
    ]
    # Unigram may segment its own normalized text in another way.
    assert sum(same) >= 0.98 * len(lines)


def test_unusual_blocks_are_read() -> None:
    ours, theirs = make_tokenizer("byte_bpe"), make_tokenizer("roberta")
    # A block may end within a character.
    batch = make_batch(ours, [("en", ["café 猫"])])
    lengths = batch.lengths_B.numpy() - 2
    found = Retokenizer(ours, theirs, 64).read(batch.ids_BL.numpy(), lengths)
    assert found.covered_RL.sum() == lengths[0]
    # Text that spells a special token is ordinary text.
    ids = [0, *(ours.convert_tokens_to_ids(letter) for letter in "<mask>"), 2]
    found = Retokenizer(ours, theirs, 64).read(np.array([ids]), np.array([len(ids)]))
    assert theirs.mask_token_id not in found.ids_RT


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_fused_steps_learn_from_a_teacher_as_plain_ones_do(pair: Pair) -> None:
    ours, theirs = pair[:2]
    recipe = TrainingRecipe(batch_size=4, length=LENGTH, learning_rate=1e-3)
    world, curves = DistributedContext.alone(torch.device("cuda")), []
    for kernels in ("plain", "auto"):
        student, teacher = make_model(ours, 1, hidden=32), make_model(theirs, 2, hidden=32)
        student.train()
        for module in student.modules():  # the dropout of the two differs
            if hasattr(module, "dropout"):
                module.dropout = torch.nn.Dropout(0.0) if module.dropout != 0.1 else 0.0
        source = Pretrained(teacher, theirs, "RobertaForMaskedLM", ())
        weights = DistillationRecipe(pooled=1.0)
        distillation = make_teacher(source, ours, student.config, weights, "en", world.device)
        masking = Masking(ours, recipe, world.device)
        execution = ExecutionRecipe(kernels=kernels)
        step = PretrainStep(student, masking, recipe, execution, world, distillation)
        losses = []
        for number in range(12):
            # Every third step has no block in the source language.
            batch = make_batch(ours, BLOCKS if number % 3 else [BLOCKS[1]] * 4)
            batch = replace(batch, extra=distillation.prepare(batch, batch.samples))
            step([batch], 1e-3, 0.3, number)
            state = TrainingState()
            step.read(state)
            losses.append(state.loss_sum)
        curves.append(losses)
    assert curves[1] == pytest.approx(curves[0], rel=0.01)
