from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.data_sets import NLI_LABELS as LABELS
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import IGNORED, AnyTask, FinetuneSettings
from tests.finetune.conftest import TEXT

TASK = TASKS["xnli"]
PAIRS = [LabeledText(TEXT[k], TEXT[k + 1], LABELS[k % 3]) for k in range(6)]
REVIEWS = TASKS["amazon-books"]


def settings(length: int) -> FinetuneSettings:
    return FinetuneSettings(epochs=1, learning_rate=1e-5, length=length)


class TestFeatures:
    def test_pairs(self, any_tokenizer: PreTrainedTokenizerBase) -> None:
        encoded = TASK.featurize(PAIRS, any_tokenizer, settings(256))
        assert encoded.notice == ""
        assert [sequence.labels.tolist() for sequence in encoded.features] == [[0], [1], [2]] * 2
        assert [sequence.example for sequence in encoded.features] == list(range(6))
        for pair, sequence in zip(PAIRS, encoded.features, strict=True):
            expected = any_tokenizer(pair.first, pair.second, return_token_type_ids=True)
            assert sequence.ids.tolist() == expected["input_ids"]
            assert sequence.token_types is not None
            assert sequence.token_types.tolist() == expected["token_type_ids"]

    def test_single_texts(self, any_tokenizer: PreTrainedTokenizerBase) -> None:
        texts = [LabeledText(TEXT[0], None, "positive"), LabeledText(TEXT[1], None, None)]
        encoded = REVIEWS.featurize(texts, any_tokenizer, settings(256))
        assert [sequence.labels.tolist() for sequence in encoded.features] == [[1], [IGNORED]]
        for text, sequence in zip(texts, encoded.features, strict=True):
            assert sequence.ids.tolist() == any_tokenizer(text.first)["input_ids"]

    @pytest.mark.parametrize(
        ("task", "second", "noun"), [(TASK, "we", "pairs"), (REVIEWS, None, "texts")]
    )
    def test_truncation_gives_a_notice(
        self, tokenizer: PreTrainedTokenizerBase, task: AnyTask, second: str | None, noun: str
    ) -> None:
        texts = [LabeledText("we", second, None), LabeledText(" ".join(TEXT), second, None)]
        encoded = task.featurize(texts, tokenizer, settings(30))
        assert encoded.notice == f"1 of 2 {noun} are longer than 30 tokens; truncated"
        assert len(encoded.features[1].ids) == 30


def test_loss_is_cross_entropy_over_labeled_examples() -> None:
    logits = torch.randn(3, 3, requires_grad=True)
    labels, lengths = torch.tensor([[0], [IGNORED], [1]]), torch.ones(3)
    expected = -torch.log_softmax(logits, dim=1)[[0, 2], [0, 1]].mean()
    torch.testing.assert_close(TASK.compute_loss(logits, labels, lengths), expected)
    loss = TASK.compute_loss(logits, torch.full((3, 1), IGNORED), lengths)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None and not logits.grad.any()


class TestScores:
    def test_decoding_and_accuracy(self, tokenizer: PreTrainedTokenizerBase) -> None:
        features = TASK.featurize(PAIRS, tokenizer, settings(256)).features
        logits = [np.eye(3, dtype=np.float32)[int(s.labels[0])] for s in features]
        predictions = TASK.decode(PAIRS, features, logits)
        assert predictions == [pair.label for pair in PAIRS]
        predictions[0] = "contradiction"
        tally = TASK.tally(PAIRS, predictions, "de")
        assert tally.tolist() == [[0, 1], *[[1, 1]] * 5]
        assert TASK.score(PAIRS, predictions, "de") == {"accuracy": 5 / 6}
        assert TASK.tally([], [], "de").shape == (0, 2)

    def test_majority_answers_the_most_frequent_label(self) -> None:
        train = [LabeledText("a", "b", label) for label in ("neutral", *["entailment"] * 2)]
        assert TASK.answer_majority(train, PAIRS) == ["entailment"] * 6

    def test_submission_has_one_label_per_line(self) -> None:
        assert TASK.format_predictions(PAIRS[:2], ["neutral", "entailment"]) == (
            "neutral\nentailment\n"
        )
