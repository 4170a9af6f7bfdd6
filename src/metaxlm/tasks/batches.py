"""Sequences to batches: token ids come in, padded tensors of similar lengths go out.

Grouping by length keeps padding, and with it wasted work, to a few percent. Evaluation fills a
batch up to a number of tokens; finetuning keeps the paper's number of examples a step and shuffles
as a pure function of (seed, epoch), so that a run can be repeated bit for bit.
"""

# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import Encoder
from metaxlm.randomness import generator

SORTED_BATCHES = 50
"""Finetuning sorts by length within so many batches: little padding, and still well mixed."""


@dataclass(frozen=True)
class Sequence1:
    """Placeholder."""
