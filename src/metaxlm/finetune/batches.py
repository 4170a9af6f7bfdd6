"""Batches of sequences on the device, and the forward passes over them.

Evaluation groups sequences by length. A finetuning step draws the paper's number of examples at
random, a pure function of (seed, epoch): batches of similar lengths learned less (0.5 to 1.0 points
of F1 of a tagger). `FeatureTable` holds a data set on the device, so that gathering has fixed
shapes and can be a part of a CUDA graph. An encoder of ours takes sequences packed one after
another, any other one padded batches. Shapes: S sequences, N tokens one after another, B batch,
L length, W labels of a sequence, C classes, D hidden.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from metaxlm.finetune.encoding import Ids, find_starts
from metaxlm.finetune.task import IGNORED, Features, Labels, Logits
from metaxlm.model import kernels
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.heads import ClassificationHead, SpanHead, TaskModel
from metaxlm.pretrain.distributed import choose_dtype
from metaxlm.randomness import generator

_STEPS = 16
"""Packed totals between a power of two and the next: few distinct ones, 3 % padding."""
_SMALLEST = 64  # divides all packed totals


class Inputs(NamedTuple):
    """Inputs of an encoder, padded and on its device."""

    ids_BL: Tensor
    mask_BL: Tensor | None


def plan_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group indices by length, longest first, so that a padded batch has at most `max_tokens`.

    A sequence longer than that is a batch of its own.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def shuffle_batches(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int
) -> list[list[int]]:
    """Split one epoch into random batches of `batch_size`, sorted by length, longest first."""
    order = generator(seed, "finetuning order", epoch).permutation(len(lengths)).tolist()
    return [
        sorted(order[start : start + batch_size], key=lambda i: -lengths[i])
        for start in range(0, len(order), batch_size)
    ]


def split_batch(lengths: Sequence[int], group_cost: int) -> list[int]:
    """Return the sizes of the groups with the least padded tokens plus `group_cost` per group."""
    starts = [k for k in range(len(lengths)) if k == 0 or lengths[k] != lengths[k - 1]]
    ends = [*starts[1:], len(lengths)]
    best = [(0, 0)]
    """Cost of the first k runs of equal lengths, and the start of their last group."""
    for end in ends:
        best.append(
            min(
                (cost + lengths[starts[first]] * (end - starts[first]) + group_cost, first)
                for first, (cost, _) in enumerate(best)
            )
        )
    sizes: list[int] = []
    last = len(starts)
    while last:
        first = best[last][1]
        sizes.append(ends[last - 1] - starts[first])
        last = first
    return sizes[::-1]


def collate_inputs(ids: Sequence[Sequence[int] | Ids], pad_id: int, device: torch.device) -> Inputs:
    """Pad a batch; without padding the mask is None, which is faster."""
    rows = [torch.as_tensor(row, dtype=torch.int64) for row in ids]
    ids_BL = pad_sequence(rows, batch_first=True, padding_value=pad_id)
    mask_BL = torch.arange(ids_BL.shape[1]) < torch.tensor([len(row) for row in ids])[:, None]
    return Inputs(ids_BL.to(device), None if mask_BL.all() else mask_BL.to(device))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients, and restore the module's mode afterwards."""
    was_training = module.training
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        module.train(was_training)


@dataclass(frozen=True)
class Batch:
    """Inputs of a task model, padded and on its device."""

    ids_BL: Tensor
    lengths_B: Tensor
    token_types_BL: Tensor | None
    labels_BW: Tensor

    def mask(self) -> Tensor:
        """Return True for real tokens, [B, L]."""
        columns_L = torch.arange(self.ids_BL.shape[1], device=self.ids_BL.device)
        return columns_L < self.lengths_B[:, None]


@dataclass(frozen=True)
class Packed:
    """Sequences one after another without padding, for the fused kernels."""

    ids_N: Tensor
    token_types_N: Tensor | None
    lengths_B: Tensor
    starts_B1: Tensor
    """The first token of each sequence, and the one after the last."""
    labels_BW: Tensor  # tags are [1, N]
    longest: int


class _Column:
    """The values of all sequences, one after another, and a last sequence of `width` fillers."""

    def __init__(
        self, rows: Sequence[Labels], filler: int, device: torch.device, width: int = 1
    ) -> None:
        last = np.full(width, filler)
        lengths = np.array([*(len(row) for row in rows), width], dtype=np.int64)
        values_N = np.concatenate([*rows, last]).astype(rows[0].dtype)
        self._values_N = torch.from_numpy(values_N).to(device)
        self._starts_S = torch.from_numpy(find_starts(lengths)).to(device)
        self.lengths_S = torch.from_numpy(lengths).to(device)
        self._filler = filler

    def replace(self, values_N: Ids) -> None:
        new_N = torch.from_numpy(values_N).to(self._values_N.dtype)
        self._values_N[: len(new_N)].copy_(new_N)

    def gather(self, rows_B: Tensor, width: int) -> Tensor:
        columns_W = torch.arange(width, device=rows_B.device)
        rows_B1 = rows_B[:, None]
        return self.take(rows_B1, columns_W, columns_W < self.lengths_S[rows_B1])

    def take(self, rows: Tensor, places: Tensor, is_real: Tensor) -> Tensor:
        where = torch.where(is_real, self._starts_S[rows] + places, 0)
        values = self._values_N[where]
        values = values if values.is_floating_point() else values.long()
        return torch.where(is_real, values, self._filler)


class FeatureTable:
    """The sequences of a data set, and a last one: a padding token without label."""

    def __init__(
        self,
        features: Sequence[Features],
        config: EncoderConfig,
        device: torch.device,
        pad_id: int | None = None,
    ) -> None:
        """Copy the sequences to the device; `pad_id` replaces the encoder's."""
        pad_id = config.pad_id if pad_id is None else pad_id
        self.filler = len(features)
        """Number of the sequence that completes a batch and is never predicted."""
        self.lengths = [len(sequence.ids) for sequence in features]
        self.longest = max(self.lengths)
        is_real = features[0].labels.dtype == np.float32
        is_tagging = not is_real and all(len(f.labels) == len(f.ids) for f in features)
        self._width = None if is_tagging else len(features[0].labels)
        self._ids = _Column([f.ids for f in features], pad_id, device)
        self._labels = _Column([f.labels for f in features], IGNORED, device, self._width or 1)
        self._types: _Column | None = None
        types = [f.token_types for f in features if f.token_types is not None]
        if config.num_token_types > 1 and types:
            assert len(types) == len(features), "either all sequences have token types, or none"
            self._types = _Column(types, 0, device)

    def replace_ids(self, ids_N: Ids) -> None:
        """Replace the tokens of all sequences, given one after another, also in CUDA graphs."""
        self._ids.replace(ids_N)

    def gather(self, rows_B: Tensor, length: int) -> Batch:
        """Return sequences by number, padded to `length`."""
        return Batch(
            self._ids.gather(rows_B, length),
            self._ids.lengths_S[rows_B].int(),
            None if self._types is None else self._types.gather(rows_B, length),
            self._labels.gather(rows_B, length if self._width is None else self._width),
        )

    def pack(self, rows_B: Tensor, total: int) -> Packed:
        """Return sequences by number, one after another, padded to `total` tokens."""
        lengths_B = self._ids.lengths_S[rows_B]
        starts_B1 = F.pad(lengths_B.cumsum(0), (1, 0))
        numbers_N = torch.arange(total, device=rows_B.device)
        sequence_N = torch.searchsorted(starts_B1[1:], numbers_N, right=True)
        rows_N = rows_B[sequence_N.clamp_max(len(rows_B) - 1)]
        where = rows_N, numbers_N - starts_B1[sequence_N], sequence_N < len(rows_B)
        if self._width is None:
            labels_BW = self._labels.take(*where).unsqueeze(0)
        else:
            labels_BW = self._labels.gather(rows_B, self._width)
        return Packed(
            self._ids.take(*where),
            None if self._types is None else self._types.take(*where),
            lengths_B.int(),
            starts_B1.int(),
            labels_BW,
            self.longest,
        )


def round_total(total: int, device: torch.device) -> int:
    """Return the number of tokens to compute for `total` packed tokens."""
    if device.type == "cpu":
        return total
    multiple = max(_SMALLEST, (1 << (total.bit_length() - 1)) // _STEPS)
    return -(-total // multiple) * multiple


def takes_packed(model: nn.Module, device: torch.device) -> bool:
    """Return whether a model takes packed sequences: an encoder of ours, where its kernels run."""
    if not isinstance(model, TaskModel):
        return False
    has_kernels = kernels.is_available(device) and kernels.fits(model.encoder.config)
    return device.type == "cpu" or has_kernels


def compute_logits(model: nn.Module, batch: Batch, is_even: bool) -> Tensor:
    """Return a padded batch's logits; without padding (`is_even`) the mask is left out."""
    with _autocast(batch.ids_BL.device):
        mask_BL = None if is_even else batch.mask()
        logits: Tensor = model(batch.ids_BL, mask_BL, batch.token_types_BL)
    return logits.float()


def compute_packed(
    model: nn.Module,
    packed: Packed,
    seed: Tensor | None = None,
    copies: Mapping[Tensor, Tensor] | None = None,
) -> Tensor:
    """Return logits: [B, C] for classes, [B, L, 2] for the ends of answers, [1, N, C] for tags.

    For the fused kernels, `seed` sets dropout, and `copies` are bfloat16 copies of weights.
    """
    assert isinstance(model, TaskModel)
    device = packed.ids_N.device
    with _autocast(device):
        if device.type == "cpu":
            lengths = packed.lengths_B.tolist()
            hidden_ND = model.encoder.encode_packed(packed.ids_N, lengths, packed.token_types_N)
        else:
            from metaxlm.model.kernels.blocks import Blocks, TiedGradient

            blocks = Blocks(
                packed.lengths_B,
                packed.longest,
                packed.ids_N.new_zeros(1) if seed is None else seed,
                copies=copies or {},
                tied=TiedGradient(is_used=False),
                packed_starts_B1=packed.starts_B1,
            )
            hidden_ND = model.encoder.encode_blocks(packed.ids_N, blocks, packed.token_types_N)
        firsts_B = packed.starts_B1[:-1]
        if isinstance(model.head, ClassificationHead):
            classes_BC: Tensor = model.head(hidden_ND.index_select(0, firsts_B).unsqueeze(1))
            return classes_BC.float()
        logits_1NC = model.head(hidden_ND.unsqueeze(0)).float()
        if isinstance(model.head, SpanHead):
            columns_L = torch.arange(packed.longest, device=device)
            # Tokens of another sequence follow a sequence's end; the loss leaves them out.
            places_BL = (firsts_B[:, None] + columns_L).clamp_max(len(hidden_ND) - 1)
            ends = logits_1NC[0].index_select(0, places_BL.flatten())
            logits_1NC = ends.view(*places_BL.shape, -1)
        return cast(Tensor, logits_1NC)


def split_logits(logits: Tensor, lengths: Sequence[int]) -> list[Logits]:
    """Return each sequence's logits, [C] or [its length, C], from either pass."""
    values = logits.cpu().numpy()
    if values.ndim == 2:
        return list(values)
    if len(values) == 1 and len(lengths) > 1:
        ends = np.cumsum(lengths)
        return np.split(values[0, : ends[-1]], ends[:-1])
    return [row[:length] for row, length in zip(values, lengths, strict=True)]


def _autocast(device: torch.device) -> AbstractContextManager[object]:
    # A graph must cast weights in each replay, so the cache is off.
    dtype = choose_dtype("auto", device)
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype, cache_enabled=False)


def compute_cross_entropy(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Return the mean over the labeled entries; 0 instead of NaN without any."""
    total = F.cross_entropy(logits_NC, labels_N, ignore_index=IGNORED, reduction="sum")
    return total / (labels_N != IGNORED).sum().clamp(min=1)
