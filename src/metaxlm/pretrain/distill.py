"""Knowledge distillation from the monolingual to the cross-lingual model (XLM+KD).

The loss is the squared distance between the mean hidden states of both models for the same text
(section 5.3 and table 3 of the paper), averaged over the hidden dimension and over the blocks of
the step in the source language, the only language that the teacher knows. Special tokens are
included, padding is not. The teacher reads the whole text, the student its masked block. The paper
does not say what is compared across two vocabularies: here the student's tokens are decoded to
text, sentence by sentence, and tokenized again as rows `<s> A </s> B </s>` of the teacher. A block
with more tokens than the teacher has positions is truncated, and the student's mean covers the same
text. The cost is one forward pass of the teacher on these blocks.

Shapes: B rows of a micro-batch, R those in the source language, L and T columns of student and
teacher, N and K their tokens in all rows, S sentences, W words, V vocabulary, D hidden.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.data.encode import word_mode
from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import Pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.batches.source import Extra, MicroBatch
from metaxlm.recipe import DistillationRecipe
from metaxlm.vocab.tokens import Kind, boundary_ids, detect_kind, read_tokens, spell

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_ROW_MULTIPLE, _COLUMN_MULTIPLE = 8, 64  # of shapes on a GPU
_MULTIPLE, _SPACE = 8, ord(" ")
_CACHED_WORDS = 1 << 16  # at about 500 bytes each; they cover most of any text


@dataclass(frozen=True)
class TeacherBatch:
    """The source-language blocks of a micro-batch for the teacher; indices are int64."""

    rows_R: Tensor  # in the micro-batch
    ids_RT: Tensor
    lengths_R: Tensor
    covered_RL: Tensor  # student tokens whose text the teacher reads, boolean
    real_R: Tensor  # False for rows that only pad the shape
    num_rows: Tensor  # source-language blocks in the whole step, a scalar
    num_tokens: int  # that the teacher computes

    def to(self, device: torch.device) -> Self:
        """Return a copy on a device."""
        values = {name: v for name, v in vars(self).items() if isinstance(v, Tensor)}
        moved: Any = {name: v.to(device, non_blocking=v.is_pinned()) for name, v in values.items()}
        return replace(self, **moved)

    def tensors(self) -> list[Tensor]:
        """Return all tensors that differ between two instances of the same shapes."""
        return [value for value in vars(self).values() if isinstance(value, Tensor)]


class Distillation:
    """A frozen teacher; not a module, so its weights are not among the student's."""

    def __init__(
        self,
        teacher: MaskedLM,
        retokenizer: Retokenizer,
        recipe: DistillationRecipe,
        source_language: str,
        device: torch.device,
    ) -> None:
        self._teacher = teacher.to(device).eval().requires_grad_(False)
        self._retokenizer = retokenizer
        self._weight = recipe.pooled
        self._source_language, self._device = source_language, device

    def prepare(self, batch: MicroBatch, samples: Sequence[tuple[str, int]]) -> TeacherBatch | None:
        """Retokenize the source-language blocks of a micro-batch of a step with these samples."""
        rows = np.flatnonzero([name == self._source_language for name, _ in batch.samples])
        if not len(rows):
            return None
        ids_RL = batch.ids_BL.numpy()[rows].astype(np.int64)
        text = self._retokenizer.read(ids_RL, batch.lengths_B.numpy()[rows].astype(np.int64))
        num_rows = sum(language == self._source_language for language, _ in samples)
        arrays = {"rows_R": rows, **vars(text), "real_R": np.ones(len(rows), np.bool_)}
        if self._device.type == "cuda":
            arrays = pad_shapes(arrays, self._teacher.config.max_positions)
        return TeacherBatch(
            **{name: self._hold(array) for name, array in arrays.items()},
            num_rows=self._hold(np.array(num_rows)),
            num_tokens=int(text.lengths_R.sum()),
        )

    def _hold(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor.pin_memory() if self._device.type == "cuda" else tensor

    def loss(self, hidden_BLD: Tensor, extra: Extra) -> Tensor:
        """Return the weighted loss of a micro-batch; the losses of a step are summed."""
        assert isinstance(extra, TeacherBatch), "`prepare` makes the extra inputs"
        batch = extra.to(hidden_BLD.device)
        columns_T = torch.arange(batch.ids_RT.shape[1], device=batch.ids_RT.device)
        real_RT = columns_T < batch.lengths_R[:, None]
        with torch.no_grad():
            theirs_RD = _average(self._teacher.encoder(batch.ids_RT, real_RT), real_RT)
        ours_RD = _average(hidden_BLD.index_select(0, batch.rows_R), batch.covered_RL)
        distances_R = (ours_RD - theirs_RD).square().mean(dim=1)
        total = torch.where(batch.real_R, distances_R, 0.0).sum()
        return self._weight * total / batch.num_rows


def make_teacher(
    source: Pretrained,
    tokenizer: PreTrainedTokenizerBase,
    config: EncoderConfig,
    recipe: DistillationRecipe,
    source_language: str,
    device: torch.device,
) -> Distillation:
    """Make a teacher from a monolingual model; `tokenizer` and `config` are the student's."""
    found = source.model.config
    if found.hidden_size != config.hidden_size:
        raise MetaXLMError(
            f"distill: the teacher's hidden states have {found.hidden_size} dimensions, the "
            f"student's {config.hidden_size}; use models of the same hidden size"
        )
    retokenizer = Retokenizer(tokenizer, source.tokenizer, found.max_positions)
    return Distillation(source.model, retokenizer, recipe, source_language, device)


def pad_shapes(arrays: dict[str, NDArray[Any]], most_columns: int) -> dict[str, NDArray[Any]]:
    """Round the shapes of a teacher batch up, so that few CUDA graphs are needed.

    Additional rows repeat the first one, which keeps all values finite; columns are zeros.
    """
    num_rows = -len(arrays["rows_R"]) % _ROW_MULTIPLE
    width = arrays["ids_RT"].shape[1]
    added = min(-width % _COLUMN_MULTIPLE, most_columns - width)
    padded = {}
    for name, array in arrays.items():
        if name.endswith("_RT"):
            array = np.pad(array, ((0, 0), (0, added)))
        padded[name] = np.concatenate([array, np.repeat(array[:1], num_rows, axis=0)])
    padded["real_R"][len(arrays["rows_R"]) :] = False
    return padded


def _average(hidden_RLD: Tensor, chosen_RL: Tensor) -> Tensor:
    """Return the mean hidden state over the chosen positions in float32, [R, D]."""
    # Hidden states at padding may not be finite, so they must not be multiplied by 0.
    sums_RD = hidden_RLD.float().masked_fill(~chosen_RL[..., None], 0.0).sum(dim=1)
    return sums_RD / chosen_RL.sum(dim=1, keepdim=True).clamp_min(1)


@dataclass(frozen=True)
class RetokenizedText:
    """Blocks in the teacher's tokens."""

    ids_RT: Ints
    lengths_R: Ints
    covered_RL: Flags  # student tokens whose text the teacher reads; False for padding


class Retokenizer:
    """Tokenizes the student's blocks for the teacher; thread-safe."""

    def __init__(
        self, student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase, max_length: int
    ) -> None:
        self._max_length = max_length
        self._boundaries = [*boundary_ids(student), student.pad_token_id]
        self._first_id, self._last_id = boundary_ids(teacher)
        self._pad_id = teacher.pad_token_id
        self._spellings = _spell_all(student)
        # A character that is split into several tokens belongs to the token with its first byte.
        starts = [sum((byte & 0xC0) != 0x80 for byte in word) for word in self._spellings]
        self._widths_V = np.array(starts, np.int64)
        self._is_blank_V = np.array([word.isspace() for word in _spell_all(teacher)])
        self._tokenizer = _WordTokenizer(teacher)

    def read(self, ids_RL: Ints, lengths_R: Ints) -> RetokenizedText:
        """Tokenize blocks for the teacher, truncated to its number of positions."""
        real_RL = np.arange(ids_RL.shape[1]) < lengths_R[:, None]
        rows_N = np.nonzero(real_RL)[0]
        ids_N = ids_RL[real_RL].astype(np.int64)
        ends_N = np.cumsum(self._widths_V[ids_N])
        texts, rows_S = self._decode(ids_N, rows_N)
        ids_K, starts_K, ends_K, counts_S = self._tokenizer.encode(texts)

        codes = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
        assert len(codes) == ends_N[-1], "the decoded text has the sum of the tokens' widths"
        starts_K, ends_K = _strip(starts_K, ends_K, codes != _SPACE)
        # Some tokenizers assign a separate space token to the next character.
        ends_K = np.where(self._is_blank_V[ids_K], starts_K, ends_K)

        ids_RT, teacher_lengths_R, kept_K = self._lay_out(ids_K, rows_S, counts_S, len(ids_RL))
        # The end of the text that the teacher reads of each row; infinity if it is not truncated.
        rows_K = np.repeat(rows_S, counts_S)
        limit_R = np.zeros_like(teacher_lengths_R)
        np.maximum.at(limit_R, rows_K[kept_K], ends_K[kept_K])
        is_whole_R = np.ones(len(limit_R), np.bool_)
        is_whole_R[rows_K[~kept_K]] = False
        limit_R[is_whole_R] = np.iinfo(np.int64).max
        covered_RL = real_RL.copy()
        covered_RL[real_RL] = ends_N <= limit_R[rows_N]
        return RetokenizedText(ids_RT, teacher_lengths_R, covered_RL)

    def _decode(self, ids_N: Ints, rows_N: Ints) -> tuple[list[str], Ints]:
        outside_N = np.isin(ids_N, self._boundaries)
        # A sentence is a run of tokens of one row without a boundary (-1).
        runs = np.concatenate([[-1], np.where(outside_N, -1, rows_N), [-1]])
        changes = runs[1:] != runs[:-1]
        firsts_S = np.flatnonzero(changes[:-1] & ~outside_N)
        lasts_S = np.flatnonzero(changes[1:] & ~outside_N)
        words = list(map(self._spellings.__getitem__, ids_N.tolist()))
        bounds = zip(firsts_S.tolist(), lasts_S.tolist(), strict=True)
        # A block may end within a character; its replacement mark is one character, too.
        texts = [b"".join(words[a : b + 1]).decode(errors="replace") for a, b in bounds]
        return texts, rows_N[firsts_S]

    def _lay_out(
        self, ids_K: Ints, rows_S: Ints, counts_S: Ints, num_rows: int
    ) -> tuple[Ints, Ints, Flags]:
        """Return rows `<s> A </s> B </s>`, their lengths, and which tokens are kept."""
        sizes_S = counts_S + 1
        totals_R = np.bincount(rows_S, sizes_S, num_rows).astype(np.int64)
        begin_S = 1 + np.cumsum(sizes_S) - sizes_S - (np.cumsum(totals_R) - totals_R)[rows_S]
        lengths_R = np.minimum(1 + totals_R, self._max_length)

        sentence_K = np.repeat(np.arange(len(counts_S)), counts_S)
        rows_K = rows_S[sentence_K]
        places_K = np.arange(len(ids_K)) - (np.cumsum(counts_S) - counts_S)[sentence_K]
        columns_K = begin_S[sentence_K] + places_K
        # The last token is `</s>` also in a truncated row.
        kept_K = columns_K < lengths_R[rows_K] - 1

        width = min(-(-int(lengths_R.max()) // _MULTIPLE) * _MULTIPLE, self._max_length)
        ids_RT = np.full((num_rows, width), self._pad_id, np.int64)
        ids_RT[rows_K[kept_K], columns_K[kept_K]] = ids_K[kept_K]
        ends_S = np.minimum(begin_S + counts_S, lengths_R[rows_S] - 1)
        ids_RT[rows_S, ends_S] = self._last_id
        ids_RT[:, 0] = self._first_id
        return ids_RT, lengths_R, kept_K


class _WordTokenizer:
    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        content: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
        plain = {**content, "truncation": None, "padding": None}
        self._backend = Tokenizer.from_str(json.dumps(plain))
        # `<s>` in a text is ordinary text.
        self._backend.encode_special_tokens = True
        # Byte-level BPE expects the space before a word; others would make a token of it.
        self._keeps_space = detect_kind(tokenizer) is Kind.BYTE_BPE
        self._by_words = word_mode(content) != "sentence"
        self._encode = lru_cache(_CACHED_WORDS if self._by_words else 0)(self._encode_word)

    def encode(self, texts: list[str]) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the tokens, their starts and ends in the joined text, and counts per sentence."""
        split = [_split(text) if self._by_words else [text] for text in texts]
        words, num_words = list(chain.from_iterable(split)), list(map(len, split))
        found = list(map(self._encode, words))
        counts_W = _collect(len(ids) for ids, _, _ in found)
        widths_W = _collect(map(len, words))
        begins_K = np.repeat(np.cumsum(widths_W) - widths_W, counts_W)
        totals = np.concatenate([[0], np.cumsum(counts_W)])
        return (
            _collect(chain.from_iterable(ids for ids, _, _ in found)),
            _collect(chain.from_iterable(starts for _, starts, _ in found)) + begins_K,
            _collect(chain.from_iterable(ends for _, _, ends in found)) + begins_K,
            np.diff(totals[np.concatenate([[0], np.cumsum(num_words, dtype=np.int64)])]),
        )

    def _encode_word(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        bare = text if self._keeps_space else text.removeprefix(" ")
        shift = len(text) - len(bare)
        encoding = self._backend.encode(bare, add_special_tokens=False)
        starts = tuple(start + shift for start, _ in encoding.offsets)
        return tuple(encoding.ids), starts, tuple(end + shift for _, end in encoding.offsets)


def _spell_all(tokenizer: PreTrainedTokenizerBase) -> list[bytes]:
    """Return the bytes that each token adds to a text; special tokens add nothing."""
    kind, specials = detect_kind(tokenizer), set(tokenizer.all_special_ids)
    tokens = read_tokens(tokenizer, kind)
    spellings = [b""] * (max(tokens) + 1)
    for row, token in tokens.items():
        if row not in specials:
            spellings[row] = spell(token, kind)
    return spellings


def _strip(starts: Ints, ends: Ints, solid: Flags) -> tuple[Ints, Ints]:
    places = np.arange(len(solid))
    following = np.minimum.accumulate(np.where(solid, places, len(solid))[::-1])[::-1]
    preceding = np.maximum.accumulate(np.where(solid, places + 1, 0))
    starts = np.append(following, len(solid))[starts]
    ends = np.append(0, preceding)[ends]
    return starts, np.maximum(starts, ends)


def _split(text: str) -> list[str]:
    """Return the words of a text, each with the space before it."""
    first, *others = text.split(" ")
    return ([first] if first else []) + [f" {word}" for word in others]


def _collect(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)
