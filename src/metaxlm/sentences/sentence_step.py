"""One training step of a sentence encoder.

The student's vector of a text is pulled to the frozen teacher's vector of its anchor, and away from
the teacher's vectors of other anchors: InfoNCE in both directions over the rows of all processes,
plus a multiple of the cosine distance. Equal anchors are not negatives of each other. The teacher's
vectors are computed once before training, so a step computes the student only.

Shapes: B texts of a process, R those of all processes, C anchors to compare with (the rows', then
extra ones), N tokens, L length, D hidden, A anchors of the run.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from metaxlm.model.encoder import NativeEncoder
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.model.sentence_modules import Pooling
from metaxlm.pretrain.batches.masking import IGNORED, Masked, Masking
from metaxlm.pretrain.checkpoint import TrainingState
from metaxlm.pretrain.cost import count_step_flops
from metaxlm.pretrain.distributed import DistributedContext, own_products
from metaxlm.pretrain.loop import Phase
from metaxlm.pretrain.step import ModelStep, Objective, is_recording
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe
from metaxlm.recipe.sentences_schema import SentencesRecipe
from metaxlm.sentences.sentence_batches import SentenceBatch, SentenceSource

_NUM_GROUPS = 4  # of similar lengths, for encoders that need padding
_WIDTH_MULTIPLE = 16  # of padded texts


def compute_loss(
    students_RD: Tensor,
    teachers_CD: Tensor,
    anchors_C: Tensor,
    *,
    temperature: float,
    cosine_weight: float,
) -> Tensor:
    """Return the mean loss of rows whose targets are the first of the teacher's vectors.

    `anchors_C` has the number of each teacher's vector; equal numbers are not negatives.
    """
    num_rows = len(students_RD)
    students_RD, teachers_CD = F.normalize(students_RD), F.normalize(teachers_CD)
    cosines_RC = students_RD @ teachers_CD.t()
    is_equal_RC = anchors_C[:num_rows, None] == anchors_C
    is_equal_RC.fill_diagonal_(False)
    logits_RC = (cosines_RC / temperature).masked_fill(is_equal_RC, float("-inf"))
    targets_R = torch.arange(num_rows, device=logits_RC.device)
    to_teacher = F.cross_entropy(logits_RC, targets_R)
    to_student = F.cross_entropy(logits_RC[:, :num_rows].t(), targets_R)
    distance = 1.0 - cosines_RC.diagonal().mean()
    return (to_teacher + to_student) / 2 + cosine_weight * distance


class SentenceObjective(Objective):
    """An encoder that returns the vectors of texts, or the loss of masked blocks."""

    def __init__(
        self, model: MaskedLM, pooling: Pooling, *, predicts_tokens: bool, kernels: str = "auto"
    ) -> None:
        super().__init__(model, kernels=kernels)
        self._pooling = pooling
        self.predicts_tokens = predicts_tokens
        model.head.requires_grad_(predicts_tokens)

    def forward(  # type: ignore[override]
        self,
        inputs: Sequence[SentenceBatch] | Masked,
        lengths_B: Tensor | None = None,
        seed: Tensor | None = None,
    ) -> Tensor:
        """Return the vectors of the texts of micro-batches, [B, D], or the loss of masked tokens.

        Dropout of the fused kernels follows from `seed`: one row for each micro-batch.
        """
        if isinstance(inputs, Masked):
            assert lengths_B is not None
            return super().forward(inputs, lengths_B, None, seed)[0]
        vectors = []
        for number, batch in enumerate(inputs):
            if not is_recording():
                torch.manual_seed(batch.dropout_seed)
            vectors.append(self._encode(batch, None if seed is None else seed[number]))
        return torch.cat(vectors)

    def _encode(self, batch: SentenceBatch, seed: Tensor | None) -> Tensor:
        encoder, device = self.model.encoder, batch.ids_N.device
        if self.uses_fused_kernels(device):
            from metaxlm.model.kernels.blocks import Blocks, TiedGradient

            assert isinstance(encoder, NativeEncoder), "the kernels compute our own encoder"
            blocks = Blocks(
                batch.lengths_B,
                batch.longest,
                batch.lengths_B.new_zeros(1, dtype=torch.int64) if seed is None else seed,
                copies=self.copies,
                tied=TiedGradient(is_used=False),
                packed_starts_B1=batch.starts_B1,
            )
            hidden_ND = encoder.encode_blocks(batch.ids_N, blocks)
        elif isinstance(encoder, NativeEncoder) and device.type == "cpu":
            hidden_ND = encoder.encode_packed(batch.ids_N, batch.sizes)
        else:
            return self._encode_groups(batch)
        if self._pooling == "cls":
            return hidden_ND.index_select(0, batch.starts_B1[:-1]).float()
        # Each sum has a fixed order, unlike that of `index_add`.
        means_BD: Tensor = torch.segment_reduce(
            hidden_ND.float(), "mean", lengths=batch.lengths_B.long(), axis=0, unsafe=True
        )
        return means_BD

    def _encode_groups(self, batch: SentenceBatch) -> Tensor:
        """Compute padded groups of similar lengths."""
        sizes, device = batch.sizes, batch.ids_N.device
        step = -(-len(sizes) // _NUM_GROUPS)
        most = self.model.config.max_positions
        vectors = []
        for first in range(0, len(sizes), step):
            rows = slice(first, first + step)
            width = min(most, -(-sizes[first] // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE)
            columns_L = torch.arange(width, device=device)
            is_real_BL = columns_L < batch.lengths_B[rows, None]
            places_BL = torch.where(is_real_BL, batch.starts_B1[:-1][rows, None] + columns_L, 0)
            ids_BL = torch.where(is_real_BL, batch.ids_N[places_BL], self.model.config.pad_id)
            hidden_BLD = self.model.encoder(ids_BL, is_real_BL).float()
            if self._pooling == "cls":
                vectors.append(hidden_BLD[:, 0])
            else:
                # Hidden states at padding may not be finite, so they must not be multiplied by 0.
                sums_BD = hidden_BLD.masked_fill(~is_real_BL[..., None], 0.0).sum(dim=1)
                vectors.append(sums_BD / batch.lengths_B[rows, None])
        return torch.cat(vectors)


@dataclass(frozen=True)
class _SentenceInputs:
    batches: list[SentenceBatch]
    seeds: Tensor  # of the dropout of the fused kernels, one row for each batch and its blocks
    key: Tensor  # of the masks

    @classmethod
    def make(cls, batches: Sequence[SentenceBatch], key: int) -> Self:
        seeds = [[batch.dropout_seed] for batch in batches]
        blocks = [batch.blocks for batch in batches if batch.blocks is not None]
        seeds += [[block.dropout_seed] for block in blocks]
        return cls(list(batches), torch.tensor(seeds), torch.tensor(key))

    def shape(self) -> Hashable:
        return tuple(tuple(tensor.shape for tensor in batch.tensors()) for batch in self.batches)

    def to(self, device: torch.device) -> Self:
        batches = [batch.to(device) for batch in self.batches]
        return type(self)(batches, self.seeds.to(device), self.key.to(device))

    def fill(self, other: Self) -> None:
        for target, batch in zip(self.batches, other.batches, strict=True):
            for old, new in zip(target.tensors(), batch.tensors(), strict=True):
                old.copy_(new, non_blocking=True)
        for place, seed in enumerate(other.seeds.flatten().tolist()):
            self.seeds[place].fill_(seed)
        self.key.fill_(other.key.item())


class SentenceStep(ModelStep[_SentenceInputs]):
    """Trains a sentence encoder."""

    def __init__(
        self,
        model: MaskedLM,
        vectors_AD: Tensor,
        pooling: Pooling,
        settings: SentencesRecipe,
        execution: ExecutionRecipe,
        world: DistributedContext,
        masking: Masking | None = None,
        probability: float = 0.0,
    ) -> None:
        """`masking` and `probability` are those of the masked language modeling term."""
        objective = SentenceObjective(
            model, pooling, predicts_tokens=masking is not None, kernels=execution.kernels
        )
        recipe = settings.make_training()
        super().__init__(objective, recipe, execution, world)
        self._vectors_AD = vectors_AD.to(world.device)
        self._settings, self._masking, self._probability = settings, masking, probability

    def __call__(self, batches: Sequence[SentenceBatch], rate: float, mask_key: int) -> None:
        """Take a step; `mask_key` decides the masks of its blocks."""
        self.take(_SentenceInputs.make(batches, mask_key), rate)
        self._new_tokens += sum(batch.num_tokens for batch in batches)

    def _compute(self, inputs: _SentenceInputs, skip: bool = False) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with self.world.no_sync(self.objective, self._masking is not None):
            loss = self._backward(inputs)
        if self._masking is not None:
            # Last, because it has a gradient of all parameters.
            loss = loss + self._backward_blocks(inputs, self._masking)
        self._update(loss, skip)

    def _backward(self, inputs: _SentenceInputs) -> Tensor:
        world, settings = self.world, self._settings
        with own_products(world.device, self.dtype), self.autocast():
            own_BD = self.objective(inputs.batches, None, inputs.seeds)
        with torch.autocast(world.device.type, enabled=False):
            students_RD = world.join_rows(own_BD.float())
            anchors_R = world.join_rows(torch.cat([b.anchors_B for b in inputs.batches]))
            anchors_C = torch.cat([anchors_R, inputs.batches[0].extra_E])
            teachers_CD = self._vectors_AD.index_select(0, anchors_C).float()
            loss = compute_loss(
                students_RD, teachers_CD, anchors_C, temperature=settings.temperature,
                cosine_weight=settings.cosine_weight,
            )  # fmt: skip
        with own_products(world.device, self.dtype):
            self._backpropagate(loss)  # of its own rows only
        return loss.detach().to(self.totals.loss.dtype)

    def _backward_blocks(self, inputs: _SentenceInputs, masking: Masking) -> Tensor:
        blocks = [batch.blocks for batch in inputs.batches if batch.blocks is not None]
        masked = [
            masking(b.ids_BL, b.lengths_B, b.rows_B, inputs.key, self._probability) for b in blocks
        ]
        count = torch.stack([(m.labels_M != IGNORED).sum() for m in masked]).sum()
        count = self.world.sum(count).clamp_min(1)
        total = torch.zeros_like(self.totals.loss)
        for number, (block, found) in enumerate(zip(blocks, masked, strict=True)):
            if not is_recording():
                torch.manual_seed(block.dropout_seed)
            is_last = number + 1 == len(blocks)
            with (
                self.world.no_sync(self.objective, not is_last),
                own_products(self.world.device, self.dtype),
            ):
                with self.autocast():
                    seed = inputs.seeds[len(blocks) + number]
                    loss_sum = self.objective(found, block.lengths_B, seed)
                loss = self._settings.mlm_weight * loss_sum / count
                self._backpropagate(loss)
            total += loss.detach().to(total.dtype)
        return self.world.sum(total)


class SentencePhase(Phase[SentenceBatch]):
    """The training of a sentence encoder, for the loop."""

    def __init__(self, step: SentenceStep, source: SentenceSource, recipe: TrainingRecipe) -> None:
        super().__init__(step, source, recipe)
        self._step, self._source = step, source

    def take(self, number: int, batches: Sequence[SentenceBatch]) -> None:
        """Take a step on its micro-batches."""
        self._step(batches, self.rate(number), self._source.mask_key(number))

    def describe(self, state: TrainingState) -> tuple[dict[str, float], float]:
        """Return the number of texts, and the FLOPs of a step of average length."""
        rows = self.recipe.batch_size
        length = round(state.tokens / (state.step * rows))
        flops = count_step_flops(self.step.model.config, rows, max(1, length), 0)
        return {"sentences": state.step * rows}, flops
