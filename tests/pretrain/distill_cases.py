"""Students, teachers and blocks for the tests of distillation, and its terms computed directly."""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tests.conftest import sentences
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.config import DistillationRecipe
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.hugging_face import Pretrained
from metaxlm.pretrain.batches.masking import IGNORED, Masked
from metaxlm.pretrain.batches.source import Piece
from metaxlm.pretrain.distill import Distillation, make_teacher
from metaxlm.pretrain.shared_tokens import share_tokens

CPU = torch.device("cpu")
LENGTH = 40
ENGLISH = [*sentences("en"), "Where's my book?", "The cat sees the old house."]
TEACHERS = ("byte_bpe", "roberta", "bert", "xlmr", "unigram")
Block = tuple[str, list[str]]


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
    # Freshly drawn weights predict almost evenly; these tell tokens and positions apart.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
    return model


def make(
    teacher: MaskedLM,
    tokenizer: PreTrainedTokenizerBase,
    student_tokenizer: PreTrainedTokenizerBase,
    **recipe: float,
) -> Distillation:
    source = Pretrained(copy.deepcopy(teacher), tokenizer, "RobertaForMaskedLM", ())
    return make_teacher(
        source, student_tokenizer, teacher.config, DistillationRecipe(**recipe), "en", CPU
    )


def boundaries(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    return tokenizer.cls_token_id, tokenizer.sep_token_id


def encode_block(tokenizer: PreTrainedTokenizerBase, lines: list[str]) -> list[int]:
    first, last = boundaries(tokenizer)
    ids = [first]
    for line in lines:
        ids += [*tokenizer(line, add_special_tokens=False)["input_ids"], last]
    return ids


def make_piece(
    tokenizer: PreTrainedTokenizerBase, blocks: list[Block], length: int = LENGTH
) -> Piece:
    rows = [encode_block(tokenizer, lines) for _, lines in blocks]
    ids = torch.full((len(rows), length), tokenizer.pad_token_id, dtype=torch.int32)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int32)
    samples = [(language, number) for number, (language, _) in enumerate(blocks)]
    return Piece(ids, lengths, torch.arange(len(rows)), 0, samples, int(lengths.sum()))


def mask(
    piece: Piece,
    tokenizer: PreTrainedTokenizerBase,
    num: int,
    seed: int = 0,
    allowed: NDArray[np.bool_] | None = None,
) -> Masked:
    """Mask some positions of each row; the last slot of each row names a position, unused."""
    random = np.random.default_rng(seed)
    ids = piece.ids_BL.long().clone()
    rows, labels = [], []
    for index, length in enumerate(piece.lengths_B.tolist()):
        places = np.arange(length) if allowed is None else np.flatnonzero(allowed[index])
        chosen = random.permutation(places)[:num]
        rows += [index * ids.shape[1] + int(c) for c in [*chosen, chosen[0]]]
        labels += [*ids[index, chosen].tolist(), IGNORED]
        ids[index, chosen] = tokenizer.mask_token_id
    return Masked(ids, torch.tensor(rows), torch.tensor(labels))


def encode_masked(model: MaskedLM, piece: Piece, masked: Masked) -> Tensor:
    real = torch.arange(masked.ids_BL.shape[1]) < piece.lengths_B[:, None]
    hidden: Tensor = model.encoder(masked.ids_BL, real)
    return hidden


def teach(
    distillation: Distillation,
    student: MaskedLM,
    piece: Piece,
    masked: Masked,
    samples: list[tuple[str, int]] | None = None,
) -> Tensor:
    lesson = distillation.prepare(piece, samples or piece.samples)
    assert lesson is not None
    return distillation.loss(student, encode_masked(student, piece, masked), masked, lesson)


def value_of(tensor: Tensor) -> float:
    return float(tensor.detach())


# The direct computation: tokens of one text as (id, word, characters), in the student's text.


def read_token(token: str) -> tuple[str, bool]:
    """What a token of ASCII text says, and whether it starts a word; `##` tells BERT's apart."""
    return token.lstrip("▁Ġ"), token[0] in "▁Ġ"


def cut(
    tokenizer: PreTrainedTokenizerBase, line: str, offset: int
) -> list[tuple[int, tuple[str, bool], frozenset[int]]]:
    spaced = "Ġ" in "".join(tokenizer.get_vocab())
    text = f" {line}" if spaced else line
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    found = []
    for row, token, (start, end) in zip(
        encoded["input_ids"], tokens, encoded["offset_mapping"], strict=True
    ):
        form = read_token(token)
        if tokenizer.mask_token == "[MASK]":
            form = (token.removeprefix("##"), not token.startswith("##"))
        characters = {offset + i - spaced for i in range(start, end) if text[i] != " "}
        found.append((row, form, frozenset(characters) if form[0] else frozenset()))
    return found


def lay_out(
    tokenizer: PreTrainedTokenizerBase, lines: list[str]
) -> list[tuple[int, tuple[str, bool] | None, frozenset[int]]]:
    first, last = boundaries(tokenizer)
    nothing: frozenset[int] = frozenset()
    row: list[tuple[int, tuple[str, bool] | None, frozenset[int]]] = [(first, None, nothing)]
    for number, line in enumerate(lines):
        row += [*cut(tokenizer, line, 1_000 * number), (last, None, nothing)]
    return row


def encode_alone(model: MaskedLM, ids: list[int]) -> Tensor:
    hidden: Tensor = model.encoder(torch.tensor([ids]))[0]
    return hidden


def compare_means_directly(
    student: MaskedLM,
    teacher: MaskedLM,
    tokenizer: PreTrainedTokenizerBase,
    lines: list[str],
    ids: list[int],
) -> Tensor:
    theirs = encode_alone(teacher, [token[0] for token in lay_out(tokenizer, lines)])
    return (encode_alone(student, ids).mean(0) - theirs.mean(0)).square().mean()


def compare_tokens_directly(
    student: tuple[MaskedLM, PreTrainedTokenizerBase],
    teacher: tuple[MaskedLM, PreTrainedTokenizerBase],
    lines: list[str],
    ids: list[int],
    predicted: list[int],
    temperature: float,
) -> tuple[float, int]:
    """Return the mean divergence of one block, and over how many positions."""
    ours, theirs = lay_out(student[1], lines), lay_out(teacher[1], lines)
    hidden = frozenset().union(*(ours[place][2] for place in predicted))
    their_ids = [teacher[1].mask_token_id if t[2] & hidden else t[0] for t in theirs]
    shared = share_tokens(student[1], teacher[1])
    our_rows = torch.from_numpy(np.flatnonzero(shared >= 0))
    their_rows = torch.from_numpy(shared[shared >= 0])
    our_logits = student[0].logits(torch.tensor([ids]))[0]
    their_logits = teacher[0].logits(torch.tensor([their_ids]))[0]
    values = []
    for place in predicted:
        touching = [t for t, token in enumerate(theirs) if token[2] & ours[place][2]]
        if len(touching) != 1 or theirs[touching[0]][1:] != ours[place][1:]:
            continue
        p = F.softmax(their_logits[touching[0], their_rows] / temperature, 0)
        q = F.softmax(our_logits[place, our_rows] / temperature, 0)
        values.append(value_of((p * (p / q).log()).sum()) * temperature**2)
    return (float(np.mean(values)) if values else 0.0), len(values)


BLOCKS: list[Block] = [
    ("en", ENGLISH[:2]),
    ("de", ["die Katze sieht ein Haus.", "der alte Mann mag etwas Brot."]),
    ("en", [ENGLISH[-1]]),
    ("en", [ENGLISH[30], ENGLISH[-2]]),
]
