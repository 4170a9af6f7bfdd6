"""Any encoder to finetune or evaluate: a folder or hub id comes in, one face goes out.

Phase (c) of the paper (Sections 3.3 and 4.2) compares encoders: those that metaxlm trains or can
compute itself (`families.py`), and those of other families through transformers (`foreign.py`).
What follows, the finetuning loop and the probes, does not ask which of the two it has.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

from torch import nn
from transformers import PreTrainedTokenizerBase

from metaxlm.files import read_json
from metaxlm.hub import CONFIG
from metaxlm.model.encoder import Encoder
from metaxlm.model.families import FAMILIES, read_config, translate_config
from metaxlm.model.foreign import (
    ForeignEncoder,
    load_foreign,
    make_foreign_task_model,
    read_foreign_config,
)
from metaxlm.model.heads import HeadKind, TaskModel, make_head
from metaxlm.model.hugging_face import load_pretrained, load_tokenizer
from metaxlm.model.model_folder import find_folder


@dataclass(frozen=True)
class AnyEncoder:
    """An encoder as it was found, with the tokenizer that belongs to it."""

    source: str
    """As the user named it."""
    tokenizer: PreTrainedTokenizerBase
    encoder: Encoder | ForeignEncoder
    """In float32, in evaluation mode, on the CPU."""


def load_encoder(source: str | Path) -> AnyEncoder:
    """Load an encoder from a local folder or a hub id.

    The same folder always gives the same encoder, and torch's generators stay as they are.
    Decoders and sequence-to-sequence models are refused.
    """
    folder = find_folder(source)
    if is_ours(folder):
        pretrained = load_pretrained(folder)
        return AnyEncoder(str(source), pretrained.tokenizer, pretrained.model.encoder)
    vocab_size = read_foreign_config(folder).vocab_size
    tokenizer = load_tokenizer(folder, vocab_size)
    return AnyEncoder(str(source), tokenizer, load_foreign(folder, tokenizer))


def check_encoder(folder: Path) -> None:
    """Refuse a model folder that holds no encoder we can finetune, by its config.json alone."""
    if is_ours(folder):
        translate_config(read_config(folder / CONFIG), folder / CONFIG)
    else:
        read_foreign_config(folder)


def is_ours(folder: Path) -> bool:
    """Say whether config.json names a family that our own encoder computes."""
    values = read_json(folder / CONFIG)
    return isinstance(values, dict) and values.get("model_type") in FAMILIES


def make_task_model(start: AnyEncoder, kind: HeadKind, num_classes: int) -> nn.Module:
    """Return a copy of the encoder under a new head, in training mode; `start` is not changed.

    What is new is drawn from torch's global generator. Our encoders get our heads, others the
    heads that transformers has for their family. A span head has two logits whatever is asked.
    """
    if isinstance(start.encoder, ForeignEncoder):
        return make_foreign_task_model(start.encoder, kind, num_classes)
    encoder = copy.deepcopy(start.encoder)
    head = make_head(kind, encoder.config, num_classes)
    return TaskModel(encoder, head).requires_grad_(True).train()
