from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.tasks.readers import LabeledPair
from metaxlm.tasks.xnli import LABELS, XnliTask
from tests.tasks.conftest import TEXT

TASK = XnliTask()
PAIRS = [LabeledPair(TEXT[k], TEXT[k + 1], LABELS[k % 3]) for k in range(6)]


def test_features_and_decoding(tokenizer: PreTrainedTokenizerBase) -> None:
    encoded = TASK.featurize(PAIRS, tokenizer, 256)
    assert encoded.notice == ""
    assert [sequence.labels.tolist() for sequence in encoded.features] == [[0], [1], [2]] * 2
    for pair, sequence in zip(PAIRS, encoded.features, strict=True):
        assert sequence.ids.tolist() == tokenizer(pair.first, pair.second)["input_ids"]
    logits = [np.eye(3, dtype=np.float32)[int(s.labels[0])] for s in encoded.features]
    predictions = TASK.decode(PAIRS, encoded.features, logits)
    assert predictions == [pair.label for pair in PAIRS]
    assert TASK.score(PAIRS, predictions) == {"accuracy": 1.0}


def test_cutting_is_said(tokenizer: PreTrainedTokenizerBase) -> None:
    pairs = [LabeledPair("we", "we", "neutral"), LabeledPair("we", " ".join(TEXT), "neutral")]
    encoded = TASK.featurize(pairs, tokenizer, 30)
    assert encoded.notice == "1 of 2 pairs are longer than 30 tokens; cut"
    assert len(encoded.features[1].ids) == 30


def test_loss_is_cross_entropy_over_pairs() -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    labels = torch.tensor([[0], [1]])
    expected = -torch.log_softmax(logits, dim=1)[[0, 1], [0, 1]].mean()
    assert TASK.compute_loss(logits, labels) == pytest.approx(float(expected))


def test_majority_answers_the_most_frequent_label() -> None:
    train = [LabeledPair("a", "b", label) for label in ("neutral", "entailment", "entailment")]
    assert TASK.answer_majority(train, PAIRS) == ["entailment"] * 6


def test_training_pairs_from_either_folder(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match="xnli: no such folder; unpack the task's data there"):
        TASK.read(tmp_path, "train", "en")
    (tmp_path / "mnli").mkdir()
    (tmp_path / "mnli" / "mnli_train.tsv").write_text(
        "premise\thypothesis\tlabel\tsource\na\tb\tcontradictory\tx\n"
    )
    assert TASK.read(tmp_path, "train", "en") == [LabeledPair("a", "b", "contradiction")]
    with pytest.raises(MetaXLMError, match="xnli: no such folder"):
        TASK.read(tmp_path, "train", "de")
    (tmp_path / "xnli").mkdir()
    (tmp_path / "xnli" / "train-en.tsv").write_text("c\td\tneutral\n")
    assert TASK.read(tmp_path, "train", "en") == [LabeledPair("c", "d", "neutral")]


def test_published(published: Callable[[str], Path]) -> None:
    published("mnli")
    folder = published("xnli")
    assert TASK.list_languages(folder, "test") == sorted(TASK.languages)
    assert len(TASK.read(folder, "train", "en")) == 57_040
