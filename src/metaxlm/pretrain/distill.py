"""Knowledge distillation from the monolingual model to the cross-lingual one (XLM+KD).

Comes in: the hidden states of a masked piece, and what was prepared of its blocks in the source
language. Goes out: a term of the loss, for those blocks only, because the teacher knows no other
language (section 5.3 and table 3 of the paper). The paper does not say what is compared across two
vocabularies; here it is either or both of

- `pooled`: the squared distance between both models' mean hidden states of the same text, special
  tokens included and padding not, averaged over the hidden dimension. The teacher reads the whole
  text, the student its masked block.
- `tokens`: the divergence KL(teacher || student) at the positions that the student predicts, where
  both tokenizers put one token, the same one, on the same characters. The teacher's input is masked
  wherever it shares characters with a predicted token; both distributions are over the tokens that
  both vocabularies have, softened by a temperature T, and the term is multiplied by T^2. A block
  counts with the mean over its positions.

Both are means over the source language's blocks in the whole step, whatever pieces it has. If a
block is more tokens to the teacher than it has positions, the rest of its text is left out of both
terms. The cost is one forward pass of the teacher on those blocks for each term in use.

Shapes: B rows of a piece, R those in the source language, L and T columns of student and teacher,
K predictions of a row, M all of them, S tokens that both vocabularies have, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.config import DistillationRecipe
from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.hugging_face import Pretrained
from metaxlm.pretrain.batches.masking import IGNORED, Masked
from metaxlm.pretrain.batches.source import Extra, Piece
from metaxlm.pretrain.retokenized import SharedText

_ROW_MULTIPLE, _COLUMN_MULTIPLE = 8, 64
"""Shapes on a GPU are multiples of these."""


@dataclass(frozen=True)
class Lesson:
    """What a piece's blocks in the source language are to the teacher; all indices are int64."""

    rows_R: Tensor
    """Their rows in the piece."""
    ids_RT: Tensor
    lengths_R: Tensor
    covered_RL: Tensor
    """The student's tokens whose text the teacher got, boolean."""
    partners_RL: Tensor
    """The teacher's column with the same token on the same characters, or -1."""
    first_RT: Tensor
    last_RT: Tensor
    """The student's columns from `first` to before `last` share characters with this token."""
    real_R: Tensor
    """False for rows that only fill up the shape."""
    num_rows: Tensor
    """Blocks in the source language in the whole step, a scalar."""
    num_tokens: int
    """Tokens that the teacher computes for this piece."""

    def to(self, device: torch.device) -> Lesson:
        """Return the lesson on a device."""
        values: dict[str, Any] = {
            name: value.to(device, non_blocking=True)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **values)

    def tensors(self) -> list[Tensor]:
        """Return all that differs between two lessons of the same shapes."""
        return [value for value in vars(self).values() if isinstance(value, Tensor)]


class Distillation:
    """A frozen teacher; no module, so that nobody takes its weights for the student's."""

    def __init__(
        self,
        teacher: MaskedLM,
        text: SharedText,
        recipe: DistillationRecipe,
        source_language: str,
        mask_id: int,
        device: torch.device,
    ) -> None:
        self._teacher = teacher.to(device).eval().requires_grad_(False)
        self._text = text
        self._recipe = recipe
        self._source_language = source_language
        self._mask_id = mask_id
        self._device = device
        shared = torch.from_numpy(np.flatnonzero(text.partners_V >= 0))
        self._shared_S = shared.to(device)
        theirs_S = torch.from_numpy(text.partners_V[shared.numpy()]).to(device)
        self._words_SD = teacher.encoder.embeddings.words.weight.index_select(0, theirs_S)
        self._bias_S = teacher.head.bias.index_select(0, theirs_S)

    @property
    def num_shared(self) -> int:
        """How many tokens both vocabularies have."""
        return len(self._shared_S)

    def prepare(self, piece: Piece, samples: Sequence[tuple[str, int]]) -> Lesson | None:
        """Read a piece's blocks in the source language with the teacher's tokenizer, on the host.

        `samples` are those of the whole step. A pure function that any thread may call; None says
        that there is nothing to learn from this piece.
        """
        is_source = [language == self._source_language for language, _ in piece.samples]
        rows = np.flatnonzero(is_source)
        if not len(rows):
            return None
        ids_RL = piece.ids_BL.numpy()[rows].astype(np.int64)
        reading = self._text.read(ids_RL, piece.lengths_B.numpy()[rows].astype(np.int64))
        num_rows = sum(language == self._source_language for language, _ in samples)
        num_passes = bool(self._recipe.pooled) + bool(self._recipe.tokens)
        arrays = {"rows_R": rows, **vars(reading), "real_R": np.ones(len(rows), np.bool_)}
        if self._device.type == "cuda":
            arrays = fill_up(arrays, self._teacher.config.max_positions)
        return Lesson(
            **{name: self._hold(array) for name, array in arrays.items()},
            num_rows=self._hold(np.array(num_rows)),
            num_tokens=num_passes * int(reading.lengths_R.sum()),
        )

    def _hold(self, array: NDArray[Any]) -> Tensor:
        """Return an array as a tensor that is fast to copy to the device."""
        tensor = torch.from_numpy(array)
        return tensor.pin_memory() if self._device.type == "cuda" else tensor

    def loss(self, model: MaskedLM, hidden_BLD: Tensor, masked: Masked, extra: Extra) -> Tensor:
        """Return the weighted term of a piece; the terms of a step's pieces add up."""
        assert isinstance(extra, Lesson), "a piece brings what `prepare` made of it"
        lesson = extra.to(hidden_BLD.device)
        terms = torch.zeros((), device=hidden_BLD.device)
        if self._recipe.pooled:
            terms = terms + self._recipe.pooled * self._compare_means(hidden_BLD, lesson)
        if self._recipe.tokens:
            divergence = self._compare_tokens(model, hidden_BLD, masked, lesson)
            terms = terms + self._recipe.tokens * divergence
        return terms / lesson.num_rows

    def _compare_means(self, hidden_BLD: Tensor, lesson: Lesson) -> Tensor:
        """Return the sum over rows of the squared distances between mean hidden states."""
        theirs_RD = _average(self._encode(lesson.ids_RT, lesson), _real_tokens(lesson))
        ours_RD = _average(hidden_BLD.index_select(0, lesson.rows_R), lesson.covered_RL)
        distances_R = (ours_RD - theirs_RD).square().mean(dim=1)
        return torch.where(lesson.real_R, distances_R, 0.0).sum()

    def _compare_tokens(
        self, model: MaskedLM, hidden_BLD: Tensor, masked: Masked, lesson: Lesson
    ) -> Tensor:
        """Return the sum over rows of the mean divergence at their shared predictions."""
        size, length, _ = hidden_BLD.shape
        # Masking gives every row of the piece the same number of places for predictions.
        positions_RK = masked.rows_M.view(size, -1).index_select(0, lesson.rows_R)
        labels_RK = masked.labels_M.view(size, -1).index_select(0, lesson.rows_R)
        columns_RK = positions_RK % length
        chosen_RK = labels_RK != IGNORED
        ids_RT = self._hide(lesson, columns_RK, chosen_RK)
        partners_RK = lesson.partners_RL.gather(1, columns_RK)
        counted_RK = chosen_RK & (partners_RK >= 0)

        theirs_RTD = self._encode(ids_RT, lesson)
        at_RK1 = partners_RK.clamp_min(0)[..., None]
        theirs_RKD = theirs_RTD.take_along_dim(at_RK1, dim=1)
        ours_RKD = hidden_BLD.flatten(0, 1).index_select(0, positions_RK.flatten())
        ours_RKD = ours_RKD.view(*positions_RK.shape, -1)
        theirs_RKS = self._predict_theirs(theirs_RKD)
        ours_RKS = self._predict_ours(model, ours_RKD)
        divergence_RK = F.kl_div(ours_RKS, theirs_RKS, reduction="none", log_target=True).sum(-1)
        sums_R = torch.where(counted_RK, divergence_RK, 0.0).sum(dim=1)
        means_R = sums_R / counted_RK.sum(dim=1).clamp_min(1)
        return means_R.sum() * self._recipe.temperature**2

    def _hide(self, lesson: Lesson, columns_RK: Tensor, chosen_RK: Tensor) -> Tensor:
        """Mask the teacher's tokens that share characters with one that the student predicts."""
        chosen_RL = torch.zeros_like(lesson.partners_RL)
        # Added up, because places without a prediction may name a column that has one.
        chosen_RL.scatter_add_(1, columns_RK, chosen_RK.long())
        before_RL = F.pad(chosen_RL.cumsum(dim=1), (1, 0))
        hidden_RT = before_RL.gather(1, lesson.last_RT) > before_RL.gather(1, lesson.first_RT)
        return torch.where(hidden_RT, self._mask_id, lesson.ids_RT)

    @torch.no_grad()
    def _encode(self, ids_RT: Tensor, lesson: Lesson) -> Tensor:
        hidden_RTD: Tensor = self._teacher.encoder(ids_RT, _real_tokens(lesson))
        return hidden_RTD

    @torch.no_grad()
    def _predict_theirs(self, hidden_RKD: Tensor) -> Tensor:
        vectors_RKD = self._teacher.head.transform(hidden_RKD)
        return self._soften(F.linear(vectors_RKD, self._words_SD, self._bias_S))

    def _predict_ours(self, model: MaskedLM, hidden_RKD: Tensor) -> Tensor:
        words_SD = model.encoder.embeddings.words.weight.index_select(0, self._shared_S)
        bias_S = model.head.bias.index_select(0, self._shared_S)
        return self._soften(F.linear(model.head.transform(hidden_RKD), words_SD, bias_S))

    def _soften(self, logits_RKS: Tensor) -> Tensor:
        return F.log_softmax(logits_RKS.float() / self._recipe.temperature, dim=-1)


def make_teacher(
    source: Pretrained,
    tokenizer: PreTrainedTokenizerBase,
    config: EncoderConfig,
    recipe: DistillationRecipe,
    source_language: str,
    device: torch.device,
) -> Distillation:
    """Make a teacher of a monolingual model; `tokenizer` and `config` are the student's.

    The model is taken over: moved to the device, frozen, and put into evaluation mode.
    """
    found = source.model.config
    if recipe.pooled and found.hidden_size != config.hidden_size:
        raise MetaXLMError(
            f"distill.pooled: the teacher's hidden states have {found.hidden_size} dimensions, the "
            f"student's {config.hidden_size}; give both the same size, or use distill.tokens alone"
        )
    if recipe.tokens and source.missing:
        raise MetaXLMError(
            f"distill.tokens: the teacher lacks {', '.join(source.missing)}, so it predicts "
            "nothing; take one with its MLM head, or use distill.pooled alone"
        )
    if source.tokenizer.mask_token_id is None:
        raise MetaXLMError("distill: the teacher's tokenizer has no mask token; give it one")
    text = SharedText(tokenizer, source.tokenizer, found.max_positions)
    if recipe.tokens and not (text.partners_V >= 0).any():
        raise MetaXLMError(
            "distill.tokens: the two vocabularies have no token in common; use distill.pooled"
        )
    mask_id = int(source.tokenizer.mask_token_id)
    return Distillation(source.model, text, recipe, source_language, mask_id, device)


def fill_up(arrays: dict[str, NDArray[Any]], most_columns: int) -> dict[str, NDArray[Any]]:
    """Round a lesson's shapes up, so that a GPU meets few of them and can record a step for each.

    Rows are filled with the first one again, which keeps every number finite; columns with
    what stands for nothing there: zeros, which no text covers and no prediction reads.
    """
    num_rows = -len(arrays["rows_R"]) % _ROW_MULTIPLE
    width = arrays["ids_RT"].shape[1]
    added = min(-width % _COLUMN_MULTIPLE, most_columns - width)
    filled = {}
    for name, array in arrays.items():
        if name.endswith("_RT"):
            array = np.pad(array, ((0, 0), (0, added)))
        filled[name] = np.concatenate([array, np.repeat(array[:1], num_rows, axis=0)])
    filled["real_R"][len(arrays["rows_R"]) :] = False
    filled["partners_RL"][len(arrays["rows_R"]) :] = -1
    return filled


def _real_tokens(lesson: Lesson) -> Tensor:
    columns_T = torch.arange(lesson.ids_RT.shape[1], device=lesson.ids_RT.device)
    return columns_T < lesson.lengths_R[:, None]


def _average(hidden_RLD: Tensor, chosen_RL: Tensor) -> Tensor:
    """Return the mean of the chosen positions' hidden states in float32, [R, D]."""
    # What stands at padding is meaningless and may not be finite: it must not be multiplied by 0.
    sums_RD = hidden_RLD.float().masked_fill(~chosen_RL[..., None], 0.0).sum(dim=1)
    return sums_RD / chosen_RL.sum(dim=1, keepdim=True).clamp_min(1)
