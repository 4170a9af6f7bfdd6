"""Students, teachers and blocks for the tests of distillation, and its loss computed directly."""

from __future__ import annotations

import copy

import numpy as np
import torch
from tests.conftest import sentences
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.huggingface import Pretrained
from metaxlm.pretrain.batches.masking import IGNORED, Masked
from metaxlm.pretrain.batches.source import MicroBatch
from metaxlm.pretrain.distill import Distillation, make_teacher
from metaxlm.recipe import DistillationRecipe

CPU = torch.device("cpu")
LENGTH = 40
ENGLISH = [*sentences("en"), "Where's my book?", "The cat sees the old house."]
TEACHERS = ("byte_bpe", "roberta", "bert", "xlmr", "unigram")
Block = tuple[str, list[str]]
BLOCKS: list[Block] = [
    ("en", ENGLISH[:2]),
    ("de", ["die Katze sieht ein Haus.", "der alte Mann mag etwas Brot."]),
    ("en", [ENGLISH[-1]]),
    ("en", [ENGLISH[30], ENGLISH[-2]]),
]


def make_model(
    tokenizer: PreTrainedTokenizerBase, seed: int, hidden: int = 16, positions: int = 80
) -> MaskedLM:
    torch.manual_seed(seed)
    config = EncoderConfig(
        max(tokenizer.get_vocab().values()) + 1,
        hidden_size=hidden,
        num_layers=2,
        num_heads=2,
        ffn_size=32,
        max_positions=positions,
        pad_id=tokenizer.pad_token_id,
        position_offset=0 if tokenizer.cls_token == "[CLS]" else tokenizer.pad_token_id + 1,
    )
    model = MaskedLM(config).eval()
    # With larger weights, hidden states depend more on tokens and positions.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
    return model


def make(
    teacher: MaskedLM,
    tokenizer: PreTrainedTokenizerBase,
    student_tokenizer: PreTrainedTokenizerBase,
    pooled: float = 1.0,
) -> Distillation:
    source = Pretrained(copy.deepcopy(teacher), tokenizer, "RobertaForMaskedLM", ())
    recipe = DistillationRecipe(pooled=pooled)
    return make_teacher(source, student_tokenizer, teacher.config, recipe, "en", CPU)


def make_batch(
    tokenizer: PreTrainedTokenizerBase, blocks: list[Block], length: int = LENGTH
) -> MicroBatch:
    rows = [encode_block(tokenizer, lines) for _, lines in blocks]
    ids = torch.full((len(rows), length), tokenizer.pad_token_id, dtype=torch.int32)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int32)
    samples = [(language, number) for number, (language, _) in enumerate(blocks)]
    return MicroBatch(ids, lengths, torch.arange(len(rows)), 0, samples, int(lengths.sum()))


def encode_block(tokenizer: PreTrainedTokenizerBase, lines: list[str]) -> list[int]:
    """Tokenize sentences one by one, as the tokenizer itself does."""
    spaced = "Ġ" in "".join(tokenizer.get_vocab())
    ids = [tokenizer.cls_token_id]
    for line in lines:
        text = f" {line}" if spaced else line
        encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += [*encoded, tokenizer.sep_token_id]
    return ids


def mask(
    batch: MicroBatch, tokenizer: PreTrainedTokenizerBase, num: int = 9, seed: int = 0
) -> Masked:
    """Mask some positions of each row."""
    random = np.random.default_rng(seed)
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
    distillation: Distillation,
    student: MaskedLM,
    batch: MicroBatch,
    masked: Masked,
    samples: list[tuple[str, int]] | None = None,
) -> Tensor:
    extra = distillation.prepare(batch, samples or batch.samples)
    assert extra is not None
    return distillation.loss(encode_masked(student, batch, masked), extra)


def encode_alone(model: MaskedLM, ids: list[int]) -> Tensor:
    """Return the hidden states of one unpadded row."""
    hidden: Tensor = model.encoder(torch.tensor([ids]))[0]
    return hidden
