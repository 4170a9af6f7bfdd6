"""Serving: a finetuned model and an input of any size come in, an answer for each example goes out.

What phase (c) of the paper (Section 3.3) finetunes answers here on texts without labels. Examples
are taken some thousand at a time, encoded, decoded and scored by the very code that evaluates the
paper's tasks, and written in the order of the input.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metaxlm.errors import MetaXLMError
from metaxlm.files import check_file_output, open_output
from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.encoding import check_tokenizer
from metaxlm.finetune.judging import predict_logits
from metaxlm.finetune.prediction_inputs import (
    InputFormat,
    InputLines,
    choose_format,
    open_input,
    read_inputs,
)
from metaxlm.finetune.span import SpanTask
from metaxlm.finetune.tagging import TaggingTask
from metaxlm.finetune.task import DataFile, Examples, FinetuneSettings, Logits, Task
from metaxlm.model.finetuned import FinetunedModel
from metaxlm.progress import say, track

CHUNK = 2_000
"""Examples that are in memory at a time."""
_CHUNK_BYTES = 16 << 20
"""Bytes of the input after which a chunk ends."""


class _NoFiles:
    """A task whose examples do not come from task files."""

    def list_files(self, data_dir: Path) -> list[DataFile]:  # noqa: ARG002
        """List nothing."""
        return []

    def read(self, file: DataFile) -> Examples[Any]:
        """Refuse: there is no file."""
        raise MetaXLMError(f"{file.path}: a served model reads no task files")


class _ServedClassification(_NoFiles, ClassificationTask):
    pass


class _ServedTagging(_NoFiles, TaggingTask):
    pass


class _ServedQuestions(_NoFiles, SpanTask):
    pass


def make_served_task(model: FinetunedModel) -> Task[Any, Any]:
    """Return a task that encodes and decodes as the model's finetuning did."""
    # Only lengths matter: nothing is trained.
    settings = FinetuneSettings(
        epochs=1, learning_rate=0.0, length=model.length, stride=model.stride
    )
    common: dict[str, Any] = {"name": "predict", "title": "predict", "languages": ()}
    if model.kind == "span":
        return _ServedQuestions(settings=settings, **common)
    made = _ServedClassification if model.kind == "classification" else _ServedTagging
    return made(labels=model.labels, settings=settings, **common)


def predict(
    model: FinetunedModel, examples: Sequence[Any], device: torch.device
) -> tuple[list[str], str]:
    """Return what to write for each example, and a notice about what was cut, if anything was.

    Classification: the label and its probability. Tagging: a line `word TAB tag` for each word.
    Questions: a JSON member `"id": "answer"`.
    """
    task = make_served_task(model)
    found = task.featurize(examples, model.tokenizer, task.settings)
    logits = predict_logits(model.model, found.features, model.config, device)
    answers = task.decode(examples, found.features, logits)
    if model.kind == "classification":
        pairs = zip(answers, logits, strict=True)
        return [f"{label}\t{_find_probability(row):.4f}\n" for label, row in pairs], found.notice
    joined = zip(examples, answers, strict=True)
    if model.kind == "tagging":
        blocks = [
            "".join(f"{word}\t{tag}\n" for word, tag in zip(sentence.words, tags, strict=True))
            for sentence, tags in joined
        ]
        return [f"{block}\n" for block in blocks], found.notice
    texts = [(json.dumps(part, ensure_ascii=False) for part in (q.id, a)) for q, a in joined]
    return [": ".join(parts) for parts in texts], found.notice


def predict_file(
    model: FinetunedModel,
    source: str,
    target: str,
    device: torch.device,
    layout: str | None = None,
) -> int:
    """Predict a whole input into a file, whole or not at all, or to the standard output.

    Returns the number of examples. `-` is the standard input or output.
    """
    check_tokenizer(model.tokenizer, model.config)
    chosen = choose_format(source, model.kind, layout)
    check_file_output(target, source)
    model.model.to(device)
    count = shown = 0
    with open_input(source) as lines, open_output(target) as output:
        total = max(1, (lines.total_bytes or 0) // 1024)
        with track("predict", total, "kB") as advance:
            for number, text in _predict_chunks(model, lines, chosen, device):
                output.write(text)
                count += number
                if number and lines.total_bytes is not None:
                    done = min(total, lines.bytes_read // 1024)
                    advance(done - shown, note=f"{count:,} examples")
                    shown = done
    return count


def _predict_chunks(
    model: FinetunedModel, lines: InputLines, layout: InputFormat, device: torch.device
) -> Iterator[tuple[int, str]]:
    """Yield the number of examples and the text to write, chunk by chunk."""
    before, between, after = ("{\n  ", ",\n  ", "\n}\n") if model.kind == "span" else ("", "", "")
    examples = read_inputs(lines, model.kind, layout)
    count, is_told = 0, False
    for chunk in _take_chunks(examples, lines):
        answers, notice = predict(model, chunk, device)
        if notice and not is_told:
            say(f"{lines.name}: from example {count + 1:,} on: {notice}")
            is_told = True
        yield len(chunk), (between if count else before) + between.join(answers)
        count += len(chunk)
    yield 0, after


def _take_chunks(examples: Iterator[Any], lines: InputLines) -> Iterator[list[Any]]:
    """Yield examples some at a time, fewer where their lines are long."""
    chunk: list[Any] = []
    start = lines.bytes_read
    for example in examples:
        chunk.append(example)
        if len(chunk) == CHUNK or lines.bytes_read - start > _CHUNK_BYTES:
            yield chunk
            chunk, start = [], lines.bytes_read
    if chunk:
        yield chunk


def _find_probability(logits: Logits) -> float:
    """Return the probability of the most probable class."""
    shifted = np.exp(logits.astype(np.float64) - float(logits.max()))
    return float(1.0 / shifted.sum())
